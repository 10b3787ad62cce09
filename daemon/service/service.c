/* What is said to the service manager: see service.h. Conductor role. */
#include "service/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

enum { FEEDS_A_PERIOD = 4, STATUS_BYTES = 256 };

static struct {
    bool is_managed;
    uint64_t feed_ns; /* between two feeds of the watchdog; 0: it has none */
    uint64_t fed_ns;
    int listener_count; /* or a negative errno */
    char status[STATUS_BYTES];
} manager;

static uint64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void service_begin(bool is_private)
{
    uint64_t watchdog_us = 0;
    manager.is_managed = !is_private && getenv("NOTIFY_SOCKET") != NULL;
    if (!is_private && sd_watchdog_enabled(0, &watchdog_us) > 0)
        manager.feed_ns = watchdog_us * 1000u / FEEDS_A_PERIOD;
    if (!is_private)
        manager.listener_count = sd_listen_fds(0); /* makes them close at exec */
    /* NOTIFY_SOCKET stays for our own messages; a worker can open no socket to use it. */
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDNAMES");
    if (is_private)
        unsetenv("NOTIFY_SOCKET");
}

bool service_is_managed(void)
{
    return manager.is_managed;
}

int service_listener(char *path, uint32_t path_bytes, int *ret_fd, struct err *reterr)
{
    *ret_fd = -1;
    if (manager.listener_count == 0)
        return 0;
    if (manager.listener_count != 1)
        return err_set(reterr, -EINVAL, "the socket unit gives %d sockets: spdld takes one",
                       manager.listener_count);
    struct sockaddr_un address = {0};
    socklen_t bytes = sizeof address - 1;
    if (sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, NULL, 0) <= 0 ||
        getsockname(SD_LISTEN_FDS_START, (struct sockaddr *)&address, &bytes) < 0 ||
        address.sun_path[0] != '/' || strlen(address.sun_path) >= path_bytes)
        return err_set(reterr, -EINVAL,
                       "the socket unit's socket is not what spdld listens on: a UNIX stream "
                       "socket with a path (ListenStream=/run/spdld/spdld.sock)");
    snprintf(path, path_bytes, "%s", address.sun_path);
    *ret_fd = SD_LISTEN_FDS_START;
    return 0;
}

void service_ready(const char *text)
{
    if (manager.is_managed)
        sd_notifyf(0, "READY=1\nSTATUS=%s\nMAINPID=%ld", text, (long)getpid());
    snprintf(manager.status, sizeof manager.status, "%s", text);
}

void service_reloading(void)
{
    if (manager.is_managed)
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reads its configuration",
                   (unsigned long long)monotonic_us());
}

void service_stopping(const char *text)
{
    if (manager.is_managed)
        sd_notifyf(0, "STOPPING=1\nSTATUS=%s", text);
}

void service_status(const char *text)
{
    if (!manager.is_managed || strncmp(manager.status, text, sizeof manager.status - 1) == 0)
        return;
    snprintf(manager.status, sizeof manager.status, "%s", text);
    sd_notifyf(0, "STATUS=%s", manager.status);
}

int64_t service_alive(uint64_t now_ns)
{
    if (manager.feed_ns == 0)
        return -1;
    if (now_ns - manager.fed_ns >= manager.feed_ns) {
        sd_notify(0, "WATCHDOG=1");
        manager.fed_ns = now_ns;
    }
    return (int64_t)(manager.fed_ns + manager.feed_ns - now_ns);
}
