"""What the integration tests share: a daemon of one's own in a temporary folder, spdlctl, and one way to run test functions.

A test file has functions `test_NAME(work)` and ends with `harness.main(globals())`. Each function gets a Work: a temporary folder
whose processes are all gone when it ends. Logs of daemons are shown only when the function fails.
"""
import ctypes
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import photos as photo_maker

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
SLOW = os.environ.get("TEST_SLOW", "0") == "1"
SANITIZED = "san-" in BUILD.name
PATIENCE = 6.0 if SANITIZED else 1.0  # sanitized programs are slow: limits of time are stretched


class Skip(Exception):
    """The test cannot run here; the text says why."""


class Failure(Exception):
    """What a test says when something is wrong."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def equal(got, wanted, what):
    if got != wanted:
        raise Failure(f"{what}: got {str(got)[:600]}, wanted {str(wanted)[:600]}")


def photos(count=300):
    try:
        # Pictures are the same for every build: they lie beside the first.
        return pathlib.Path(photo_maker.make(str(ROOT / "build" / "photos" / str(count)), count))
    except photo_maker.NoWallpapers as error:
        raise Skip(str(error)) from error


def use_points():
    """Goes on with programs that have points to die at (shm/shm_failpoint.h) and probes. make gets no more to do when they are there."""
    global BUILD
    if SANITIZED:
        raise Skip("the points are tried in a build without sanitizers")
    folder = ROOT / "build" / "failpoints"
    env = {key: value for key, value in os.environ.items() if key not in ("BUILD", "MAKEFLAGS", "MAKELEVEL", "SAN", "CC")}
    made = subprocess.run(["make", "-s", "-j2", "-C", str(ROOT), "FAILPOINTS=1", "programs"], capture_output=True, text=True, env=env)
    check(made.returncode == 0, f"the build with points failed: {made.stderr[-600:]}")
    BUILD = folder


def uring_works():
    return pathlib.Path("/proc/sys/kernel/io_uring_disabled").exists() is False or \
        pathlib.Path("/proc/sys/kernel/io_uring_disabled").read_text().strip() == "0"


def wait_until(condition, timeout_s, what):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + timeout_s * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {timeout_s * PATIENCE:.0f} s: {what}")
        time.sleep(0.005)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid, ended_too=False):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if int(pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry))
            except (OSError, IndexError):
                pass
    return [child for child in found if ended_too or is_alive(child)]


def describe(pid):
    """What a process is and what its threads are doing, for messages."""
    def text(path):
        try:
            return pathlib.Path(path).read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return "?"
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return "gone"
    return f"{text(f'/proc/{pid}/cmdline')}: " + ", ".join(
        f"{text(f'/proc/{pid}/task/{t}/comm')} in {text(f'/proc/{pid}/task/{t}/wchan')} {text(f'/proc/{pid}/task/{t}/syscall')[:40]}" for t in threads)


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def private_bytes(pid):
    """Resident memory that is of no file and no segment."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def descriptor_count(pid, but_under=None):
    """Open descriptors, without those of files under `but_under` (reads in flight come and go)."""
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        count += but_under is None or not target.startswith(str(but_under) + "/")
    return count


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    @property
    def document(self):
        return json.loads(self.out)


class Daemon:
    def __init__(self, work, config, sets, program, env, prefix):
        self.work, self.config = work, config
        self.socket = work.socket
        self.log = work.path / f"daemon-{len(work.daemons)}.log"
        words = [*prefix, str(program or os.environ.get("SPDLD") or BUILD / "spdld"), "-c", str(config), "--foreground", "--socket", self.socket]
        for pair in [f"index_dir={work.path}/index", *sets]:
            words += ["--set", pair]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        work.daemons.append(self)

    def wait_ready(self):
        def answers():
            if self.process.poll() is not None:
                raise Failure(f"spdld ended with {self.process.returncode}: {self.log.read_text(errors='replace')[-500:]}")
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(self.socket)
                    return True
                except OSError:
                    return False
        wait_until(answers, 10, "the daemon answers on its socket")
        return self

    @property
    def pid(self):
        return self.process.pid

    def workers(self):
        return children_of(self.pid)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s=10):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout_s * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"spdld still ran {timeout_s * PATIENCE:.0f} s after SIGTERM") from None


class Work:
    def __init__(self, name):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="spdl-"))
        (self.path / "run").mkdir(mode=0o700)
        self.name, self.daemons, self.started, self.files = name, [], [], 0
        self.socket = str(self.path / "s")
        self.shm_before = set(os.listdir("/dev/shm"))

    def config(self, text):
        self.files += 1
        path = self.path / f"config-{self.files}.yaml"
        path.write_text(text)
        return path

    def daemon(self, config, *sets, program=None, env=None, ready=True, prefix=()):
        daemon = Daemon(self, config, sets, program, env, prefix)
        return daemon.wait_ready() if ready else daemon

    def command(self, *words, private=None, config=None, sets=(), as_json=True):
        """The words of an spdlctl call: against this folder's daemon, or a private one when `config` or `private` says so."""
        call = [str(BUILD / "spdlctl")]
        if config is not None or private:
            call.append("--private")
            if config is not None:
                call += ["-c", str(config)]
        else:
            call += ["--socket", self.socket]
        for pair in sets:
            call += ["--set", pair]
        if as_json:
            call.append("--json")
        return call + [str(word) for word in words]

    def environment(self, more=None):
        env = {**os.environ, "XDG_RUNTIME_DIR": str(self.path / "run"), "SPDL_LOG": str(self.path / "private.log")}
        for name in ("SPDL_SOCKET", "SPDL_JOB", "SLURM_JOB_ID"):
            env.pop(name, None)
        env.setdefault("SPDLD", str(BUILD / "spdld"))
        env["XDG_CACHE_HOME"] = str(self.path / "cache")
        env.update(more or {})
        return env

    def ctl(self, *words, env=None, timeout_s=60, code=0, **how):
        """Runs spdlctl and returns a Result; an exit code other than `code` fails the test (None: any)."""
        call = self.command(*words, **how)
        try:
            r = subprocess.run(call, capture_output=True, text=True, timeout=timeout_s * PATIENCE, env=self.environment(env),
                               stdin=subprocess.DEVNULL, errors="replace")
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{' '.join(call[1:])}: not done after {timeout_s * PATIENCE:.0f} s; it had printed "
                          f"{str(error.stdout)[-300:]} {str(error.stderr)[-300:]}") from None
        if code is not None and r.returncode != code:
            raise Failure(f"{' '.join(call[1:])}: exit {r.returncode}, wanted {code}: {(r.stderr or r.stdout).strip()[-600:]}")
        return Result(r.returncode, r.stdout, r.stderr)

    def pull(self, dataset, **how):
        """pull --json; keyword `batch=64` becomes `--batch 64`, `hash=True` becomes `--hash`. Returns the lines."""
        options = {key: how.pop(key) for key in ("env", "timeout_s", "code", "config", "sets", "private") if key in how}
        return self.ctl("pull", *([dataset] if dataset else []), *pull_words(how), **options).lines

    def start_pull(self, out, *words, env=None, **how):
        """A pull that runs beside the test, its lines in the file `out`."""
        with open(out, "wb") as f, open(str(out) + ".err", "wb") as err:
            process = subprocess.Popen(self.command(*words, **how), stdout=f, stderr=err, stdin=subprocess.DEVNULL, env=self.environment(env))
        self.started.append(process)
        return process

    def shm_left(self):
        """Names of ours in /dev/shm that were not there before; others' come and go."""
        return sorted(name for name in set(os.listdir("/dev/shm")) - self.shm_before if name.startswith("spdl-"))

    def logs(self):
        for path in [*(d.log for d in self.daemons[-5:]), self.path / "private.log"]:
            if path.exists() and path.stat().st_size:
                lines = path.read_text(errors="replace").splitlines()
                print(f"  -- {path.name}")
                print("\n".join("  | " + line[:300] for line in lines[-25:]))

    def end(self):
        """Stops what runs; a daemon, worker or segment that stays behind is a failure."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.terminate()
        for daemon in self.daemons:
            try:
                daemon.process.wait(10 * PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                raise Failure("spdld did not end after SIGTERM") from None
        end = time.monotonic() + 8 * PATIENCE  # a private daemon ends 5 s after its last client at the latest
        while reap() and time.monotonic() < end:
            time.sleep(0.01)
        left = {pid: describe(pid) for pid in reap()}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        check(not left, f"processes were left behind: {left}")

    def remove(self):
        subprocess.run(["chmod", "-R", "u+rwX", str(self.path)], check=False)
        shutil.rmtree(self.path, ignore_errors=True)


def apart(work, test, *words):
    """Runs test(part, *words) with a folder and processes of its own, and leaves none of them."""
    part = Work(work.name)
    try:
        test(part, *words)
        part.end()
    finally:
        for process in part.started + [daemon.process for daemon in part.daemons]:
            if process.poll() is None:
                process.kill()
        part.remove()


def pull_words(how):
    words = []
    for key, value in how.items():
        name = "--" + key.replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words


def reap():
    """Collects ended children (orphans of daemons come to us) and returns those that are not collected yet."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if pid == 0:
            return children_of(os.getpid(), ended_too=True)


def cpu_of(work_to_do):
    """Runs it and returns (its value, CPU seconds of every process that it started, orphans too)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    value = work_to_do()
    wait_until(lambda: not reap(), 10, "every process that was started ended")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return value, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def folder_config(folder, preset="imagenet-train", more="", head=""):
    return f"{head}datasets:\n  p:\n    source: {{folder: {folder}}}\n    preset: {preset}\n{more}"


def rows_of(lines, field="image"):
    """(id, key, hash) of each row, in order."""
    return [row for line in lines for row in zip(line["ids"], line["keys"], line["fields"][field]["row_hashes"])]


def without_waits(lines):
    return [{key: value for key, value in line.items() if key != "wait_us"} for line in lines]


def main(names):
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us
    only = sys.argv[1:]
    tests = {name: f for name, f in names.items() if name.startswith("test_") and callable(f) and (not only or name in only)}
    failed, skipped, reason = 0, 0, ""
    for name, function in tests.items():
        began, work, error = time.monotonic(), Work(name), None
        for stage in (lambda: function(work), work.end):
            try:
                stage()
            except Skip as skip:
                error = error or skip
            except Exception as problem:  # whatever it is, the other tests go on
                if error is None or isinstance(error, Skip):
                    error = problem
        seconds = time.monotonic() - began
        if error is None:
            print(f"ok      {name} ({seconds:.1f} s)", flush=True)
        elif isinstance(error, Skip):
            skipped, reason = skipped + 1, str(error)
            print(f"skipped {name}: {error}", flush=True)
        else:
            failed += 1
            print(f"FAILED  {name} ({seconds:.1f} s): {error}", flush=True)
            if not isinstance(error, Failure):
                traceback.print_exception(error)
            work.logs()
        work.remove()
    if failed:
        sys.exit(1)
    if skipped and skipped == len(tests):
        print(reason)
        sys.exit(77)
