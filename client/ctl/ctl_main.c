/* spdlctl: shows what a running spdld does, and pulls batches from it as a rank would. */
#include <signal.h>
#include <unistd.h>

#include "client/ctl/ctl_args.h"
#include "client/ctl/ctl_verbs.h"

int main(int argc, char *argv[])
{
    static struct ctl_options options;
    struct ctl_text text = {0};
    int code = ctl_args_parse(argc, argv, &options);
    if (code != 0)
        return code;
    /* A reader that went away is an error of write, so that files and streams are closed as at any
     * other end. */
    signal(SIGPIPE, SIG_IGN);

    const struct ctl_verb *verb = options.verb ? ctl_verb_find(options.verb) : NULL;
    if (options.version) {
        ctl_text_str(&text, "spdlctl " SPDL_VERSION "\n");
    } else if (options.help) {
        ctl_args_help(verb && verb->run ? verb : NULL, &text);
    } else if (verb && verb->run) {
        return verb->run(&options);
    }
    code = ctl_text_write(&text, STDOUT_FILENO) < 0 ? CTL_EXIT_FAILED : CTL_EXIT_DONE;
    ctl_text_fini(&text);
    return code;
}
