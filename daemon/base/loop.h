/* An epoll loop for one thread: descriptors with handlers, and a step that runs after every round.
 * No locks; everything is called by the thread that runs the loop. */
#ifndef SPDLD_BASE_LOOP_H
#define SPDLD_BASE_LOOP_H

#include <stdint.h>

struct loop;
struct loop_source;

/* events: EPOLLIN, EPOLLOUT, EPOLLHUP, …, as epoll reports them. */
typedef void loop_handler(void *context, uint32_t events);
/* Does what there is to do and returns how long the loop may sleep, in nanoseconds; negative: until
 * something happens. */
typedef int64_t loop_step(void *context);

struct loop *loop_create(void); /* owned; NULL with errno */
void loop_destroy(struct loop *loop);

/* Watches fd (borrowed; remove it before it is closed). *ret_source is owned by the loop until
 * loop_remove. 0, -ENOMEM or -EMFILE. */
int loop_add(struct loop *loop, int fd, uint32_t events, loop_handler *handler, void *context,
             struct loop_source **ret_source);
void loop_change(struct loop *loop, struct loop_source *source, uint32_t events);
/* Also from inside a handler, of any source; its handler is not called any more. Accepts NULL. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* Runs until loop_stop. Blocks. */
void loop_run(struct loop *loop, loop_step *step, void *context);
void loop_stop(struct loop *loop);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t loop_now_ns(void);

#endif
