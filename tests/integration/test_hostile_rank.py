#!/usr/bin/python3
"""The hostile program (tests/hostile) beside honest ranks: nothing forbidden succeeds, the daemon's process, generation, workers, streams,
descriptors and memory are as before, honest ranks print what they print alone, and have their batches in time."""
# alone: it measures what a flood costs others
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import tars  # noqa: E402
from harness import BUILD, PATIENCE, check, equal, wait_until  # noqa: E402

MODES = ("messages", "random", "fields", "change", "descriptors", "connections", "slow", "questions", "deaf", "hoard", "fork", "stop", "killed",
         "write", "resize", "pipe")
FLOODS = ("random", "fields", "descriptors", "connections", "questions", "deaf", "killed")
STRANGER = 65534
MIB = 1 << 20
SYNTHETIC = "datasets:\n  p:\n    source: {synthetic: {samples: 100000, bytes: 1000}}\n"


def hostile(work, mode, seconds=0.3, seed=1, uid=None, nice=0):
    words = [str(BUILD / "hostile"), work.socket, mode, str(seconds), str(seed), *([str(uid)] if uid is not None else [])]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            preexec_fn=lambda: os.nice(nice))


def ended_well(process, what):
    out, _ = process.communicate(timeout=60 * PATIENCE)
    equal(process.returncode, 0, f"exit code of the hostile program, {what}: {out.strip()[-500:]}")
    check(int(out.rsplit(":", 1)[1].split()[0]) > 0, f"{what} tried nothing: {out!r}")


def users():
    """Users that the hostile program is run as: the daemon's own, and a stranger where we may become one."""
    return (None, STRANGER) if os.geteuid() == 0 else (None,)


def let_everybody_in(work):
    os.chmod(work.path, 0o711)
    os.chmod(work.socket, 0o666)


def standing(work, daemon):
    """What a hostile rank must not change."""
    status = work.ctl("status").document
    return {**{key: status[key] for key in ("pid", "generation", "worker_restarts", "engine", "shm")},
            "datasets": [(d["name"], d["samples"], d["state"], d["plan_id"]) for d in status["datasets"]],
            "memory": status["memory"], "streams": status["streams"], "is alive": daemon.process.poll() is None}


def lines_of(path):
    import json
    return harness.without_waits([json.loads(line) for line in path.read_text().splitlines()])


def beside_honest_ranks(work, uids, source, text, *sets):
    """Every mode beside a rank whose lines are compared."""
    daemon = work.daemon(work.config(text), *sets)
    let_everybody_in(work)
    how = dict(batch=8, steps=40, hash=True)
    wanted = harness.without_waits(work.pull("p", **how))
    for uid in users():  # a first round, so that what is kept for the next one is there
        ended_well(hostile(work, "all", 1.0, 3, uid), f"all as {uid}")
    wait_until(lambda: not work.ctl("status").document["streams"], 10, "the streams of the hostile are gone")
    work.ctl("reload")  # the thread that it needs stays
    before, descriptors = standing(work, daemon), harness.descriptor_count(daemon.pid, source)
    resident = harness.private_bytes(daemon.pid)
    for uid in uids:
        for seed, mode in enumerate(MODES):
            rank = work.start_pull(work.path / "out", "pull", "p", *harness.pull_words(how))
            ended_well(hostile(work, mode, 2 if harness.SLOW else 0.2, seed, uid), f"{mode} as {uid}")
            equal(rank.wait(60 * PATIENCE), 0, f"exit code of the rank beside {mode} as {uid}")
            equal(lines_of(work.path / "out"), wanted, f"lines of the rank beside {mode} as {uid}")
    wait_until(lambda: standing(work, daemon) == before, 10, f"all stands as before ({before}; now {standing(work, daemon)})")
    wait_until(lambda: harness.descriptor_count(daemon.pid, source) <= descriptors, 10,
               f"descriptors are as before ({descriptors}; now {harness.descriptor_count(daemon.pid, source)})")
    grown = harness.private_bytes(daemon.pid) - resident
    # What it keeps of each of 1,024 streams for the next one is 12 KiB; how many there were at once is chance.
    check(grown < 20 * MIB or harness.SANITIZED, f"the daemon grew by {grown / MIB:.1f} MiB")


def test_beside_a_rank_on_a_folder(work):
    beside_honest_ranks(work, users() if harness.SLOW else users()[:1], harness.photos(300), harness.folder_config(harness.photos(300)))


def test_beside_a_rank_on_tar_shards(work):
    text = tars.config(tars.shards(harness.photos(300), work.path / "t"), more="    order: {shuffle: block, block_samples: 32}\n")
    beside_honest_ranks(work, users() if harness.SLOW else users()[-1:], work.path / "t", text, "shm=posix", "fetch.engine=pool")


def waited(work, steps, delay_ms, *others):
    """Share of its time that a rank waits for batches while the others are at it: every step must be ready when it comes back.
    CPUs are the kernel's to share out, so the others are nice: what counts here is whom the daemon has time for."""
    processes = [hostile(work, mode, steps * delay_ms / 1000 + 0.5, seed, uid, 19) for seed, (mode, uid) in enumerate(others)]
    lines = work.pull("p", batch=8, steps=steps, delay_ms=delay_ms)
    for (mode, _), process in zip(others, processes):
        process.terminate()
        process.communicate()
        check(process.returncode in (0, -15), f"{mode} ended with {process.returncode}")
    equal(len(lines), steps, "lines")
    waits_s = sum(line["wait_us"] for line in lines[1:]) / 1e6
    return waits_s / (waits_s + (steps - 1) * delay_ms / 1000)


def test_batches_are_in_time(work):
    """A rank that takes a batch every 20 ms loses less than 5 % of its rate to any flood."""
    daemon = work.daemon(work.config(SYNTHETIC))
    let_everybody_in(work)
    uid = users()[-1]
    for modes in [(mode,) for mode in FLOODS] + [FLOODS]:
        others = [(mode, uid) for mode in modes]
        share = min(waited(work, 40, 20, *others) for _ in range(1)) if not harness.SLOW else \
            statistics.median(waited(work, 100, 20, *others) for _ in range(3))
        if share > 0.05 and not harness.SLOW:  # the machine has other work, too
            share = min(share, waited(work, 80, 20, *others))
        check(share <= 0.05 * PATIENCE, f"beside {'+'.join(modes)} the rank waits {100 * share:.1f} % of its time")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_rates_in_turns(work):
    """The rate of one rank in windows with and without everything hostile, in turns: their medians differ by less than 5 %."""
    if not harness.SLOW:
        raise harness.Skip("takes a minute: TEST_SLOW=1")
    work.daemon(work.config(SYNTHETIC))
    let_everybody_in(work)
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", 8, "--steps", 1000000, "--delay-ms", 20)
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    rates = {True: [], False: []}
    for turn in range(16):
        loud = turn % 2 == 1
        processes = [hostile(work, mode, 2.5, turn, users()[-1], 19) for mode in FLOODS] if loud else []
        time.sleep(0.3)
        first, began = out.read_bytes().count(b"\n"), time.monotonic()
        time.sleep(1.5)
        rates[loud].append((out.read_bytes().count(b"\n") - first) / (time.monotonic() - began))
        for process in processes:
            process.communicate()
        time.sleep(0.3)
    ratio = statistics.median(rates[True]) / statistics.median(rates[False])
    print(f"        rate beside everything hostile: {ratio:.3f} of that without")
    check(ratio >= 0.95, f"the rank's rate is {ratio:.3f} of what it is alone: {rates}")


def test_a_user_has_a_limit_of_streams(work):
    """One process has up to 1,024 streams, the others keep theirs."""
    import wire
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 16384:
        raise harness.Skip("needs 16,384 descriptors")
    daemon = work.daemon(work.config(SYNTHETIC), "memory=4GiB")
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each stream is three descriptors here
        opened, reasons = 0, set()
        for _ in range(17):
            client = wire.Client(work.socket)
            client.send(wire.hello())
            client.receive()
            for request in range(70):
                client.send(wire.open_stream(batch=1, request=request + 2, slots=2))
                reply = client.receive()
                opened += 3 in reply
                reasons |= {wire.fields(reply[9][0])[3][0].decode() for _ in range(1) if 9 in reply}
            # its descriptors stay open: it holds all that it has
        os.write(tell, f"{opened} {'; '.join(sorted(reasons))}".encode())
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    words = os.read(told, 4096).decode()
    check(words.startswith("1024 ") and "this process has too many streams" in words and "on one connection" in words, f"it got {words!r}")
    wait_until(lambda: not work.ctl("status").document["streams"], 10, "its streams are gone")
    equal(len(work.pull("p", batch=8, steps=20)), 20, "lines of another")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_connections_with_few_descriptors(work):
    """Where the daemon may have 256 descriptors, processes that connect without end leave enough of them for a rank."""
    daemon = work.daemon(work.config(SYNTHETIC), prefix=("prlimit", "--nofile=256:256"))
    others = [hostile(work, "connections", 3, seed) for seed in range(2)]
    for _ in range(3):
        equal(len(work.pull("p", batch=8, steps=20)), 20, "lines of a rank beside two processes that connect without end")
    for process in others:
        ended_well(process, "connections")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_names_in_the_log_are_text(work):
    import wire
    daemon = work.daemon(work.config(SYNTHETIC))
    for name in (b"a\xff\xfe\x00b", b"\xc3\xa9t\xc3\xa9\n\x1b[31m", b"\xed\xa0\x80\xf4\x90\x80\x80"):
        client = wire.Client(work.socket)
        client.send(wire.hello(client=name) + wire.frame(b"\xff"))
        check(client.is_closed(), "a message that is none was taken")
    wait_until(lambda: daemon.log.read_bytes().count(b"is dropped") == 3, 5, "three lines in the log")
    text = daemon.log.read_bytes().decode()  # raises where it is no UTF-8
    check("\u00e9t\u00e9?" in text and "\x1b" not in text, f"the log says {text!r}")


if __name__ == "__main__":
    harness.main(globals())
