#!/usr/bin/python3
"""A batch depends on dataset, seed, epoch, step and rank alone: not on threads, engines, segments, worlds, or where a pull began."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, check, equal, rows_of, without_waits  # noqa: E402

STEPS, BATCH, SEED = 6, 32, 5
COUNT = 300


def pull(work, sets=("threads.decode=2",), steps=STEPS, batch=BATCH, **how):
    config = work.config(harness.folder_config(harness.photos(COUNT)))
    return work.pull("p", config=config, sets=sets, steps=steps, batch=batch, seed=SEED, hash=True, **how)


def test_threads_engines_segments_programs(work):
    whole = pull(work)
    equal(len(whole), STEPS, "lines")
    equal(len({row[0] for row in rows_of(whole)}), STEPS * BATCH, "different samples within an epoch")
    for sets in (["threads.decode=1"], ["threads.decode=3", "slots=2"], ["fetch.engine=pool"], ["fetch.engine=uring"],
                 ["shm=posix"], ["slots=7", "fetch.depth=1"]):
        if sets == ["fetch.engine=uring"] and not harness.uring_works():
            continue
        equal(without_waits(pull(work, sets=sets)), without_waits(whole), f"lines with {sets}")
    if "inproc" not in os.environ.get("SPDLD", ""):
        other = pull(work, env={"SPDLD": str(BUILD / "spdld-inproc")})
        equal(without_waits(other), without_waits(whole), "lines of spdld-inproc")


def test_worlds(work):
    whole = pull(work)
    for world in (2, 4):
        parts = [pull(work, rank=rank, world=world) for rank in range(world)]
        joined = [row for step in zip(*parts) for part in step for row in rows_of([part])]
        equal(joined, rows_of(whole), f"world {world} put together")
        states = {tuple(line["state"] for line in part) for part in parts}
        equal(states, {tuple(line["state"] for line in whole)}, "states of the same steps are equal on all ranks")


def test_start_in_the_middle(work):
    whole = pull(work)
    equal(without_waits(pull(work, step=4, steps=2)), without_waits(whole[4:]), "--step 4")
    state = whole[2]["state"]
    equal(without_waits(pull(work, state=state, steps=3)), without_waits(whole[3:]), "--state of line 3")
    half = pull(work, state=state, steps=3, rank=1, world=2)
    wanted = [row for line in whole[3:] for row in rows_of([line])[BATCH // 2:]]
    equal(rows_of(half), wanted, "--state with rank 1 of 2")
    for batch in (16, 48):
        other = pull(work, state=state, batch=batch, steps=3 * BATCH // batch)
        equal(rows_of(other), rows_of(whole[3:]), f"--state with batch {batch}")


def test_epochs(work):
    steps = COUNT // BATCH
    both = pull(work, steps=steps + 3)
    equal([(line["epoch"], line["step"]) for line in both], [(0, k) for k in range(steps)] + [(1, k) for k in range(3)], "places")
    equal(without_waits(pull(work, epoch=1, steps=3)), without_waits(both[steps:]), "--epoch 1")
    over = pull(work, state=both[steps - 1]["state"], steps=3)
    equal(without_waits(over), without_waits(both[steps:]), "the state of an epoch's last batch begins the next")
    ended = pull(work, steps=None)
    equal(len(ended), steps, "without --steps a pull ends with its epoch")
    first, second = ({row[0] for row in rows_of(both[:3])}, {row[0] for row in rows_of(both[steps:])})
    check(first != second, "two epochs begin with the same samples")


def test_contradictions_with_a_state_are_refused(work):
    whole = pull(work, steps=1)
    config = work.config(harness.folder_config(harness.photos(COUNT)))
    for words in (["--seed", "6"], ["--step", "3"], ["--epoch", "4"]):
        result = work.ctl("pull", "p", "--batch", BATCH, "--state", whole[0]["state"], *words, "--steps", 1, config=config, code=None)
        check(result.code in (1, 2), f"a state and {words}: exit {result.code}, wanted a refusal")
        check(result.err.strip(), f"a state and {words}: no sentence")
    for state in ("x", whole[0]["state"][:-3], "A" + whole[0]["state"][1:], "=" * 5000):
        result = work.ctl("pull", "p", "--batch", BATCH, "--state", state, "--steps", 1, config=config, code=None)
        check(result.code in (1, 2) and result.err.strip(), f"state {state[:20]!r}: exit {result.code}, {result.err[:100]!r}")


def test_pictures_seen_whole_before(work):
    """From the second epoch on a picture is decoded only as far as its crop needs: the same bytes as from a daemon that sees it first."""
    config = work.config(harness.folder_config(harness.photos(300)))
    steps = 300 // 50
    long = work.pull("p", batch=50, seed=8, hash=True, steps=3 * steps, config=config)
    late = work.pull("p", batch=50, seed=8, hash=True, epoch=2, config=config)
    equal(harness.without_waits(long[2 * steps:]), harness.without_waits(late), "the third epoch")


if __name__ == "__main__":
    harness.main(globals())
