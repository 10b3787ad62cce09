#!/usr/bin/python3
"""shuffle: block and lanes: the order that docs/order.md says, the same for every world, thread and place of beginning."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import order_reference as reference  # noqa: E402
import tars  # noqa: E402
from harness import BUILD, check, equal, rows_of, without_waits  # noqa: E402

N, SEED = 100, 11


def synthetic(order, last="drop", samples=N):
    return (f"datasets:\n  p:\n    source: {{synthetic: {{samples: {samples}, bytes: 16}}}}\n"
            f"    order: {{{order}, seed: {SEED}}}\n    last: {last}\n")


def ids(lines):
    return [number for line in lines for number in line["ids"]]


def joined(ranks):
    """Rows of all ranks, in the order of the global batches."""
    return [number for step in zip(*ranks) for line in step for number in line["ids"]]


def test_the_order_is_that_of_the_document(work):
    config = work.config(synthetic("shuffle: block, block_samples: 30"))
    lines = work.pull("p", batch=10, steps=20, config=config)
    for epoch in (0, 1):
        wanted = reference.block_order("block", SEED, epoch, [N], 30, 1, 1)
        equal(ids(lines[10 * epoch:10 * epoch + 10]), wanted, f"epoch {epoch}")
    equal(sorted(ids(lines[:3])), list(range(30)), "the first window, of the only shard")
    other = work.pull("p", batch=25, state=lines[12]["state"], steps=2, config=config)
    equal(ids(other), ids(lines[13:18]), "another batch goes on from the same position")
    whole = work.pull("p", batch=10, config=work.config(synthetic("shuffle: block")))
    equal(ids(whole), reference.block_order("block", SEED, 0, [N], 65536, 1, 1), "block_samples left out")


def test_lanes_for_every_world_and_end(work):
    for order, block in (("shuffle: block, block_samples: 9, lanes: 4", 9), ("shuffle: none, lanes: 4", 0)):
        wanted = reference.block_order(order.split(",")[0].split()[1], SEED, 0, [N], block, 4, 16)
        for last, shown in (("drop", wanted[:96]), ("pad", wanted + wanted[:12]), ("partial", wanted)):
            config = work.config(synthetic(order, last))
            for world in (1, 2, 4, 8) if last == "partial" and block else (1, 4):
                ranks = [work.pull("p", batch=16, rank=rank, world=world, config=config) for rank in range(world)]
                equal(joined(ranks), shown, f"{order}, last {last}, world {world}")
    for rank in range(4):
        lines = work.pull("p", batch=16, rank=rank, world=4, config=work.config(synthetic("shuffle: none, lanes: 4")))
        equal(ids(lines), list(range(25 * rank, 25 * rank + 24)), f"rank {rank} reads its own lane")


def test_states_under_lanes(work):
    config = work.config(synthetic("shuffle: block, block_samples: 9, lanes: 4", "partial"))
    whole = work.pull("p", batch=16, steps=14, config=config)
    for k in (0, 4, 5, 6, 9):
        state = whole[k]["state"]
        equal(ids(work.pull("p", batch=16, state=state, steps=4, config=config)), ids(whole[k + 1:k + 5]), f"behind line {k}")
    equal(ids(work.pull("p", batch=16, step=5, steps=3, config=config)), ids(whole[5:8]), "--step 5")
    equal(ids(work.pull("p", batch=16, epoch=1, steps=2, config=config)), ids(whole[7:9]), "--epoch 1")
    ranks = [work.pull("p", batch=16, state=whole[2]["state"], rank=rank, world=8, steps=6, config=config) for rank in range(8)]
    equal(joined(ranks), ids(whole[3:9]), "a state of world 1 in world 8")
    refused(work, config, ["--batch", 8, "--state", whole[2]["state"]], "16", "8", "4 lanes")
    refused(work, config, ["--batch", 18], "18", "4 lanes")
    others = ("shuffle: block, block_samples: 9", "shuffle: block, block_samples: 10, lanes: 4", "shuffle: block, block_samples: 9, lanes: 8")
    for other in others:
        refused(work, work.config(synthetic(other, "partial")), ["--batch", 16, "--state", whole[2]["state"]], "another plan")


def refused(work, config, words, *wanted):
    result = work.ctl("pull", "p", *words, "--steps", 1, config=config, code=None)
    check(result.code in (1, 2) and not result.out, f"{words}: exit {result.code}, wanted a refusal")
    for word in wanted:
        check(word in result.err, f"{words}: {word!r} is not in {result.err!r}")


def test_one_shard_is_warned_of(work):
    few = work.ctl("pull", "p", "--batch", 10, "--steps", 1, config=work.config(synthetic("shuffle: block, block_samples: 30")))
    check("one shard of 100" in few.err and "windows of 30" in few.err, f"no warning: {few.err!r}")
    for order in ("shuffle: block, block_samples: 100", "shuffle: none"):
        quiet = work.ctl("pull", "p", "--batch", 10, "--steps", 1, config=work.config(synthetic(order)))
        check("shard" not in quiet.err, f"{order}: {quiet.err!r}")


def test_photographs_with_threads_and_worlds(work):
    folder = harness.photos(60)
    config = work.config(harness.folder_config(folder, more="    order: {shuffle: block, block_samples: 16, lanes: 2}\n"))
    how = dict(batch=12, steps=7, seed=3, config=config, hash=True)
    whole = work.pull("p", sets=("threads.decode=2",), **how)
    equal(ids(whole[:5]), reference.block_order("block", 3, 0, [60], 16, 2, 12), "samples of the first epoch")
    equal(without_waits(work.pull("p", sets=("threads.decode=1", "slots=2"), **how)), without_waits(whole), "one thread")
    parts = [work.pull("p", rank=rank, world=2, **how) for rank in range(2)]
    equal([row for step in zip(*parts) for part in step for row in rows_of([part])], rows_of(whole), "world 2 put together")
    over = work.pull("p", state=whole[3]["state"], **dict(how, steps=3, seed=None))
    equal(without_waits(over), without_waits(whole[4:]), "over the epoch's end from a state")


def test_tar_shards(work):
    """Shards of 7, 20, 0, 1 and 32 photographs: the document's order, and the same by any threads, engine, memory, program, world and place."""
    shards, members = [7, 20, 0, 1, 32], list(tars.members_of(harness.photos(60)))
    (work.path / "t").mkdir()
    for number, count in enumerate(shards):
        first = 2 * sum(shards[:number])
        tars.write(work.path / "t" / f"{number}.tar", members[first:first + 2 * count])
    order = "    order: {shuffle: block, block_samples: 10, lanes: 2}\n    last: partial\n"
    config = work.config(tars.config(work.path / "t" / "{0..4}.tar", more=order))
    how = dict(batch=14, steps=10, seed=3, config=config, hash=True)
    index = f"index_dir={work.path}/index"
    whole = work.pull("p", sets=("threads.decode=2", index), **how)
    for epoch in (0, 1):
        equal(ids(whole[5 * epoch:5 * epoch + 5]), reference.block_order("block", 3, epoch, shards, 10, 2, 14), f"samples of epoch {epoch}")
    for sets in (["threads.decode=1"], ["threads.decode=3", "slots=2"], ["fetch.engine=pool"], ["fetch.engine=uring"], ["shm=posix", "slots=2"],
                 ["slots=7", "fetch.depth=1"]):
        if sets == ["fetch.engine=uring"] and not harness.uring_works():
            continue
        equal(without_waits(work.pull("p", sets=(*sets, index), **how)), without_waits(whole), f"lines with {sets}")
    if "inproc" not in os.environ.get("SPDLD", ""):
        other = work.pull("p", sets=(index,), env={"SPDLD": str(BUILD / "spdld-inproc")}, **how)
        equal(without_waits(other), without_waits(whole), "lines of spdld-inproc")
    for world in (2, 7):
        parts = [work.pull("p", sets=(index,), rank=rank, world=world, **how) for rank in range(world)]
        equal([row for step in zip(*parts) for part in step for row in rows_of([part])], rows_of(whole), f"world {world} put together")
    for k in (0, 3, 4):
        over = work.pull("p", sets=(index,), state=whole[k]["state"], **dict(how, steps=3, seed=None))
        equal(without_waits(over), without_waits(whole[k + 1:k + 4]), f"from the state of line {k}")
    shown = work.ctl("plan", "p", "--batch", 14, "--seed", 3, config=config, sets=(index,)).document
    equal(([row["id"] for row in shown["first"]], shown["shards"], shown["shards_open"]), (ids(whole)[:8], 5, 4), "the plan")


def test_tar_shards_from_anywhere(work):
    """Epoch, step and state, with other worlds, other batch sizes, other ends and from one daemon for all: the rows are those of the whole."""
    tars.shards(harness.photos(60), work.path / "t", per_shard=17, apart=True)
    index = f"index_dir={work.path}/index"
    for last, order in (("partial", "shuffle: block, block_samples: 12"), ("drop", "shuffle: block, block_samples: 12, lanes: 3"),
                        ("pad", "shuffle: block, block_samples: 25")):
        config = work.config(tars.config(work.path / "t" / "shard-{000..003}.tar", more=f"    order: {{{order}}}\n    last: {last}\n"))
        steps = 5  # 60 samples, 12 in a batch
        how = dict(batch=12, seed=4, config=config, hash=True)
        whole = work.pull("p", sets=(index, "fetch.engine=auto"), steps=3 * steps, **how)
        equal([(line["epoch"], line["step"]) for line in whole], [(e, k) for e in range(3) for k in range(steps)], f"{last}: places")
        for epoch in range(3):
            equal(sorted(ids(whole[steps * epoch:steps * (epoch + 1)])), list(range(60)), f"{last}: epoch {epoch} has every sample once")
        daemon = work.daemon(config, index, "threads.decode=3", "fetch.engine=pool", "shm=posix")
        del how["config"]
        equal(without_waits(work.pull("p", epoch=1, step=2, steps=6, **how)), without_waits(whole[steps + 2:steps + 8]), f"{last}: --epoch 1 --step 2")
        for k in (1, steps - 1, steps + 2):
            state = whole[k]["state"]
            rest = dict(how, seed=None, state=state)
            equal(without_waits(work.pull("p", steps=4, **rest)), without_waits(whole[k + 1:k + 5]), f"{last}: from the state of line {k}")
            for world in (3, 4):
                parts = [work.pull("p", rank=rank, world=world, steps=4, **rest) for rank in range(world)]
                equal([row for step in zip(*parts) for part in step for row in rows_of([part])], rows_of(whole[k + 1:k + 5]), f"{last}: world {world}")
            if "lanes" not in order:
                left = 12 * (steps - 1 - k % steps)
                for batch in (4, 6):
                    other = work.pull("p", **dict(rest, batch=batch, steps=left // batch or 1))
                    wanted = rows_of(whole[k + 1:])[:len(rows_of(other))]
                    equal(rows_of(other), wanted, f"{last}: batch {batch} from the state of line {k}")
        daemon.stop()


if __name__ == "__main__":
    harness.main(globals())
