#!/usr/bin/python3
"""Rows of bytes as they lie in the files are read to where the rank sees them: the same rows and faults as by way of a worker."""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import tars  # noqa: E402
from harness import check, equal  # noqa: E402

COUNT, BYTES, BATCH = 90, 700, 8
ODD = {7: BYTES - 1, 20: BYTES + 1, 33: 0, 60: 1}
ENGINES = ("uring", "pool")


def contents(odd=()):
    chance = random.Random(11)
    return [chance.randbytes(odd.get(i, BYTES) if odd else BYTES) for i in range(COUNT)]


def shards(work, rows):
    """Two shards, of one part a sample and with a class for those that want it read by a worker."""
    (work.path / "t").mkdir()
    members = [(f"{i:04d}.{part}", content if part == "bin" else b"%d" % (i % 10)) for i, content in enumerate(rows) for part in ("bin", "cls")]
    tars.write(work.path / "t/0.tar", members[:COUNT])
    tars.write(work.path / "t/1.tar", members[COUNT:])
    return work.path / "t/*.tar"


def config(work, pattern, field, both, policy="mask"):
    """With a second field the row is made by a worker."""
    fields = [f"      x: {{from: bin, decode: raw{field}}}"] + ["      label: {from: cls, decode: class}"] * both
    return work.config(f"datasets:\n  p:\n    source: {{tar: {pattern}}}\n    order: {{shuffle: global, seed: 5}}\n    last: partial\n"
                       f"    on_error: {{policy: {policy}, max_rate: 1}}\n    fields:\n" + "\n".join(fields) + "\n")


def facts(lines, name):
    return [(line["keys"], [(e["row"], e["key"], e["class"]) for e in line["errors"]], line["valid"], line["fields"][name]["row_hashes"],
             line["fields"][name]["hash"]) for line in lines]


def test_as_by_a_worker(work):
    """Also where some files are of another size, which the worker then says, and are masked or give way."""
    pattern = shards(work, contents(ODD))
    for field, name in ((f", bytes: {BYTES}", "x"), ("", "x.values")):
        for policy in ("mask", "substitute"):
            wanted = facts(work.pull("p", batch=BATCH, hash=True, config=config(work, pattern, field, both=True, policy=policy)), name)
            for engine in ENGINES:
                got = facts(work.pull("p", batch=BATCH, hash=True, config=config(work, pattern, field, both=False, policy=policy),
                                      sets=[f"fetch.engine={engine}"]), name)
                equal(got, wanted, f"rows with {field or 'no size'}, {policy}, {engine}")
            failed = {int(error[1]) for fact in wanted for error in fact[1]}
            check({7, 20, 60} <= failed if field else failed <= {33}, f"which failed: {failed}")


def test_bytes_and_restarts(work):
    """The bytes are those of the file; a rank of two and one that goes on see what one sees; reads may come in any order or fail at first."""
    rows, out = contents(), work.path / "out"
    paths = config(work, shards(work, rows), f", bytes: {BYTES}", both=False)
    whole = work.pull("p", batch=BATCH, steps=30, hash=True, out=out, config=paths)
    for line in whole:
        shown = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.x.npy")
        equal([row.tobytes() for row in shown], [rows[int(key)] for key in line["keys"]], "bytes of the rows")
    for sets in (["fetch.faulty=reorder=3", "slots=2"], ["fetch.faulty=eio_every=23"], ["fetch.depth=1"], ["shm=posix"]):
        equal(facts(work.pull("p", batch=BATCH, steps=30, hash=True, config=paths, sets=sets), "x"), facts(whole, "x"), f"with {sets}")
    parts = [work.pull("p", batch=BATCH, steps=30, hash=True, rank=r, world=2, config=paths) for r in range(2)]
    both = [row for pair in zip(*parts) for line in pair for row in harness.rows_of([line], "x")]
    equal(both, harness.rows_of(whole, "x"), "rows of two ranks and of one")
    behind = work.pull("p", batch=BATCH, steps=10, hash=True, state=whole[19]["state"], config=paths)
    equal(harness.without_waits(behind), harness.without_waits(whole[20:]), "resumed")


def test_shards_that_are_cut(work):
    """What was cut under the reads is of class CHANGED and its rows are 0: nothing that is left of them is shown."""
    paths, out = config(work, shards(work, contents()), f", bytes: {BYTES}", both=False), work.path / "lines"
    work.daemon(paths, "slots=2")
    before = work.pull("p", batch=BATCH, hash=True)
    zero = work.path / "zero"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--hash", "--delay-ms", 100, "--out", zero)
    harness.wait_until(lambda: out.read_bytes().count(b"\n"), 20, "a first line")
    for path in (work.path / "t").iterdir():
        with open(path, "r+b") as f:
            f.truncate(path.stat().st_size // 2)
    equal(rank.wait(60), 0, "the pull ends well")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    equal({error["class"] for line in lines for error in line["errors"]}, {"CHANGED"}, "classes of what failed")
    for got, wanted in zip(lines, before):
        bad = {error["row"] for error in got["errors"]}
        shown = np.load(zero / f"{got['epoch']:04d}-{got['step']:08d}.x.npy")
        for row, (a, b) in enumerate(zip(got["fields"]["x"]["row_hashes"], wanted["fields"]["x"]["row_hashes"])):
            check(not shown[row].any() if row in bad else a == b, f"row {row} of step {got['step']}")


def test_a_read_that_hangs(work):
    """Its stream waits and says for what, others go on, and the daemon ends when it is asked to."""
    paths, out = config(work, shards(work, contents()), f", bytes: {BYTES}", both=False), work.path / "lines"
    daemon = work.daemon(paths, f"fetch.faulty=hang_every={COUNT + 30}", "fetch.depth=64")
    work.start_pull(out, "pull", "p", "--batch", BATCH, "--steps", 40)
    streams = lambda: work.ctl("status").document["streams"]  # noqa: E731
    stuck = harness.wait_until(lambda: [s for s in streams() if s["waiting_for"].startswith("reads")], 20, "it waits for a read")
    equal(len(work.pull("p", batch=BATCH, steps=6)), 6, "batches of another stream")
    equal([s["batches"] for s in streams()], [stuck[0]["batches"]], "batches of the one that waits")
    equal(daemon.stop(), 0, "exit code of the daemon")


if __name__ == "__main__":
    harness.main(globals())
