/* Threads for work that may block (listing a folder, reserving memory, unmapping it), so that the
 * conductor never does. Chores are begun in the order given, each as soon as a thread is free or
 * may be started; finished ones are handed back to the conductor, which calls their `done`. */
#ifndef SPDLD_BASE_CHORES_H
#define SPDLD_BASE_CHORES_H

#include <stdbool.h>

struct chores;

/* Embedded in what the chore is about. Borrowed from chores_add until `done` was called. */
struct chore {
    void (*work)(struct chore *chore); /* on the chores thread; may block */
    void (*done)(struct chore *chore); /* on the conductor, from chores_reap */
    struct chore *next;
};

enum { CHORES_THREADS_MAX = 64 };
/* Up to so many threads, started when they are needed. Owned; NULL: no memory or no thread. */
struct chores *chores_create(int threads_max);
/* Waits for the chores at work, up to two seconds, and drops the others without calling `done`.
 * False: one still works (a storage that hangs), so all that it may use must be left as it is until
 * the process ends. */
bool chores_destroy(struct chores *chores);

void chores_add(struct chores *chores, struct chore *chore);
int chores_fd(const struct chores *chores); /* readable when something is done */
void chores_reap(struct chores *chores);    /* calls `done` of what is */

#endif
