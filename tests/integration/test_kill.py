#!/usr/bin/python3
"""kill -9 at random moments of the daemon, its worker, a rank, or two at once, on a folder, on tar shards in block order and with posix
segments, while the hostile program is at work on the same socket: what is printed before and after, put together, is what an unkilled
pull prints. Nothing stays in /dev/shm, among the files or running. KILLS sets how many, KILL_SEED which moments."""
# alone: it measures how soon things happen after a death
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import tars  # noqa: E402
from harness import BUILD, PATIENCE, check, equal, wait_until  # noqa: E402

KILLS = int(os.environ.get("KILLS", "2000" if harness.SLOW else "100"))
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
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it was one of a user whose last stream is gone
        else:
            rank.kill()
            rank.wait()


class Hostile:
    """The hostile program, again and again for as long as it is wanted; what it must not be able to do fails the test."""

    def __init__(self, work):
        self.work, self.process, self.turn, self.out = work, None, 0, work.path / "hostile"

    def __enter__(self):
        self.go_on()
        return self

    def go_on(self):
        if self.process is not None and self.process.poll() is None:
            return
        self.look()
        self.turn += 1
        with open(self.out, "wb") as f:
            self.process = subprocess.Popen([str(BUILD / "hostile"), self.work.socket, "all", "5", str(self.turn)],
                                            stdin=subprocess.DEVNULL, stdout=f, stderr=f)
        self.work.started.append(self.process)

    def look(self):
        if self.process is not None:
            check(self.process.wait() in (0, -signal.SIGTERM), f"the hostile program says {self.out.read_text()[-400:]}")
            check("breach: " not in self.out.read_text(), f"the hostile program says {self.out.read_text()[-400:]}")

    def __exit__(self, *error):
        self.process.terminate()
        if error[0] is None:
            self.look()


def pull_with_kills(work, fleet, rng, wanted, out, hostile):
    """One pull of STEPS lines with random kills; a killed rank begins again behind its last line."""
    got, state = [], None
    while len(got) < STEPS:
        words = ["pull", "p", "--batch", BATCH, "--seed", 3, "--hash", "--delay-ms", 8, "--steps", STEPS - len(got)]
        hostile.go_on()
        rank = work.start_pull(out, *words, *(["--state", state] if state else []))
        while rank.poll() is None:
            time.sleep(rng.uniform(0.005, 0.12))
            if rank.poll() is None and sum(fleet.kills.values()) < wanted:
                for what in rng.sample(["daemon", "worker", "rank"], rng.choice([1, 1, 2])):
                    fleet.kill(what, rank)
        lines = whole_lines(out)
        if rank.returncode == 3 and not lines and "no spdld at" in pathlib.Path(str(out) + ".err").read_text():
            continue  # the daemon was killed before the rank had come to it
        check(rank.returncode in (0, -signal.SIGKILL), f"a pull ended with {rank.returncode}: {pathlib.Path(str(out) + '.err').read_text()[-400:]}")
        check(lines or rank.returncode, "a pull ended well without a line")
        got += lines
        state = got[-1]["state"] if got else None
    return got


def nothing_left(work):
    """Nothing in /dev/shm, no socket, no lock, no half-written file; that no process is left is looked at by the harness."""
    wait_until(lambda: not work.shm_left(), 1, f"/dev/shm is as before, without {work.shm_left()[:5]}")
    names = {path.name for path in work.path.rglob("*")}
    left = [name for name in names if name in ("s", "s.lock") or ".part" in name or ".tmp" in name]
    check(not left, f"files were left: {left}")


def kills_and_pulls(work, config, kills, seed, *sets):
    """Pulls until there were so many kills; each is what it is without."""
    fleet, rng = Fleet(work, config, *sets), random.Random(seed)
    unkilled = work.pull("p", batch=BATCH, seed=3, hash=True, steps=STEPS)
    equal(len(unkilled), STEPS, "lines without a kill")
    with Hostile(work) as hostile:
        while sum(fleet.kills.values()) < kills:
            got = pull_with_kills(work, fleet, rng, kills, work.path / "out", hostile)
            for a, b in zip(map(facts, got), map(facts, unkilled)):
                equal(a, b, f"a line after the kills {fleet.kills}")
            equal(len(got), STEPS, f"lines after the kills {fleet.kills}")
    fleet.daemon.stop()
    nothing_left(work)
    print(f"        kills: {fleet.kills}")


def test_random_kills(work):
    kills_and_pulls(work, work.config(harness.folder_config(harness.photos(300))), KILLS // 2, SEED)


def test_random_kills_on_tar_shards(work):
    order = "    order: {shuffle: block, block_samples: 64, lanes: 2}\n"
    config = work.config(tars.config(tars.shards(harness.photos(300), work.path / "t", apart=True), more=order))
    kills_and_pulls(work, config, KILLS - KILLS // 2 - KILLS // 10, SEED + 2)


def test_random_kills_with_posix_segments(work):
    config = work.config(harness.folder_config(harness.photos(300)))
    kills_and_pulls(work, config, KILLS // 10, SEED + 1, "shm=posix", "fetch.engine=pool")


def test_nothing_in_dev_shm_behind_a_kill(work):
    daemon, out = work.daemon(work.config(harness.folder_config(harness.photos(300))), "shm=posix"), work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 1000, "--delay-ms", 50, "--reconnect", 0)
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    daemon.kill()
    rank.wait(20)
    wait_until(lambda: not work.shm_left(), 1, "/dev/shm is as before 1 s after a kill")


def test_a_killed_index_leaves_no_file(work):
    """Of a builder that is killed while it writes nothing stays, and the next one makes the whole index."""
    tars.write(work.path / "t.tar", [(f"{i:06d}.txt", b"x") for i in range(6000)])
    config = work.config(f"datasets:\n  p:\n    source: {{tar: {work.path}/t.tar}}\n")
    (work.path / "index").mkdir()
    rng = random.Random(SEED)
    for _ in range(25):
        daemon = work.daemon(config)
        call = subprocess.Popen(work.command("index", "p"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=work.environment())
        time.sleep(rng.uniform(0, 0.02))
        daemon.kill()
        call.kill()
        call.communicate()
        left = [path.name for path in (work.path / "index").iterdir()]
        check(len(left) <= 1 and all(name.endswith(".index") for name in left), f"in the folder of indexes: {left}")
        for path in (work.path / "index").iterdir():
            path.unlink()
    daemon = work.daemon(config)
    equal(work.ctl("index", "p").document["samples"], 6000, "samples in the end")


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
    if "inproc" in os.environ.get("SPDLD", ""):
        raise harness.Skip("it has no worker process")
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
