#!/usr/bin/python3
"""Bad samples are data: masked where that is asked for, counted and named with the right class, and every other row is right. Bad folders and sizes are refused
with a sentence that has what, where and the numbers."""
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
from harness import check, equal  # noqa: E402

GOOD = 24
MASK = "    on_error: {policy: mask}\n"


def good_folder(work, name="in", count=GOOD):
    folder = work.path / name
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:count]):
        shutil.copy(path, folder / f"g{i:03d}.jpg")
    return folder


def broken_folder(work):
    """Good pictures and one of each kind of bad one. Returns (folder, {key: classes that are right})."""
    folder = good_folder(work)
    photo = (folder / "g000.jpg").read_bytes()
    scan = photo.rindex(b"\xff\xda")
    wrong = bytearray(photo)
    wrong[scan + 2] ^= 0x55  # length of the scan's header
    huge = bytearray(photo)
    frame = photo.index(b"\xff\xc0")
    huge[frame + 5:frame + 9] = b"\xff\xdc\xff\xdc"  # 65,500 x 65,500
    made = {
        "b-empty.jpg": (b"", {"EMPTY"}),
        "b-cut-header.jpg": (photo[:40], {"TRUNCATED", "CORRUPT"}),
        "b-cut-half.jpg": (photo[:len(photo) // 2], {"TRUNCATED"}),
        "b-cut-late.jpg": (photo[:len(photo) - 300], {"TRUNCATED"}),
        "b-text.jpg": (b"this is not a picture at all\n" * 50, {"BAD_FORMAT"}),
        "b-zeros.jpg": (bytes(5000), {"BAD_FORMAT"}),
        "b-one-byte.jpg": (b"\xff", {"BAD_FORMAT", "TRUNCATED"}),
        "b-scan.jpg": (bytes(wrong), {"CORRUPT", "TRUNCATED"}),
        "b-huge.jpg": (bytes(huge), {"LIMIT", "TRUNCATED", "CORRUPT"}),
    }
    for key, (content, _) in made.items():
        (folder / key).write_bytes(content)
    classes = {key: right for key, (_, right) in made.items()}
    if os.geteuid() != 0:
        (folder / "b-forbidden.jpg").write_bytes(photo)
        (folder / "b-forbidden.jpg").chmod(0)
        classes["b-forbidden.jpg"] = {"IO_ERROR"}
    return folder, classes


def test_each_bad_file_has_its_class(work):
    folder, classes = broken_folder(work)
    config = work.config(harness.folder_config(folder, more=MASK + "    last: partial\n"))
    total, out = GOOD + len(classes), work.path / "out"
    for epoch in (0, 1, 2):  # other draws, the same classes
        lines = work.pull("p", batch=8, epoch=epoch, seed=1, hash=True, out=out, config=config)
        keys = [key for line in lines for key in line["keys"]]
        equal(len(keys), total, "rows")
        found = {error["key"]: error["class"] for line in lines for error in line["errors"]}
        equal(set(found), set(classes), f"keys that failed in epoch {epoch}")
        for key, name in found.items():
            check(name in classes[key], f"{key} is called {name}, wanted one of {sorted(classes[key])}")
        for line in lines:
            equal(line["valid"], line["rows"] - len(line["errors"]), "valid rows")
            array = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
            for error in line["errors"]:
                check(not array[error["row"]].any(), f"the masked row of {error['key']} is not zero")
                check(error["message"].strip(), f"no message for {error['key']}")
                equal(line["keys"][error["row"]], error["key"], "under mask the key shown is the one that failed")
            for row, key in enumerate(line["keys"]):
                check(key in classes or array[row].any(), f"the row of the good {key} is zero")


def test_good_rows_do_not_depend_on_bad_neighbours(work):
    folder, classes = broken_folder(work)
    config = work.config(harness.folder_config(folder, more=MASK + "    order: {shuffle: none}\n    last: partial\n"))
    first = {(r[1], r[2]) for r in harness.rows_of(work.pull("p", batch=8, hash=True, config=config)) if r[1] not in classes}
    equal(len(first), GOOD, "good rows")
    for sets in (["threads.decode=1"], ["fetch.engine=pool"], ["slots=2"]):
        again = {(r[1], r[2]) for r in harness.rows_of(work.pull("p", batch=8, hash=True, config=config, sets=sets)) if r[1] not in classes}
        equal(again, first, f"rows of good pictures with {sets}")


def test_policy_fail_and_refused_policies(work):
    folder, _ = broken_folder(work)
    config = work.config(harness.folder_config(folder, more="    last: partial\n"))
    result = work.ctl("pull", "p", "--batch", 4, "--on-error", "fail", config=config, code=None)
    equal(result.code, 5, "exit code with on_error fail")
    check("b-" in result.err, f"the sentence does not name the sample: {result.err[:200]!r}")
    result = work.ctl("pull", "p", "--batch", 4, "--on-error", "substitute,max_rate=2", config=config, code=None)
    check(result.code in (1, 2) and "max_rate" in result.err, f"a rate of 2: exit {result.code}, {result.err[:200]!r}")
    result = work.ctl("pull", "p", "--batch", 4, "--on-error", "maks", config=config, code=None)
    check(result.code in (1, 2) and "maks" in result.err, f"a policy spelt wrong: exit {result.code}, {result.err[:200]!r}")


def test_all_files_bad(work):
    folder = work.path / "all"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i}.jpg").write_bytes(b"rubbish" * 30)
    lines = work.pull("p", batch=4, config=work.config(harness.folder_config(folder, more=MASK)))
    equal([line["valid"] for line in lines], [0, 0, 0], "valid rows")


def refused(work, text, words, wanted, codes=(1, 2, 4)):
    result = work.ctl("pull", "p", *words, config=work.config(text), code=None)
    check(result.code in codes, f"{words}: exit {result.code}, wanted one of {codes}: {result.err[:300]!r}")
    for word in wanted:
        check(str(word) in result.err, f"{words}: the sentence has no {word!r}: {result.err[:400]!r}")


def test_bad_folders_and_sizes(work):
    folder = good_folder(work)
    nowhere, empty, file = work.path / "nowhere", work.path / "empty", folder / "g000.jpg"
    empty.mkdir()
    refused(work, harness.folder_config(nowhere), ["--batch", 4], [nowhere])
    refused(work, harness.folder_config(empty), ["--batch", 4], [empty])
    refused(work, harness.folder_config(file), ["--batch", 4], [file])
    text = harness.folder_config(folder)
    refused(work, text, ["--batch", 100], [100, GOOD])
    refused(work, text, ["--batch", 10, "--world", 3], [10, 3], (2,))
    refused(work, text, ["--batch", 8, "--rank", 2, "--world", 2], [2], (2,))
    refused(work, text, ["--batch", 8, "--step", 3], [3], (2,))
    refused(work, text, ["--batch", 0], [], (2,))
    refused(work, text, ["--batch", 8, "--steps", "many"], ["many"], (2,))
    result = work.ctl("pull", "q", "--batch", 4, config=work.config(text), code=None)
    check(result.code in (1, 2) and "q" in result.err, f"an unknown dataset: exit {result.code}, {result.err[:200]!r}")
    if os.geteuid() != 0:
        empty.chmod(0)
        refused(work, harness.folder_config(empty), ["--batch", 4], [empty])


def test_links_out_of_the_root_are_refused(work):
    folder, secret = good_folder(work), work.path / "secret"
    secret.mkdir()
    shutil.copy(folder / "g000.jpg", secret / "s.jpg")
    (folder / "out.jpg").symlink_to(secret / "s.jpg")
    (folder / "more").symlink_to(secret)
    (folder / "loop.jpg").symlink_to(folder / "loop.jpg")
    keys = [key for line in work.pull("p", batch=1, config=work.config(harness.folder_config(folder))) for key in line["keys"]]
    equal(sorted(keys), [f"g{i:03d}.jpg" for i in range(GOOD)], "keys")


def spoil(folder):
    """Does to files what happens to files; returns their keys."""
    (folder / "g040.jpg").unlink()
    os.truncate(folder / "g044.jpg", 1000)
    with open(folder / "g048.jpg", "ab") as f:
        f.write(bytes(100))
    os.utime(folder / "g052.jpg", (1, 1))
    (folder / "g056.jpg").unlink()
    (folder / "g056.jpg").mkdir()
    return {"g040.jpg", "g044.jpg", "g048.jpg", "g052.jpg", "g056.jpg"}


def test_changed_while_running(work):
    """Files removed, cut, replaced and grown after they were listed are named; the other rows stay as they were."""
    folder, out = good_folder(work, count=60), work.path / "out"
    daemon = work.daemon(work.config(harness.folder_config(folder, more=MASK + "    order: {shuffle: none}\n    last: partial\n")), "slots=2")
    before = work.pull("p", batch=4, hash=True)
    rank = work.start_pull(out, "pull", "p", "--batch", 4, "--hash", "--delay-ms", 30)
    harness.wait_until(lambda: b"\n" in out.read_bytes(), 10, "the rank prints a line")
    victims = spoil(folder)  # far behind what two slots have read
    equal(rank.wait(30), 0, "exit code of the rank")
    after = [json.loads(line) for line in out.read_text().splitlines()]
    errors = {error["key"]: error["class"] for line in after for error in line["errors"]}
    equal(set(errors), victims, "keys that failed")
    equal({errors["g044.jpg"], errors["g048.jpg"], errors["g052.jpg"]}, {"CHANGED"}, "cut, grown, touched")
    check(errors["g040.jpg"] in ("IO_ERROR", "CHANGED") and errors["g056.jpg"] in ("IO_ERROR", "CHANGED"), f"classes {errors}")
    kept = lambda lines: [row for row in harness.rows_of(lines) if row[1] not in victims]  # noqa: E731
    equal(kept(after), kept(before), "rows of the files that did not change")
    check(daemon.process.poll() is None, "the daemon is gone")


def test_memory_that_is_short(work):
    folder = good_folder(work)
    config = work.config(harness.folder_config(folder, head="memory: 16MiB\nslots: 8\n"))
    result = work.ctl("pull", "p", "--batch", 24, config=config, code=None)
    check(result.code == 4, f"a stream that does not fit: exit {result.code}, wanted 4: {result.err[:300]!r}")
    check(any(unit in result.err for unit in ("MiB", "bytes", "GiB")), f"no numbers in {result.err[:300]!r}")


if __name__ == "__main__":
    harness.main(globals())
