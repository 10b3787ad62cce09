#!/usr/bin/python3
"""Users beside each other in one daemon: each has a worker, an arena and reads of its own, and what one of them does to his costs the others nothing."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

USERS = (65534, 65533, 65532, 65531)
SYNTHETIC = "datasets:\n  p:\n    source: {synthetic: {samples: 100000, bytes: 20000}}\n"


def daemon_for_all(work, config, *sets):
    if os.geteuid() != 0:
        raise harness.Skip("only root can have ranks of several users")
    os.chmod(work.path, 0o755)
    if subprocess.run(["test", "-x", harness.BUILD / "spdlctl"], user=USERS[0], check=False).returncode != 0:
        raise harness.Skip("other users cannot run what was built here")
    daemon = work.daemon(work.config(config), "socket_mode=0666", *sets)
    return daemon


def start(work, user, *words):
    """A pull by that user; its lines and its errors in files."""
    out = work.path / f"out-{len(work.started)}"
    with open(out, "wb") as f, open(str(out) + ".err", "wb") as err:
        process = subprocess.Popen(work.command("pull", "p", *words), stdout=f, stderr=err, stdin=subprocess.DEVNULL, user=user, group=user,
                                   env=work.environment())
    work.started.append(process)
    return process, out


def lines_of(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


def memory_of(pid):
    """Inodes of the segments that a process maps."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in maps if "memfd:" in line or "/dev/shm" in line or "(deleted)" in line}


def wait_for_lines(out, count):
    wait_until(lambda: out.read_bytes().count(b"\n") >= count, 20, f"{count} lines in {out.name}")


def test_no_segment_is_seen_by_two_workers(work):
    daemon = daemon_for_all(work, SYNTHETIC)
    ranks = [start(work, user, "--batch", 8, "--steps", 100000) for user in USERS[:3]]
    for _, out in ranks:
        wait_for_lines(out, 2)
    workers = daemon.workers()
    if not workers:
        raise harness.Skip("the workers are threads of this daemon")
    equal(len(workers), 3, "workers of three users")
    seen = [memory_of(pid) for pid in workers]
    check(all(len(s) >= 4 for s in seen), f"arena, rings and slots are not all mapped: {seen}")
    for i in range(3):
        for k in range(i):
            check(not seen[i] & seen[k], f"workers {workers[i]} and {workers[k]} map the same memory: {seen[i] & seen[k]}")
    status = work.ctl("status").document
    equal(status["memory"]["used"] > status["arena"]["bytes"], True, "memory in use has the arenas in it")


def test_a_stopped_worker_holds_up_its_user_alone(work):
    """Several streams of one user whose worker is stopped, with files that fill the arena: the other user's rate and lines stay."""
    daemon = daemon_for_all(work, harness.folder_config(harness.photos(300)), "memory=256MiB", "fetch.memory=8MiB")
    reference = work.pull("p", batch=8, steps=60, hash=True)
    wait_until(lambda: not daemon.workers(), 10, "the worker of a user without streams ends")
    victims = [start(work, USERS[0], "--batch", 64, "--steps", 100000) for _ in range(3)]
    for _, out in victims:
        wait_for_lines(out, 1)
    others = set(daemon.workers())
    rank, out = start(work, USERS[1], "--batch", 8, "--steps", 60, "--hash")
    equal(rank.wait(60 * harness.PATIENCE), 0, "exit code beside busy streams")
    if not others:
        raise harness.Skip("the workers are threads of this daemon")
    mine = set(daemon.workers()) - others
    equal(len(mine), 1, "the other user's worker")
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.5)
        rank, out = start(work, USERS[1], "--batch", 8, "--steps", 60, "--hash")
        equal(rank.wait(60 * harness.PATIENCE), 0, "exit code beside a stopped worker")
        equal(harness.without_waits(lines_of(out)), harness.without_waits(reference), "lines beside a stopped worker")
        check(all(process.poll() is None for process, _ in victims), "a rank of the stopped worker is gone")
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    for _, victim in victims:
        before = victim.read_bytes().count(b"\n")
        wait_for_lines(victim, before + 2)


def test_memory_for_one_more_user(work):
    """It is refused with the numbers while others have it, and given when they are gone."""
    daemon_for_all(work, SYNTHETIC, "memory=24MiB", "fetch.memory=8MiB")
    ranks = [start(work, user, "--batch", 4, "--steps", 100000) for user in USERS[:2]]
    for _, out in ranks:
        wait_for_lines(out, 2)
    late, out = start(work, USERS[2], "--batch", 4, "--steps", 5)
    equal(late.wait(20 * harness.PATIENCE), 4, "exit code of a third user")
    said = pathlib.Path(str(out) + ".err").read_text()
    used = work.ctl("status").document["memory"]["used"]
    for number in (8 << 20, 24 << 20, used):
        check(f" {number} " in said or f" {number}:" in said, f"{number} is not said: {said!r}")
    ranks[0][0].terminate()
    ranks[0][0].wait()

    def served():
        late, out = start(work, USERS[2], "--batch", 4, "--steps", 5)
        return late.wait(20 * harness.PATIENCE) == 0 and len(lines_of(out)) == 5
    wait_until(served, 5, "the third user is served when the first is gone")


def test_a_seat_is_given_up(work):
    """When its last stream is gone its worker ends and its memory is free: a while later, or at once when it is wanted."""
    daemon = work.daemon(work.config(SYNTHETIC))
    equal(len(work.pull("p", batch=8, steps=5)), 5, "lines")
    check(work.ctl("status").document["memory"]["used"] > 0, "the seat is gone at once")
    wait_until(lambda: not daemon.workers() and work.ctl("status").document["memory"]["used"] == 0, 20, "the seat is given up")
    before = harness.descriptor_count(daemon.pid)
    for _ in range(2):
        equal(len(work.pull("p", batch=8, steps=5)), 5, "lines of the next")
    wait_until(lambda: harness.descriptor_count(daemon.pid) <= before, 20, "its descriptors are closed")


if __name__ == "__main__":
    harness.main(globals())
