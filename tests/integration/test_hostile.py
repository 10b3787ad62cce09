#!/usr/bin/python3
"""Clients that say wrong things, half things, nothing, or never give anything back. None of them disturbs an honest rank or the daemon."""
import fcntl
import mmap
import os
import pathlib
import random
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import wire  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

REPLY_HELLO, REPLY_OPEN, REPLY_END, REPLY_STATUS, REPLY_ERROR = 2, 3, 4, 6, 9


def daemon_with_honest_rank(work, *sets):
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))), *sets)
    reference = work.pull("p", batch=8, steps=12, hash=True)
    return daemon, reference


def still_honest(work, daemon, reference, what):
    check(daemon.process.poll() is None, f"the daemon ended ({daemon.process.returncode}) after {what}")
    equal(harness.without_waits(work.pull("p", batch=8, steps=12, hash=True)), harness.without_waits(reference), f"an honest pull after {what}")


def greeted(work):
    client = wire.Client(work.socket)
    client.send(wire.hello())
    reply = client.receive()
    check(reply is not None and REPLY_HELLO in reply, f"no answer to Hello: {reply}")
    return client


def opened(work, **how):
    client = greeted(work)
    client.send(wire.open_stream(**how))
    reply = client.receive()
    check(reply is not None and REPLY_OPEN in reply, f"no answer to Open: {reply}")
    stream = wire.fields(reply[REPLY_OPEN][0]).get(1, [0])[0]  # a 0 is not sent
    equal(len(client.fds), 3, "descriptors of a stream")
    return client, stream


def test_malformed_messages(work):
    daemon, reference = daemon_with_honest_rank(work)
    good = wire.hello()
    bad = {
        "a frame of no bytes": struct.pack("<I", 0),
        "a frame above the maximum": struct.pack("<I", wire.FRAME_MAX + 1) + b"x" * 100,
        "the largest length": b"\xff" * 8,
        "bytes that are no message": wire.frame(b"\xff" * 64),
        "a field cut short": wire.frame(b"\x12\x7f\x01"),
        "text": b"GET / HTTP/1.1\r\n\r\n" + b"x" * 2000,
        "an Open before Hello": wire.open_stream(),
        "an unknown version": wire.hello(protocol=99),
        "an unknown layout": wire.hello(layout=99),
        "an empty body": good + wire.frame(wire.number(1, 7)),
        "two Hellos": good + good,
        "a reply instead of a request": good + wire.frame(wire.blob(15, b"what")),
    }
    for what, content in bad.items():
        client = wire.Client(work.socket)
        client.send(content)
        client.socket.settimeout(2)
        replies = []
        try:
            while True:
                reply = client.receive()
                if reply is None:
                    break
                replies.append(reply)
        except TimeoutError:
            check(REPLY_ERROR in {k for r in replies for k in r}, f"{what}: neither closed nor answered with an error: {replies}")
        client.socket.close()
    still_honest(work, daemon, reference, "malformed messages")


def in_child(action):
    """Runs it in a process of its own: what a rank may have mapped counts until the rank is gone. Returns its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def send_random_bytes(work):
    rng = random.Random(5)
    template = [wire.hello(), wire.open_stream(), wire.release(1, [0, 1, 2]), wire.close(1), wire.status()]
    for i in range(300):
        client = wire.Client(work.socket)
        content = bytearray(b"".join(template[:1 + i % 5]))
        if i % 3 == 0:
            content = bytearray(rng.randbytes(rng.randint(1, 300)))
        else:
            for _ in range(rng.randint(1, 6)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            client.send(bytes(content[:rng.randint(1, len(content))]))
        except OSError:
            pass  # closed on us in the middle
        client.socket.close()


def test_random_bytes(work):
    daemon, reference = daemon_with_honest_rank(work)
    before = harness.descriptor_count(daemon.pid)
    equal(in_child(lambda: send_random_bytes(work)), 0, "exit code of the one that sends random bytes")
    still_honest(work, daemon, reference, "random bytes")
    wait_until(lambda: harness.descriptor_count(daemon.pid) <= before, 3, "descriptors are as before")


def test_half_messages_and_silence(work):
    daemon, reference = daemon_with_honest_rank(work)
    held = []
    for size in (1, 3, 4, 9):
        client = wire.Client(work.socket)
        client.send(wire.hello()[:size])
        held.append(client)
    held.append(wire.Client(work.socket))  # says nothing at all
    slow = wire.Client(work.socket)
    for byte in wire.hello():
        slow.send(bytes([byte]))
        time.sleep(0.002)
    check(REPLY_HELLO in (slow.receive() or {}), "a Hello that came byte by byte was not answered")
    still_honest(work, daemon, reference, "half messages")


def test_never_releases(work):
    daemon, reference = daemon_with_honest_rank(work)
    client, _ = opened(work)
    time.sleep(0.2)  # its ring is full now; nothing more can happen to it
    still_honest(work, daemon, reference, "a client that never releases")
    stream = [s for s in work.ctl("status").document["streams"] if s["pid"] == os.getpid()] \
        if "pid" in work.ctl("status").document["streams"][0] else work.ctl("status").document["streams"]
    equal(stream[0]["ready_slots"], 4, "ready slots of the one that never releases")
    client.socket.close()


def test_wrong_releases(work):
    daemon, reference = daemon_with_honest_rank(work)
    for sequences in ([5000], [2 ** 63], [0, 0, 0], list(range(2000))):
        client, stream = opened(work)
        time.sleep(0.05)
        for content in (wire.release(stream, sequences), wire.release(stream + 1000, [0]), wire.close(stream + 1000)):
            try:
                client.send(content)
            except OSError:
                break  # dropped already
        client.socket.settimeout(0.3)
        client.is_closed()
        client.socket.close()
    still_honest(work, daemon, reference, "releases of what was not given")


def test_strangers_releases(work):
    """A client names another's stream: nothing happens to it."""
    daemon, reference = daemon_with_honest_rank(work)
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 60, "--delay-ms", 10, "--hash")
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    client = greeted(work)
    for stream in range(64):
        try:
            client.send(wire.release(stream, list(range(30))) + wire.close(stream))
        except OSError:
            client = greeted(work)
    equal(rank.wait(30), 0, "exit code of the honest rank")
    import json
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    equal(harness.without_waits(lines[:12]), harness.without_waits(reference), "its lines")
    equal(len(lines), 60, "its lines")
    still_honest(work, daemon, reference, "a stranger's releases")


def test_segments_cannot_be_written(work):
    """What a rank is given is read-only, sealed, and cannot be opened for writing again."""
    work.daemon(work.config(harness.folder_config(harness.photos(300))))
    client, _ = opened(work)
    control, data, pipe = client.fds
    for name, fd in (("control", control), ("data", data)):
        size = os.fstat(fd).st_size
        check(size > 0, f"{name} is empty")
        for attempt in (lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
                        lambda: os.ftruncate(fd, 0), lambda: os.pwrite(fd, b"x", 0)):
            try:
                attempt()
            except (OSError, PermissionError, ValueError):
                continue
            raise harness.Failure(f"{name} could be changed by a rank")
        mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        mapped.close()
        # A data segment has a writer, the worker: only its mode keeps others out, and here we are its owner.
        if os.geteuid() != 0 and name == "control":
            try:
                again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
                try:
                    mmap.mmap(again, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
                    raise harness.Failure(f"{name} could be opened again for writing")
                finally:
                    os.close(again)
            except OSError:
                pass
    check(fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY, "the pipe's end of a rank can write")


def test_descriptors_are_not_kept(work):
    """Descriptors that a client sends are refused or closed at once, also while its connections stay open."""
    daemon, reference = daemon_with_honest_rank(work)
    before, held = harness.descriptor_count(daemon.pid), []
    for count in (1, 4, 64, 253):
        client = wire.Client(work.socket)
        for content in (wire.hello(), wire.status(), wire.status()):
            try:
                socket.send_fds(client.socket, [content], [0] * count)
            except PermissionError:
                client.send(content)  # the kernel does not let them through
            except OSError:
                break
        held.append(client)
    still_honest(work, daemon, reference, "descriptors")
    wait_until(lambda: harness.descriptor_count(daemon.pid) <= before + 2 * len(held), 3, "a socket and a process for each connection, and no more")


def test_many_connections(work):
    daemon, reference = daemon_with_honest_rank(work)
    held = []
    try:
        for _ in range(300):
            held.append(wire.Client(work.socket))
    except OSError:
        pass  # a limit is fine
    for client in held[:200]:
        client.socket.close()
    still_honest(work, daemon, reference, f"{len(held)} connections")
    for client in held:
        client.socket.close()
    wait_until(lambda: harness.descriptor_count(daemon.pid) < 100, 3, "descriptors of closed connections are closed")


def greedy(work):
    """Asks for more streams than fit. Returns (opened, refused)."""
    client, counts = greeted(work), [0, 0]
    for i in range(200):
        client.send(wire.open_stream(batch=8, request=10 + i))
        reply = client.receive()
        check(reply is not None, "the daemon closed a connection that asked for many streams")
        while reply is not None and REPLY_END in reply:
            reply = client.receive()
        counts[0 if REPLY_OPEN in reply else 1] += 1
        for fd in client.fds:
            os.close(fd)
        client.fds = []
    return counts


def test_many_streams_of_one_client(work):
    daemon, reference = daemon_with_honest_rank(work, "memory=256MiB")
    end, tell = os.pipe()
    in_child(lambda: os.write(tell, struct.pack("<ii", *greedy(work))))
    os.close(tell)
    told = os.read(end, 8)
    check(len(told) == 8, "the daemon closed a connection that asked for many streams")
    opened_count, refused = struct.unpack("<ii", told)
    check(opened_count > 3 and refused > 0, f"of 200 streams in 256 MiB {opened_count} were opened and {refused} refused")
    wait_until(lambda: not work.ctl("status").document["streams"], 3, "its streams are gone")
    still_honest(work, daemon, reference, "many streams")


def test_fork_keeps_the_socket_open(work):
    """A child that holds the dead rank's socket does not hold its slots: death is seen by the process."""
    daemon, reference = daemon_with_honest_rank(work)
    ready, tell = os.pipe()
    rank = os.fork()
    if rank == 0:
        client, _ = opened(work)
        child = os.fork()
        if child == 0:
            os.close(tell)
            time.sleep(30)
            os._exit(0)
        os.write(tell, struct.pack("<i", child))
        time.sleep(30)
        os._exit(0)
    child = struct.unpack("<i", os.read(ready, 4))[0]
    wait_until(lambda: work.ctl("status").document["streams"], 3, "the stream is there")
    os.kill(rank, signal.SIGKILL)
    os.waitpid(rank, 0)
    wait_until(lambda: not work.ctl("status").document["streams"], 1, "the stream of a dead rank is gone though its child has the socket")
    os.kill(child, signal.SIGKILL)
    still_honest(work, daemon, reference, "a forked client")


def test_noise_beside_an_honest_rank(work):
    """Wrong messages without end while an honest rank pulls: it gets its lines, and gets on."""
    daemon, reference = daemon_with_honest_rank(work)
    out, rng = work.path / "out", random.Random(8)
    rank = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 200, "--hash")
    count = 0
    while rank.poll() is None and count < 100000:
        try:
            client = wire.Client(work.socket)
            client.send(wire.hello() + rng.randbytes(rng.randint(1, 64)))
            client.socket.close()
        except OSError:
            pass
        count += 1
    equal(rank.wait(30), 0, f"exit code of the honest rank beside {count} noisy clients")
    equal(out.read_text().count("\n"), 200, "its lines")
    still_honest(work, daemon, reference, "noise")


if __name__ == "__main__":
    harness.main(globals())
