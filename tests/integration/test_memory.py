#!/usr/bin/python3
"""Memory and descriptors that are short: what does not fit is refused with the numbers, what was given is kept, and nothing dies of it."""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

MIB = 1 << 20
SYNTHETIC = "datasets:\n  p:\n    source: {synthetic: {samples: 100000, bytes: 20000}}\n"


def call(work, words, before=(), timeout_s=60, **how):
    """Runs spdlctl behind the words `before`, such as unshare."""
    return subprocess.run([*before, *words], capture_output=True, text=True, timeout=timeout_s * harness.PATIENCE, env=work.environment(),
                          stdin=subprocess.DEVNULL, check=False, **how)


def small_shm(size="8m"):
    """Words that run what follows with a /dev/shm of that size."""
    words = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        raise harness.Skip("no right to mount a /dev/shm of one's own")
    return words


def numbers(text):
    return [int(n) for n in re.findall(r"\b\d{4,}\b", text)]


def test_shm_that_is_too_small(work):
    """With shm: posix the arena, then the ring, then what is left does not fit: needed and free bytes are said, and nobody dies by a signal."""
    before, config = small_shm(), work.config(SYNTHETIC)
    cases = (("the arena", ("memory=64MiB",), 32), ("a ring of 64 MiB", ("memory=256MiB", "fetch.memory=1MiB"), 800),
             ("the worker's rings", ("memory=64MiB", "fetch.memory=7MiB"), 8))
    for what, sets, batch in cases:
        words = work.command("pull", "p", "--batch", batch, "--steps", 5, "--hash", config=config, sets=("shm=posix", *sets))
        r = call(work, words, before)
        equal(r.returncode, 4, f"{what}: exit code ({r.stderr[-300:]})")
        check("/dev/shm" in r.stderr and len(numbers(r.stderr)) >= 2, f"{what}: needed and free bytes are not said: {r.stderr!r}")
        free = [n for n in numbers(r.stderr) if n <= 8 * MIB]
        check(free and max(numbers(r.stderr)) > min(free), f"{what}: the numbers are {numbers(r.stderr)}")
    r = call(work, work.command("pull", "p", "--batch", 800, "--steps", 5, "--hash", config=config), before)
    equal(r.returncode, 0, f"exit code with memfd ({r.stderr[-300:]})")
    equal(len(harness.Result(0, r.stdout, "").lines), 5, "lines with memfd")


def test_shm_that_is_filled_later(work):
    """All pages were reserved: filling the rest of /dev/shm hurts nobody, and the right bytes come."""
    before, config = small_shm("24m"), work.config(SYNTHETIC)
    sets = ("shm=posix", "memory=64MiB", "fetch.memory=1MiB", "slots=4")
    reference = work.pull("p", batch=64, steps=300, hash=True, config=config)
    out = work.path / "out"
    with open(out, "wb") as f:
        rank = subprocess.Popen([*before, *work.command("pull", "p", "--batch", 64, "--steps", 300, "--hash", config=config, sets=sets)],
                                stdout=f, stderr=subprocess.STDOUT, env=work.environment(), stdin=subprocess.DEVNULL)
    work.started.append(rank)
    wait_until(lambda: out.stat().st_size > 0, 20, "the first line")
    fill = subprocess.run(["nsenter", f"--mount=/proc/{rank.pid}/ns/mnt", "dd", "if=/dev/zero", "of=/dev/shm/fill", "bs=64K"], capture_output=True,
                          text=True, check=False)
    check("No space left" in fill.stderr or rank.poll() is not None, f"it was not filled: {fill.stderr!r}")
    equal(rank.wait(60 * harness.PATIENCE), 0, f"exit code ({out.read_text()[-300:]})")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    equal(harness.without_waits(lines), harness.without_waits(reference), "lines")


def test_streams_that_do_not_fit(work):
    """With memory of 64 MiB: the one that does not fit is refused with what it needs, what is free and the limit; the others go on; then it fits."""
    daemon = work.daemon(work.config(SYNTHETIC), "memory=64MiB", "fetch.memory=8MiB", "slots=4")
    ranks = [work.start_pull(work.path / f"out-{i}", "pull", "p", "--batch", 200, "--steps", 100000) for i in range(3)]
    wait_until(lambda: len(work.ctl("status").document["streams"]) == 3, 10, "three streams are open")
    late = work.ctl("pull", "p", "--batch", 200, "--steps", 3, code=4)
    status = work.ctl("status").document
    needs = status["streams"][0]["memory"]
    for number in (needs, 64 * MIB - status["memory"]["used"], 64 * MIB):
        check(number in numbers(late.err), f"{number} is not said: {late.err!r}")
    equal(status["memory"]["used"] <= 64 * MIB, True, "memory in use is within the limit")
    before = [(work.path / f"out-{i}").read_bytes().count(b"\n") for i in range(3)]
    wait_until(lambda: all((work.path / f"out-{i}").read_bytes().count(b"\n") > before[i] for i in range(3)), 10, "the others go on")
    ranks[0].kill()
    ranks[0].wait()
    wait_until(lambda: len(work.ctl("status").document["streams"]) == 2, 5, "its stream is gone")
    wait_until(lambda: work.ctl("pull", "p", "--batch", 200, "--steps", 3, code=None).code == 0, 5, "then it fits")
    check(daemon.process.poll() is None, "the daemon is gone")


def limited(what, soft):
    return lambda: resource.setrlimit(what, (soft, soft))


def test_files_that_may_be_open(work):
    """64 descriptors, 1,000 files and 16 threads: all samples come, none failed."""
    folder = work.path / "in"
    folder.mkdir()
    photos = sorted(harness.photos(300).rglob("*.jpg"))
    for i in range(1000):
        os.link(photos[i % len(photos)], folder / f"{i:04d}.jpg")
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields: {{data: {{from: jpg, decode: raw}}}}\n")
    for sets in ((), ("fetch.engine=pool",)):
        words = work.command("pull", "p", "--batch", 50, "--steps", 20, config=config, sets=("threads.decode=16", *sets))
        r = call(work, words, preexec_fn=limited(resource.RLIMIT_NOFILE, 64))
        equal(r.returncode, 0, f"exit code {sets} ({r.stderr[-300:]})")
        lines = harness.Result(0, r.stdout, "").lines
        equal(sum(len(line["ids"]) for line in lines), 1000, f"samples {sets}")
        equal(sum(len(line["errors"]) for line in lines), 0, f"failures {sets}")
        equal(sum(line["valid"] for line in lines), 1000, f"valid samples {sets}")


def test_no_locked_memory(work):
    config = work.config(harness.folder_config(harness.photos(300)))
    reference = harness.without_waits(work.pull("p", batch=16, steps=6, hash=True, config=config))
    words = work.command("pull", "p", "--batch", 16, "--steps", 6, "--hash", config=config)
    r = call(work, words, preexec_fn=limited(resource.RLIMIT_MEMLOCK, 0))
    equal(r.returncode, 0, f"exit code ({r.stderr[-300:]})")
    equal(harness.without_waits(harness.Result(0, r.stdout, "").lines), reference, "lines")


class Group:
    """A cgroup of memory, version 1 or 2, with a limit."""

    def __init__(self, limit):
        lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
        own = {names: path for _, names, path in lines}
        if "memory" in own:
            base, name = pathlib.Path("/sys/fs/cgroup/memory" + own["memory"]), "memory.limit_in_bytes"
        else:
            base, name = pathlib.Path("/sys/fs/cgroup" + own.get("", "/nowhere")), "memory.max"
        self.path = base / f"spdl-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / name).write_text(str(limit))
        except OSError as error:
            if self.path.exists():
                self.path.rmdir()
            raise harness.Skip(f"no cgroup with a limit of memory can be made here: {error}") from None

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        for name in ("memory.events", "memory.oom_control"):
            if (self.path / name).exists():
                return int(re.search(r"oom_kill (\d+)", (self.path / name).read_text()).group(1))
        return 0

    def end(self):
        wait_until(lambda: not (self.path / "cgroup.procs").read_text().strip(), 10, "its processes are gone")
        self.path.rmdir()


def test_a_cgroup_with_little_memory(work):
    """Without a setting, memory is a quarter of what the group may have; streams beyond it are refused, and the kernel kills nobody."""
    if harness.SANITIZED:
        raise harness.Skip("a sanitizer needs more memory")
    group = Group(160 * MIB)
    try:
        config = work.config(harness.folder_config(harness.photos(300)) + "  s:\n    source: {synthetic: {samples: 100000, bytes: 20000}}\n")
        daemon_words = [str(harness.BUILD / "spdld"), "-c", str(config), "--foreground", "--socket", work.socket, "--set", f"index_dir={work.path}/index"]
        daemon = subprocess.Popen(daemon_words, preexec_fn=group.enter, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        work.started.append(daemon)
        wait_until(lambda: os.path.exists(work.socket), 10, "the daemon listens")
        equal(work.ctl("status").document["memory"]["limit"], 40 * MIB, "memory of the daemon")
        ranks = [work.start_pull(work.path / f"out-{i}", "pull", "s", "--batch", 64, "--steps", 100000) for i in range(4)]
        wait_until(lambda: len(work.ctl("status").document["streams"]) >= 2, 10, "some streams are open")
        refused = work.ctl("pull", "s", "--batch", 1000, code=4)
        check(str(40 * MIB) in refused.err, f"the limit is not said: {refused.err!r}")
        lines = work.pull("p", batch=8, steps=80, hash=True)
        equal(len(lines), 80, "lines of pictures")
        equal(group.kills(), 0, "processes killed by the kernel")
        check(daemon.poll() is None, "the daemon is gone")
        for rank in ranks:
            rank.kill()
            rank.wait()
        daemon.terminate()
        equal(daemon.wait(10), 0, "exit code of the daemon")
    finally:
        for process in work.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        group.end()


def test_memory_comes_back(work):
    """Streams of many sizes, ended in every way, leave nothing behind in what is counted, nor in what the daemon has."""
    daemon = work.daemon(work.config(SYNTHETIC), "memory=64MiB", "fetch.memory=8MiB")
    work.pull("p", batch=8, steps=2)
    seat = work.ctl("status").document["memory"]["used"]
    resident = harness.resident_bytes(daemon.pid)
    for i in range(8):
        rank = work.start_pull(work.path / f"o-{i}", "pull", "p", "--batch", 10 * i + 1, "--steps", 100000)
        wait_until(lambda: (work.path / f"o-{i}").stat().st_size > 0, 10, "a line")  # noqa: B023
        check(work.ctl("status").document["memory"]["used"] > seat, "the stream is not counted")
        rank.kill() if i % 2 else rank.terminate()
        rank.wait()
    wait_until(lambda: work.ctl("status").document["memory"]["used"] <= seat, 5, "all is given back")
    if not harness.SANITIZED:
        check(harness.resident_bytes(daemon.pid) < resident + 8 * MIB, "the daemon grew")


if __name__ == "__main__":
    harness.main(globals())
