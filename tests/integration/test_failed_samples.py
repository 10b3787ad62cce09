#!/usr/bin/python3
"""Samples that fail, by policy: a substitute is the one of docs/order.md, on any threads, engine, world, after kills and from a state; each
failure is counted once; the limits end a stream at the same row, with the numbers and exit code 5."""
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import order_reference as ref  # noqa: E402
from harness import check, equal, rows_of, wait_until, without_waits  # noqa: E402

COUNT, BATCH, SEED = 240, 16, 9
ANY = "substitute,max_rate=1"


def break_one(kind, photo):
    """A photograph broken in one way, and the class that is right."""
    if kind == 0:
        return b"", "EMPTY"
    if kind == 1:
        return b"this is not a picture\n" * 100, "BAD_FORMAT"
    if kind == 2:
        return photo[:len(photo) // 2], "TRUNCATED"
    wrong = bytearray(photo)
    frame = photo.index(b"\xff\xc0")
    wrong[frame + 5:frame + 9] = b"\xff\xdc\xff\xdc"  # 65,500 x 65,500
    return bytes(wrong), "LIMIT"


def broken_folder(work):
    """240 photographs, every twentieth broken. Returns (folder, keys by id, {id: class})."""
    folder, classes = work.path / "in", {}
    folder.mkdir()
    photos = sorted(harness.photos(300).rglob("*.jpg"))[:COUNT]
    for i, path in enumerate(photos):
        to = folder / f"g{i:03d}.jpg"
        if i % 20 == 7:
            content, classes[i] = break_one(i // 20 % 4, path.read_bytes())
            to.write_bytes(content)
        else:
            os.link(path, to) if os.stat(path).st_dev == os.stat(folder).st_dev else shutil.copy(path, to)
    return folder, [f"g{i:03d}.jpg" for i in range(COUNT)], classes


def chain(shuffle, seed, epoch, samples, position, classes):
    """The samples tried at a position: those that fail, then the one shown."""
    tried = [ref.Order(shuffle, seed, epoch, samples).at(position % samples)]
    while tried[-1] in classes:
        tried.append(ref.substitute(seed, epoch, samples, position % samples, len(tried)))
    return tried


def check_lines(lines, shuffle, seed, keys, classes):
    """Each row is what the order says; returns the failures per class."""
    failures, substitutes = collections.Counter(), 0
    for line in lines:
        tried = [chain(shuffle, seed, line["epoch"], len(keys), line["step"] * BATCH + r, classes) for r in range(line["rows"])]
        equal(line["ids"], [t[-1] for t in tried], f"ids of epoch {line['epoch']} step {line['step']}")
        equal(line["keys"], [keys[t[-1]] for t in tried], "keys")
        failed = [{"row": r, "key": keys[t[0]]} for r, t in enumerate(tried) if len(t) > 1]
        equal(line["substituted"], failed, "substituted")
        equal([{"row": e["row"], "key": e["key"]} for e in line["errors"]], failed, "errors")
        for error in line["errors"]:
            equal(error["class"], classes[keys.index(error["key"])], f"class of {error['key']}")
            check(error["message"].strip(), f"no message for {error['key']}")
        failures.update(classes[sample] for t in tried for sample in t[:-1])
        substitutes += len(failed)
    return failures, substitutes


def test_substitutes_are_those_of_the_order(work):
    folder, keys, classes = broken_folder(work)
    out = work.path / "out"
    for shuffle, last in (("global", "drop"), ("none", "partial")):
        text = harness.folder_config(folder, more=f"    order: {{shuffle: {shuffle}}}\n    last: {last}\n    on_error: {{max_rate: 1}}\n")
        lines = work.pull("p", batch=BATCH, seed=SEED, steps=45, hash=True, out=out, config=work.config(text))
        equal([line["epoch"] for line in lines], [0] * 15 + [1] * 15 + [2] * 15, "epochs")
        check(all(line["valid"] == line["rows"] for line in lines), "a row is not valid under substitute")
        _, substitutes = check_lines(lines, shuffle, SEED, keys, classes)
        equal(substitutes, 3 * len(classes), "each broken file gives way once an epoch")
        for line in lines:
            images = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
            check(all(images[e["row"]].any() for e in line["errors"]), "a substitute's row is black")
        if shuffle == "global":
            check_pixels(work, folder, keys, lines)


def size_of(jpeg):
    at = jpeg.index(b"\xff\xc0")
    return int.from_bytes(jpeg[at + 7:at + 9], "big"), int.from_bytes(jpeg[at + 5:at + 7], "big")


def check_pixels(work, folder, keys, lines):
    """A substitute is cut and flipped by the draws of the row's position, whichever attempt it is."""
    config = work.config(harness.folder_config(folder, more="    on_error: {max_rate: 1}\n"))
    drawn, seen = work.pull("p", batch=BATCH, seed=SEED, draws=True, config=config), 0
    for line in drawn:
        for error in line["errors"]:
            row, seen = error["row"], seen + 1
            width, height = size_of((folder / line["keys"][row]).read_bytes())
            position = line["step"] * BATCH + row
            box = ref.random_resized_crop(ref.Draws(SEED, position, 0, 0, 0), width, height, [0.08, 1.0], [3 / 4, 4 / 3])
            equal(line["draws"][row]["crop"], list(box), f"crop of position {position}")
            equal(line["draws"][row]["flip"], bool(ref.flip(ref.Draws(SEED, position, 0, 0, 1), 0.5)), "flip")
    check(seen >= 10, f"{seen} substitutes were seen")
    equal([line["keys"] for line in drawn], [line["keys"] for line in lines[:15]], "keys with --draws")


def test_the_same_however_it_is_made(work):
    folder, _, _ = broken_folder(work)
    config = work.config(harness.folder_config(folder, more="    on_error: {max_rate: 1}\n"))
    how = {"batch": BATCH, "seed": SEED, "steps": 20, "hash": True, "config": config}
    whole = work.pull("p", sets=["threads.decode=2"], **how)
    for sets in (["threads.decode=1"], ["fetch.engine=pool"], ["slots=2", "fetch.depth=1"], ["slots=9", "shm=posix"]):
        equal(without_waits(work.pull("p", sets=sets, **how)), without_waits(whole), f"lines with {sets}")
    parts = [work.pull("p", rank=rank, world=2, **how) for rank in range(2)]
    joined = [row for step in zip(*parts) for part in step for row in rows_of([part])]
    equal(joined, rows_of(whole), "two ranks put together")
    how["steps"] = 14
    equal(without_waits(work.pull("p", state=whole[5]["state"], **how)), without_waits(whole[6:]), "lines behind a state")


def test_kills_change_no_substitute(work):
    folder, keys, classes = broken_folder(work)
    config = work.config(harness.folder_config(folder, more="    on_error: {max_rate: 1}\n"))
    daemon, rng = work.daemon(config), random.Random(5)
    out, steps = work.path / "out", 60
    unkilled = work.pull("p", batch=BATCH, seed=SEED, steps=steps, hash=True)
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--seed", SEED, "--hash", "--steps", steps, "--delay-ms", 20)
    for kill in range(6):
        time.sleep(rng.uniform(0.05, 0.2))
        if kill % 2:
            for pid in daemon.workers():
                os.kill(pid, signal.SIGKILL)
        else:
            daemon.kill()
            daemon = work.daemon(config)
    equal(rank.wait(60 * harness.PATIENCE), 0, "exit code of the rank")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    equal(without_waits(lines), without_waits(unkilled), "lines")
    check_lines(lines, "global", SEED, keys, classes)


def test_failures_are_counted_once(work):
    """What status counts are the samples that failed in the batches published, the substitutes among them too."""
    folder, keys, classes = broken_folder(work)
    more = {i for i in range(0, COUNT, 3)} - set(classes)  # a third is broken, so that substitutes are too
    for i in more:
        (folder / keys[i]).unlink()
        (folder / keys[i]).write_bytes(b"rubbish" * 20)
        classes[i] = "BAD_FORMAT"
    work.daemon(work.config(harness.folder_config(folder)), "slots=3")
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--seed", SEED, "--on-error", ANY, "--delay-ms", 100000)
    wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    status = wait_until(lambda: [s for s in work.ctl("status").document["streams"] if s["ready_slots"] >= 2 and s["step"] >= 3], 10, "batches are ready")[0]
    wanted, twice = collections.Counter(), 0
    for position in range(status["step"] * BATCH):
        tried = chain("global", SEED, 0, COUNT, position, classes)
        wanted.update(classes[sample] for sample in tried[:-1])
        twice += len(tried) > 2
    check(twice > 0, "no substitute failed: nothing is tested")
    equal({name: n for name, n in status["failures"].items() if n}, dict(wanted), "failures per class")
    rank.kill()


def test_the_quarantine(work):
    """It lists each sample that failed, how often, where and why; errors sums them up. It is the daemon's, not a stream's."""
    folder, keys, classes = broken_folder(work)
    began = time.time()
    work.daemon(work.config(harness.folder_config(folder, more="    on_error: {max_rate: 1}\n") + "  q:\n    source: {synthetic: {samples: 9, bytes: 9}}\n"))
    equal(work.ctl("quarantine").document, [], "the quarantine before anything failed")
    check("no sample has failed" in work.ctl("errors", as_json=False).out, "errors before anything failed")
    lines = work.pull("p", batch=BATCH, seed=SEED, steps=30)
    tried = collections.Counter()
    for line in lines:
        for row in range(BATCH):
            tried.update(chain("global", SEED, line["epoch"], COUNT, line["step"] * BATCH + row, classes)[:-1])
    found = work.ctl("quarantine", "p").document
    equal({f["key"]: (f["class"], f["count"]) for f in found}, {keys[i]: (classes[i], n) for i, n in tried.items()}, "class and count of each")
    for f in found:
        equal((f["dataset"], f["source"], f["offset"]), ("p", f["key"], 0), "where it is")
        check(f["message"].strip() and f["first"] <= f["last"], f"of {f['key']}: {f}")
        check(abs(time.mktime(time.strptime(f["last"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - began) < 100, f"last is {f['last']}")
    check(any(f["fault"] for f in found if f["class"] == "TRUNCATED"), "no cut picture has the place where it ends")
    errors = work.ctl("errors").document
    sums = collections.Counter()
    for e in errors:
        sums[e["class"]] += e["count"]
        check(e["example"] in keys and e["samples"] >= 1 and e["message"], f"{e}")
    wanted = collections.Counter()
    for i, n in tried.items():
        wanted[classes[i]] += n
    equal(sums, wanted, "failures per class of errors")
    text = work.ctl("quarantine", as_json=False).out
    check(all(f["key"] in text and f["class"] in text for f in found), f"for people: {text[:300]}")
    check("BAD_FORMAT" in work.ctl("errors", as_json=False).out, "errors for people")
    equal(work.ctl("quarantine", "q").document, [], "another dataset")
    result = work.ctl("quarantine", "pp", code=None)
    check(result.code == 1 and "'pp'" in result.err, f"of no dataset: {result.code} {result.err!r}")


def test_a_long_quarantine(work):
    """More than one message holds, with keys of any bytes."""
    folder, count = work.path / os.fsencode("long").decode(), 700
    folder.mkdir()
    for i in range(count):
        name = os.fsencode(f"{i:03d}-") + b"\xff\n" + b"n" * 200 + b".jpg"
        with open(os.fsencode(folder) + b"/" + name, "wb") as f:
            f.write(b"no picture")
    work.daemon(work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{SMALL}    on_error: {{policy: mask, max_rate: 1, max_consecutive: 10000}}\n"))
    equal(len(work.pull("p", batch=35, steps=20)), 20, "lines")
    found = work.ctl("quarantine").document
    equal(sorted(f["key"] for f in found), sorted(f"{i:03d}-\udcff\n" + "n" * 200 + ".jpg" for i in range(count)), "keys")
    equal({(f["count"], f["class"]) for f in found}, {(1, "BAD_FORMAT")}, "count and class")
    equal([(e["samples"], e["count"]) for e in work.ctl("errors").document], [(count, count)], "errors")


def test_ten_samples_two_broken(work):
    """Ten, the third and fourth broken, batch 5: mask shows the others once; substitutes are flagged and named."""
    folder = work.path / "ten"
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:10]):
        (folder / f"{i}.jpg").write_bytes(b"broken" * 9 if i in (3, 4) else path.read_bytes())
    config, out = work.config(harness.folder_config(folder, more="    order: {shuffle: none}\n")), work.path / "out"
    lines = work.pull("p", batch=5, on_error="mask", out=out, config=config)
    equal([line["ids"] for line in lines], [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], "ids under mask")
    equal([line["valid"] for line in lines], [3, 5], "valid under mask")
    equal([[e["row"] for e in line["errors"]] for line in lines], [[3, 4], []], "errors under mask")
    equal([line["substituted"] for line in lines], [[], []], "substituted under mask")
    images = np.load(out / "0000-00000000.image.npy")
    equal([bool(image.any()) for image in images], [True, True, True, False, False], "rows that are not zero under mask")
    lines = work.pull("p", batch=5, on_error="substitute", config=config)
    shown = [chain("none", 0, 0, 10, p, {3, 4})[-1] for p in range(10)]
    equal([line["ids"] for line in lines], [shown[:5], shown[5:]], "ids under substitute")
    equal([line["valid"] for line in lines], [5, 5], "valid under substitute")
    equal([e["key"] for line in lines for e in line["substituted"]], ["3.jpg", "4.jpg"], "substituted")


def test_padded_rows_are_substituted_too(work):
    folder, keys, classes = broken_folder(work)
    config = work.config(harness.folder_config(folder, more="    last: pad\n    on_error: {max_rate: 1}\n"))
    lines = work.pull("p", batch=64, seed=SEED, config=config)
    equal([line["valid"] for line in lines], [64, 64, 64, 48], "valid rows")
    wanted = [chain("global", SEED, 0, COUNT, p, classes)[-1] for p in range(256)]
    equal([i for line in lines for i in line["ids"]], wanted, "ids")
    check(any(e["row"] >= 48 for e in lines[3]["substituted"]), "no padded row gave way: nothing is tested")


# --- limits ---

SMALL = "    fields:\n      image: {from: [jpg], decode: image, ops: [{resize: {size: [4, 4]}}]}\n"


def small_folder(work, count, bad):
    """`count` files that are one small picture, those of the numbers in `bad` broken."""
    from PIL import Image

    folder = work.path / f"small-{len(list(work.path.iterdir()))}"
    folder.mkdir()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(folder / "0000.jpg")
    for i in range(1, count):
        if i not in bad:
            os.link(folder / "0000.jpg", folder / f"{i:04d}.jpg")
        else:
            (folder / f"{i:04d}.jpg").write_bytes(b"no picture" * 5)
    return f"datasets:\n  p:\n    source: {{folder: {folder}}}\n{SMALL}"


def ends(work, text, lines, words, *options, sets=()):
    """The pull prints so many lines, ends with 5 and says all the words."""
    result = work.ctl("pull", "p", "--batch", 32, *options, config=work.config(text), sets=sets, code=None)
    equal((result.code, len(result.lines)), (5, lines), f"{options}: exit code and lines; it says {result.err[-300:]!r}")
    for word in words:
        check(str(word) in result.err, f"{options}: the sentence has no {word!r}: {result.err!r}")


def test_max_rate(work):
    text = small_folder(work, 1504, {i for i in range(1504) if i % 50 == 49})  # 2 of 100
    words = ["1000", " 20 ", "max_rate 0.01", "BAD_FORMAT"]
    ends(work, text, 31, words, "--on-error", "substitute", sets=["threads.decode=1"])  # row 999 is in the batch behind them
    ends(work, text, 31, words, "--on-error", "substitute", sets=["threads.decode=2", "slots=9"])
    ends(work, text, 31, words, "--on-error", "mask")
    ends(work, text, 31, ["1000"], "--step", 10, "--on-error", "substitute")  # counted from where it was opened
    config = work.config(text)
    ends(work, text, 31, words)  # nothing is said of bad samples: substitutes and this rate
    for options in ("substitute,max_rate=0.02", "mask,max_rate=0.02"):  # 20 of 1,000 are not more
        equal(len(work.pull("p", batch=32, on_error=options, config=config)), 47, f"lines with {options}")
    ends(work, text, 31, ["max_rate 0.0199"], "--on-error", "substitute,max_rate=0.0199")


def test_max_consecutive(work):
    text = small_folder(work, 400, set(range(100, 105)) | {200, 202, 204, 206, 208, 210})
    ends(work, text, 3, [5, "max_consecutive 4", "0104.jpg", "BAD_FORMAT"], "--on-error", ANY + ",max_consecutive=4")
    ends(work, text, 3, [5, "max_consecutive 4"], "--on-error", "mask,max_consecutive=4")
    equal(len(work.pull("p", batch=32, on_error=ANY + ",max_consecutive=5", config=work.config(text))), 13, "lines with a limit of 5")
    more = text + "    on_error: {max_consecutive: 4}\n"
    ends(work, more, 3, ["max_consecutive 4"])
    equal(len(work.pull("p", batch=32, on_error="mask,max_consecutive=9", config=work.config(more))), 13, "the command line wins")


def test_all_are_bad(work):
    folder = work.path / "all"
    folder.mkdir()
    for i in range(300):
        (folder / f"{i:03d}.jpg").write_bytes(b"rubbish" * 30)
    text = harness.folder_config(folder)
    ends(work, text, 0, ["ALL_FAILED", "BAD_FORMAT", 100, ".jpg"], "--on-error", "substitute")
    ends(work, text, 0, ["ALL_FAILED", 7], "--on-error", "substitute,max_consecutive=7")
    ends(work, text, 3, ["ALL_FAILED", "101 samples", "BAD_FORMAT"], "--on-error", "mask")
    for path in folder.iterdir():
        path.write_bytes(b"")
    ends(work, text, 0, ["ALL_FAILED", "EMPTY"], "--on-error", "substitute")


if __name__ == "__main__":
    harness.main(globals())
