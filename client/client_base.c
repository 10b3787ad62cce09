/* Small things that every file of the library needs: sentences, time, and whether this process was
 * forked off. No state of its own. */
#include "client/client_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int spdl_client_fail(struct spdl_client_error *error, int code, uint32_t class_number,
                     const char *format, ...)
{
    if (!error)
        return code;
    char text[SPDL_CLIENT_TEXT_BYTES]; /* an argument may be error->text itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(error->text, text, sizeof(text));
    error->class_number = class_number;
    return code;
}

const char *spdl_client_class_text(uint32_t class_number)
{
    return class_number == SPDL_CLASS_OK ? "" : spdl_class_name(class_number);
}

const char *spdl_client_errno_text(int code, char *buffer, size_t bytes)
{
    char store[128];
    const char *text = strerror_r(-code, store, sizeof(store));
    snprintf(buffer, bytes, "%s", text);
    if (bytes > 2 && islower((unsigned char)buffer[1]))
        buffer[0] = (char)tolower((unsigned char)buffer[0]);
    return buffer;
}

int64_t spdl_client_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SPDL_CLIENT_SECOND_NS + now.tv_nsec;
}

int64_t spdl_client_deadline_ns(int64_t now_ns, double seconds)
{
    if (seconds < 0.0 || seconds > 1e9)
        return SPDL_CLIENT_NEVER_NS;
    return now_ns + (int64_t)(seconds * 1e9);
}

int spdl_client_poll(struct pollfd *fds, uint32_t count, int64_t deadline_ns)
{
    struct timespec wait = {0};
    if (deadline_ns != SPDL_CLIENT_NEVER_NS) {
        int64_t left = deadline_ns - spdl_client_now_ns();
        if (left > 0) {
            wait.tv_sec = (time_t)(left / SPDL_CLIENT_SECOND_NS);
            wait.tv_nsec = (long)(left % SPDL_CLIENT_SECOND_NS);
        }
    }
    int n = ppoll(fds, count, deadline_ns == SPDL_CLIENT_NEVER_NS ? NULL : &wait, NULL);
    return n < 0 ? -errno : n;
}

int spdl_client_take_options(void *own_options, size_t own, const void *options, size_t given)
{
    if (given < sizeof(size_t))
        return -EINVAL;
    const unsigned char *bytes = options;
    for (size_t i = own; i < given; i++) {
        if (bytes[i] != 0)
            return -EINVAL; /* asks for something that a later version knows */
    }
    memcpy(own_options, options, given < own ? given : own);
    return 0;
}

char *spdl_client_copy_text(const char *text, int *rc)
{
    if (!text)
        return NULL;
    char *copy = strdup(text);
    if (!copy)
        *rc = -ENOMEM;
    return copy;
}

void spdl_client_guard_init(struct spdl_client_guard *guard)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    guard->pid = getpid();
    guard->page = NULL;
    guard->memory = NULL;
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (madvise(page, bytes, MADV_WIPEONFORK) < 0) {
        munmap(page, bytes);
        return;
    }
    guard->memory = page;
    guard->page = page;
    atomic_store_explicit(guard->page, 1, memory_order_relaxed);
}

void spdl_client_guard_fini(struct spdl_client_guard *guard)
{
    if (guard->memory)
        munmap(guard->memory, (size_t)sysconf(_SC_PAGESIZE));
    guard->memory = NULL;
    guard->page = NULL;
}

int spdl_client_guard_forked(const struct spdl_client_guard *guard)
{
    if (guard->page)
        return atomic_load_explicit(guard->page, memory_order_relaxed) == 0;
    return getpid() != guard->pid;
}

const char *spdl_version(void)
{
    return SPDL_VERSION;
}
