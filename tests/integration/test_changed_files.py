#!/usr/bin/python3
"""Files that change under us, behind their listing and while they are read: every picture that is delivered is whole, of one version; the others are of the
class that says what happened; the daemon and its worker stay."""
import collections
import functools
import json
import os
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import pictures  # noqa: E402
import tars  # noqa: E402
from harness import check, equal  # noqa: E402

SIDE, COUNT = 700, 16  # pictures of 1.4 MiB, so that they are met while they are written
AHEAD = 6  # rows that are read before the rank prints the one it has


def config(source, ops):
    return (f"datasets:\n  p:\n    source: {{{source}}}\n    fields:\n      image: {pictures.field(ops)}\n"
            "    order: {shuffle: none}\n    last: partial\n    on_error: {policy: mask, max_rate: 1, max_consecutive: 10000}\n")


def colour(number):
    return number * 7 + 20, 200 - number * 5, number


@functools.lru_cache(32)
def version(number):
    """A picture of one colour, without sums that would tell if two versions were mixed."""
    return pictures.bmp_24(pictures.solid(SIDE, SIDE, colour(number)))


def overwrite(path, data, rng):
    """In place, in one go, so that a reader meets it half done."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, data)
    os.close(fd)


def replace(path, data, rng):
    other = path.with_name(path.name + ".new")
    other.write_bytes(data)
    other.rename(path)


def cut(path, data, rng):
    os.truncate(path, rng.randrange(len(data)))
    time.sleep(rng.uniform(0, 0.005))
    replace(path, data, rng)


def grow(path, data, rng):
    with open(path, "ab") as f:
        f.write(data)
    time.sleep(rng.uniform(0, 0.005))
    replace(path, data, rng)


def remove(path, data, rng):
    path.unlink()
    time.sleep(rng.uniform(0, 0.005))
    replace(path, data, rng)


def forbid(path, data, rng):
    path.chmod(0)
    time.sleep(rng.uniform(0, 0.005))
    path.chmod(0o644)
    replace(path, data, rng)


class Writer(threading.Thread):
    """Changes the files, each once, those first that are about to be read, until it is told to stop."""

    def __init__(self, paths, ways, seed, lines):
        super().__init__()
        self.rng, self.paths, self.ways, self.lines = random.Random(seed), dict(enumerate(paths)), ways, lines
        self.ended, self.error = threading.Event(), None

    def run(self):
        try:
            while not self.ended.is_set() and self.paths:
                read = 2 * self.lines.read_bytes().count(b"\n") + AHEAD
                number = min(self.paths, key=lambda n: abs(n - read - self.rng.randrange(3)))  # noqa: B023
                self.rng.choice(self.ways)(self.paths.pop(number), version(number % 16 + 16), self.rng)
        except OSError as error:
            self.error = error


def is_whole(row):
    return (row == row[0, 0]).all() and row[0, 0, 0] > 0


def read_once(work, out, paths, ways, seed):
    """A pull whose files are changed as soon as they are listed (a file that is listed while it is half written is that file). Returns its lines."""
    for number, path in enumerate(paths):
        path.write_bytes(version(number % 16))
    lines = out.with_suffix(".lines")
    writer = Writer(paths, ways, seed, lines)
    rank = work.start_pull(lines, "pull", "p", "--batch", 2, "--steps", COUNT // 2, "--out", out, "--delay-ms", 40)
    harness.wait_until(lambda: lines.stat().st_size > 0, 10, "the rank prints a line")
    writer.start()
    code = rank.wait(60 * harness.PATIENCE)
    writer.ended.set()
    writer.join()
    equal((code, writer.error), (0, None), "exit code of the rank, error of the writer")
    return [json.loads(line) for line in lines.read_text().splitlines()]


def read_while(work, ways, rounds, sets):
    """Failures per class, of pulls beside a writer; what is delivered is whole and of the version that was listed."""
    folder = work.path / f"in-{len(work.daemons)}"
    folder.mkdir()
    paths = [folder / f"{i:02d}.bmp" for i in range(COUNT)]
    for path in paths:
        path.write_bytes(version(0))
    daemon = work.daemon(work.config(config(f"folder: {folder}", "{resize: {size: [16, 16]}}")), "slots=2", *sets)
    work.pull("p", batch=COUNT, steps=1)
    pids, classes = [daemon.pid, *daemon.workers()], collections.Counter()
    for number in range(rounds):
        out = folder.parent / f"{folder.name}-{number}"
        lines = read_once(work, out, paths, ways, number)
        for line in lines:
            failed = {error["row"]: error for error in line["errors"]}
            rows = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
            for place, (key, row) in enumerate(zip(line["keys"], rows)):
                classes[failed[place]["class"] if place in failed else "OK"] += 1
                if place in failed:
                    check(failed[place]["message"].strip() and not row.any(), f"a masked row: {failed[place]}")
                else:
                    check(is_whole(row), f"{key} is torn: {row[0, 0]} above, {row[-1, -1]} below")
                    equal(row[0, 0].tolist(), list(colour(int(key[:2]) % 16)), f"the version of {key}")
    equal([daemon.pid, *daemon.workers()], pids, "processes")
    daemon.stop()
    return classes


def test_while_being_read(work):
    rounds = 30 if harness.SLOW else 2
    classes = collections.Counter()
    for sets in (["threads.decode=2"], ["threads.decode=1", "fetch.engine=pool"]):
        for ways in ([overwrite], [cut, grow, remove, forbid, overwrite, replace]):
            classes += read_while(work, ways, rounds, sets)
    check(classes["OK"] > 0 and classes["CHANGED"] > 0, f"{classes}: nothing is tested")
    check(classes.keys() <= {"OK", "CHANGED", "IO_ERROR"}, f"classes {classes}")


# --- shards ---

PER_SHARD, SHARDS = 24, 3


def shard(number, colour):
    return [(f"{number}-{i:02d}.bmp", pictures.bmp_24(pictures.solid(60, 60, (colour, i, number)))) for i in range(PER_SHARD)]


def change_shard(path, way):
    """Returns the classes that its samples may have from now on."""
    if way == "overwritten":
        size = path.stat().st_size
        other = path.with_name("other")
        tars.write(other, shard(1, 200))
        equal(other.stat().st_size, size, "size of the other version")
        with open(path, "r+b") as f:
            f.write(other.read_bytes())
        other.unlink()
        return {"CHANGED"}
    if way == "cut":
        os.truncate(path, path.stat().st_size // 2 // 512 * 512)
        return {"CHANGED"}
    if way == "grown":
        with open(path, "ab") as f:
            f.write(bytes(512))
        return {"CHANGED"}
    if way == "touched":
        os.utime(path, (5, 5))
        return {"CHANGED"}
    if way == "replaced":
        other = path.with_name("other")
        tars.write(other, shard(1, 200))
        other.rename(path)
        return {"CHANGED"}
    path.unlink()
    if way == "a folder":
        path.mkdir()
    return {"IO_ERROR", "CHANGED"}


def test_shards_behind_their_index(work):
    """The samples of one shard that changed are lost, from the change on or from its next opening; what was open may be read on as it was."""
    for way in ("overwritten", "cut", "grown", "touched", "replaced", "removed", "a folder"):
        folder = work.path / way.replace(" ", "-")
        folder.mkdir()
        for number in range(SHARDS):
            tars.write(folder / f"{number}.tar", shard(number, 100))
        text = config(f'tar: "{folder}/*.tar"', "{center_crop: {size: 60}}")
        daemon = work.daemon(work.config(text), "slots=2", "fetch.depth=4")
        lines, out = work.path / f"{folder.name}.lines", work.path / f"{folder.name}.out"
        rank = work.start_pull(lines, "pull", "p", "--batch", 4, "--steps", SHARDS * PER_SHARD // 4, "--out", out, "--delay-ms", 12)
        harness.wait_until(lambda: lines.stat().st_size > 0, 10, "the rank prints a line")  # noqa: B023
        allowed = change_shard(folder / "1.tar", way)
        equal(rank.wait(60 * harness.PATIENCE), 0, f"exit code of the rank, the shard {way}")
        met = check_shard_lines([json.loads(line) for line in lines.read_text().splitlines()], out, allowed, way)
        if way not in ("replaced", "removed", "a folder"):
            check(met > PER_SHARD // 2, f"{way}: {met} samples failed")
        check(daemon.process.poll() is None, "the daemon is gone")
        daemon.stop()


def check_shard_lines(lines, out, allowed, way):
    """Every row that is good has the pixels of its shard as it was listed. Returns how many failed."""
    met, seen = 0, 0
    for line in lines:
        rows, failed = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy"), {error["row"]: error for error in line["errors"]}
        for place, key in enumerate(line["keys"]):
            number, i = (int(word) for word in key.split("-"))
            seen += 1
            if place in failed:
                met += 1
                check(number == 1 and failed[place]["class"] in allowed, f"{way}: {failed[place]}")
            else:
                check((rows[place] == (100, i, number)).all(), f"{way}: {key} is {rows[place][0, 0]}")
    equal(seen, SHARDS * PER_SHARD, f"{way}: rows")
    return met


if __name__ == "__main__":
    harness.main(globals())
