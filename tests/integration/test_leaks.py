#!/usr/bin/python3
"""Memory and descriptors stay flat over epochs and over streams opened and closed. With TEST_SLOW=1 over more of both."""
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import wire  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

MIB = 1 << 20
EPOCHS = 1000 if harness.SLOW else 80
STREAMS = 1000 if harness.SLOW else 120
QUICK_STREAMS = 10000 if harness.SLOW else 500


def fifty(work):
    folder = work.path / "in"
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:50]):
        shutil.copy(path, folder / f"{i:02d}.jpg")
    return folder


def sizes(pids, folder):
    return {name: (harness.resident_bytes(pid), harness.descriptor_count(pid, folder)) for name, pid in pids.items()}


def test_epochs(work):
    if harness.SANITIZED:
        raise harness.Skip("a sanitizer keeps freed memory")
    folder = fifty(work)
    daemon = work.daemon(work.config(harness.folder_config(folder)), "threads.decode=2")
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", 10, "--steps", EPOCHS * 5 + 1000000)
    lines = lambda: out.read_bytes().count(b"\n")  # noqa: E731
    wait_until(lambda: lines() >= 20 * 5, 30, "20 epochs")
    pids = {"spdld": daemon.pid, "spdld-worker": daemon.workers()[0] if daemon.workers() else daemon.pid, "spdlctl": rank.pid}
    before = sizes(pids, folder)
    wait_until(lambda: lines() >= EPOCHS * 5, 300, f"{EPOCHS} epochs")
    after = sizes(pids, folder)
    for name in pids:
        grown = after[name][0] - before[name][0]
        check(grown < 8 * MIB, f"{name} grew by {grown / MIB:.1f} MiB between epoch 20 and {EPOCHS}")
        equal(after[name][1], before[name][1], f"descriptors of {name}")


def test_streams_opened_and_closed(work):
    folder = fifty(work)
    daemon = work.daemon(work.config(harness.folder_config(folder)), "threads.decode=2")

    def some(count):
        for i in range(count):
            # Some read to the end, some leave in the middle, some are refused.
            code = 0 if i % 5 else 2
            work.pull("p", batch=10, steps=1 + i % 3, step=0 if i % 5 else 99, code=code)

    def quiet():
        return not work.ctl("status").document["streams"]

    some(20)
    wait_until(quiet, 2, "no stream is left")
    pids = {"spdld": daemon.pid, "spdld-worker": daemon.workers()[0] if daemon.workers() else daemon.pid}
    before, used = sizes(pids, folder), work.ctl("status").document["memory"]["used"]
    some(STREAMS)
    wait_until(quiet, 2, "no stream is left")
    wait_until(lambda: [n for _, n in sizes(pids, folder).values()] == [n for _, n in before.values()], 2,
               f"descriptors are as before ({before}; now {sizes(pids, folder)})")
    after = sizes(pids, folder)
    for name in pids:
        grown = after[name][0] - before[name][0]
        check(grown < 8 * MIB or harness.SANITIZED, f"{name} grew by {grown / MIB:.1f} MiB over {STREAMS} streams")
    equal(work.ctl("status").document["memory"]["used"], used, "memory accounted")


def test_streams_of_one_connection(work):
    """Streams opened, closed and unmapped one after another on one connection."""
    daemon = work.daemon(work.config("datasets:\n  p:\n    source: {synthetic: {samples: 1000, bytes: 100}}\n"))
    client = wire.Client(work.socket, 20.0 * harness.PATIENCE)
    client.send(wire.hello())
    client.receive()

    def some(count):
        for i in range(count):
            client.send(wire.open_stream(batch=4, request=i + 2, slots=2))
            reply = client.receive()
            check(3 in reply, f"stream {i} was not opened: {reply}")
            stream = wire.fields(reply[3][0])[1][0]
            for fd in client.fds:
                os.close(fd)
            client.fds = []
            client.send(wire.close(stream) + wire.frame(wire.blob(6, wire.number(1, stream))))

    def quiet():
        return not work.ctl("status").document["streams"]

    some(100)
    wait_until(quiet, 10, "no stream is left")
    pids = {"spdld": daemon.pid, "spdld-worker": daemon.workers()[0] if daemon.workers() else daemon.pid}
    before, used = sizes(pids, work.path), work.ctl("status").document["memory"]["used"]
    some(QUICK_STREAMS)
    wait_until(quiet, 10, "no stream is left")
    wait_until(lambda: [n for _, n in sizes(pids, work.path).values()] == [n for _, n in before.values()], 5,
               f"descriptors are as before ({before}; now {sizes(pids, work.path)})")
    after = sizes(pids, work.path)
    for name in pids:
        grown = after[name][0] - before[name][0]
        check(grown < 8 * MIB or harness.SANITIZED, f"{name} grew by {grown / MIB:.1f} MiB over {QUICK_STREAMS} streams")
    equal(work.ctl("status").document["memory"]["used"], used, "memory accounted")


if __name__ == "__main__":
    harness.main(globals())
