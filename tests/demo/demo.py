#!/usr/bin/python3
"""The main job on real photographs, as a person would see it: two ranks, two epochs, kill -9 of the daemon, of its worker and of a rank in
the middle, the proof by hashes that nothing was lost or repeated, the speed beside a bare decoding loop, and a contact sheet.

usage: demo.py [--build DIR] [--out DIR]      DATA=folder takes your own pictures (ten are enough)
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness  # noqa: E402
import photos as photo_maker  # noqa: E402

PHOTOS, WORLD, EPOCHS, SEED, KILLED_RUN_S = 640, 2, 2, 2024, 4.0
BARE_PICTURES = 300


class Sorry(Exception):
    """What the demo says before it ends with 1."""


def say(text=""):
    print(text, flush=True)


class Demo:
    def __init__(self, build, folder, work):
        self.build, self.folder, self.work = build, folder, pathlib.Path(work)
        self.socket, self.log = str(self.work / "spdld.sock"), self.work / "spdld.log"
        self.config = self.work / "spdld.yaml"
        self.daemon = None
        self.config.write_text(f"datasets:\n  pictures:\n    source: {{folder: {json.dumps(str(folder))}}}\n    preset: imagenet-train\n"
                               "    on_error: {max_rate: 1}\n")

    # The daemon and what is asked of it.

    def start(self):
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen([self.build / "spdld", "-c", self.config, "--socket", self.socket, "--foreground"],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(1000):
            if self.daemon.poll() is not None:
                raise Sorry(f"spdld ended with {self.daemon.returncode}:\n{self.log.read_text(errors='replace')[-1000:]}")
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(self.socket)
                    return
                except OSError:
                    time.sleep(0.01)
        raise Sorry("spdld does not answer on its socket")

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(10)
            except subprocess.TimeoutExpired:
                self.daemon.kill()

    def words(self, *words):
        return [str(self.build / "spdlctl"), "--socket", self.socket, "--json", *map(str, words)]

    def ask(self, *words):
        r = subprocess.run(self.words(*words), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if r.returncode:
            raise Sorry(f"spdlctl {' '.join(map(str, words))}: {r.stderr.strip()}")
        return [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]

    def workers(self):
        return harness.children_of(self.daemon.pid)


class Rank:
    """A test rank: `spdlctl pull` and its lines, each as soon as it is printed. Begins again behind its last line when it was killed."""

    def __init__(self, demo, rank, batch, steps, delay_ms):
        self.demo, self.rank, self.batch, self.steps, self.delay_ms = demo, rank, batch, steps, delay_ms
        self.lines, self.times, self.error, self.process, self.killed = [], [], None, None, False
        self.thread = threading.Thread(target=self.run)

    def words(self):
        words = ["pull", "pictures", "--batch", self.batch, "--rank", self.rank, "--world", WORLD, "--hash", "--steps", self.steps - len(self.lines)]
        words += ["--state", self.lines[-1]["state"]] if self.lines else ["--seed", SEED]
        return self.demo.words(*words, *(["--delay-ms", self.delay_ms] if self.delay_ms else []))

    def run(self):
        while len(self.lines) < self.steps:
            self.killed = False
            with tempfile.TemporaryFile() as err:
                self.process = subprocess.Popen(self.words(), stdout=subprocess.PIPE, stderr=err, text=True, stdin=subprocess.DEVNULL)
                for line in self.process.stdout:
                    if line.endswith("\n"):
                        self.lines.append(json.loads(line))
                        self.times.append(time.monotonic())
                code = self.process.wait()
                err.seek(0)
                said = err.read().decode(errors="replace").strip()
            if code and not self.killed:
                self.error = f"rank {self.rank} ended with {code}: {said}"
                return

    def kill(self):
        self.killed = True
        self.process.kill()

    def give_up(self):
        self.steps = 0
        self.kill()


def run_ranks(demo, batch, steps, delay_ms, events=()):
    """Runs all ranks to their end; events are (line of rank 0, function), in order. Returns the ranks."""
    ranks = [Rank(demo, r, batch, steps, delay_ms) for r in range(WORLD)]
    for rank in ranks:
        rank.thread.start()
    try:
        for at, event in events:
            while len(ranks[0].lines) < at and ranks[0].thread.is_alive():
                time.sleep(0.002)
            event(ranks)
    except BaseException:
        for rank in ranks:
            rank.give_up()
        raise
    for rank in ranks:
        rank.thread.join()
        if rank.error:
            raise Sorry(rank.error)
    return ranks


def when_next(rank, since, count):
    """Milliseconds from `since` until the rank had printed another line."""
    end = time.monotonic() + 60
    while len(rank.lines) <= count and rank.thread.is_alive() and time.monotonic() < end:
        time.sleep(0.001)
    return (rank.times[count] - since) * 1000 if len(rank.times) > count else float("nan")


def kill_events(demo, steps):
    def daemon(ranks):
        pid, count, since = demo.daemon.pid, len(ranks[0].lines), time.monotonic()
        demo.daemon.kill()
        demo.daemon.wait()
        demo.start()
        say(f"   after step {count:3}: kill -9 of the daemon (pid {pid}), started again as {demo.daemon.pid}; "
            f"rank 0 has its next batch {when_next(ranks[0], since, count):.0f} ms later")

    def worker(ranks):
        # A rank reads what its old ring still holds before it opens a stream of the new daemon: the worker may be yet to come.
        pids = demo.workers()
        while not pids and ranks[0].thread.is_alive():
            time.sleep(0.002)
            pids = demo.workers()
        if not pids:
            raise Sorry("the daemon has no worker to kill")
        count, since = len(ranks[0].lines), time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        later = when_next(ranks[0], since, count)
        end = time.monotonic() + 2  # where all rows were made already, the other worker comes a moment later
        while not set(demo.workers()) - set(pids) and time.monotonic() < end and ranks[0].thread.is_alive():
            time.sleep(0.002)
        another = ", ".join(map(str, set(demo.workers()) - set(pids))) or "another when it is needed"
        say(f"   after step {count:3}: kill -9 of the worker (pid {pids[0]}), spdld started {another}; "
            f"rank 0 has its next batch {later:.0f} ms later")

    def rank(ranks):
        pid, count, since = ranks[1].process.pid, len(ranks[1].lines), time.monotonic()
        ranks[1].kill()
        later = when_next(ranks[1], since, count)
        say(f"   after step {count:3}: kill -9 of rank 1 (pid {pid}), started again with the state of its last batch; "
            f"it has its next batch {later:.0f} ms later")

    return [(max(1, steps // 4), daemon), (max(2, steps // 2), worker), (max(3, 3 * steps // 4), rank)]


def facts(line):
    return (line["epoch"], line["step"], line["rows"], line["valid"], line["ids"], line["keys"], line["fields"]["image"]["row_hashes"],
            line["fields"]["label"]["row_hashes"], line["state"])


def own_keys(line):
    """The samples that the order has at the rows' places: where another is shown, the one that failed."""
    keys = list(line["keys"])
    for row in line["substituted"]:
        keys[row["row"]] = row["key"]
    return keys


def prove(whole, killed, batch, samples):
    """Compares both runs line by line, and counts each epoch's samples."""
    for rank, (a, b) in enumerate(zip(whole, killed)):
        for step, (x, y) in enumerate(zip(map(facts, a.lines), map(facts, b.lines))):
            if x != y:
                raise Sorry(f"NOT PROVED: rank {rank} got another batch than without kills as its {step + 1}th: {str(y)[:300]} instead of {str(x)[:300]}")
        if len(a.lines) != len(b.lines):
            raise Sorry(f"NOT PROVED: rank {rank} got {len(b.lines)} batches with kills and {len(a.lines)} without")
    rows = [(line["epoch"], key) for rank in killed for line in rank.lines for key in own_keys(line)]
    if len(set(rows)) != len(rows):
        raise Sorry("NOT PROVED: a sample came twice in an epoch")
    wanted = samples // batch * batch * EPOCHS
    if len(rows) != wanted:
        raise Sorry(f"NOT PROVED: {len(rows)} rows, wanted {wanted}")
    say(f"   {len(rows)} rows on {WORLD} ranks: each rank's batches are the same, in the same order, to the last bit (XXH3 of every row),")
    say("   and no sample came twice or was missing in an epoch. Nothing was lost, nothing repeated.")


def bad_samples(ranks):
    found = {}
    for rank in ranks:
        for line in rank.lines:
            for error in line["errors"]:
                found[error["key"]] = error
    if found:
        say(f"   {len(found)} pictures could not be used; others are shown in their places:")
        for key, error in sorted(found.items())[:5]:
            say(f"     {key}: {error['class']}: {error.get('message', '')}")


def choose_batch(samples):
    """Big enough to be like a job, small enough for some steps."""
    for batch in (64, 32, 16, 8, 4, 2):
        if samples >= batch * 5:
            return batch
    return 2


def bare_loop(demo):
    """Pictures per CPU second of decode, crop and resize alone, or None where it cannot be measured."""
    program = demo.build / "bare_decode"
    made = subprocess.run(["make", "-s", "--no-print-directory", f"BUILD={demo.build}", "bare-decode"], cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        return None, "it cannot be built here: " + (made.stderr.strip().splitlines() or ["?"])[-1]
    from PIL import Image
    links, count = demo.work / "bare" / "all", 0
    links.mkdir(parents=True)
    for path in sorted(demo.folder.rglob("*")):
        if path.suffix.lower() in (".jpg", ".jpeg") and path.is_file() and count < BARE_PICTURES:
            try:
                with Image.open(path) as picture:
                    if picture.format == "JPEG" and picture.mode in ("RGB", "L") and max(picture.size) < 4000:
                        (links / f"{count:05d}.jpg").symlink_to(path.resolve())
                        count += 1
            except Exception:  # a picture that is none is no picture for the bare loop either
                continue
    if not count:
        return None, "no picture that it can read"
    r = subprocess.run([program, links.parent, str(BARE_PICTURES), "2"], capture_output=True, text=True)
    if r.returncode:
        return None, (r.stderr.strip().splitlines() or ["it failed"])[-1]
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    return next(line["samples_per_cpu_s"] for line in lines if line["bare"] == "train"), ""


def speed(demo, batch):
    before, why_not = bare_loop(demo)
    result = demo.ask("bench", "pictures", "--batch", batch, "--seconds", 6)[-1]
    say(f"   {result['samples_per_s']:.0f} pictures a second on {len(os.sched_getaffinity(0))} CPUs; waits of the rank: p50 {result['wait_p50_us']:.0f} µs, "
        f"p99 {result['wait_p99_us']:.0f} µs; first batch after {result['first_batch_ms']:.0f} ms; {result['pss_mib']:.0f} MiB")
    say(f"   CPU per picture of daemon, worker and rank together: {result['cpu_us_per_sample']:.0f} µs")
    if before:
        say(f"   a bare loop that only decodes, crops and resizes:     {1e6 / before:.0f} µs; ratio {result['samples_per_cpu_s'] / before:.2f}")
    else:
        say(f"   (the bare loop was not measured: {why_not})")


def pictures():
    own = os.environ.get("DATA", "")
    if own:
        folder = pathlib.Path(own).resolve()
        if not folder.is_dir():
            raise Sorry(f"DATA={own}: there is no such folder")
        return folder
    try:
        return pathlib.Path(photo_maker.make(str(ROOT / "build" / "photos" / str(PHOTOS)), PHOTOS))
    except photo_maker.NoWallpapers as error:
        raise Sorry(str(error)) from error


def show(demo, out):
    demo.start()
    first = demo.ask("pull", "pictures", "--batch", WORLD, "--steps", 1)
    if not first:
        raise Sorry("the daemon gave no batch")
    r = subprocess.run(demo.words("datasets"), capture_output=True, text=True)
    listed = json.loads(r.stdout)
    listed = listed.get("datasets", [listed]) if isinstance(listed, dict) else listed
    samples = next(d["samples"] for d in listed if d["name"] == "pictures")
    batch = choose_batch(samples)
    steps = samples // batch * EPOCHS
    say(f"{samples} pictures in {demo.folder}")
    say()
    say(f"1. {WORLD} ranks, {EPOCHS} epochs, {steps} steps of {batch} pictures, undisturbed")
    began = time.monotonic()
    whole = run_ranks(demo, batch, steps, 0)
    say(f"   {sum(line['rows'] for rank in whole for line in rank.lines)} rows in {time.monotonic() - began:.1f} s")
    bad_samples(whole)
    say()
    say("2. The same again, with kill -9 in the middle")
    killed = run_ranks(demo, batch, steps, max(5, min(400, int(KILLED_RUN_S * 1000 / steps))), kill_events(demo, steps))
    say()
    say("3. Proof")
    prove(whole, killed, batch, samples)
    say()
    say("4. Speed")
    speed(demo, batch)
    say()
    sheet = out / "batch.png"
    demo.ask("preview", "pictures", "--batch", min(batch, 16), "-o", sheet)
    say(f"5. A batch as a trainer sees it: {os.path.relpath(sheet)}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default=str(ROOT / "build" / "demo"))
    args = parser.parse_args()
    build, out = (ROOT / args.build).resolve(), pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spdl-demo-") as work:
        demo = None
        try:
            demo = Demo(build, pictures(), work)
            show(demo, out)
            return 0
        except Sorry as sorry:
            say(f"demo: {sorry}")
            if demo and demo.log.exists():
                say("\n".join("  spdld said: " + line for line in demo.log.read_text(errors="replace").splitlines()[-15:]))
            return 1
        finally:
            if demo:
                demo.stop()


if __name__ == "__main__":
    sys.exit(main())
