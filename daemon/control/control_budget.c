/* The conductor's time is the ranks': whoever only asks (connections, Hello, Open, questions) has a
 * share of it, all together, and waits in line when that is spent. What a stream itself says
 * (release, close, unmapped) is bounded by what was published and never waits. Conductor role. */
#include <sys/epoll.h>
#include <time.h>

#include "control/control_state.h"

enum { BURST_MS = 100, PERCENT = 20, SLICE_MS = 2, REQUESTS_AT_ONCE = 8 };
static const int64_t NS_PER_MS = 1000000;

static int64_t own_time_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + (int64_t)used.tv_nsec;
}

void control_budget_init(struct control_budget *budget, uint64_t now_ns)
{
    *budget = (struct control_budget){.left_ns = BURST_MS * NS_PER_MS, .filled_ns = now_ns};
}

static void refill(struct control_budget *budget, uint64_t now_ns)
{
    int64_t passed_ns = (int64_t)(now_ns - budget->filled_ns);
    int64_t most_ns = BURST_MS * NS_PER_MS;
    budget->filled_ns = now_ns;
    budget->left_ns += passed_ns < most_ns * 100 / PERCENT ? passed_ns * PERCENT / 100 : most_ns;
    if (budget->left_ns > most_ns)
        budget->left_ns = most_ns;
}

bool control_budget_begin(struct control_budget *budget)
{
    if (budget->left_ns <= 0 || budget->slice_ns >= SLICE_MS * NS_PER_MS)
        return false;
    budget->began_ns = own_time_ns();
    return true;
}

void control_budget_end(struct control_budget *budget, int64_t more_ns)
{
    int64_t spent_ns = own_time_ns() - budget->began_ns;
    budget->left_ns -= spent_ns + more_ns;
    budget->slice_ns += spent_ns;
}

void control_budget_rest(struct control_budget *budget)
{
    if (budget->left_ns > -NS_PER_MS)
        budget->left_ns = -NS_PER_MS;
}

bool control_budget_is_turn_over(uint32_t requests)
{
    return requests >= REQUESTS_AT_ONCE;
}

/* --- the line --- */

void control_budget_wait(struct session *session)
{
    struct control *control = session->control;
    if (session->waits)
        return;
    session->waits = true;
    session->next_waiting = NULL;
    *control->waiting_end = session;
    session->waiting_link = control->waiting_end;
    control->waiting_end = &session->next_waiting;
    /* Out of the loop altogether: a hang-up would be told again and again. */
    loop_remove(control->params.loop, session->source);
    session->source = NULL;
}

void control_budget_leave(struct session *session)
{
    struct control *control = session->control;
    if (!session->waits)
        return;
    session->waits = false;
    *session->waiting_link = session->next_waiting;
    if (session->next_waiting)
        session->next_waiting->waiting_link = session->waiting_link;
    else
        control->waiting_end = session->waiting_link;
}

static void listen_again(struct control *control, bool wanted)
{
    if (control->is_deaf == !wanted)
        return;
    control->is_deaf = !wanted;
    loop_change(control->params.loop, control->listen_source, wanted ? EPOLLIN : 0);
}

void control_budget_no_connections(struct control *control)
{
    listen_again(control, false);
}

int64_t control_budget_step(struct control *control, uint64_t now_ns)
{
    struct control_budget *budget = &control->budget;
    refill(budget, now_ns);
    budget->slice_ns = 0;
    if (!control->waiting && !control->is_deaf)
        return -1;
    bool was_served = false;
    while (control->waiting && budget->left_ns > 0 && budget->slice_ns < SLICE_MS * NS_PER_MS) {
        was_served = true;
        control_session_resume(control->waiting);
    }
    if (budget->left_ns > 0)
        listen_again(control, true);
    if (was_served)
        return 0; /* the pipeline has something to do, perhaps */
    return budget->left_ns > 0 ? 0 : (-budget->left_ns + NS_PER_MS) * 100 / PERCENT;
}
