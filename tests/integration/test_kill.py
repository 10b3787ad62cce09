#!/usr/bin/python3
"""kill -9 at random moments of the daemon, its worker, a rank, or two at once: what is printed before and after, put together, is what an
unkilled pull prints. Nothing stays in /dev/shm or running. KILLS sets how many, KILL_SEED which moments."""
# alone: it measures how soon things happen after a death
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import tars  # noqa: E402
from harness import PATIENCE, check, equal, wait_until  # noqa: E402

KILLS = int(os.environ.get("KILLS", "200" if harness.SLOW else "24"))
SEED = int(os.environ.get("KILL_SEED", "7"))
STEPS, BATCH = 40, 32


def whole_lines(path):
    import json
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def facts(line):
    return (line["epoch"], line["step"], line["rows"], line["valid"], line["ids"], line["keys"], line["state"],
            line["fields"]["image"]["row_hashes"])


class Fleet:
    """A daemon that is started again when it was killed, and what is killed."""

    def __init__(self, work, config, *sets):
        self.work, self.config, self.sets, self.kills = work, config, sets, {"daemon": 0, "worker": 0, "rank": 0}
        self.daemon = work.daemon(config, *sets)

    def kill(self, what, rank):
        self.kills[what] += 1
        if what == "daemon":
            workers = self.daemon.workers()
            self.daemon.kill()
            wait_until(lambda: not any(map(harness.is_alive, workers)), 1, "the workers of a killed daemon end within 1 s")
            self.daemon = self.work.daemon(self.config, *self.sets)
        elif what == "worker":
            for pid in self.daemon.workers():
                os.kill(pid, signal.SIGKILL)
        else:
            rank.kill()
            rank.wait()


def pull_with_kills(work, fleet, rng, wanted, out):
    """One pull of STEPS lines with random kills; a killed rank begins again behind its last line."""
    got, state = [], None
    while len(got) < STEPS:
        words = ["pull", "p", "--batch", BATCH, "--seed", 3, "--hash", "--delay-ms", 8, "--steps", STEPS - len(got)]
        rank = work.start_pull(out, *words, *(["--state", state] if state else []))
        while rank.poll() is None:
            time.sleep(rng.uniform(0.01, 0.2))
            if rank.poll() is None and sum(fleet.kills.values()) < wanted:
                for what in rng.sample(["daemon", "worker", "rank"], rng.choice([1, 1, 2])):
                    fleet.kill(what, rank)
        lines = whole_lines(out)
        check(rank.returncode in (0, -signal.SIGKILL), f"a pull ended with {rank.returncode}: {pathlib.Path(str(out) + '.err').read_text()[-400:]}")
        check(lines or rank.returncode, "a pull ended well without a line")
        got += lines
        state = got[-1]["state"] if got else None
    return got


def test_random_kills(work):
    config = work.config(harness.folder_config(harness.photos(300)))
    fleet, rng = Fleet(work, config), random.Random(SEED)
    unkilled = work.pull("p", batch=BATCH, seed=3, hash=True, steps=STEPS)
    equal(len(unkilled), STEPS, "lines without a kill")
    while sum(fleet.kills.values()) < KILLS:
        got = pull_with_kills(work, fleet, rng, KILLS, work.path / "out")
        for a, b in zip(map(facts, got), map(facts, unkilled)):
            equal(a, b, f"a line after the kills {fleet.kills}")
        equal(len(got), STEPS, f"lines after the kills {fleet.kills}")
    fleet.daemon.stop()
    time.sleep(0.2)
    left = set(os.listdir("/dev/shm")) - work.shm_before
    check(not left, f"left in /dev/shm: {sorted(left)[:5]}")
    print(f"        kills: {fleet.kills}")


def test_random_kills_on_tar_shards(work):
    config = work.config(tars.config(tars.shards(harness.photos(300), work.path / "t", apart=True)))
    fleet, rng = Fleet(work, config), random.Random(SEED + 2)
    unkilled = work.pull("p", batch=BATCH, seed=3, hash=True, steps=STEPS)
    got = pull_with_kills(work, fleet, rng, max(6, KILLS // 8), work.path / "out")
    for a, b in zip(map(facts, got), map(facts, unkilled)):
        equal(a, b, f"a line after the kills {fleet.kills}")
    equal(len(got), STEPS, f"lines after the kills {fleet.kills}")


def test_nothing_in_dev_shm_with_posix_segments(work):
    config = work.config(harness.folder_config(harness.photos(300)))
    fleet, rng = Fleet(work, config, "shm=posix"), random.Random(SEED + 1)
    got = pull_with_kills(work, fleet, rng, 8, work.path / "out")
    equal(len(got), STEPS, "lines")
    equal([line["step"] + line["epoch"] * (300 // BATCH) for line in got], list(range(STEPS)), "steps")
    fleet.daemon.kill()
    wait_until(lambda: not set(os.listdir("/dev/shm")) - work.shm_before, 1, "/dev/shm is as before 1 s after a kill")


def test_slots_of_a_killed_rank_are_free_at_once(work):
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))))
    out = work.path / "out"
    used_before = work.ctl("status").document["memory"]["used"]
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 1000, "--delay-ms", 50)
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    used = work.ctl("status").document["memory"]["used"]
    check(used > used_before, f"a stream uses no memory: {used_before}, then {used}")
    rank.kill()
    rank.wait()
    began = time.monotonic()
    wait_until(lambda: not work.ctl("status").document["streams"], 2, "the stream of a killed rank is gone")
    took = time.monotonic() - began
    check(took < 0.25 * PATIENCE, f"its slots were free after {took * 1000:.0f} ms (asked by a program that takes some itself)")
    wait_until(lambda: work.ctl("status").document["memory"]["used"] <= used_before, 2, "its memory is given back")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_a_killed_worker_is_replaced(work):
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))))
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 400, "--hash")
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    for _ in range(3):
        workers = daemon.workers()
        check(workers, "the daemon has no worker")
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(daemon.workers()) - set(workers), 1, "another worker")
        lines = out.read_text().count("\n")
        wait_until(lambda: out.read_text().count("\n") > lines + 2 or rank.poll() is not None, 10, "the rank goes on")
    rank.terminate()
    rank.wait()
    lines = whole_lines(out)
    check(all(line["valid"] == line["rows"] for line in lines), "SIGKILL of a worker was counted against a sample")
    equal([line["step"] for line in lines[:9]], list(range(9)), "steps")


def test_a_stopped_rank_holds_only_its_own(work):
    """A rank that hangs (SIGSTOP) with all its slots full does not hold up another."""
    work.daemon(work.config(harness.folder_config(harness.photos(300))))
    out = work.path / "out"
    hung = work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 10000)
    wait_until(lambda: out.stat().st_size > 0, 10, "the first rank prints a line")
    hung.send_signal(signal.SIGSTOP)
    lines = work.pull("p", batch=BATCH, steps=30, seed=1)
    equal(len(lines), 30, "lines of the other rank")
    stopped = out.read_text().count("\n")
    hung.send_signal(signal.SIGCONT)
    wait_until(lambda: out.read_text().count("\n") > stopped, 10, "the hung rank goes on after SIGCONT")


def test_reconnect_has_an_end(work):
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))))
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 10000, "--delay-ms", 10, "--reconnect", 1)
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    daemon.kill()
    began = time.monotonic()
    code = rank.wait(20)
    took = time.monotonic() - began
    check(code in (1, 3), f"exit {code} of a rank whose daemon never came back")
    check(0.5 < took < 5 * PATIENCE, f"it gave up after {took:.1f} s, wanted about 1")
    said = pathlib.Path(str(out) + ".err").read_text()
    check("daemon" in said or "spdld" in said, f"it said {said!r}")


if __name__ == "__main__":
    harness.main(globals())
