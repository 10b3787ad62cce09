#!/usr/bin/python3
"""A thousand streams at once: what status and waiting cost the daemon. CPU time is counted, not the clock: the machine may be busy."""
# alone: it measures CPU time
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import wire  # noqa: E402
from harness import Skip, check, equal, wait_until  # noqa: E402

STREAMS, OF_PROCESS, OF_CONNECTION, OTHER = 1000, 100, 50, 65534
CONFIG = "socket_mode: 0666\nmemory: 6GiB\ndatasets:\n  p:\n    source: {synthetic: {samples: 100000, bytes: 100}}\n"


def cpu_s(pids):
    """CPU time of processes so far."""
    ticks = 0
    for pid in pids:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def hold(work, user, count):
    """A process that opens streams, says so, and holds them until it is killed. Returns (its pid, what it says)."""
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        return child, told
    try:
        if user:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        clients, said = [], "ok"
        for number in range(count):
            if number % OF_CONNECTION == 0:
                clients.append(wire.Client(work.socket))
                clients[-1].send(wire.hello())
                clients[-1].receive()
            clients[-1].send(wire.open_stream(batch=1, request=number + 2, slots=2))
            reply = clients[-1].receive()
            if 3 not in reply:
                said = f"stream {number}: {reply}"
                break
        os.write(tell, said.encode())
        time.sleep(3600)
    finally:
        os._exit(1)


def open_many(work, streams):
    holders = []
    for first in range(0, streams, OF_PROCESS):
        user = OTHER if os.geteuid() == 0 and first >= streams // 2 else None
        child, told = hold(work, user, min(OF_PROCESS, streams - first))
        holders.append(child)
        said = os.read(told, 4096).decode()
        os.close(told)
        equal(said, "ok", "what a process with streams says")
    return holders


def settled(pids):
    """Waits until the daemon has nothing to do: every ring is full."""
    before, quiet = cpu_s(pids), 0
    end = time.monotonic() + 120 * harness.PATIENCE
    while quiet < 3:
        check(time.monotonic() < end, "the rings are not full after two minutes")
        time.sleep(0.2)
        now = cpu_s(pids)
        quiet, before = (quiet + 1 if now - before <= 0.02 else 0), now


def cost(work, daemon, window_s, questions):
    """(share of a core while nothing happens, CPU seconds of a status, seconds of a status) of daemon and workers."""
    pids = [daemon.pid, *daemon.workers()]
    settled(pids)
    began, used = time.monotonic(), cpu_s(pids)
    time.sleep(window_s)
    idle = (cpu_s(pids) - used) / (time.monotonic() - began)
    client, taken = wire.Client(work.socket), []
    client.send(wire.hello())
    client.receive()
    used = cpu_s(pids)
    for _ in range(questions):
        began = time.monotonic()
        client.send(wire.status())
        client.receive()
        taken.append(time.monotonic() - began)
        time.sleep(0.05)  # it is not asked without pause: a share of its time is for those who ask
    return idle, (cpu_s(pids) - used) / questions, sorted(taken)[len(taken) // 2]


def test_a_thousand_streams(work):
    if not harness.SLOW:
        raise Skip("a thousand streams are opened with TEST_SLOW=1")
    work.path.chmod(0o711)
    daemon = work.daemon(work.config(CONFIG))
    alone = open_many(work, 1)
    few = cost(work, daemon, 3, 20)
    holders = open_many(work, STREAMS - 1)
    try:
        equal(len(work.ctl("status").document["streams"]), STREAMS, "streams that status shows")
        many = cost(work, daemon, 10, 40)
    finally:
        for child in alone + holders:
            os.kill(child, 9)
            os.waitpid(child, 0)
    for name, (idle, cpu, taken) in (("1 stream", few), (f"{STREAMS} streams", many)):
        print(f"        {name}: idle {idle * 100:.2f} % of a core; status {taken * 1e3:.2f} ms, {cpu * 1e3:.2f} ms of CPU")
    wait_until(lambda: not json.loads(work.ctl("status").out)["streams"], 30, "the streams of killed processes are gone")
    check(many[0] < 0.01, f"{STREAMS} streams that wait use {many[0] * 100:.2f} % of a core")
    check(many[1] <= 0.05, f"a status of {STREAMS} streams takes {many[1] * 1e3:.1f} ms of CPU")


harness.main(globals())
