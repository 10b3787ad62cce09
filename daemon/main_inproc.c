/* spdld-inproc: daemon and worker in one process, for debuggers and sanitizers that look at
 * threads. Not installed: a codec that crashes takes all with it. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "main_daemon.h"
#include "worker/worker.h"

static void *run(void *argument)
{
    worker_run((int)(intptr_t)argument, NULL);
    return NULL;
}

static int start_thread(int socket_fd, uint64_t memory_bytes, pid_t *ret_pid, struct err *reterr)
{
    (void)memory_bytes; /* it shares the memory of spdld */
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, run, (void *)(intptr_t)socket_fd);
    if (rc != 0)
        return err_set(reterr, -rc, "no thread for the worker: %s", strerror(rc));
    pthread_detach(thread);
    *ret_pid = 0;
    return 0;
}

static const struct pipeline_launcher launcher = {.start = start_thread};

int main(int argc, char **argv)
{
    return main_daemon(argc, argv, &launcher);
}
