#!/usr/bin/python3
"""What outlives the daemon beside the index: which pictures were seen whole, so that they may be decoded only as far as a row needs, and
which samples failed. A picture that changed is decoded whole again; damaged files, two daemons at once and a folder that cannot be written
change nothing but speed."""
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import tars  # noqa: E402
from harness import check, equal, rows_of, wait_until  # noqa: E402

COUNT, BATCH, SEED = 24, 8, 3
LAST = "    last: partial\n"


def pictures(work):
    folder = work.path / "in"
    for path in sorted(harness.photos(300).rglob("*.jpg"))[:COUNT]:
        to = folder / path.parent.name / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    return folder


def status(work):
    dataset = work.ctl("status").document["datasets"][0]
    return dataset["seen"], dataset["short_rows"]


def epoch(work, epoch=0, count=COUNT, **how):
    """Rows of one epoch and of nothing behind it."""
    return rows_of(work.pull("p", batch=BATCH, seed=SEED, epoch=epoch, hash=True, **{"steps": -(-count // BATCH), **how}))


def kept(work, what="seen"):
    return list((work.path / "index").glob(f"*.{what}"))


def wait_kept(work, count, what="seen"):
    wait_until(lambda: len(kept(work, what)) == count, 20, f"{count} files *.{what}")


def one_run(work, config, wanted, how="stop"):
    """A daemon for one epoch; (seen, short_rows) after it is what is wanted. Returns its rows and its log."""
    daemon = work.daemon(config)
    rows = epoch(work, count=wanted[0])
    equal(status(work), wanted, "pictures seen whole, rows decoded as far as they are needed")
    if how == "stop":
        equal(daemon.stop(), 0, "the daemon ends well")
    else:
        wait_kept(work, 1)
        daemon.kill()
    return rows, daemon.log.read_text()


def test_seen_pictures_of_a_folder(work):
    folder = pictures(work)
    config = work.config(harness.folder_config(folder, more=LAST))
    first, _ = one_run(work, config, (COUNT, 0))
    equal(len(kept(work)), 1, "files")
    equal(one_run(work, config, (COUNT, COUNT))[0], first, "rows of pictures that were seen whole")
    changed, gone, *_ = sorted(folder.rglob("*.jpg"))
    os.utime(changed, ns=(1, os.stat(changed).st_mtime_ns + 1))     # another time
    gone.unlink()                                                  # the numbers of all behind it are others
    shutil.copy(changed, changed.parent / "0-new.jpg")              # one that was never seen
    one_run(work, config, (COUNT, COUNT - 2))
    with open(changed, "ab") as f:                                  # another size: bytes behind the picture
        f.write(b"\0")
    one_run(work, config, (COUNT, COUNT - 1))
    other = work.config(harness.folder_config(folder, preset="imagenet-eval", more=LAST))
    one_run(work, other, (COUNT, COUNT))                            # other operations, the same decoding of the same parts
    fields = f"    fields: {{image: {{from: [jpg], decode: image, ops: [{{center_crop: 64}}]}}}}\n{LAST}"
    work.daemon(work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{fields}"))
    epoch(work)
    equal(status(work), (COUNT, 0), "parts that are chosen in another way were not seen")


def test_seen_pictures_of_shards(work):
    folder = pictures(work)
    pattern = tars.shards(folder, work.path / "t", per_shard=7)
    config = work.config(tars.config(pattern, more=LAST))
    first, _ = one_run(work, config, (COUNT, 0), how="kill")
    equal(one_run(work, config, (COUNT, COUNT), how="kill")[0], first, "rows of pictures that were seen whole")
    shard = work.path / "t/shard-001.tar"
    os.utime(shard, ns=(1, os.stat(shard).st_mtime_ns + 1))
    one_run(work, config, (COUNT, COUNT - 7))
    shutil.copy(shard, work.path / "t/shard-000-more.tar")           # seven more, in front of two shards
    one_run(work, work.config(tars.config(work.path / "t/*.tar", more=LAST)), (COUNT + 7, 0))  # another list of paths begins anew
    (work.path / "t/shard-000-more.tar").unlink()
    one_run(work, work.config(tars.config(work.path / "t/*.tar", more=LAST)), (COUNT, COUNT))


def test_a_part_of_an_epoch(work):
    config = work.config(harness.folder_config(pictures(work), more=LAST))
    daemon = work.daemon(config)
    epoch(work, steps=1)
    equal(status(work), (BATCH, 0), "a first batch")
    daemon.stop()
    work.daemon(config)
    work.ctl("plan", "p", "--batch", BATCH)
    equal(status(work), (BATCH, 0), "known before anything is read")
    epoch(work)
    equal(status(work), (COUNT, BATCH), "the rest is decoded whole")
    epoch(work)
    equal(status(work), (COUNT, BATCH + COUNT), "a second epoch, without a new start")


def test_files_that_are_damaged(work):
    config = work.config(harness.folder_config(pictures(work), more=LAST))
    first, _ = one_run(work, config, (COUNT, 0))
    path = kept(work)[0]
    whole = path.read_bytes()
    for name, content in (("cut", whole[:-1]), ("half", whole[:len(whole) // 2]), ("empty", b""), ("garbage", os.urandom(3000)),
                          ("one bit", whole[:60] + bytes([whole[60] ^ 4]) + whole[61:]), ("longer", whole + b"\0")):
        path.write_bytes(content)
        rows, log = one_run(work, config, (COUNT, 0))
        equal(rows, first, f"rows with a file that is {name}")
        equal(log.count("is of no use"), 1, f"lines about a file that is {name}")
        equal(path.read_bytes(), whole, "the file is as before")
    path.unlink()
    path.symlink_to("/etc/passwd")
    equal(one_run(work, config, (COUNT, 0))[1].count("is of no use"), 1, "lines about a link")
    check(not path.is_symlink(), "the link is replaced and not followed")
    path.unlink()
    path.mkdir()
    rows, log = one_run(work, config, (COUNT, 0))
    equal((rows, log.count("is of no use"), log.count("cannot be kept")), (first, 1, 1), "with a folder in its place")


def test_a_folder_that_cannot_be_written(work):
    config = work.config(harness.folder_config(pictures(work), more=LAST))
    for name, where in (("a file in its way", work.path / "t/index"), ("none", "none"), ("a medium that is read only", "/proc/index")):
        (work.path / "t").write_bytes(b"")
        daemon = work.daemon(config, f"index_dir={where}")
        for n in range(3):                                          # listed anew each time, and known
            first = epoch(work) if n == 0 else first
            equal(epoch(work), first, "rows")
        equal(status(work), (COUNT, 3 * COUNT), f"seen in memory with {name}")
        equal(daemon.stop(), 0, "the daemon ends well")
        equal(daemon.log.read_text().count("cannot be kept"), where != "none", f"lines about {name}")


def test_two_daemons_at_once(work):
    config = work.config(harness.folder_config(pictures(work), more=LAST))
    first = work.daemon(config)
    work.socket = str(work.path / "s2")
    second = work.daemon(config)
    epoch(work, steps=1)                                            # by the second
    work.socket = first.socket
    work.pull("p", batch=BATCH, seed=SEED, step=1, steps=1)         # by the first, other pictures
    equal((second.stop(), first.stop()), (0, 0), "both end well")
    work.daemon(config)
    epoch(work)
    equal(status(work), (COUNT, 2 * BATCH), "what either has seen")


def failed(work):
    return [(bad["key"], bad["class"], bad["count"]) for bad in work.ctl("quarantine").document]


def test_the_quarantine(work):
    folder = pictures(work)
    bad = sorted(folder.rglob("*.jpg"))[5]
    key = str(bad.relative_to(folder))
    photo = bad.read_bytes()
    bad.write_bytes(photo[:len(photo) // 2])
    text = harness.folder_config(folder, preset="imagenet-eval", more=LAST + "    on_error: {policy: mask, max_rate: 1}\n")
    config = work.config(text)
    daemon = work.daemon(config)
    equal(failed(work), [], "nothing has failed yet")
    epoch(work)
    equal(failed(work), [(key, "TRUNCATED", 1)], "the first run")
    wait_kept(work, 1, "quarantine")
    daemon.kill()
    daemon = work.daemon(config)
    equal(failed(work), [(key, "TRUNCATED", 1)], "before anything is opened in the second run")
    before = work.ctl("quarantine").document[0]
    epoch(work)
    equal(failed(work), [(key, "TRUNCATED", 2)], "the second run")
    equal(work.ctl("quarantine").document[0]["first"], before["first"], "since when")
    bad.write_bytes(photo)                                          # repaired: it is delivered, and the list decides nothing
    equal(len(epoch(work)), COUNT, "rows")
    equal(sum(len(line["errors"]) for line in work.pull("p", batch=BATCH)), 0, "errors")
    equal(daemon.stop(), 0, "the daemon ends well")
    path = kept(work, "quarantine")[0]
    path.write_bytes(path.read_bytes()[:-3])
    daemon = work.daemon(config)
    equal(failed(work), [], "a damaged list begins anew")
    equal(daemon.log.read_text().count("is of no use"), 1, "lines about it")


if __name__ == "__main__":
    harness.main(globals())
