#!/usr/bin/python3
"""Faults of the system that other loaders are known for: a function for each, named by its row in docs/faults.md, with the row's own value and three
generated variants of its kind. Those that need no rights of root are run as root and as an ordinary user."""
import errno
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import wire  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402
from test_trouble import refuse_calls  # noqa: E402

MIB, NOBODY, VARIANTS = 1 << 20, 65534, 3
SYNTHETIC = "datasets:\n  p:\n    source: {{synthetic: {{samples: {samples}, bytes: {bytes}}}}}\n    order: {{shuffle: none}}\n"
RAW = "    fields: {data: {from: [jpg, bin], decode: raw}}\n    order: {shuffle: none}\n"


def generator(row):
    return random.Random(f"{row} {os.environ.get('FAULT_SEED', '1')}")


def limited(what, soft):
    return lambda: resource.setrlimit(what, (soft, soft))


def call(work, *words, before=(), user=None, preexec_fn=None, timeout_s=60, **how):
    """spdlctl --json by that user, with a private daemon where a configuration is given."""
    return subprocess.run([*before, *work.command(*words, **how)], capture_output=True, text=True, timeout=timeout_s * harness.PATIENCE, user=user,
                          group=user, extra_groups=[] if user else None, preexec_fn=preexec_fn, env=work.environment(), stdin=subprocess.DEVNULL,
                          check=False)


def lines_of(result):
    return harness.Result(result.returncode, result.stdout, result.stderr).lines


def bytes_of(lines):
    return [(line["keys"], line["fields"]) for line in lines]


def by_each_user(test):
    """Runs the test as whoever runs it and, where that is root, as nobody too, each in a folder of its own."""
    def as_user(part, user):
        if user:
            os.chmod(part.path, 0o777)
            os.chown(part.path / "run", user, user)
            if subprocess.run(["test", "-x", harness.BUILD / "spdlctl"], user=user, check=False).returncode != 0:
                raise harness.Skip("other users cannot run what was built here")
        test(part, user)

    def run(work):
        for user in (None, NOBODY) if os.geteuid() == 0 else (None,):
            harness.apart(work, as_user, user)
    run.__doc__ = test.__doc__
    return run


def own(user, *paths):
    for path in paths:
        if user:
            subprocess.run(["chown", "-R", "-h", f"{user}:{user}", str(path)], check=True)


def numbered(folder, count, size=2000):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (folder / f"{i:04d}.bin").write_bytes(i.to_bytes(4, "little") * (size // 4))
    return folder


def raw_config(work, folder, more=""):
    return work.config(f"datasets:\n  p:\n    source: {{tar: {folder}}}\n{RAW}{more}")


def make_tar(path, first, count, size=2000):
    import io
    import tarfile
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(first, first + count):
            info = tarfile.TarInfo(f"{i:05d}.bin")
            info.size = size
            tar.addfile(info, io.BytesIO(i.to_bytes(4, "little") * (size // 4)))


# --- SYS-01: /dev/shm is too small ---

def test_sys_01_shm_too_small(work):
    """Refused with the needed and the free bytes where shm: posix is asked for, never a signal; the default needs no /dev/shm at all."""
    rng = generator("SYS-01")
    for size, ring in [(8, 64)] + [(rng.choice((1, 4, 16)), rng.randint(20, 120)) for _ in range(VARIANTS)]:
        before = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size}m tmpfs /dev/shm && exec "$@"', "sh"]
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
            raise harness.Skip("no right to mount a /dev/shm of one's own")
        config = work.config(SYNTHETIC.format(samples=10000, bytes=MIB // 16))
        words = ("pull", "p", "--batch", ring * 4, "--slots", 4, "--steps", 3, "--hash")  # so many MiB in four slots
        r = call(work, *words, before=before, config=config, sets=("shm=posix", "memory=512MiB", "fetch.memory=1MiB"))
        equal(r.returncode, 4, f"{size} MiB with a ring of {ring} MiB: exit code ({r.stderr[-300:]})")
        said = [int(n) for n in re.findall(r"\b\d+\b", r.stderr)]
        check("/dev/shm" in r.stderr and "free" in r.stderr and any(n <= size * MIB < n + ring * MIB for n in said) and max(said) > 4096,
              f"needed and free bytes are not said: {r.stderr!r}")
        r = call(work, *words, before=before, config=config, sets=("memory=512MiB", "fetch.memory=1MiB"))
        equal((r.returncode, len(lines_of(r))), (0, 3), f"with memfd ({r.stderr[-300:]})")


# --- SYS-02: what a killed daemon leaves ---

@by_each_user
def test_sys_02_leftovers_of_a_killed_daemon(work, user):
    """All killed at once: the next starts in 2 s at the same place, nothing stays in /dev/shm; what stands there and is no socket is refused."""
    rng = generator("SYS-02")
    before, config = set(os.listdir("/dev/shm")), work.config(SYNTHETIC.format(samples=100000, bytes=1000))
    for shm, pause in [("posix", 0.2)] + [(rng.choice(("posix", "memfd")), rng.random() / 4) for _ in range(VARIANTS)]:
        words = [str(harness.BUILD / "spdld"), "-c", str(config), "--foreground", "--socket", work.socket, "--set", f"shm={shm}", "--set",
                 "memory=64MiB", "--set", "fetch.memory=4MiB"]

        def daemon():
            process = subprocess.Popen(words, user=user, group=user, extra_groups=[] if user else None, stdin=subprocess.DEVNULL,  # noqa: B023
                                       stderr=subprocess.DEVNULL)
            work.started.append(process)
            began = time.monotonic()
            wait_until(lambda: call(work, "status", user=user).returncode == 0, 4, "it serves")
            return process, time.monotonic() - began
        first, _ = daemon()
        ranks = [work.start_pull(work.path / f"out-{len(work.started)}", "pull", "p", "--batch", 8, "--steps", 100000, "--reconnect", 0) for _ in range(2)]
        time.sleep(pause)
        workers = harness.children_of(first.pid)
        for process in (first, *ranks):
            process.kill()
        for process in (first, *ranks):
            process.wait()
        second, seconds = daemon()
        check(seconds < 2 * harness.PATIENCE, f"the next daemon took {seconds:.1f} s")
        equal(len(lines_of(call(work, "pull", "p", "--batch", 8, "--steps", 5, user=user))), 5, "its lines")
        wait_until(lambda: not any(map(harness.is_alive, workers)), 2, "the workers of the killed daemon ended")  # noqa: B023
        second.terminate()
        equal(second.wait(10 * harness.PATIENCE), 0, "its exit code")
    equal(set(os.listdir("/dev/shm")) - before, set(), "what is left in /dev/shm")
    path = work.path / "foreign"
    path.write_text("not ours")
    r = subprocess.run([*words[:4], "--socket", str(path)], user=user, group=user, capture_output=True, text=True, timeout=20, check=False)
    check(r.returncode != 0 and "is no socket" in r.stderr, f"a foreign file: exit {r.returncode}, {r.stderr!r}")
    equal(path.read_text(), "not ours", "the foreign file")


# --- SYS-04: descriptors ---

def test_sys_04_descriptors(work):
    """As many after 50 epochs as after 2; with 64 of them 1,000 files on 16 threads give every sample and no failure."""
    rng = generator("SYS-04")
    folder = work.path / "in"
    photos = sorted(harness.photos(300).rglob("*.jpg"))[:200]
    folder.mkdir()
    for i, path in enumerate(photos):
        os.link(path, folder / f"{i:04d}.jpg")
    epochs = 50 if harness.SLOW else 12
    daemon = work.daemon(work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{RAW}"))
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", 20, "--steps", epochs * 10 + 100000)
    lines = lambda: out.read_bytes().count(b"\n")  # noqa: E731
    wait_until(lambda: lines() >= 20, 20, "2 epochs")
    before = (harness.descriptor_count(daemon.pid, folder), harness.descriptor_count(rank.pid))
    wait_until(lambda: lines() >= epochs * 10, 120, f"{epochs} epochs")
    after = (harness.descriptor_count(daemon.pid, folder), harness.descriptor_count(rank.pid))
    check(all(abs(a - b) <= 2 for a, b in zip(after, before)), f"descriptors were {before} and are {after}")
    for i in range(len(photos), 1000):
        os.link(photos[i % len(photos)], folder / f"{i:04d}.jpg")
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{RAW}")
    for limit, engine in [(64, "auto")] + [(rng.randint(44, 200), rng.choice(("uring", "pool"))) for _ in range(VARIANTS)]:
        r = call(work, "pull", "p", "--batch", 100, config=config, sets=("threads.decode=16", f"fetch.engine={engine}"),
                 preexec_fn=limited(resource.RLIMIT_NOFILE, limit))
        check(r.returncode in (0, 4), f"{limit} descriptors, {engine}: exit {r.returncode}, {r.stderr[-300:]!r}")
        equal(sum(len(line["errors"]) for line in lines_of(r)), 0, f"failures with {limit} descriptors")
        if r.returncode == 0 or limit == 64:
            equal((r.returncode, sum(line["valid"] for line in lines_of(r))), (0, 1000), f"samples with {limit} descriptors")


# --- SYS-06: a client is killed ---

def test_sys_06_killed_clients(work):
    """Killed while they hold batches, at any moment: the others get theirs, the slots come back, each is counted."""
    rng = generator("SYS-06")
    kills = 100 if harness.SLOW else 16
    work.daemon(work.config(SYNTHETIC.format(samples=1000000, bytes=1000)))
    reference = work.pull("p", batch=8, steps=400, hash=True)
    out = work.path / "honest"
    honest = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 400, "--hash", "--delay-ms", 5)
    pauses, seen, at = [], 0, time.monotonic()
    for i in range(kills):
        victims = [work.start_pull(work.path / "victim", "pull", "p", "--batch", 64, "--steps", 100000) for _ in range(1 + i % 2)]
        end = time.monotonic() + (0.02 if i % 4 == 0 else rng.random() / 8)
        while time.monotonic() < end or (i % 4 == 1 and (work.path / "victim").stat().st_size == 0):
            time.sleep(0.002)
        for victim in victims:
            victim.send_signal(signal.SIGSTOP if i % 4 == 3 else signal.SIGKILL)
            victim.kill()
            victim.wait()
        if out.read_bytes().count(b"\n") > seen:
            pauses.append(time.monotonic() - at)
            seen, at = out.read_bytes().count(b"\n"), time.monotonic()
    wait_until(lambda: len(work.ctl("status").document["streams"]) <= 1, 2, "the slots of the killed come back")
    check(not pauses or max(pauses) < 2 * harness.PATIENCE, f"the other waited {max(pauses, default=0):.1f} s")
    equal(honest.wait(60 * harness.PATIENCE), 0, "exit code of the other")
    equal(bytes_of([json.loads(line) for line in out.read_text().splitlines()]), bytes_of(reference), "its lines")
    lost = work.ctl("status").document["lost_clients"]
    check(lost > kills // 2, f"of {kills} kills {lost} are counted")


# --- SYS-08: the daemon dies or stops ---

def test_sys_08_daemon_dies(work):
    """Whoever waits is told in 2 s where it is not to reconnect, else when that time is over; one that is stopped makes a time-out."""
    rng = generator("SYS-08")
    config = work.config(SYNTHETIC.format(samples=1000000, bytes=1000))
    for reconnect, delay in [(0, 0)] + [(rng.choice((0, 1)), rng.randint(0, 30)) for _ in range(VARIANTS)]:
        daemon = work.daemon(config)
        out = work.path / f"out-{len(work.started)}"
        rank = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 1000000, "--reconnect", reconnect, "--delay-ms", delay, "--hash")
        wait_until(lambda: out.stat().st_size > 1000, 10, "lines")  # noqa: B023
        daemon.kill()
        began = time.monotonic()
        equal(rank.wait(20 * harness.PATIENCE) in (1, 3), True, "exit code")
        seconds = time.monotonic() - began
        check(seconds < (2 + reconnect) * harness.PATIENCE and seconds >= reconnect * 0.9, f"reconnect {reconnect}: it took {seconds:.1f} s to say so")
        said = pathlib.Path(str(out) + ".err").read_text()
        check("daemon" in said, f"the cause is not said: {said!r}")
        lines = [json.loads(line) for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        equal([line["step"] for line in lines], list(range(len(lines))), "steps, those held too")
    daemon = work.daemon(config)
    out = work.path / "stopped"
    rank = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 1000000, "--timeout", 1)
    wait_until(lambda: out.stat().st_size > 1000, 10, "lines")
    os.kill(daemon.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        equal(rank.wait(20 * harness.PATIENCE), 1, "exit code beside a stopped daemon")
        check(time.monotonic() - began < 4 * harness.PATIENCE, "the time-out came late")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


# --- SYS-11: memory grows ---

def mixed_folder(work, rng, count=50):
    """Small pictures, a fifth of them broken in some way."""
    from PIL import Image
    import io
    folder = work.path / f"mixed-{rng.randint(0, 1 << 30)}"
    folder.mkdir()
    for i in range(count):
        image, whole = Image.effect_noise((40 + i, 60), 50 + i), io.BytesIO()
        kind = rng.choice(("JPEG", "PNG", "WEBP", "BMP"))
        image.convert("RGB").save(whole, kind)
        content = whole.getvalue()
        if i % 5 == 0:
            at = rng.randrange(20, len(content))
            content = rng.choice((b"", content[:at], b"<html>" * 50, content[:at] + bytes(200) + content[at:], os.urandom(300)))
        (folder / f"{i:03d}.jpg").write_bytes(content)
    return folder


def test_sys_11_memory_over_epochs(work):
    """Epochs of small and broken files: after the first 20 the daemon and the worker stay as large as they are, by 0.1 MiB an epoch."""
    if harness.SANITIZED:
        raise harness.Skip("a sanitizer keeps freed memory")
    rng = generator("SYS-11")
    epochs = 200 if harness.SLOW else 80
    sets = ("threads.decode=2",)
    for _ in range(1 + (VARIANTS if harness.SLOW else 0)):
        folder = mixed_folder(work, rng)
        daemon = work.daemon(work.config(harness.folder_config(folder, more="    on_error: {policy: mask, max_rate: 1}\n")), *sets)
        out = work.path / f"out-{len(work.started)}"
        rank = work.start_pull(out, "pull", "p", "--batch", 10, "--steps", 10**7)
        lines = lambda: out.read_bytes().count(b"\n")  # noqa: E731, B023
        wait_until(lambda: lines() >= 20 * 5, 60, "20 epochs")
        pids = {"spdld": daemon.pid, **({"spdld-worker": daemon.workers()[0]} if daemon.workers() else {})}
        before = {name: harness.resident_bytes(pid) for name, pid in pids.items()}
        wait_until(lambda: lines() >= epochs * 5, 300, f"{epochs} epochs")
        for name, pid in pids.items():
            slope = (harness.resident_bytes(pid) - before[name]) / MIB / (epochs - 20)
            check(slope < 0.1, f"{name} grows by {slope:.2f} MiB an epoch")
        rank.kill()
        rank.wait()
        equal(daemon.stop(), 0, "exit code")


# --- SYS-19: a file shrinks while it is read ---

def test_sys_19_file_shrinks(work):
    """Its samples are of class CHANGED from then on, never torn; the daemon lives, other sources go on; the index of it too may be cut."""
    rng = generator("SYS-19")
    (work.path / "in").mkdir()
    for cut in [4096] + [rng.randint(0, 300000) for _ in range(VARIANTS)]:
        shard = work.path / "in" / "s.tar"
        make_tar(shard, 0, 200)
        config = work.config(f"datasets:\n  p:\n    source: {{tar: {shard}}}\n{RAW}    on_error: {{policy: mask, max_rate: 1, max_consecutive: 1000}}\n"
                             "  other:\n    source: {synthetic: {samples: 1000, bytes: 100}}\n")
        daemon = work.daemon(config)
        reference = work.pull("p", batch=4, hash=True)
        out = work.path / f"out-{len(work.started)}"
        rank = work.start_pull(out, "pull", "p", "--batch", 4, "--hash", "--slots", 2, "--delay-ms", 20)
        wait_until(lambda: out.stat().st_size > 0, 10, "the first batch")  # noqa: B023
        os.truncate(shard, cut)
        equal(rank.wait(60 * harness.PATIENCE), 0, "exit code")
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        equal(len(lines), len(reference), "lines")
        bad = [error["class"] for line in lines for error in line["errors"]]
        check(bad and set(bad) <= {"CHANGED", "IO_ERROR", "TRUNCATED"}, f"classes {set(bad)}")
        for line, right in zip(lines, reference):
            if not line["errors"]:
                equal(line["fields"], right["fields"], "a batch without errors")
        equal(len(work.pull("other", batch=4, steps=5)), 5, "lines of another source")
        equal(daemon.stop(), 0, "exit code of the daemon")


# --- SYS-21: what cannot be read ---

@by_each_user
def test_sys_21_unreadable_entries(work, user):
    """Good files come; one without rights and one that is missing are IO_ERROR; a folder without rights is told of; loops are followed no further."""
    rng = generator("SYS-21")
    for n in range(1 + VARIANTS):
        folder = work.path / f"in-{n}"
        good = 10 if n == 0 else rng.randint(3, 20)
        for name in ("a", "b"):
            numbered(folder / name, good)
            for path in (folder / name).iterdir():
                path.rename(path.with_suffix(".jpg"))
        for k in range(1 if n == 0 else rng.randint(1, 3)):
            (folder / "a" / f"x{k}.jpg").write_bytes(b"x" * 100)
            (folder / "a" / f"x{k}.jpg").chmod(0)
            (folder / "a" / f"gone{k}.jpg").symlink_to("nowhere")
            (folder / f"closed{k}").mkdir()
            (folder / f"closed{k}" / "y.jpg").write_bytes(b"y" * 100)
            (folder / f"loop{k}").symlink_to(folder)
            (folder / f"closed{k}").chmod(0)
        own(user, folder)
        config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{RAW}    on_error: {{policy: mask, max_rate: 1}}\n    last: partial\n")
        r = call(work, "pull", "p", "--batch", 4, config=config, user=user)
        equal(r.returncode, 0, f"exit code ({r.stderr[-300:]})")
        lines = lines_of(r)
        keys = [key for line in lines for key in line["keys"]]
        errors = {error["key"]: error["class"] for line in lines for error in line["errors"]}
        check(all(keys.count(f"{name}/{i:04d}.jpg") == 1 for name in "ab" for i in range(good)), f"good files are missing or twice: {sorted(keys)}")
        check(set(errors.values()) <= {"IO_ERROR"}, f"classes {errors}")
        if user or os.geteuid() != 0:
            check("a/x0.jpg" in errors, f"the file without rights is not IO_ERROR: {errors}")
            check("closed0" in r.stderr + (work.path / "private.log").read_text(), f"the folder without rights is not told of: {(work.path / 'private.log').read_text()[-500:]!r}")
        check(not any("loop0/loop0" in key for key in keys), f"a loop is followed: {keys}")
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False)


# --- SYS-22: io_uring is forbidden ---

@by_each_user
def test_sys_22_no_io_uring(work, user):
    """The pool reads the same, one line of the log names the cause; who insists on io_uring is told."""
    rng = generator("SYS-22")
    folder = work.path / "in"
    folder.mkdir()
    make_tar(folder / "s.tar", 0, 100)
    config = raw_config(work, folder / "s.tar")
    own(user, folder)
    reference = lines_of(call(work, "pull", "p", "--batch", 10, "--hash", config=config, user=user))
    equal(len(reference), 10, "lines with what the system has")
    calls = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring": 427}
    cases = [(("io_uring_setup",), errno.EPERM), (("io_uring_setup",), errno.ENOSYS)]
    cases += [(tuple(rng.sample(sorted(calls), rng.randint(1, 3))), rng.choice((errno.EPERM, errno.ENOSYS, errno.EACCES))) for _ in range(VARIANTS)]
    for names, code in cases:
        (work.path / "private.log").unlink(missing_ok=True)
        refuse = refuse_calls([calls[name] for name in names], code)
        r = call(work, "pull", "p", "--batch", 10, "--hash", config=config, user=user, preexec_fn=refuse)
        equal(r.returncode, 0, f"{names} {code}: exit code ({r.stderr[-300:]})")
        equal(bytes_of(lines_of(r)), bytes_of(reference), f"{names} {code}: lines")
        log = (work.path / "private.log").read_text()
        equal(len([line for line in log.splitlines() if "pool" in line and "io_uring" in line]), 1, f"{names} {code}: lines of the log {log!r}")
        r = call(work, "pull", "p", "--batch", 10, config=config, user=user, preexec_fn=refuse, sets=("fetch.engine=uring",))
        check(r.returncode in (1, 4) and "io_uring" in r.stderr, f"{names} {code}, uring by name: exit {r.returncode}, {r.stderr[-300:]!r}")
    r = call(work, "pull", "p", "--batch", 10, "--hash", config=config, user=user, preexec_fn=limited(resource.RLIMIT_MEMLOCK, 0))
    equal((r.returncode, bytes_of(lines_of(r))), (0, bytes_of(reference)), "without locked memory")
    switch = pathlib.Path("/proc/sys/kernel/io_uring_disabled")
    if harness.SLOW and not user and os.access(switch, os.W_OK):  # it is the whole machine's
        before = switch.read_text()
        try:
            switch.write_text("2")
            r = call(work, "pull", "p", "--batch", 10, "--hash", config=config)
        finally:
            switch.write_text(before)
        equal((r.returncode, bytes_of(lines_of(r))), (0, bytes_of(reference)), "switched off for the machine")


# --- SYS-37: ranks that are slow, late or leave ---

def test_sys_37_slow_late_leaving_ranks(work):
    """Of four ranks one is slow, one late and one leaves: the others run on, each to the end of the epoch, with its own samples and no other's."""
    rng = generator("SYS-37")
    work.daemon(work.config(SYNTHETIC.format(samples=480, bytes=100)))
    for slow_ms, late_s, steps in [(150, 0.8, 5)] + [(rng.randint(50, 150), rng.random() / 2, rng.randint(1, 9)) for _ in range(VARIANTS)]:
        outs = {}

        def start(rank, *words):
            outs[rank] = work.path / f"out-{len(work.started)}"  # noqa: B023
            return work.start_pull(outs[rank], "pull", "p", "--batch", 48, "--world", 4, "--rank", rank, *words)  # noqa: B023
        began = time.monotonic()
        slow = start(3, "--delay-ms", slow_ms)
        leaving = start(1, "--steps", steps)
        quick = start(0)
        equal(quick.wait(30 * harness.PATIENCE), 0, "exit code of the quick rank")
        quick_s = time.monotonic() - began
        wait_until(lambda: slow.poll() is not None or any("the rank" in s["waiting_for"] for s in work.ctl("why").document), 10,  # noqa: B023
                   "why says that the slow rank is waited for")
        time.sleep(late_s)
        late = start(2)
        equal([p.wait(30 * harness.PATIENCE) for p in (late, leaving, slow)], [0, 0, 0], "exit codes")
        check(quick_s < time.monotonic() - began, "the quick rank waited for the slow one")
        for rank, path in outs.items():
            ids = [i for line in path.read_text().splitlines() for i in json.loads(line)["ids"]]
            wanted = [b * 48 + rank * 12 + i for b in range(steps if rank == 1 else 10) for i in range(12)]
            equal(ids, wanted, f"samples of rank {rank}")
    wait_until(lambda: not work.ctl("status").document["streams"], 3, "all streams are gone")


if __name__ == "__main__":
    harness.main(globals())
