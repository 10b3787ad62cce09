/* An engine for tests around a real one: it delays, reorders, spoils or keeps results. Words,
 * separated by commas: delay_us=N     every result comes N microseconds later reorder=SEED   every
 * result comes up to 2 milliseconds later, by a generator with this seed, so that they come in
 * another order eio_every=N    every N-th request ends in IO_ERROR with -EIO hang_every=N   every
 * N-th request never ends Needs no thread: results wait in a list and for a timer, and fetch_fd is
 * an epoll descriptor that is readable when the engine or the timer is. */
#include "fetch/fetch_faulty.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "item/class.h"

enum { REORDER_NS = 2000000 };

/* A result that is held back. */
struct held {
    uint64_t due_ns;
    struct fetch_result result;
};

struct fetch_faulty {
    struct fetch fetch;
    struct fetch_ops ops; /* with the name of the engine inside */
    struct fetch *inner;
    uint64_t delay_us, reorder, eio_every, hang_every;
    uint64_t requests; /* so far */
    uint64_t random;
    uint32_t depth, in_flight;
    struct held *held;
    uint32_t held_count;
    struct {
        uint64_t number; /* of the request, from 1 */
        uint64_t ticket;
        uint64_t since_ns; /* 0: free */
    } * flights;
    int epoll_fd, timer_fd;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct fetch_faulty *faulty_of(struct fetch *fetch)
{
    return (struct fetch_faulty *)fetch;
}

static void faulty_free(struct fetch_faulty *faulty)
{
    if (faulty->epoll_fd >= 0)
        close(faulty->epoll_fd);
    if (faulty->timer_fd >= 0)
        close(faulty->timer_fd);
    free(faulty->held);
    free(faulty->flights);
    free(faulty);
}

static void faulty_tend(struct fetch *fetch)
{
    fetch_tend(faulty_of(fetch)->inner);
}

static void faulty_leave(struct fetch *fetch)
{
    fetch_leave(faulty_of(fetch)->inner);
}

static void faulty_close(struct fetch *fetch)
{
    struct fetch_faulty *faulty = faulty_of(fetch);
    fetch_close(faulty->inner);
    faulty_free(faulty);
}

static int faulty_fd(const struct fetch *fetch)
{
    return ((const struct fetch_faulty *)fetch)->epoll_fd;
}

/* The engine inside gets the number of the flight as its ticket. */
static int faulty_submit(struct fetch *fetch, const struct fetch_request *request)
{
    struct fetch_faulty *faulty = faulty_of(fetch);
    if (faulty->in_flight == faulty->depth)
        return -EAGAIN;
    uint32_t flight = 0;
    while (faulty->flights[flight].since_ns != 0)
        flight++;
    struct fetch_request inner = *request;
    inner.ticket = flight;
    int rc = fetch_submit(faulty->inner, &inner);
    if (rc < 0)
        return rc;
    faulty->flights[flight].number = ++faulty->requests;
    faulty->flights[flight].ticket = request->ticket;
    faulty->flights[flight].since_ns = now_ns();
    faulty->in_flight++;
    return 0;
}

static void faulty_kick(struct fetch *fetch)
{
    fetch_kick(faulty_of(fetch)->inner);
}

static bool every(uint64_t number, uint64_t n)
{
    return n > 0 && number % n == 0;
}

static uint64_t draw(struct fetch_faulty *faulty)
{
    faulty->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = faulty->random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Moves what the engine has finished to what is held back. */
static void hold(struct fetch_faulty *faulty)
{
    struct fetch_result results[64];
    for (;;) {
        uint32_t count = fetch_reap(faulty->inner, results, 64);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t number = faulty->flights[results[i].ticket].number;
            if (every(number, faulty->hang_every))
                continue; /* stays in flight for ever */
            if (every(number, faulty->eio_every)) {
                results[i].class_number = SPDL_CLASS_IO_ERROR;
                results[i].code = -EIO;
            }
            uint64_t due = now_ns() + faulty->delay_us * 1000;
            if (faulty->reorder)
                due += draw(faulty) % REORDER_NS;
            faulty->held[faulty->held_count++] = (struct held){.due_ns = due, .result = results[i]};
        }
        if (count < 64)
            return;
    }
}

static void set_timer(struct fetch_faulty *faulty)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < faulty->held_count; i++)
        if (faulty->held[i].due_ns < next)
            next = faulty->held[i].due_ns;
    struct itimerspec at = {0};
    if (next != UINT64_MAX) {
        at.it_value.tv_sec = (time_t)(next / 1000000000u);
        at.it_value.tv_nsec = (long)(next % 1000000000u);
    }
    timerfd_settime(faulty->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static uint32_t faulty_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    struct fetch_faulty *faulty = faulty_of(fetch);
    hold(faulty);
    uint64_t now = now_ns();
    uint32_t count = 0;
    while (count < max) {
        uint32_t first = faulty->held_count;
        for (uint32_t i = 0; i < faulty->held_count; i++)
            if (faulty->held[i].due_ns <= now &&
                (first == faulty->held_count ||
                 faulty->held[i].due_ns < faulty->held[first].due_ns))
                first = i;
        if (first == faulty->held_count)
            break;
        struct fetch_result result = faulty->held[first].result;
        faulty->held[first] = faulty->held[--faulty->held_count];
        uint64_t flight = result.ticket;
        result.ticket = faulty->flights[flight].ticket;
        faulty->flights[flight].since_ns = 0;
        faulty->in_flight--;
        results[count++] = result;
    }
    set_timer(faulty);
    return count;
}

static void faulty_forget(struct fetch *fetch, const void *owner)
{
    fetch_forget(faulty_of(fetch)->inner, owner);
}

static void faulty_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    const struct fetch_faulty *faulty = (const struct fetch_faulty *)fetch;
    fetch_stats(faulty->inner, ret_stats);
    ret_stats->in_flight = faulty->in_flight;
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < faulty->depth; i++) {
        uint64_t since = faulty->flights[i].since_ns;
        if (since != 0 && now - since > ret_stats->longest_wait_ns)
            ret_stats->longest_wait_ns = now - since;
    }
}

static int read_word(struct fetch_faulty *faulty, const char *word, struct err *reterr)
{
    const struct {
        const char *name;
        uint64_t *value;
    } words[] = {{"delay_us=", &faulty->delay_us},
                 {"reorder=", &faulty->reorder},
                 {"eio_every=", &faulty->eio_every},
                 {"hang_every=", &faulty->hang_every}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t bytes = strlen(words[i].name);
        if (strncmp(word, words[i].name, bytes) != 0)
            continue;
        char *end;
        *words[i].value = strtoull(word + bytes, &end, 10);
        if (end != word + bytes && *end == 0)
            return 0;
    }
    return err_set(reterr, -EINVAL,
                   "fetch: '%s' is no fault; there are: delay_us=N reorder=SEED eio_every=N "
                   "hang_every=N",
                   word);
}

static int read_words(struct fetch_faulty *faulty, const struct fetch_params *params,
                      struct err *reterr)
{
    char text[sizeof params->faulty];
    memcpy(text, params->faulty, sizeof text);
    text[sizeof text - 1] = 0;
    int rc = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word && rc == 0;
         word = strtok_r(NULL, ",", &rest))
        rc = read_word(faulty, word, reterr);
    faulty->random = faulty->reorder;
    return rc;
}

static int open_fds(struct fetch_faulty *faulty)
{
    faulty->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    faulty->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (faulty->epoll_fd < 0 || faulty->timer_fd < 0)
        return -errno;
    struct epoll_event readable = {.events = EPOLLIN};
    if (epoll_ctl(faulty->epoll_fd, EPOLL_CTL_ADD, faulty->timer_fd, &readable) < 0 ||
        epoll_ctl(faulty->epoll_fd, EPOLL_CTL_ADD, fetch_fd(faulty->inner), &readable) < 0)
        return -errno;
    return 0;
}

int fetch_faulty_open(struct fetch *inner, const struct fetch_params *params,
                      struct fetch **ret_fetch, struct err *reterr)
{
    struct fetch_faulty *faulty = calloc(1, sizeof *faulty);
    if (!faulty)
        return err_set(reterr, -ENOMEM, "fetch: no memory");
    faulty->epoll_fd = faulty->timer_fd = -1;
    faulty->inner = inner;
    faulty->depth = params->depth;
    faulty->held = calloc(params->depth, sizeof *faulty->held);
    faulty->flights = calloc(params->depth, sizeof *faulty->flights);
    int rc = read_words(faulty, params, reterr);
    if (rc == 0 && (!faulty->held || !faulty->flights))
        rc = err_set(reterr, -ENOMEM, "fetch: no memory");
    if (rc == 0) {
        rc = open_fds(faulty);
        if (rc < 0)
            err_set(reterr, rc, "fetch: %s", strerror(-rc));
    }
    if (rc < 0) {
        faulty_free(faulty);
        return rc;
    }
    faulty->ops = (struct fetch_ops){.name = inner->ops->name,
                                     .tend = faulty_tend,
                                     .leave = faulty_leave,
                                     .close = faulty_close,
                                     .fd = faulty_fd,
                                     .submit = faulty_submit,
                                     .kick = faulty_kick,
                                     .reap = faulty_reap,
                                     .forget = faulty_forget,
                                     .stats = faulty_stats};
    faulty->fetch.ops = &faulty->ops;
    *ret_fetch = &faulty->fetch;
    return 0;
}
