/* spdlctl check: asks `spdld --check`, so that there is one reader of configurations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/ctl_verbs.h"

/* spdld: $SPDLD, beside this program, on PATH. Returned owned. */
static char *check_program(void)
{
    const char *named = getenv("SPDLD");
    if (named && *named)
        return strdup(named);
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "/spdld");
    if (length > 0) {
        path[length] = '\0';
        char *slash = strrchr(path, '/');
        if (slash) {
            memcpy(slash, "/spdld", sizeof "/spdld");
            if (access(path, X_OK) == 0)
                return strdup(path);
        }
    }
    return strdup("spdld");
}

static int check_one(const char *program, const char *file)
{
    pid_t child = fork();
    if (child < 0)
        return ctl_fail(CTL_EXIT_FAILED, "fork: %s", strerror(errno));
    if (child == 0) {
        execlp(program, program, "--check", "-c", file, (char *)NULL);
        _exit(ctl_fail(127, "%s: %s", program, strerror(errno)));
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return ctl_fail(CTL_EXIT_FAILED, "waitpid: %s", strerror(errno));
    }
    if (WIFSIGNALED(status))
        return ctl_fail(CTL_EXIT_FAILED, "%s was ended by signal %d", program, WTERMSIG(status));
    /* 127: it could not be started, which was said. */
    return WEXITSTATUS(status) == 127 ? CTL_EXIT_FAILED : WEXITSTATUS(status);
}

int ctl_check(const struct ctl_options *options)
{
    char *program = check_program();
    if (!program)
        return ctl_fail(CTL_EXIT_FAILED, "out of memory");
    int worst = 0;
    for (uint32_t i = 0; i < options->operand_count; i++) {
        int code = check_one(program, options->operands[i]);
        if (code > worst)
            worst = code;
    }
    free(program);
    return worst;
}
