/* spdld-worker [--memory BYTES]: started by spdld with its socket as descriptor 3. It is of no use
 * when started by hand. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/worker_lock.h"

/* The worker dies with spdld. When spdld died before that was arranged, its children have got
 * another parent by now. */
static int die_with_parent(void)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getsockopt(WORKER_SOCKET_FD, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return -1;
    return getppid() == 1 && peer.pid != 1 ? -1 : 0;
}

int main(int argc, char **argv)
{
    uint64_t memory_bytes =
        argc == 3 && strcmp(argv[1], "--memory") == 0 ? strtoull(argv[2], NULL, 10) : 0;
    int type = 0;
    socklen_t bytes = sizeof type;
    if (getsockopt(WORKER_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
        type != SOCK_SEQPACKET) {
        fprintf(stderr, "spdld-worker: it is started by spdld, with a socket as descriptor %d\n",
                WORKER_SOCKET_FD);
        return 2;
    }
    /* Keys on spdld's terminal and its hang-up are for spdld, which then closes the socket. */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (die_with_parent() != 0)
        return 0;
    struct worker_lock lock;
    worker_lock_take(memory_bytes, &lock);
    return worker_run(WORKER_SOCKET_FD, &lock);
}
