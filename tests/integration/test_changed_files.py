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


INDEXED = 4000  # samples, whose index has many pages


def index_config(work):
    return work.config(f"index_dir: {work.path}/index\ndatasets:\n  p:\n    source: {{tar: {work.path}/t/*.tar}}\n"
                       "    order: {shuffle: global, seed: 3}\n    on_error: {policy: mask, max_rate: 1, max_consecutive: 10000}\n"
                       "    fields:\n      x: {from: bin, decode: raw, bytes: 64}\n")


def index_shards(work):
    """Returns where they lie: two shards with rows of which no two are alike."""
    rng = random.Random(8)
    (work.path / "t").mkdir()
    members = [(f"{i:05d}.bin", rng.randbytes(64)) for i in range(INDEXED)]
    tars.write(work.path / "t/0.tar", members[::2])
    tars.write(work.path / "t/1.tar", members[1::2])
    return work.path / "t"


def row_of_key(lines):
    return {key: row for line in lines for key, row in zip(line["keys"], line["fields"]["x"]["row_hashes"])}


def zero_out(path):
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


INDEX_HARMS = {"cut to nothing": lambda path: os.truncate(path, 0), "cut to a page": lambda path: os.truncate(path, 4096),
               "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2 + 1), "zeroed": zero_out}


def pull_while(work, daemon, index, act, right):
    """Two ranks pull while `act` is done to the index. What is delivered is right in any case. Returns their exit codes, what they said and the processes."""
    outs = [work.path / f"lines-{len(work.started)}-{r}" for r in range(2)]
    ranks = [work.start_pull(out, "pull", "p", "--batch", 16, "--hash", "--rank", r, "--world", 2, "--steps", 3000) for r, out in enumerate(outs)]
    for out in outs:
        harness.wait_until(lambda: out.read_bytes().count(b"\n") > 20, 30, "the ranks pull")  # noqa: B023
    act(index)
    codes = [rank.wait(60 * harness.PATIENCE) for rank in ranks]
    lines = [json.loads(line) for out in outs for line in out.read_text().splitlines()]
    wrong = [(line["step"], key) for line in lines for key, row in zip(line["keys"], line["fields"]["x"]["row_hashes"]) if right.get(key) != row]
    equal((wrong, [line["errors"] for line in lines if line["errors"]]), ([], []), "rows that are not those of their keys, and faults")
    equal(daemon.process.poll(), None, "exit code of the daemon, which goes on")
    return codes, [pathlib.Path(f"{out}.err").read_text() for out in outs]


def test_an_index_that_is_cut(work):
    """While it is mapped: the streams end and say so, no row is another's, the daemon stays, and the next opening makes it anew."""
    folder, paths = index_shards(work), index_config(work)
    daemon = work.daemon(paths)
    right = row_of_key(work.pull("p", batch=16, hash=True))
    equal(len(right), INDEXED, "keys")
    for name, harm in INDEX_HARMS.items():
        index, = (work.path / "index").glob("*.tar.index")
        codes, said = pull_while(work, daemon, index, harm, right)
        equal(codes, [1, 1], f"{name}: exit codes of the ranks")
        check(all(index.name in text and "CHANGED" in text for text in said), f"{name}: {said}")
        equal(row_of_key(work.pull("p", batch=16, hash=True)), right, f"{name}: rows of the next opening")
        equal(work.ctl("quarantine").document, [], f"{name}: samples that are held to be bad")
    check(daemon.log.read_text().count("was cut or written over") == len(INDEX_HARMS), "the log says it once each time")
    equal(len(list(folder.iterdir())), 2, "files beside the shards")


def test_an_index_that_is_touched(work):
    """One that is replaced, or has another time alone, is as good as before."""
    index_shards(work)
    daemon = work.daemon(index_config(work))
    right = row_of_key(work.pull("p", batch=16, hash=True))
    index, = (work.path / "index").glob("*.tar.index")
    for act in (os.utime, lambda path: replace(path, path.read_bytes(), None), pathlib.Path.unlink):
        equal(pull_while(work, daemon, index, act, right)[0], [0, 0], "exit codes of the ranks")


def test_a_published_index_that_is_cut(work):
    """Beside the data, where anybody may write over it, and where the daemon can keep none of its own: that is seen by nobody."""
    index_shards(work)
    paths = index_config(work)
    work.ctl("index", "p", "--publish", config=paths)
    published, = (work.path / "t").glob(".spdl-*.index")
    whole = published.read_bytes()
    (work.path / "index").rename(work.path / "gone")
    (work.path / "index").write_text("no folder")
    daemon = work.daemon(paths)
    right = row_of_key(work.pull("p", batch=16, hash=True))
    garbled = random.Random(5).randbytes(len(whole))
    for harm in (INDEX_HARMS["cut to nothing"], lambda path: overwrite(path, garbled, None)):
        published.write_bytes(whole)
        equal(pull_while(work, daemon, published, harm, right)[0], [0, 0], "exit codes of the ranks")
        equal(row_of_key(work.pull("p", batch=16, hash=True)), right, "rows of the next opening")


if __name__ == "__main__":
    harness.main(globals())
