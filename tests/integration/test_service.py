#!/usr/bin/python3
"""What spdld says to a service manager and takes from it, with a manager of the test's own: READY, STATUS, WATCHDOG that follows the conductor
alone, RELOADING, STOPPING; a socket that outlives the daemon."""
import ctypes
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal, wait_until, without_waits  # noqa: E402

WATCHDOG_S = 0.4
DATASETS = "datasets:\n  a:\n    source: {synthetic: {samples: 4000, bytes: 64}}\n    order: {shuffle: global}\n"


class Manager:
    """Its notification socket, and what came in there."""

    def __init__(self, work):
        self.path = str(work.path / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.messages = []

    def take(self, timeout_s=0.0):
        """Messages as {name: value}, those that came since the last call."""
        new = []
        while select.select([self.socket], [], [], 0 if new else timeout_s)[0]:
            new.append(dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines() if "=" in line))
        self.messages += new
        return new

    def wait(self, name, timeout_s=10.0):
        def found():
            self.take(0.05)
            return [m for m in self.messages if name in m]
        return wait_until(found, timeout_s, f"{name} is said")


def daemon_of(work, manager, config, watchdog=True):
    """WATCHDOG_PID must be the daemon's own, which is known behind the fork alone: a shell becomes it."""
    script = work.path / "start"
    feed = f"WATCHDOG_PID=$$ WATCHDOG_USEC={int(WATCHDOG_S * 1e6)} " if watchdog else ""
    script.write_text(f'#!/bin/sh\nexport {feed}NOTIFY_SOCKET={manager.path}\nexec "{os.environ.get("SPDLD") or harness.BUILD / "spdld"}" "$@"\n')
    script.chmod(0o755)
    return work.daemon(config, program=script)


def test_what_is_said(work):
    manager, config = Manager(work), work.config(DATASETS)
    daemon = daemon_of(work, manager, config)
    ready = manager.wait("READY")[0]
    equal((ready["READY"], ready["MAINPID"], ready["STATUS"]), ("1", str(daemon.pid), "waits for ranks; 1 datasets"), "READY")
    config.write_text("slots: 6\n" + DATASETS)
    manager.messages.clear()
    before_us = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    os.kill(daemon.pid, signal.SIGHUP)
    reloading = manager.wait("RELOADING")[0]
    check(before_us <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6, f"{reloading}")
    manager.wait("READY")
    manager.messages.clear()
    rank = work.start_pull(work.path / "out", "pull", "a", "--batch", 16, "--steps", 100000, "--delay-ms", 20)
    wait_until(lambda: manager.take(0.05) is not None and [m for m in manager.messages if m.get("STATUS", "").startswith("serves 1 streams, ")], 15, "STATUS names the stream")
    rank.kill()
    manager.messages.clear()
    equal(daemon.stop(), 0, "exit code")
    equal(manager.wait("STOPPING")[0]["STOPPING"], "1", "STOPPING")
    for worker_env in ("LISTEN_FDS", "WATCHDOG_USEC"):
        check(worker_env not in os.environ, "the test's own environment has been changed")


def feeds(manager, seconds):
    manager.take()
    manager.messages.clear()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        manager.take(0.02)
    return sum("WATCHDOG" in m for m in manager.messages)


def test_the_watchdog_follows_the_conductor(work):
    """Stopped by ptrace, the conductor's thread alone stands still; all other threads run on, and the feeding ends."""
    manager = Manager(work)
    daemon = daemon_of(work, manager, work.config(DATASETS))
    manager.wait("READY")
    check(feeds(manager, 3 * WATCHDOG_S) >= 3, "an idle daemon feeds too seldom")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(0x4206, daemon.pid, None, None) < 0:  # PTRACE_SEIZE
        raise harness.Skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(0x4207, daemon.pid, None, None)  # PTRACE_INTERRUPT
    os.waitpid(daemon.pid, 0x40000000)  # __WALL
    others = [t for t in os.listdir(f"/proc/{daemon.pid}/task") if int(t) != daemon.pid]
    check(others, "the conductor is the only thread: nothing is tested")
    manager.take(0.1)
    equal(feeds(manager, 2 * WATCHDOG_S), 0, "feeds while the conductor stands still")
    for thread in others:
        state = pathlib.Path(f"/proc/{daemon.pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()[0]
        check(state in "SDR", f"thread {thread} is {state}: it should run on")
    libc.ptrace(17, daemon.pid, None, None)  # PTRACE_DETACH
    check(feeds(manager, 3 * WATCHDOG_S) >= 2, "it does not feed again")


def test_no_manager_no_words(work):
    """A private daemon that a service starts says nothing in its name, and takes none of its sockets."""
    manager = Manager(work)
    env = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "100000", "LISTEN_FDS": "1", "LISTEN_PID": "1"}
    work.pull("a", batch=4, steps=2, config=work.config(DATASETS), env=env)
    equal(manager.take(0.2), [], "what a private daemon said")


class Activated:
    """A socket that stays while daemons come and go."""

    def __init__(self, work, config):
        self.work, self.config = work, config
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(work.socket)
        self.listener.listen(64)
        self.script = work.path / "start"
        self.script.write_text(f'#!/bin/sh\nexport LISTEN_FDS=1 LISTEN_PID=$$\nexec "{os.environ.get("SPDLD") or harness.BUILD / "spdld"}" "$@" 3<&{self.listener.fileno()}\n')
        self.script.chmod(0o755)
        self.count = 0

    def start(self):
        self.count += 1
        log = self.work.path / f"activated-{self.count}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([self.script, "-c", self.config, "--socket", "/nowhere/else", "--set", "index_dir=none"], stdout=out, stderr=out,
                                       pass_fds=[self.listener.fileno()])
        self.work.started.append(process)
        return process, log


def test_the_socket_outlives_the_daemon(work):
    config = work.config(DATASETS)
    activated = Activated(work, config)
    out = work.path / "out"
    how = ["--batch", 16, "--seed", 3, "--hash", "--steps", 60, "--delay-ms", 20]
    rank = work.start_pull(out, "pull", "a", *how)  # waits: nobody serves yet
    daemon, log = activated.start()
    wait_until(lambda: out.stat().st_size > 0, 20, "a rank that came before the daemon is served")
    check(f"listens on {work.socket}" in log.read_text(), log.read_text())
    for kill in (True, False, True):
        daemon.kill() if kill else daemon.terminate()
        code = daemon.wait(10)
        equal(code, -signal.SIGKILL if kill else 0, "exit code of the daemon")
        check(os.path.exists(work.socket), "the socket is gone with the daemon")
        daemon, log = activated.start()
        lines = out.read_text().count("\n")
        wait_until(lambda n=lines: out.read_text().count("\n") > n + 2, 20, "batches flow again")
    equal(rank.wait(60 * harness.PATIENCE), 0, "exit code of the rank")
    import json
    got = [json.loads(line) for line in out.read_text().splitlines()]
    equal(without_waits(got), without_waits(work.pull("a", batch=16, seed=3, hash=True, steps=60)), "its lines")
    second = subprocess.run([harness.BUILD / "spdld", "-c", config, "--socket", work.socket], capture_output=True, text=True, check=False)
    equal(second.returncode, 3, "exit code of a second daemon on that socket")
    daemon.terminate()
    equal(daemon.wait(10), 0, "exit code at the end")


def test_a_socket_that_does_not_fit(work):
    config = work.config(DATASETS)
    activated = Activated(work, config)
    activated.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    activated.listener.bind(("127.0.0.1", 0))
    activated.listener.listen(1)
    activated.script.write_text(f'#!/bin/sh\nexport LISTEN_FDS=1 LISTEN_PID=$$\nexec "{harness.BUILD}/spdld" "$@" 3<&{activated.listener.fileno()}\n')
    daemon, log = activated.start()
    equal(daemon.wait(10), 1, "exit code")
    check("UNIX stream socket" in log.read_text(), log.read_text())


if __name__ == "__main__":
    harness.main(globals())
