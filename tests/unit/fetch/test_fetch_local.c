/* Which mounts are known not to hang: of disks and memory, also from a root of our own. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fetch/fetch_local.h"

static enum fetch_place place_of(const char *path)
{
    struct fetch_local local = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    enum fetch_place place = fetch_local_find(&local, fd);
    close(fd);
    return place;
}

static void test_known(void **state)
{
    (void)state;
    assert_int_equal(place_of("/dev/shm"), FETCH_PLACE_MEMORY);
    assert_int_equal(place_of("/proc"), FETCH_PLACE_REMOTE); /* not known as a home of data */
}

/* In a child with mounts and a root of its own: what the folder's place is seen from there. */
static int place_within(const char *folder)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 0;
    char proc[512];
    (void)snprintf(proc, sizeof proc, "%s/proc", folder);
    if (mkdir(proc, 0700) < 0 || mount("/proc", proc, NULL, MS_BIND, NULL) < 0 ||
        chroot(folder) < 0 || chdir("/") < 0)
        return 0;
    return (int)place_of("/");
}

static void test_own_root(void **state)
{
    (void)state;
    char folder[] = "/tmp/spdl-local-XXXXXX", proc[64];
    assert_non_null(mkdtemp(folder));
    enum fetch_place outside = place_of(folder);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(place_within(folder));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    (void)snprintf(proc, sizeof proc, "%s/proc", folder);
    rmdir(proc);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 0)
        skip(); /* not allowed to mount */
    assert_int_equal(WEXITSTATUS(status), outside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_own_root)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
