/* Private daemons: found, started, named, compared, started again, given up. This program is its
 * own spdld: called with --private it looks at what it was given, says so, and serves as the fake
 * daemon. */
#include "tests/unit/client/client_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "client/client_query.h"

/* ---- as the daemon ---- */

static void say(int fd, const char *line)
{
    if (write(fd, line, strlen(line)) < 0)
        _exit(9);
}

static pid_t test_pid(void)
{
    const char *number = getenv("FAKE_TEST_PID");
    return number ? (pid_t)strtol(number, NULL, 10) : 0;
}

/* NULL when this process begins as a daemon should. */
static const char *look_at_self(void)
{
    sigset_t mask;
    struct sigaction action;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < 32; number++) {
        if (sigismember(&mask, number))
            return "error -1 a signal is blocked\n";
    }
    sigaction(SIGUSR1, NULL, &action);
    if (action.sa_handler != SIG_DFL)
        return "error -1 a signal is ignored\n";
    if (getsid(0) != getpid())
        return "error -1 it has no session of its own\n";
    if (getppid() == test_pid())
        return "error -1 it is a child of the rank\n";
    for (int fd = 4; fd < 64; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            return "error -1 a descriptor is left open\n";
    }
    for (int fd = 0; fd < 4; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            return "error -1 a standard descriptor is missing\n";
    }
    return NULL;
}

static void note_arguments(int argc, char **argv)
{
    const char *name = getenv("FAKE_NOTE");
    FILE *file = name ? fopen(name, "w") : NULL;
    for (int i = 1; file && i < argc; i++)
        fprintf(file, "%s%s", i > 1 ? " " : "", argv[i]);
    if (file)
        fclose(file);
}

static int daemon_main(int argc, char **argv)
{
    const char *socket = NULL, *fault = look_at_self(), *mode = getenv("FAKE_MODE");
    int ready_fd = -1;
    note_arguments(argc, argv);
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--socket") == 0)
            socket = argv[i + 1];
        if (strcmp(argv[i], "--ready-fd") == 0)
            ready_fd = (int)strtol(argv[i + 1], NULL, 10);
    }
    fprintf(stderr, "fake spdld\n");
    if (ready_fd != 3 || !socket)
        return 2;
    if (mode && strcmp(mode, "die") == 0)
        return 1;
    if (mode && strcmp(mode, "refuse") == 0)
        fault = "error -22 photos.yaml:3:1: unknown key\n";
    if (mode && strcmp(mode, "nonsense") == 0)
        fault = "what?\n";
    char lock[128];
    snprintf(lock, sizeof(lock), "%s.lock", socket);
    int lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (!fault && (lock_fd < 0 || flock(lock_fd, LOCK_EX | LOCK_NB) < 0))
        fault = getpid() % 2 ? "error -17 in use\n" : "error -98 in use\n";
    if (fault) {
        say(ready_fd, fault);
        return 1;
    }
    static struct fake_daemon fake;
    fake_init(&fake, socket);
    fake.differences = getenv("FAKE_DIFFERENCES");
    fake_start(&fake);
    say(ready_fd, "ok\n");
    close(ready_fd);
    pid_t test = test_pid();
    while (kill(test, 0) == 0)
        usleep(20000);
    return 0;
}

/* ---- as the test ---- */

static char self_path[512];

struct place {
    char folder[64];
    struct rig rig; /* its fake is not used */
};

static void clear_environment(void)
{
    /* clang-format off */
    static const char *const names[] = {
        "SPDL_JOB", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID", "LSB_JOBID",
        "LSB_JOBINDEX", "PBS_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT", "RANK",
        "WORLD_SIZE", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri",
        "PALS_APID", "PMI_JOBID", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
        "FAKE_DIFFERENCES", "FAKE_MODE", "FAKE_NOTE", "SPDL_LOG", "SPDL_SOCKET", "XDG_RUNTIME_DIR"};
    /* clang-format on */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    char number[24];
    snprintf(number, sizeof(number), "%ld", (long)getpid());
    setenv("FAKE_TEST_PID", number, 1);
    setenv("SPDLD", self_path, 1);
}

static void place_init(struct place *place)
{
    memset(place, 0, sizeof(*place));
    clear_environment();
    snprintf(place->folder, sizeof(place->folder), "/tmp/spdl-test-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    setenv("XDG_RUNTIME_DIR", place->folder, 1);
    setenv("TMPDIR", place->folder, 1);
    char log[96];
    snprintf(log, sizeof(log), "%s/log", place->folder);
    setenv("SPDL_LOG", log, 1);
}

static void remove_all(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        if (unlink(path) < 0) {
            chmod(path, 0700);
            remove_all(path);
        }
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

static int64_t daemon_pid(const struct spdl_connection *connection)
{
    struct spdl_client_daemon daemon;
    spdl_client_daemon(connection, &daemon);
    return daemon.pid;
}

static void place_fini(struct place *place)
{
    if (place->rig.connection && daemon_pid(place->rig.connection) > 0)
        kill((pid_t)daemon_pid(place->rig.connection), SIGKILL);
    spdl_close(place->rig.stream);
    spdl_disconnect(place->rig.connection);
    remove_all(place->folder);
    clear_environment();
}

static int connect_private(struct spdl_connection **connection)
{
    struct spdl_connect_options options = {
        .options_bytes = sizeof(options), .is_private = 1, .reconnect_s = 20};
    return spdl_connect(&options, connection);
}

static int socket_is(const struct spdl_connection *connection, const char *folder, const char *name)
{
    struct spdl_client_daemon daemon;
    spdl_client_daemon(connection, &daemon);
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (strcmp(daemon.socket, path) != 0)
        fprintf(stderr, "%s is not %s\n", daemon.socket, path);
    return strcmp(daemon.socket, path) == 0;
}

static void expect_note(const char *note, const char *expected)
{
    char text[1024] = "";
    FILE *file = fopen(note, "r");
    assert_non_null(file);
    if (file) {
        size_t n = fread(text, 1, sizeof(text) - 1, file);
        text[n] = 0;
        fclose(file);
    }
    assert_string_equal(text, expected);
}

static void test_start_and_find(void **state)
{
    (void)state;
    struct place place;
    place_init(&place);
    char note[96], config[96], expected[512], log[96];
    snprintf(note, sizeof(note), "%s/note", place.folder);
    snprintf(config, sizeof(config), "%s/c.yaml", place.folder);
    snprintf(log, sizeof(log), "%s/log", place.folder);
    setenv("FAKE_NOTE", note, 1);
    setenv("FAKE_DIFFERENCES", "memory: 1GiB there, 2GiB asked for", 1);
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fclose(file);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGUSR1, &ignore, &before); /* the daemon must not inherit it */
    const char *sets[] = {"memory=2GiB", "slots=3"};
    struct spdl_connect_options options = {.options_bytes = sizeof(options),
                                           .is_private = 1,
                                           .config_file = config,
                                           .sets = sets,
                                           .set_count = 2,
                                           .reconnect_s = 20};
    int rc = spdl_connect(&options, &place.rig.connection);
    sigaction(SIGUSR1, &before, NULL);
    if (rc != 0)
        fail_msg("%d: %s", rc, spdl_connection_error(place.rig.connection));
    char name[64];
    snprintf(name, sizeof(name), "spdld-pid-%ld.sock", (long)getpid());
    assert_true(socket_is(place.rig.connection, place.folder, name));
    struct spdl_client_daemon daemon;
    spdl_client_daemon(place.rig.connection, &daemon);
    assert_true(daemon.was_started);
    snprintf(expected, sizeof(expected),
             "--private --owner %ld --socket %s/%s -c %s --set memory=2GiB --set slots=3 "
             "--ready-fd 3",
             (long)getpid(), place.folder, name, config);
    expect_note(note, expected);
    expect_note(log, "fake spdld\n");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left to wait for */
    assert_int_equal(errno, ECHILD);
    /* The second finds it, and hears that it is not what was asked for. */
    struct spdl_connection *second;
    assert_int_equal(spdl_connect(&options, &second), -EEXIST);
    assert_non_null(strstr(spdl_connection_error(second), "1GiB there, 2GiB asked for"));
    spdl_disconnect(second);
    assert_int_equal(rig_open(&place.rig, 0), 0);
    for (int i = 0; i < 10; i++)
        rig_take(&place.rig);
    place_fini(&place);
}

static void test_started_again(void **state)
{
    (void)state;
    struct place place;
    place_init(&place);
    setenv("SPDL_JOB", "two ranks", 1);
    assert_int_equal(connect_private(&place.rig.connection), 0);
    pid_t first = (pid_t)daemon_pid(place.rig.connection);
    assert_int_equal(rig_open(&place.rig, 0), 0);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 7; i++)
            rig_take(&place.rig);
        struct spdl_connection *look;
        assert_int_equal(connect_private(&look), 0);
        assert_int_equal(kill((pid_t)daemon_pid(look), SIGKILL), 0);
        spdl_disconnect(look);
    }
    for (int i = 0; i < 12; i++)
        rig_take(&place.rig);
    struct spdl_connection *look;
    assert_int_equal(connect_private(&look), 0);
    assert_int_not_equal(daemon_pid(look), first);
    kill((pid_t)daemon_pid(look), SIGKILL);
    spdl_disconnect(look);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    place_fini(&place);
}

static void expect_given_up(struct place *place, const char *words)
{
    struct spdl_batch *batch;
    int rc;
    while ((rc = spdl_next(place->rig.stream, 30.0, &batch)) == 0) {
        rig_check(&place->rig, batch);
        spdl_batch_unref(batch);
    }
    assert_int_equal(rc, -EPIPE);
    assert_string_equal(spdl_stream_error_class(place->rig.stream), "DAEMON_GONE");
    if (!strstr(spdl_stream_error(place->rig.stream), words))
        fail_msg("%s", spdl_stream_error(place->rig.stream));
    assert_non_null(strstr(spdl_stream_error(place->rig.stream), "started 3 times"));
}

static void test_given_up(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *words;
    } cases[] = {
        {"FAKE_MODE", "die", "ended while it started"},
        {"FAKE_MODE", "refuse", "photos.yaml:3:1: unknown key"},
        {"SPDLD", "/nowhere/spdld", "SPDLD names /nowhere/spdld"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct place place;
        place_init(&place);
        assert_int_equal(connect_private(&place.rig.connection), 0);
        assert_int_equal(rig_open(&place.rig, 0), 0);
        rig_take(&place.rig);
        setenv(cases[i].variable, cases[i].value, 1);
        kill((pid_t)daemon_pid(place.rig.connection), SIGKILL);
        expect_given_up(&place, cases[i].words);
        place_fini(&place);
    }
}

static void test_start_fails(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value;
        int code;
        const char *words;
    } cases[] = {
        {"FAKE_MODE", "die", -EPIPE, "ended while it started"},
        {"FAKE_MODE", "refuse", -EINVAL, "photos.yaml:3:1: unknown key"},
        {"FAKE_MODE", "nonsense", -EPROTO, "what?"},
        {"SPDLD", "/nowhere/spdld", -ENOENT, "SPDLD names /nowhere/spdld"},
        {"SPDLD", "/etc/passwd", -ENOENT, "SPDLD names /etc/passwd"},
        {"SPDL_LOG", "/nowhere/log", -ENOENT, "/nowhere/log"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct place place;
        place_init(&place);
        setenv(cases[i].variable, cases[i].value, 1);
        int fds = rig_fd_count();
        int rc = connect_private(&place.rig.connection);
        if (rc != cases[i].code ||
            !strstr(spdl_connection_error(place.rig.connection), cases[i].words))
            fail_msg("case %zu: %d: %s", i, rc, spdl_connection_error(place.rig.connection));
        assert_int_equal(rig_fd_count(), fds);
        place_fini(&place);
    }
    struct place place;
    place_init(&place);
    struct spdl_connect_options options = {
        .options_bytes = sizeof(options), .is_private = 1, .config_file = "/nowhere/c.yaml"};
    assert_int_equal(spdl_connect(&options, &place.rig.connection), -ENOENT);
    assert_non_null(strstr(spdl_connection_error(place.rig.connection), "/nowhere/c.yaml"));
    place_fini(&place);
}

static void expect_name(const char *folder, const char *name)
{
    struct spdl_connection *connection;
    setenv("SPDLD", "/nowhere/spdld", 1); /* nothing shall start */
    assert_int_equal(connect_private(&connection), -ENOENT);
    assert_true(socket_is(connection, folder, name));
    spdl_disconnect(connection);
}

static void test_names(void **state)
{
    (void)state;
    struct place place;
    place_init(&place);
    char name[300];
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "8", 1);
    snprintf(name, sizeof(name), "spdld-pid-%ld.sock", (long)getpid());
    expect_name(place.folder, name);
    setenv("PMI_RANK", "3", 1);
    snprintf(name, sizeof(name), "spdld-mpi-%ld.sock", (long)getppid());
    expect_name(place.folder, name);
    static const struct {
        const char *variable, *value, *expected; /* a value of NULL takes it away */
    } steps[] = {
        {"MASTER_PORT", "29501", "port-29501"},
        {"MASTER_PORT", NULL, NULL},
        {"PMI_JOBID", "5", "5"},
        {"OMPI_MCA_ess_base_jobid", "3423404033", "3423404033"},
        {"PMIX_NAMESPACE", "prterun-node-77@1", "prterun-node-77_1-480b757a"},
        {"PMIX_NAMESPACE", NULL, "3423404033"},
        {"LSB_JOBID", "77", "77.3423404033"},
        {"OMPI_MCA_ess_base_jobid", NULL, "77.5"},
        {"PMI_JOBID", NULL, "77"},
        {"LSB_JOBINDEX", "0", "77"},
        {"LSB_JOBINDEX", "4", "77.4"},
        {"LSB_JOBINDEX", NULL, NULL},
        {"TORCHELASTIC_RUN_ID", "none", "77"},
        {"MASTER_PORT", "29500", "77.torchrun-29500"},
        {"LSB_JOBID", NULL, "torchrun-29500"},
        {"TORCHELASTIC_RUN_ID", "run-5", "run-5"},
        {"SLURM_JOB_ID", "1234", "1234.run-5"},
        {"TORCHELASTIC_RUN_ID", NULL, "1234"},
        {"SLURM_STEP_ID", "7", "1234.7"},
        {"SLURM_STEP_ID", NULL, "1234"},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].value)
            setenv(steps[i].variable, steps[i].value, 1);
        else
            unsetenv(steps[i].variable);
        snprintf(name, sizeof(name), "spdld-%s.sock", steps[i].expected ? steps[i].expected : "");
        if (steps[i].expected)
            expect_name(place.folder, name);
    }
    setenv("SPDL_JOB", "", 1);
    expect_name(place.folder, "spdld-1234.sock");
    setenv("SPDL_JOB", "a.b_c-d", 1);
    expect_name(place.folder, "spdld-a.b_c-d.sock");
    setenv("SPDL_JOB", "../../etc/x", 1);
    expect_name(place.folder, "spdld-.._.._etc_x-b3f11938.sock");
    memset(name, 'j', sizeof(name));
    name[299] = 0;
    setenv("SPDL_JOB", name, 1);
    struct spdl_connection *connection;
    struct spdl_client_daemon daemon;
    assert_int_equal(connect_private(&connection), -ENOENT);
    spdl_client_daemon(connection, &daemon);
    assert_true(strlen(daemon.socket) < 108);
    spdl_disconnect(connection);
    place_fini(&place);
}

static void expect_refused(const char *folder, const char *words)
{
    struct spdl_connection *connection;
    assert_int_equal(connect_private(&connection), -EACCES);
    const char *text = spdl_connection_error(connection);
    if (strncmp(text, folder, strlen(folder)) != 0 || !strstr(text, words) ||
        !strstr(text, "XDG_RUNTIME_DIR"))
        fail_msg("%s", text);
    spdl_disconnect(connection);
}

static void test_folders(void **state)
{
    (void)state;
    struct place place;
    place_init(&place);
    setenv("SPDL_JOB", "j", 1);
    char own[128], target[128];
    snprintf(own, sizeof(own), "%s/spdld-%lu", place.folder, (unsigned long)geteuid());
    snprintf(target, sizeof(target), "%s/target", place.folder);
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    expect_name(own, "spdld-j.sock");
    struct stat st;
    assert_int_equal(stat(own, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    chmod(place.folder, 0777); /* a folder that others may write is not taken */
    setenv("XDG_RUNTIME_DIR", place.folder, 1);
    expect_name(own, "spdld-j.sock");
    chmod(place.folder, 0700);
    expect_name(place.folder, "spdld-j.sock");
    unsetenv("XDG_RUNTIME_DIR");
    chmod(own, 0755);
    expect_refused(own, "is open to others (mode 0755)");
    rmdir(own);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, own), 0);
    expect_refused(own, "is a symbolic link");
    unlink(own);
    int fd = open(own, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    expect_refused(own, "is no folder");
    unlink(own);
    place_fini(&place);
}

/* Ranks of one job that start at the same moment get one daemon. */
static void test_at_once(void **state)
{
    (void)state;
    enum { RANKS = 6 };
    struct place place;
    place_init(&place);
    setenv("SPDL_JOB", "at-once", 1);
    int results[2];
    assert_int_equal(pipe(results), 0);
    pid_t children[RANKS];
    for (int i = 0; i < RANKS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            int rc = connect_private(&place.rig.connection);
            if (rc == 0)
                rc = rig_open(&place.rig, 0);
            struct spdl_batch *batch;
            if (rc == 0)
                rc = spdl_next(place.rig.stream, 10.0, &batch);
            int64_t result = rc < 0 ? rc : daemon_pid(place.rig.connection);
            _exit(write(results[1], &result, sizeof(result)) == sizeof(result) ? 0 : 1);
        }
    }
    int64_t first = 0, result;
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(read(results[0], &result, sizeof(result)), sizeof(result));
        assert_true(result > 0);
        if (i == 0)
            first = result;
        assert_int_equal(result, first);
        waitpid(children[i], NULL, 0);
    }
    kill((pid_t)first, SIGKILL);
    close(results[0]);
    close(results[1]);
    place_fini(&place);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--private") == 0)
        return daemon_main(argc, argv);
    ssize_t n = readlink("/proc/self/exe", self_path, sizeof(self_path) - 1);
    if (n <= 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_and_find), cmocka_unit_test(test_started_again),
        cmocka_unit_test(test_given_up),       cmocka_unit_test(test_start_fails),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_folders),
        cmocka_unit_test(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
