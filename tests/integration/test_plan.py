#!/usr/bin/python3
"""spdlctl plan says what a stream then does: its samples, steps, bytes and memory; and it leaves nothing open."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal  # noqa: E402


def test_it_says_what_a_stream_does(work):
    folder = harness.photos(60)
    daemon = work.daemon(work.config(harness.folder_config(folder, more="    order: {shuffle: block, block_samples: 16, lanes: 2}\n")))
    idle = work.ctl("status").document["memory"]["used"]
    settled = lambda: (lambda now: (now["streams"], now["memory"]["used"]) == ([], idle))(work.ctl("status").document)  # noqa: E731
    for words, how in ((["--batch", 12], dict(batch=12)),
                       (["--batch", 12, "--rank", 1, "--world", 2, "--seed", 4], dict(batch=12, rank=1, world=2, seed=4)),
                       (["--batch", 12, "--epoch", 3, "--step", 2], dict(batch=12, epoch=3, step=2))):
        shown = work.ctl("plan", "p", *words).document
        lines = work.pull("p", steps=1, **how)
        equal([row["id"] for row in shown["first"]], lines[0]["ids"][:8], f"{words}: first samples")
        equal([row["key"] for row in shown["first"]], lines[0]["keys"][:8], f"{words}: first keys")
        equal([row["bytes"] for row in shown["first"]], [(folder / key).stat().st_size for key in lines[0]["keys"][:8]], f"{words}: bytes")
        equal((shown["epoch"], shown["step"], shown["steps_per_epoch"]), (how.get("epoch", 0), how.get("step", 0), 5), f"{words}: place")
        equal((shown["shuffle"], shown["block_samples"], shown["lanes"], shown["last"]), ("block", 16, 2, "drop"), f"{words}: order")
    sizes = [path.stat().st_size for path in folder.rglob("*.jpg")]
    equal((shown["epoch_bytes"], shown["largest_bytes"], shown["estimated"]), (sum(sizes), max(sizes), False), "bytes of an epoch")
    state = work.pull("p", batch=12, steps=3)[2]["state"]
    behind = work.ctl("plan", "p", "--batch", 12, "--state", state).document
    equal((behind["epoch"], behind["step"]), (0, 3), "a plan from a state")
    check("one shard of 60" in shown["warning"], f"warning {shown['warning']!r}")
    harness.wait_until(settled, 20, f"no streams and {idle} bytes of memory used afterwards")
    daemon.stop()


def test_memory_is_what_a_stream_takes(work):
    config = work.config("datasets:\n  p:\n    source: {synthetic: {samples: 5000000, bytes: 1000}}\n")
    daemon = work.daemon(config)
    shown = work.ctl("plan", "p", "--batch", 64, "--slots", 5).document
    equal((shown["slots"], shown["steps_per_epoch"], shown["estimated"], shown["epoch_bytes"]), (5, 78125, True, 0), "synthetic")
    work.start_pull(work.path / "held", "pull", "p", "--batch", "64", "--slots", "5", "--delay-ms", "100")
    harness.wait_until(lambda: work.ctl("status").document["streams"], 10, "the stream")
    equal(work.ctl("status").document["streams"][0]["memory"], shown["stream_bytes"], "memory of the stream")
    daemon.stop()
    daemon = work.daemon(config, "memory=1GiB", "limits.worker=512MiB")
    equal(work.ctl("plan", "p").document["unit_memory"], (1024 + 512 + 256) << 20, "memory for the unit")
    check("MemoryMax=1792M in a unit" in work.ctl("plan", "p", as_json=False).out, work.ctl("plan", "p", as_json=False).out)
    daemon.stop()


def test_people_and_refusals(work):
    config = work.config("datasets:\n  p:\n    source: {synthetic: {samples: 100, bytes: 10}}\n"
                         "    order: {shuffle: block, block_samples: 30, lanes: 4}\n")
    said = work.ctl("plan", "p", config=config, as_json=False).out
    for words in ("100 samples", "block, windows of 30 samples, 4 lanes", "shards     1, of which 1", "2 steps of 64", "cache      none"):
        check(words in said, f"{words!r} is not in {said!r}")
    for words, code, told in ((["p", "--batch", 18], 2, "4 lanes"), (["q"], 1, "no dataset 'q'"), (["p", "--batch", 8, "--step", 99], 2, "99"),
                              (["p", "--batch", 8, "--rank", 2, "--world", 2], 2, "rank 2"), (["p", "--hash"], 2, "--hash"),
                              (["p", "--batch", 8, "--state", "spdl1.x"], 2, "state"), (["p", "--slots", 1], 2, "slots")):
        result = work.ctl("plan", *words, config=config, code=None)
        check(result.code == code and told in result.err, f"{words}: exit {result.code}, {result.err!r}")


if __name__ == "__main__":
    harness.main(globals())
