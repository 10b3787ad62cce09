/* spdld-worker: started by spdld with its socket as descriptor 3. It is of no use when started by hand. */
#include <stdio.h>
#include <sys/socket.h>

#include "worker/worker.h"

int main(void)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    if (getsockopt(WORKER_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
        type != SOCK_SEQPACKET) {
        fprintf(stderr, "spdld-worker: it is started by spdld, with a socket as descriptor %d\n",
                WORKER_SOCKET_FD);
        return 2;
    }
    return worker_run(WORKER_SOCKET_FD);
}
