/* A hostile rank, a program for tests (see hostile.h).
 *
 * hostile SOCKET MODE [SECONDS [SEED [UID]]]
 *   MODE     one of the table below, or `all`: each for a moment, again and again
 *   SECONDS  how long what has no end of its own goes on (1)
 *   SEED     of what is random (1)
 *   UID      becomes this user first (needs root)
 *
 * Prints each thing that succeeded although it must not, and a line of counts. Exit code 0: none
 * did; 1: some did; 2: it was called wrongly. A daemon that is not there is nothing of its concern.
 */
#include "tests/hostile/hostile.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_CALLED_WRONGLY = 2, STREAMS = 3 };
static const double moment_seconds = 0.1;

double hostile_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint32_t hostile_random(struct hostile *hostile)
{
    hostile->random = hostile->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(hostile->random >> 33);
}

void hostile_tried(struct hostile *hostile, bool is_breach, const char *format, ...)
{
    va_list list;
    hostile->tried++;
    if (!is_breach)
        return;
    hostile->breaches++;
    va_start(list, format);
    fputs("breach: ", stdout);
    vprintf(format, list);
    putchar('\n');
    va_end(list);
}

/* --- modes that are about the life of a process --- */

/* Sleeps, but not longer than the process at the other end of `life` lives. */
static void stay(int life, double seconds)
{
    struct pollfd poll_fd = {.fd = life, .events = POLLIN};
    poll(&poll_fd, 1, (int)(seconds * 1000));
}

static void mode_hoard(struct hostile *hostile)
{
    struct rank ranks[STREAMS];
    int count = 0;
    while (count < STREAMS && rank_open(hostile, &ranks[count], 2))
        count++;
    stay(-1, hostile->seconds); /* never releases */
    for (int i = 0; i < count; i++)
        rank_close(&ranks[i]);
    hostile->tried += (uint64_t)count;
}

/* In a child: opens streams, waits until there are batches in them, and does `what`. */
static pid_t child_with_streams(const struct hostile *hostile, int life,
                                void (*what)(int life, double seconds), uint32_t wait_ms)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    struct rank ranks[STREAMS];
    int count = 0;
    while (count < STREAMS && rank_open(hostile, &ranks[count], 2))
        count++;
    stay(life, wait_ms * 1e-3);
    what(life, hostile->seconds);
    _exit(0);
}

static void leave_it_to_a_child(int life, double seconds)
{
    if (fork() == 0) { /* holds all that the rank has, beyond its death */
        stay(life, seconds);
        _exit(0);
    }
    raise(SIGKILL);
}

static void stop(int life, double seconds)
{
    (void)life;
    (void)seconds;
    raise(SIGSTOP);
}

static void die(int life, double seconds)
{
    (void)life;
    (void)seconds;
    raise(SIGKILL);
}

/* Runs such a child; a stopped one is killed when the time is over. */
static void child_mode(struct hostile *hostile, void (*what)(int life, double seconds), bool waits)
{
    int life[2];
    if (pipe(life) < 0)
        return;
    pid_t pid = child_with_streams(hostile, life[0], what, hostile_random(hostile) % 50);
    close(life[0]);
    if (waits) {
        stay(-1, hostile->seconds);
        if (pid > 0)
            kill(pid, SIGKILL);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    if (what == leave_it_to_a_child)
        stay(-1, hostile->seconds);
    close(life[1]);
    hostile->tried++;
}

static void mode_fork(struct hostile *hostile)
{
    child_mode(hostile, leave_it_to_a_child, false);
}

static void mode_stop(struct hostile *hostile)
{
    child_mode(hostile, stop, true);
}

static void mode_killed(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    do {
        child_mode(hostile, die, false);
    } while (hostile_now() < end);
}

/* --- the table --- */

static const struct mode {
    const char *name;
    void (*run)(struct hostile *hostile);
} modes[] = {
    {"messages", mode_messages},
    {"random", mode_random},
    {"fields", mode_fields},
    {"change", mode_change},
    {"descriptors", mode_descriptors},
    {"connections", mode_connections},
    {"slow", mode_slow},
    {"questions", mode_questions},
    {"deaf", mode_deaf},
    {"hoard", mode_hoard},
    {"fork", mode_fork},
    {"stop", mode_stop},
    {"killed", mode_killed},
    {"write", mode_write},
    {"resize", mode_resize},
    {"pipe", mode_pipe},
};
enum { MODES = sizeof modes / sizeof *modes };

static void run_all(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    hostile->seconds = moment_seconds;
    for (uint32_t turn = hostile_random(hostile); hostile_now() < end; turn++)
        if (modes[turn % MODES].run != mode_messages || turn / MODES % 8 == 0) /* it is long */
            modes[turn % MODES].run(hostile);
        else
            stay(-1, 0.01);
}

static bool run(struct hostile *hostile, const char *name)
{
    if (strcmp(name, "all") == 0) {
        run_all(hostile);
        return true;
    }
    for (int i = 0; i < MODES; i++)
        if (strcmp(name, modes[i].name) == 0) {
            modes[i].run(hostile);
            return true;
        }
    return false;
}

static bool become(const char *uid)
{
    uid_t user = (uid_t)strtoul(uid, NULL, 10);
    return setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 &&
           setresuid(user, user, user) == 0;
}

int main(int argc, char **argv)
{
    struct hostile hostile = {.seconds = 1, .random = 1};
    if (argc < 3 || argc > 6 || (argc > 5 && !become(argv[5]))) {
        fprintf(stderr, "usage: hostile SOCKET MODE [SECONDS [SEED [UID]]]\n");
        return EXIT_CALLED_WRONGLY;
    }
    hostile.socket = argv[1];
    if (argc > 3)
        hostile.seconds = strtod(argv[3], NULL);
    if (argc > 4)
        hostile.random = strtoull(argv[4], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    if (!run(&hostile, argv[2])) {
        fprintf(stderr, "hostile: no mode is called %s; there are all", argv[2]);
        for (int i = 0; i < MODES; i++)
            fprintf(stderr, " %s", modes[i].name);
        fputc('\n', stderr);
        return EXIT_CALLED_WRONGLY;
    }
    printf("hostile: %s: %llu tried, %llu breaches\n", argv[2], (unsigned long long)hostile.tried,
           (unsigned long long)hostile.breaches);
    return hostile.breaches > 0;
}
