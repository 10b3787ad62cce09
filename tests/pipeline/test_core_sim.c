/* Runs the conductor's core through many made-up worlds, and shows that the simulator would find
 * defects: the core it is built with has some planted, each is switched on in turn.
 *   test_core_sim               the tests
 *   test_core_sim SEED [DEFECT] one world, with all that happens in it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/pipeline/sim.h"

/* The thread sanitizer makes each world some twenty times slower and has one thread to look at. */
#if defined(__SANITIZE_THREAD__)
#define IS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_SLOW 1
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW 0
#endif

enum { SCHEDULES = IS_SLOW ? 1000 : 10000, DEFECTS = 32, DEFECT_SCHEDULES = 2000 };

extern int pipeline_core_defect;
int pipeline_core_defect;

/* Between the test and the child that runs the worlds: it may die in an assertion. */
struct shared {
    uint64_t seed;
    bool found; /* by the simulator itself */
    char words[400];
    struct sim_totals totals;
};

static struct shared *shared_create(void)
{
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void child(struct shared *shared, int defect, uint64_t schedules)
{
    pipeline_core_defect = defect;
    if (defect != 0 && !freopen("/dev/null", "w", stderr))
        exit(1);
    struct sim *sim = malloc(sizeof *sim);
    if (!sim)
        exit(1);
    for (uint64_t seed = 1; seed <= schedules; seed++) {
        shared->seed = seed;
        if (sim_run(sim, seed, false, &shared->totals) < 0) {
            shared->found = true;
            memcpy(shared->words, sim->failure, sizeof sim->failure);
            break;
        }
    }
    free(sim);
    exit(shared->found ? 2 : 0);
}

/* Runs worlds until one finds something. True: none did. */
static bool run(struct shared *shared, int defect, uint64_t schedules)
{
    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(shared, defect, schedules);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (!shared->found)
        snprintf(shared->words, sizeof shared->words, "an assertion or a sanitizer, status %x",
                 (unsigned)status);
    return false;
}

static void test_schedules(void **state)
{
    struct shared *shared = *state;
    if (!run(shared, 0, SCHEDULES))
        fail_msg("seed %llu: %s; rerun with: test_core_sim %llu", (unsigned long long)shared->seed,
                 shared->words, (unsigned long long)shared->seed);
    const struct sim_totals *t = &shared->totals;
    const struct {
        const char *name;
        uint64_t count;
    } rows[] = {{"schedules", t->schedules},
                {"steps", t->steps},
                {"commands", t->commands},
                {"batches", t->batches},
                {"batches of no rows", t->zero_rows},
                {"padded rows", t->padded_rows},
                {"workers killed", t->kills},
                {"workers crashed", t->crashes},
                {"samples classed CRASH", t->classed_crash},
                {"ranks killed", t->ranks_lost},
                {"streams opened again", t->reopened},
                {"opens refused", t->refused_opens},
                {"looks that found a wait for memory", t->memory_waits},
                {"decodes into a full queue", t->queue_full},
                {"orphans", t->orphans},
                {"seats opened", t->seats},
                {"seats refused", t->refused_seats},
                {"worlds with a stopped worker", t->worlds_frozen},
                {"worlds with reads that hang", t->worlds_hung},
                {"reads that hung to the end", t->hung_reads},
                {"bogus events", t->bogus},
                {"rows read in place", t->in_place},
                {"ends by policy", t->policy_ends},
                {"rows substituted", t->substituted_rows},
                {"ends by attempts", t->attempt_ends},
                {"ends by failures one after another", t->consecutive_ends},
                {"ends by the rate of failures", t->rate_ends},
                {"ends when not one was good", t->all_failed_ends},
                {"ends by size", t->size_ends},
                {"ends by deaths", t->death_ends}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf("%12llu  %s\n", (unsigned long long)rows[i].count, rows[i].name);
        assert_true(rows[i].count >=
                    (IS_SLOW ? 10 : 100)); /* or the schedules do not reach what they are for */
    }
    assert_int_equal(t->schedules, SCHEDULES);
}

static void test_defects(void **state)
{
    struct shared *shared = *state;
    int missed = 0;
    for (int defect = 1; defect <= DEFECTS; defect++) {
        bool clean = run(shared, defect, DEFECT_SCHEDULES);
        printf("defect %2d: seed %llu: %s\n", defect, (unsigned long long)shared->seed,
               clean ? "NOT FOUND" : shared->words);
        missed += clean;
    }
    assert_int_equal(missed, 0);
}

static int one(const char *seed, const char *defect)
{
    static struct sim sim;
    struct sim_totals totals = {0};
    pipeline_core_defect = defect ? (int)strtol(defect, NULL, 10) : 0;
    int rc = sim_run(&sim, strtoull(seed, NULL, 10), true, &totals);
    printf("%s\n", rc < 0 ? sim.failure : "nothing found");
    return rc < 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return one(argv[1], argc > 2 ? argv[2] : NULL);
    void *shared = shared_create();
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_schedules, shared),
                                       cmocka_unit_test_prestate(test_defects, shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
