#!/usr/bin/python3
"""Private daemons under launchers: the ranks of a job that start at the same moment meet one daemon, each gets its own samples, jobs keep apart,
and nothing is left of a job that is killed. A launcher here is the environment that it gives its ranks, and a line that all of them wait at."""
import errno
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, PATIENCE, Skip, check, children_of, equal, is_alive, wait_until  # noqa: E402
from test_trouble import refuse_calls  # noqa: E402

SAMPLES, RANKS, BATCH = 4000, 8, 32  # of all ranks together
CONFIG = f"slots: 4\nmemory: 64MiB\nfetch: {{memory: 1MiB}}\ndatasets:\n  p:\n    source: {{synthetic: {{samples: {SAMPLES}, bytes: 500}}}}\n"
NOBODY, STRANGER = 65534, 65533
LAUNCHER_WORDS = re.compile(r"(SPDL_JOB|SPDL_SOCKET|SLURM|TORCHELASTIC|PBS|LSB|FLUX|PALS|PMI|OMPI|MV2|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_)")

# What each launcher sets: for all ranks of a job, for one of them, and the name that the daemon has then.
LAUNCHERS = {
    "torchrun": ({"TORCHELASTIC_RUN_ID": "4f2c", "MASTER_PORT": "29400"}, {"RANK": "{}", "LOCAL_RANK": "{}"}, "4f2c"),
    "torchrun again": ({"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}, {"RANK": "{}"}, "torchrun-29500"),
    "srun": ({"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0"}, {"SLURM_PROCID": "{}", "SLURM_TASK_PID": "9{}"}, "1234.0"),
    "srun, its next step": ({"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "1"}, {"SLURM_PROCID": "{}"}, "1234.1"),
    "mpirun": ({"PMIX_NAMESPACE": "3423404033", "OMPI_MCA_ess_base_jobid": "3423404033"}, {"OMPI_COMM_WORLD_RANK": "{}", "PMIX_RANK": "{}"},
               "3423404033"),
    "mpiexec in a job of LSF": ({"LSB_JOBID": "77", "LSB_JOBINDEX": "3", "PMI_JOBID": "9"}, {"PMI_RANK": "{}"}, "77.3.9"),
    "mpiexec without a name": ({"PMI_SIZE": "8"}, {"PMI_RANK": "{}", "PMI_FD": "1{}"}, f"mpi-{os.getpid()}"),
    "a script of one's own": ({"MASTER_PORT": "29777", "WORLD_SIZE": "8"}, {"RANK": "{}"}, "port-29777"),
}


def environment(work, more):
    return {**{key: value for key, value in work.environment().items() if not LAUNCHER_WORDS.match(key)}, **more}


class Job:
    """So many processes that start at one moment: each waits until the line that is its standard input is cut."""

    def __init__(self, work, name, words, env, of_rank=None, ranks=RANKS, before=(), **how):
        self.name, self.work, self.processes, self.outs, self.env = name, work, [], [], environment(work, env)
        line, cut = os.pipe()
        for rank in range(ranks):
            out = work.path / f"{name}-{len(work.started)}".replace(" ", "-").replace("/", "-")
            of_this = {key: value.format(rank) for key, value in (of_rank or {}).items()}
            call = words(rank) if callable(words) else [*words, "--rank", str(rank), "--world", str(ranks)]
            with open(out, "wb") as f, open(f"{out}.err", "wb") as err:
                process = subprocess.Popen([*before, "sh", "-c", 'read -r nothing; exec "$@"', "sh", *call], stdin=line, stdout=f, stderr=err,
                                           env={**self.env, **of_this}, **how)
            work.started.append(process)
            self.processes.append(process)
            self.outs.append(out)
        self.cut = cut
        os.close(line)

    def go(self):
        os.close(self.cut)
        return self

    def wait(self):
        return [process.wait(60 * PATIENCE) for process in self.processes]

    def lines(self):
        return [[json.loads(line) for line in out.read_text().splitlines()] for out in self.outs]

    def words(self):
        return [pathlib.Path(f"{out}.err").read_text(errors="replace") for out in self.outs]

    def all_have(self, count):
        return all(out.read_bytes().count(b"\n") >= count for out in self.outs)

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def ends_well(self, reference, steps):
        equal(self.wait(), [0] * len(self.processes), f"{self.name}: exit codes of the ranks ({' '.join(self.words())[-400:]})")
        equal(joined(self.lines()), reference[:steps], f"{self.name}: ids of all ranks")


def joined(lines):
    """The ids of each step over all ranks, in their order."""
    return [[i for rank in step for i in rank["ids"]] for step in zip(*lines, strict=True)]


def pull(work, config, steps, *more, sets=()):
    return work.command("pull", "p", "--batch", BATCH, "--steps", steps, *more, config=config, sets=sets)


def end_daemons():
    """The daemons of jobs are orphans, and so ours: they need not stay for their 5 s."""
    for pid in children_of(os.getpid()):
        if "--private" in harness.describe(pid):
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not harness.reap(), 10, "the daemons ended")


def reference(work, config, steps):
    r = subprocess.run(pull(work, config, steps), env=environment(work, {}), capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    equal(r.returncode, 0, f"one rank alone: {r.stderr[-300:]}")
    wait_until(lambda: not list((work.path / "run").glob("spdld-pid-*")), 10, "the daemon of one process ends with it")
    return [json.loads(line)["ids"] for line in r.stdout.splitlines()]


def counting(work, rest='exec "$REAL" "$@"'):
    """An spdld that notes each of its starts, and what has been noted."""
    program, notes = work.path / "counting", work.path / "starts"
    program.write_text(f'#!/bin/sh\necho "$$" >>"{notes}"\n{rest}\n')
    program.chmod(0o755)
    notes.write_text("")
    return {"SPDLD": str(program), "REAL": str(BUILD / "spdld")}, lambda: notes.read_text().count("\n")


# --- one daemon for the ranks of a job ---

def test_ranks_of_a_launcher_meet_one_daemon(work):
    """Eight ranks at once under each launcher, several jobs of one user side by side: a daemon each, every sample once."""
    config, steps = work.config(CONFIG), 12
    wanted, run = reference(work, config, steps), work.path / "run"
    for group in (list(LAUNCHERS)[:4], list(LAUNCHERS)[4:]):
        jobs = []
        for name in group:
            env, of_rank, called = LAUNCHERS[name]
            jobs.append(Job(work, name, pull(work, config, steps, "--delay-ms", 40), {**env, "SPDL_LOG": str(work.path / f"log-{called}")}, of_rank))
            jobs[-1].asked = called
        for job in jobs:
            job.go()
        wait_until(lambda: all(job.all_have(1) for job in jobs), 60, "every rank has a batch")  # noqa: B023
        equal(sorted(path.name for path in run.glob("*.sock")), sorted(f"spdld-{job.asked}.sock" for job in jobs), "the sockets")
        for job in jobs:
            job.ends_well(wanted, steps)
            log = (work.path / f"log-{job.asked}").read_text()
            equal((log.count(" listens on "), log.count("error")), (1, 0), f"{job.name}: daemons that served, and errors ({log[-600:]})")
        end_daemons()
        equal(list(run.iterdir()), [], "what is left beside the sockets")


def test_one_daemon_serves_all(work):
    """The daemon has the streams of all ranks, the example rank in C meets it too, and when it dies all ranks meet one again."""
    config, steps = work.config(CONFIG), 60
    wanted, (counted, starts) = reference(work, config, steps), counting(work)
    job = Job(work, "job", pull(work, config, steps, "--delay-ms", 25), {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2", **counted})
    job.asked = "5.2"
    job.go()
    wait_until(lambda: job.all_have(3), 60, "every rank has batches")
    check(1 <= starts() <= RANKS, f"{starts()} daemons were started for {RANKS} ranks")
    ask = {**job.env}
    document = json.loads(subprocess.run(work.command("status", config=config), env=ask, capture_output=True, text=True, timeout=60, check=True).stdout)
    equal(sorted(s["pid"] for s in document["streams"]), sorted(p.pid for p in job.processes), "the processes that the daemon serves")
    before = starts()
    os.kill(document["pid"], signal.SIGKILL)
    after = json.loads(subprocess.run(work.command("status", config=config), env=ask, capture_output=True, text=True, timeout=60, check=True).stdout)
    check(after["pid"] != document["pid"], "the killed daemon answers")
    if not harness.SANITIZED:  # the examples are built as users build them
        rank = subprocess.run([BUILD / "examples" / "rank", "p", str(BATCH), "2"], capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                              env={**ask, "SPDL_SOCKET": str(work.path / "run" / "spdld-5.2.sock")})
        equal((rank.returncode, rank.stdout.count(f"{BATCH} rows, {BATCH} good")), (0, 2), f"the example: {rank.stderr[-300:]}")
    job.ends_well(wanted, steps)
    check(starts() - before <= RANKS + 1, f"{starts() - before} daemons were started again for {RANKS} ranks")
    end_daemons()


def test_ranks_that_ask_for_different_things(work):
    """Of four ranks one has another configuration: whoever comes first decides, the others hear the difference and exit 4."""
    config = work.config(CONFIG)
    for round_ in range(4 if harness.SLOW else 2):
        job = Job(work, f"odd {round_}", lambda rank: pull(work, config, 20, "--delay-ms", 20, "--rank", rank, "--world", 4,
                                                           sets=("slots=9",) if rank == 2 else ()), {"PMIX_NAMESPACE": f"odd{round_}"}, ranks=4).go()
        codes = job.wait()
        check(codes in ([0, 0, 4, 0], [4, 4, 0, 4]), f"exit codes {codes}: {job.words()}")
        for code, words in zip(codes, job.words(), strict=True):
            check(code == 0 or ("slots" in words and "9" in words and f"job odd{round_}" in words), f"the difference is not named: {words!r}")
        end_daemons()


# --- names and users ---

def test_odd_names_of_jobs(work):
    """Any name is good for a job; different names are different jobs, also when they begin or look alike."""
    config = work.config(CONFIG)
    names = ["a/../b c\n", "a/../b c\t", "ü☃", "-", "..", "j" * 5000, "j" * 5000 + "k", "$(reboot)", "%s%n"]
    jobs = [Job(work, f"odd {i}", pull(work, config, 3), {"SPDL_JOB": name, "SPDL_LOG": str(work.path / f"log-{i}")}, ranks=2).go()
            for i, name in enumerate(names)]
    wanted = reference(work, config, 3)
    for i, job in enumerate(jobs):
        job.ends_well(wanted, 3)
        equal((work.path / f"log-{i}").read_text().count(" listens on "), 1, f"daemons of {names[i][:20]!r}")
    sockets = list((work.path / "run").glob("*.sock"))
    equal(len(sockets), len(names), f"sockets {[s.name for s in sockets]}")
    check(all(re.fullmatch(r"spdld-[A-Za-z0-9._-]{1,60}\.sock", s.name) for s in sockets), f"names of sockets: {[s.name for s in sockets]}")
    end_daemons()
    equal(list((work.path / "run").iterdir()), [], "what is left beside the sockets")


def become(work, *users):
    """A temporary folder that everybody shares, for tests that are several users."""
    if os.geteuid() != 0:
        raise Skip("needs root, to be other users")
    for user in users:
        if subprocess.run(["test", "-x", BUILD / "spdlctl"], user=user, check=False).returncode != 0:
            raise Skip("other users cannot run what was built here")
    work.path.chmod(0o755)
    shared = work.path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


def as_user(user):
    return {"user": user, "group": user, "extra_groups": []} if user else {}


def test_users_with_the_same_job(work):
    """Two users and root with the same id of a job have a daemon each, in folders of their own; nobody takes another's for his own."""
    shared = become(work, NOBODY, STRANGER)
    config, steps = work.config(CONFIG), 6
    wanted, jobs = reference(work, config, steps), []
    for user in (0, NOBODY, STRANGER):
        env = {"SLURM_JOB_ID": "9", "TMPDIR": str(shared), "XDG_RUNTIME_DIR": str(work.path / "run"), "SPDL_LOG": f"{shared}/log-{user}"}
        if not user:
            env["XDG_RUNTIME_DIR"] = str(work.path / "nowhere")  # that of others is root's: not theirs, and not taken
        jobs.append(Job(work, f"user {user}", pull(work, config, steps), env, ranks=4, **as_user(user)).go())
    for user, job in zip((0, NOBODY, STRANGER), jobs, strict=True):
        job.ends_well(wanted, steps)
        folder = (shared / f"spdld-{user}").stat()
        equal((folder.st_uid, stat.S_IMODE(folder.st_mode)), (user, 0o700), f"owner and mode of the folder of user {user}")
        equal((shared / f"log-{user}").read_text().count(" listens on "), 1, f"daemons of user {user}")
    theirs = shared / f"spdld-{NOBODY}" / "spdld-9.sock"
    check(theirs.is_socket(), f"no socket at {theirs}")
    end_daemons()


def test_prepared_folders_are_refused(work):
    """A place in the temporary folder that somebody else prepared is refused with a sentence, and nothing is put into it."""
    shared = become(work, NOBODY)
    config, place, trap = work.config(CONFIG), shared / f"spdld-{NOBODY}", shared / "trap"
    trap.mkdir()
    trap.chmod(0o777)

    def folder(owner, mode):
        place.mkdir()
        os.chown(place, owner, owner)
        place.chmod(mode)

    def link():
        place.symlink_to(trap)

    def own_link():
        os.chown(trap, NOBODY, NOBODY)
        trap.chmod(0o700)
        link()
        os.lchown(place, NOBODY, NOBODY)
    cases = [(lambda: folder(STRANGER, 0o700), f"belongs to user {STRANGER}"), (lambda: folder(STRANGER, 0o777), f"belongs to user {STRANGER}"),
             (lambda: folder(0, 0o755), "belongs to user 0"), (lambda: folder(NOBODY, 0o777), "is open to others (mode 0777)"),
             (lambda: folder(NOBODY, 0o2710), "is open to others (mode 2710)"), (link, "is a symbolic link"), (own_link, "is a symbolic link"),
             (lambda: place.symlink_to("/nowhere/at/all"), "is a symbolic link"), (lambda: place.write_text(""), "is no folder")]
    env = environment(work, {"SPDL_JOB": "j", "TMPDIR": str(shared)})
    env.pop("XDG_RUNTIME_DIR")
    for prepare, words in cases:
        prepare()
        r = subprocess.run(pull(work, config, 1), env=env, capture_output=True, text=True, timeout=60 * PATIENCE, check=False, **as_user(NOBODY))
        equal(r.returncode, 4, f"{words}: exit code ({r.stderr!r})")
        for word in (str(place), words, "0700", f"user {NOBODY}", "XDG_RUNTIME_DIR"):
            check(word in r.stderr, f"no {word!r} in {r.stderr!r}")
        equal(r.stderr.count("\n"), 1, f"lines of {r.stderr!r}")
        equal(list(trap.iterdir()), [], "what was put where the link leads")
        if place.is_symlink() or place.is_file():
            place.unlink()
        else:
            equal(list(place.iterdir()), [], "what was put into the folder")
            place.rmdir()
    equal(harness.reap(), [], "daemons that were started")


# --- containers ---

def in_container(more=""):
    """A mount namespace whose /dev/shm has one page, and a process namespace that ends with its first process."""
    before = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
              f'mount -t tmpfs -o size=4k tmpfs /dev/shm && {more} exec "$@"', "sh"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
        raise Skip("no right to make namespaces")
    return before


def test_in_a_container(work):
    """Without room in /dev/shm, without io_uring, without XDG_RUNTIME_DIR, as root and as nobody: the same bytes; and again when all of it was killed."""
    shared, before = become(work, NOBODY), in_container()
    config, steps = work.config(CONFIG), 5
    wanted = reference(work, config, 40)
    script = work.path / "ranks.sh"  # what a launcher does inside: its ranks at once, and it waits for all
    script.write_text('for rank in 0 1 2 3; do "$@" --rank $rank --world 4 >"$OUT-$rank" 2>"$OUT-$rank.err" & done\nwait\n')
    refuse = refuse_calls([425, 426, 427], errno.EPERM)
    for user in (0, NOBODY):
        out = shared / f"out-{user}"
        env = environment(work, {"TORCHELASTIC_RUN_ID": f"c{user}", "TMPDIR": str(shared), "OUT": str(out), "SPDL_LOG": f"{out}-log"})
        env.pop("XDG_RUNTIME_DIR")
        if user:
            env["XDG_RUNTIME_DIR"] = "/run/user/4000000000"  # inherited from where the container was started
        who = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []

        def start(*words):
            process = subprocess.Popen([*before, *who, "sh", str(script), *words], env=env, stdin=subprocess.DEVNULL,  # noqa: B023
                                       stderr=subprocess.PIPE, text=True, preexec_fn=refuse)
            work.started.append(process)
            return process

        def lines():
            return [[json.loads(line) for line in pathlib.Path(f"{out}-{rank}").read_text().splitlines()] for rank in range(4)]  # noqa: B023
        first = start(*pull(work, config, 100000, "--delay-ms", 5))
        wait_until(lambda: all(pathlib.Path(f"{out}-{r}").exists() and pathlib.Path(f"{out}-{r}").read_bytes().count(b"\n") > 2  # noqa: B023
                               for r in range(4)), 60, f"the ranks of user {user} have batches")
        for init in children_of(first.pid):  # the whole container ends with its first process, daemon and all
            os.kill(init, signal.SIGKILL)
        first.communicate(timeout=20 * PATIENCE)
        socket = shared / f"spdld-{user}" / f"spdld-c{user}.sock"
        wait_until(lambda: not harness.reap(), 5, "every process of the container is gone")
        check(socket.is_socket(), "the killed daemon took its socket away: nothing stale is tried")
        second = start(*pull(work, config, steps, "--hash"))
        _, words = second.communicate(timeout=60 * PATIENCE)
        equal(second.returncode, 0, f"user {user}, with the stale socket: {words}")
        errors = "".join(pathlib.Path(f"{out}-{rank}.err").read_text() for rank in range(4))
        equal(joined(lines()), wanted[:steps], f"ids of all ranks of user {user} ({errors[-400:]})")
        log = pathlib.Path(f"{out}-log").read_text()
        equal(log.count(" listens on "), 2, f"daemons of user {user} in two starts ({log[-500:]})")
        check("io_uring" in log, f"the log does not say that io_uring is missing: {log!r}")
        wait_until(lambda: not harness.reap(), 9, "nothing of the container is left")
    equal(work.shm_left(), [], "what is left in /dev/shm")


def test_calls_that_a_container_forbids(work):
    """What the daemon cannot do without is said at its start, also to the ranks of a job: nothing is tried again and again."""
    config = work.config(CONFIG)
    for number, code, words in ((434, errno.EPERM, "pidfd_open"), (434, errno.ENOSYS, "Linux 5.3"), (73, errno.ENOLCK, ".sock.lock cannot be had")):
        for job in ({}, {"SPDL_JOB": "forbidden"}):
            began = time.monotonic()
            r = subprocess.run(pull(work, config, 3), env=environment(work, job), capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                               preexec_fn=refuse_calls([number], code))
            check(r.returncode in (1, 4) and words in r.stderr and r.stderr.count("\n") == 1, f"exit {r.returncode}, {r.stderr!r}")
            check(time.monotonic() - began < 8 * PATIENCE, "it was tried again and again")
    wait_until(lambda: not harness.reap(), 5, "no daemon is left")


# --- killed jobs ---

def segments(pids):
    """The segments that these processes have mapped, by device and inode."""
    found = set()
    for pid in pids:
        try:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                words = line.split(maxsplit=5)
                if len(words) == 6 and (words[5].startswith("/memfd:spdl") or words[5].startswith("/dev/shm/")):
                    found.add((words[3], words[4]))
        except OSError:
            pass
    return found


def tree_of(pid):
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


def test_jobs_that_are_killed(work):
    """kill -9 of all ranks, with the daemon and without it: no process, no memory and no live socket is left; the next start replaces a stale one."""
    config, run = work.config(CONFIG), work.path / "run"
    mapped, jobs = set(), []
    for kind in ("memfd", "posix"):
        for with_daemon in (True, False):
            name = f"{kind}-{'all' if with_daemon else 'ranks'}"
            job = Job(work, name, pull(work, config, 100000, "--delay-ms", 50, sets=(f"shm={kind}",)), {"SPDL_JOB": name}, ranks=4).go()
            job.asked, job.with_daemon, job.kind = name, with_daemon, kind
            jobs.append(job)
    wait_until(lambda: all(job.all_have(2) for job in jobs), 60, "every rank has batches")
    alive = []
    for job in jobs:
        status = subprocess.run(work.command("status", config=config, sets=(f"shm={job.kind}",)), env=job.env, capture_output=True, text=True,
                                timeout=60 * PATIENCE, check=True)
        pid = json.loads(status.stdout)["pid"]
        tree = tree_of(pid)
        check(len(tree) > 1, f"{job.name}: the daemon has no worker")
        seen = segments([p.pid for p in job.processes]) & segments(tree)
        equal(len(seen), 8, f"{job.name}: segments that the daemon and its ranks share, two a rank")
        mapped |= seen
        alive += tree
        for victim in [p.pid for p in job.processes] + (tree if job.with_daemon else []):
            os.kill(victim, signal.SIGKILL)
        job.kill()
    wait_until(lambda: not any(map(is_alive, alive)) and not harness.reap(), 9, "every process of the jobs is gone")
    equal(segments(filter(str.isdigit, os.listdir("/proc"))) & mapped, set(), "segments of the jobs that somebody still has")
    equal(work.shm_left(), [], "what is left in /dev/shm")
    stale = sorted(path.name for path in run.glob("*.sock"))
    equal(stale, ["spdld-memfd-all.sock", "spdld-posix-all.sock"], "sockets that are left: of killed daemons alone")
    wanted = reference(work, config, 3)
    again = [Job(work, f"{job.name} again", pull(work, config, 3, sets=(f"shm={job.kind}",)), {"SPDL_JOB": job.asked}, ranks=4).go() for job in jobs]
    for job in again:
        job.ends_well(wanted, 3)
    end_daemons()
    equal(list(run.iterdir()), [], "what is left beside the sockets")


def test_three_starts_without_a_batch(work):
    """A daemon that dies at each start is given up after three, by every rank, with the reason; none of them waits for ever."""
    config = work.config(CONFIG)
    bad = work.path / "bad"
    env, starts = counting(work, f'[ -e "{bad}" ] && exit 1\nexec "$REAL" "$@"')
    job = Job(work, "dies", pull(work, config, 100000, "--delay-ms", 5), {"SPDL_JOB": "dies", **env}, ranks=4).go()
    wait_until(lambda: job.all_have(3), 60, "every rank has batches")
    daemons = [pid for pid in children_of(os.getpid()) if "--private" in harness.describe(pid) and "spdld-dies" in harness.describe(pid)]
    equal(len(daemons), 1, "daemons of the job")
    before = starts()
    bad.touch()
    os.kill(daemons[0], signal.SIGKILL)
    codes = job.wait()
    equal(codes, [3] * 4, f"exit codes ({job.words()})")
    for words in job.words():
        check("started 3 times and gave no batch" in words and "its log" in words, f"the reason is not said: {words!r}")
    equal(starts() - before, 12, "starts: three of each rank")


if __name__ == "__main__":
    harness.main(globals())
