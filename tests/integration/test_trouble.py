#!/usr/bin/python3
"""Trouble around the daemon: a process that takes every connection, workers that cannot start or are stopped, storage that does not answer
at the end, things that stand where the socket should be. Each has an end and a sentence that is true."""
import ctypes
import errno
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import wire  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

REPLY_HELLO, REPLY_ERROR = 2, 9
SYNTHETIC = "datasets:\n  p:\n    source: {synthetic: {samples: 100000, bytes: 1000}}\n"


def error_text(out):
    return pathlib.Path(str(out) + ".err").read_text()


def running_pull(work, *words):
    out = work.path / f"out-{len(work.started)}"
    rank = work.start_pull(out, "pull", "p", "--batch", 8, *words)
    return rank, out


def test_one_process_takes_no_others_places(work):
    """The connections of one process have a limit, which is said to it; others are served beside it."""
    daemon = work.daemon(work.config(SYNTHETIC))
    before = harness.descriptor_count(daemon.pid)
    held, refused = [], []
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for _ in range(1100 if hard > 2048 else 600):
        client = wire.Client(work.socket)
        try:
            client.send(wire.hello())
        except OSError:
            pass  # it was closed already: the reason waits to be read
        reply = client.receive()
        check(reply is not None, "a connection was closed without a word")
        (held if REPLY_HELLO in reply else refused).append(client)
        if REPLY_ERROR in reply:
            check(b"too many connections" in wire.fields(reply[REPLY_ERROR][0])[3][0], f"the reason is {reply}")
    check(64 <= len(held) <= 1024 and refused, f"{len(held)} connections of one process are served, {len(refused)} are not")
    equal(len(work.pull("p", batch=8, steps=20)), 20, "lines of another process")
    for client in held + refused:
        client.socket.close()
    wait_until(lambda: harness.descriptor_count(daemon.pid) <= before + 16, 3, "descriptors of closed connections are closed")
    wire.Client(work.socket).send(wire.hello())
    equal(len(work.pull("p", batch=8, steps=2)), 2, "lines after them")


def test_silent_connections_end(work):
    """Each that says nothing is dropped 10 s after it came, not before and not much later."""
    daemon = work.daemon(work.config(SYNTHETIC))
    began, first = time.monotonic(), wire.Client(work.socket, 30 * harness.PATIENCE)
    time.sleep(2)
    second_began, second = time.monotonic(), wire.Client(work.socket, 30 * harness.PATIENCE)
    for client, since in ((first, began), (second, second_began)):
        check(client.is_closed(), "a silent connection stays")
        seconds = time.monotonic() - since
        check(9 < seconds < 10 + 2 * harness.PATIENCE, f"a silent connection was dropped after {seconds:.1f} s")
    equal(len(work.pull("p", batch=8, steps=2)), 2, "lines after them")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_no_worker_to_start(work):
    """The reason reaches the rank that waits."""
    alone = work.path / "alone"
    alone.mkdir()
    shutil.copy(harness.BUILD / "spdld", alone)
    work.daemon(work.config(SYNTHETIC), program=alone / "spdld")
    rank, out = running_pull(work, "--timeout", 2)
    equal(rank.wait(20 * harness.PATIENCE), 1, "exit code")
    check("spdld-worker is not in" in error_text(out), f"the sentence is {error_text(out)!r}")
    if harness.SLOW:  # starting is tried with growing pauses, then the stream fails
        rank, out = running_pull(work)
        equal(rank.wait(100 * harness.PATIENCE), 1, "exit code without a limit of time")
        check("spdld-worker is not in" in error_text(out), f"the sentence is {error_text(out)!r}")


def test_a_stopped_worker_is_named(work):
    """`why` and the sentence of a time-out say which process does not get on; then all go on."""
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))))
    reference = work.pull("p", batch=8, steps=150, hash=True)
    rank, out = running_pull(work, "--steps", 150, "--hash")
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    if not daemon.workers():
        raise harness.Skip("the worker is a thread of this daemon")
    worker = daemon.workers()[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        # Other reasons may stand there at first; what was handed over is not finished.
        said = wait_until(lambda: [s for s in work.ctl("why").document if f"process {worker}" in s["waiting_for"]], 10, "why names the worker")
        check("finished none" in said[0]["waiting_for"], f"why says {said}")
        late, late_out = running_pull(work, "--timeout", 1.5)
        equal(late.wait(20 * harness.PATIENCE), 1, "exit code of a rank with a limit of time")
        check(f"process {worker}" in error_text(late_out), f"the sentence is {error_text(late_out)!r}")
    finally:
        os.kill(worker, signal.SIGCONT)
    equal(rank.wait(60 * harness.PATIENCE), 0, "exit code of the rank that waited")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    equal(harness.without_waits(lines), harness.without_waits(reference), "its lines")


def test_end_while_listing(work):
    """SIGTERM ends the daemon though a folder is being listed, and whoever waits for the list is let go."""
    folder = work.path / "in"
    for i in range(40):
        (folder / f"{i}").mkdir(parents=True)
        for k in range(400):
            (folder / f"{i}" / f"{k}.jpg").touch()
    for pause in (0.0, 0.002, 0.01, 0.05):
        daemon = work.daemon(work.config(harness.folder_config(folder)))
        clients = []
        for _ in range(3):
            client = wire.Client(work.socket)
            client.send(wire.hello() + wire.open_stream(batch=8))
            clients.append(client)
        time.sleep(pause)
        equal(daemon.stop(10), 0, "exit code")
        check(all(client.is_closed() for client in clients), "a connection outlives the daemon")
        check(not os.path.exists(work.socket), "the socket was left")


def test_what_stands_where_the_socket_should_be(work):
    """A private daemon says what is in its way at once, and touches nothing."""
    for kind in ("file", "fifo", "folder", "link"):
        path = work.path / "run" / f"spdld-{kind}.sock"
        make = {"file": lambda p: p.write_text("x"), "fifo": os.mkfifo, "folder": lambda p: p.mkdir(), "link": lambda p: p.symlink_to("/dev/null")}
        make[kind](path)
        began = time.monotonic()
        result = work.ctl("pull", "--source", "synthetic:100,10", "--batch", 4, private=True, env={"SPDL_JOB": kind}, code=None)
        check(result.code in (1, 4), f"a {kind}: exit {result.code}")
        check("is no socket" in result.err and path.name in result.err, f"a {kind}: {result.err!r}")
        check(time.monotonic() - began < 5 * harness.PATIENCE, f"a {kind}: it took {time.monotonic() - began:.1f} s to say so")
        check(os.path.lexists(path), f"the {kind} is gone")


def test_a_folder_that_may_be_opened_and_not_listed(work):
    """It is left out and named, as one that may not be opened; the others are listed."""
    try:
        os.close(os.open("/proc/1/map_files", os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        raise harness.Skip("there is no such folder here") from None
    try:
        os.listdir("/proc/1/map_files")
        raise harness.Skip("it can be listed here")
    except PermissionError:
        pass
    result = work.ctl("pull", "--source", "folder:/proc/1", "--preset", "imagenet-train", "--batch", 1, private=True, code=None)
    check(result.code == 1 and "it has no picture" in result.err, f"exit {result.code}, {result.err[-300:]!r}")
    check("cannot be read" in result.err, f"the folder is not counted: {result.err[-300:]!r}")


def test_a_class_without_rights_is_a_warning(work):
    """A whole class is not there: that is no mere information."""
    folder = work.path / "classes"
    shutil.copytree(harness.photos(60), folder)
    closed = sorted(path for path in folder.iterdir() if path.is_dir())[:2]
    as_user = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    for path in (work.path, work.path / "run"):
        path.chmod(0o777)
    for path in closed:
        path.chmod(0)
    try:
        env = work.environment({"SPDL_LOG": ""})
        if subprocess.run([*as_user, env["SPDLD"], "--version"], capture_output=True, check=False).returncode != 0:
            raise harness.Skip("another user cannot run the daemon here")
        call = [*as_user, harness.BUILD / "spdlctl", "--private", "pull", "--source", f"folder:{folder}", "--preset", "imagenet-eval", "--batch", "1", "--steps", "1"]
        r = subprocess.run(call, capture_output=True, text=True, timeout=60 * harness.PATIENCE, env=env, stdin=subprocess.DEVNULL, check=False)
    finally:
        for path in closed:
            path.chmod(0o755)
    equal(r.returncode, 0, f"exit code: {r.stderr}")
    listed = [line for line in r.stderr.splitlines() if " samples; " in line]
    check(len(listed) == 1 and "warning: " in listed[0] and f"2 folders cannot be read; the first: {closed[0]}/ cannot be read (Permission denied)" in listed[0], r.stderr)


def test_descriptors_that_are_few(work):
    """With 64 descriptors everything works; with hardly any the refusal is one of means, with its reason."""
    config = work.config(harness.folder_config(harness.photos(300)))
    reference = work.pull("p", batch=16, hash=True, config=config)
    for limit, codes in ((64, (0,)), (40, (0,)), (8, (1, 4)), *(((28, (0, 4)), (24, (0, 4))) if harness.SLOW else ())):
        call = work.command("pull", "p", "--batch", 16, "--hash", config=config)
        r = subprocess.run(call, capture_output=True, text=True, timeout=60 * harness.PATIENCE, env=work.environment(), stdin=subprocess.DEVNULL,
                           preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        check(r.returncode in codes, f"{limit} descriptors: exit {r.returncode}, {r.stderr[-300:]!r}")
        if r.returncode == 0:
            lines = harness.Result(0, r.stdout, r.stderr).lines
            equal(harness.without_waits(lines), harness.without_waits(reference), f"lines with {limit} descriptors")
        else:
            check("open files" in r.stderr or "descriptor" in r.stderr, f"{limit} descriptors: {r.stderr[-300:]!r}")


def refuse_calls(numbers, code):
    """What a child does before it begins: these system calls fail with `code` from then on."""
    filters = [(0x20, 0, 0, 0)]  # load the number of the call
    for number in numbers:
        filters += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | code)]  # equal: fail
    filters.append((0x06, 0, 0, 0x7FFF0000))  # all others: allow
    code_bytes = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *f) for f in filters))
    program = ctypes.create_string_buffer(struct.pack("<H6xQ", len(filters), ctypes.addressof(code_bytes)))
    libc = ctypes.CDLL(None, use_errno=True)

    def before():
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")
    before.kept = code_bytes  # the program points into it
    return before


def test_io_uring_that_is_refused(work):
    """Whichever of its calls is refused: the pool reads the same, one line of the log says why, and who insists is told."""
    config = work.config(harness.folder_config(harness.photos(300)))
    reference = harness.without_waits(work.pull("p", batch=16, steps=6, hash=True, config=config))
    for call, number in (("io_uring_setup", 425), ("io_uring_enter", 426), ("io_uring", 427)):
        for code in (errno.EPERM, errno.ENOSYS):
            for sets, wanted in ((), 0), (("fetch.engine=uring",), None):
                (work.path / "private.log").unlink(missing_ok=True)
                words = work.command("pull", "p", "--batch", 16, "--steps", 6, "--hash", config=config, sets=sets)
                r = subprocess.run(words, capture_output=True, text=True, timeout=60 * harness.PATIENCE, env=work.environment(),
                                   stdin=subprocess.DEVNULL, preexec_fn=refuse_calls([number], code))
                what = f"{call} refused with {errno.errorcode[code]} {sets}"
                if wanted == 0:
                    equal(r.returncode, 0, f"{what}: exit code ({r.stderr[-300:]})")
                    equal(harness.without_waits(harness.Result(0, r.stdout, "").lines), reference, f"{what}: lines")
                    log = (work.path / "private.log").read_text()
                    equal([line for line in log.splitlines() if "pool" in line and call in line][1:], [], f"{what}: more lines of the log")
                    check("pool" in log and call in log, f"{what}: the log is {log!r}")
                else:
                    check(r.returncode in (1, 4) and call in r.stderr, f"{what}: exit {r.returncode}, {r.stderr[-300:]!r}")


if __name__ == "__main__":
    harness.main(globals())
