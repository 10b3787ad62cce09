#!/usr/bin/python3
"""Known faults of loaders about ranks, epochs, draws and resumption, one function a row of docs/faults.md: each row as it stands and three
generated variants of its kind."""
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import order_reference as reference  # noqa: E402
import tars  # noqa: E402
from harness import check, equal, rows_of, wait_until, without_waits  # noqa: E402
from PIL import Image  # noqa: E402

NUMBER = "    fields:\n      number: {from: [txt], decode: int}\n"
PICTURE = "    fields:\n      image: {from: [png], decode: image, ops: [{resize: [8, 8]}]}\n      number: {from: [txt], decode: int}\n"


def ids(lines):
    return [number for line in lines for number in line["ids"]]


def joined(ranks):
    """Samples of all ranks, in the order of the global batches."""
    return [number for step in zip(*ranks) for line in step for number in line["ids"]]


def numbers_tar(work, count, name="n", shards=3):
    """`count` samples whose text is their number, in shards of unequal sizes. Returns a configuration's source."""
    where = work.path / name
    where.mkdir(exist_ok=True)
    cuts = [count * k * k // shards ** 2 for k in range(shards + 1)]
    for k in range(shards):
        tars.write(where / f"{k}.tar", [(f"{i:06d}.txt", f"{i}\n".encode()) for i in range(cuts[k], cuts[k + 1])])
    return f"{{tar: \"{where}/{{0..{shards - 1}}}.tar\"}}", [cuts[k + 1] - cuts[k] for k in range(shards)]


def dataset(source, order="shuffle: global", last="drop", fields=""):
    return f"datasets:\n  p:\n    source: {source}\n    order: {{{order}}}\n    last: {last}\n    on_error: {{policy: mask}}\n{fields}"


def synthetic(count):
    return f"{{synthetic: {{samples: {count}, bytes: 16}}}}"


def world_of(work, config, world, batch, **how):
    return [work.pull("p", config=config, batch=batch, rank=rank, world=world, **how) for rank in range(world)]


def array(out, line, field):
    return np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.{field}.npy")


def indexed(work):
    return (f"index_dir={work.path}/index",)


# --- RNK-01: every rank gets the same number of batches ---

def equal_counts(work, source, count, world, rows, order):
    batch = world * rows
    steps = {"drop": count // batch, "pad": -(-count // batch), "partial": -(-count // batch)}
    for last, wanted in steps.items():
        if wanted == 0:
            continue
        ranks = world_of(work, work.config(dataset(source, order, last)), world, batch, sets=indexed(work))
        equal([len(lines) for lines in ranks], [wanted] * world, f"{last}: batches of {world} ranks of {count} samples")
        shown, places = joined(ranks), sum(line["rows"] for lines in ranks for line in lines)
        valid = sum(line["valid"] for lines in ranks for line in lines)
        if last == "drop":
            equal((len(shown), len(set(shown)), valid), (wanted * batch,) * 3, "drop: places, samples, valid")
        elif last == "pad":
            equal((places, len(set(shown)), valid), (wanted * batch, count, count), "pad: places, samples, valid")
        else:
            equal((sorted(shown), valid), (list(range(count)), count), "partial: samples, valid")


def test_rnk_01_equal_counts(work):
    for order in ("shuffle: global", "shuffle: none"):  # train and validation
        equal_counts(work, synthetic(10), 10, 3, 2, order)
    chance = random.Random(101)
    for kind in range(3):
        count, world, rows = chance.randint(20, 60), chance.randint(2, 5), chance.randint(1, 4)
        source = synthetic(count) if kind == 0 else numbers_tar(work, count, f"v{kind}")[0]
        equal_counts(work, source, count, world, rows, ("shuffle: global", "shuffle: block, block_samples: 7", "shuffle: none")[kind])


# --- RNK-03: epochs have orders of their own ---

def epochs_differ(work, source, count, order, seed, batch, keep=None):
    config, steps = work.config(dataset(source, order)), count // batch
    how = dict(config=config, batch=batch, seed=seed, sets=indexed(work))
    lines = work.pull("p", steps=3 * steps, **how)
    epochs = [ids(lines[e * steps:(e + 1) * steps]) for e in range(3)]
    for e, epoch in enumerate(epochs):
        equal(len(set(epoch)), steps * batch, f"different samples of epoch {e}")
    check(epochs[0] != epochs[1] != epochs[2] != epochs[0], "two epochs have the same order")
    equal(without_waits(work.pull("p", steps=3 * steps, **how)), without_waits(lines), "a second run")
    equal(ids(work.pull("p", epoch=2, **how)), epochs[2], "straight to epoch 2")
    check(ids(work.pull("p", **{**how, "seed": seed + 1})) != epochs[0], "another seed gives the same order")
    return epochs


def test_rnk_03_epochs_have_orders_of_their_own(work):
    epochs = epochs_differ(work, synthetic(100), 100, "shuffle: global", 1, 10)
    equal([sorted(epoch) for epoch in epochs], [list(range(100))] * 3, "each epoch has every sample")
    # The daemon lives on over many streams: it keeps none of their orders.
    work.daemon(work.config(dataset(synthetic(100))))
    equal([ids(work.pull("p", batch=10, seed=1, epoch=e)) for e in (2, 0, 1)], [epochs[2], epochs[0], epochs[1]], "from one daemon")
    chance = random.Random(103)
    for kind in range(3):
        count = chance.randint(60, 120)
        source, shards = numbers_tar(work, count, f"v{kind}")
        order = ("shuffle: global", "shuffle: block, block_samples: 11", "shuffle: block, block_samples: 16, lanes: 2")[kind]
        batch = chance.choice((4, 6, 10))
        epochs = epochs_differ(work, source, count, order, chance.randrange(2 ** 60), batch)
        check(all(sum(a == b for a, b in zip(*pair)) < count // 3 for pair in zip(epochs, epochs[1:])), "epochs are nearly alike")


# --- RNK-04: draws ---

def coordinates(work, copies, name, tar):
    """One picture whose pixels say where they are (red x, green y), `copies` times."""
    picture = Image.fromarray(np.dstack([*np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8)),
                                         np.full((256, 256), 7, np.uint8)]))
    (work.path / name).mkdir()
    picture.save(work.path / name / "one.png")
    data = (work.path / name / "one.png").read_bytes()
    if tar:
        tars.write(work.path / name / "0.tar", [(f"{i:04d}.png", data) for i in range(copies)])
        return f"{{tar: {work.path}/{name}/0.tar}}"
    (work.path / name / "one.png").unlink()
    for i in range(copies):
        (work.path / name / f"{i:04d}.png").write_bytes(data)
    return f"{{folder: {work.path}/{name}}}"


def draws(work, source, ops, threads, size, batch, steps, **how):
    """{(epoch, sample): (box, flip)}, each looked at in the pixels too where they are not resized."""
    fields = f"    fields:\n      image: {{from: [png], decode: image, ops: [{ops}]}}\n"
    out, found = work.path / f"out-{time.monotonic_ns()}", {}
    lines = work.pull("p", config=work.config(dataset(source, fields=fields)), sets=(f"threads.decode={threads}", *indexed(work)), batch=batch,
                      steps=steps, draws=True, out=out, **how)
    for line in lines:
        image = array(out, line, "image")
        for row, (number, drawn) in enumerate(zip(line["ids"], line["draws"])):
            x, y, w, h = drawn["crop"]
            found[line["epoch"], number] = (x, y, w, h, drawn["flip"])
            check(x >= 0 and y >= 0 and x + w <= 256 and y + h <= 256, f"the box {drawn} is not in the picture")
            if (w, h) == (size, size):
                wanted = np.dstack([*np.meshgrid(np.arange(x, x + w), np.arange(y, y + h))])
                equal(bool((image[row][:, :, :2] == (wanted[:, ::-1] if drawn["flip"] else wanted)).all()), True, f"pixels of {drawn}")
    return found


def draws_differ(work, source, copies, ops, size, threads, least):
    first, *others = [draws(work, source, ops, n, size, copies // 2, 4) for n in threads]
    for n, other in zip(threads[1:], others):
        equal(other, first, f"draws on {n} threads")
    for epoch in (0, 1):
        boxes = {first[epoch, i] for i in range(copies)}
        check(len(boxes) >= least * copies, f"epoch {epoch}: {len(boxes)} different boxes of {copies}")
    same = sum(first[0, i] == first[1, i] for i in range(copies))
    check(same < 0.05 * copies, f"{same} of {copies} draws are those of the epoch before")
    ranks = [draws(work, source, ops, 2, size, copies // 2, 2, rank=rank, world=2) for rank in range(2)]
    check(not set(ranks[0]) & set(ranks[1]), "two ranks have a sample in common")
    equal({**ranks[0], **ranks[1]}, {key: value for key, value in first.items() if key[0] == 0}, "draws of two ranks")
    check({ranks[0][key] for key in ranks[0]} != {ranks[1][key] for key in ranks[1]}, "two ranks draw the same")


def test_rnk_04_draws_differ_by_sample_and_epoch(work):
    draws_differ(work, coordinates(work, 64, "c", False), 64, "{random_crop: {size: 32}}, {random_flip: {p: 0.5}}", 32, (1, 4, 16), 60 / 64)
    chance = random.Random(104)
    for kind, ops in enumerate(("{random_crop: {size: SIZE}}", "{random_crop: {size: SIZE}}, {random_flip: {p: 0.3}}",
                                "{random_resized_crop: {size: SIZE, scale: [0.1, 0.9]}}, {random_flip: {p: 0.5}}")):
        size, copies = chance.randint(16, 60), 2 * chance.randint(10, 30)
        draws_differ(work, coordinates(work, copies, f"v{kind}", kind != 1), copies, ops.replace("SIZE", str(size)), size,
                     (1, chance.choice((2, 3, 5))), 0.9)


# --- RNK-08: resumption with another number of ranks ---

def resumes(work, source, count, order, rows, world, used, other_worlds, last="drop"):
    """`world` ranks of `rows` rows take `used` batches, then others go on with the same rows each: the rest once each."""
    config = work.config(dataset(source, order, last))
    how = dict(config=config, seed=5, sets=indexed(work))
    before = world_of(work, config, world, rows * world, steps=used, seed=5, sets=indexed(work))
    state = before[0][-1]["state"]
    equal({lines[-1]["state"] for lines in before}, {state}, "states of the ranks")
    seen = joined(before)
    equal(len(set(seen)), rows * world * used, "samples before")
    for other in other_worlds:
        ranks = [work.pull("p", state=state, batch=rows * other, rank=rank, world=other, **{**how, "seed": None}) for rank in range(other)]
        left = count - len(seen)
        full = left // (rows * other)
        rest = joined(ranks)
        if last == "drop":
            equal([len(lines) for lines in ranks], [full] * other, f"batches of {other} ranks")
            equal(len(set(rest)), full * rows * other, f"samples of {other} ranks")
        else:  # pad: the 16 that are left come too, with places that repeat marked
            equal([len(lines) for lines in ranks], [-(-left // (rows * other))] * other, f"batches of {other} ranks")
            equal(sum(line["valid"] for lines in ranks for line in lines), left, "valid places")
            equal(set(range(count)) - set(seen), set(rest[:left]), "the rest")
        check(not set(rest[:min(left, len(rest))]) & set(seen), f"{other} ranks see samples again")
        if left % (rows * other) == 0:
            equal(sorted(seen + rest), list(range(count)), "every sample once")
    refused = work.ctl("pull", "p", "--state", state, "--batch", 7, "--world", 2, config=config, sets=indexed(work), code=None)
    check(refused.code == 2 and "7" in refused.err and "2" in refused.err, f"a batch that cannot be divided: {refused.code} {refused.err!r}")


def test_rnk_08_resumption_with_other_ranks(work):
    resumes(work, synthetic(96), 96, "shuffle: global", 4, 4, 3, (2, 8, 4, 1))
    resumes(work, synthetic(96), 96, "shuffle: global", 4, 4, 3, (8,), "pad")
    chance = random.Random(108)
    for kind in range(3):
        rows, world, used = chance.randint(1, 5), chance.choice((2, 3, 4)), chance.randint(1, 4)
        count = rows * world * (used + chance.randint(2, 4)) + chance.randint(0, 5)
        source = synthetic(count) if kind == 0 else numbers_tar(work, count, f"v{kind}")[0]
        resumes(work, source, count, "shuffle: block, block_samples: 9" if kind == 2 else "shuffle: global", rows, world, used,
                (1, chance.choice((5, 6))), "drop" if kind < 2 else "pad")


# --- RNK-09: the last batch ---

def last_batch(work, source, count, batch, slots, fields):
    """Sizes of all batches, and what is in the places that have no sample: nothing, or zeroes; never what was there before."""
    config = {last: work.config(dataset(source, "shuffle: none", last, fields)) for last in ("drop", "partial", "pad")}
    left = count % batch or batch
    for last in ("drop", "partial", "pad"):
        out = work.path / f"out-{last}-{count}"
        lines = work.pull("p", config=config[last], batch=batch, out=out, sets=(f"slots={slots}", *indexed(work)), epoch=1)
        sizes = [batch] * (count // batch) + ([left] if count % batch and last == "partial" else [batch] if count % batch and last == "pad" else [])
        equal([line["rows"] for line in lines], sizes, f"{last}: rows of the batches")
        equal(ids(lines)[:count], list(range(min(count, sum(sizes)))), f"{last}: samples")
        equal(sum(line["valid"] for line in lines), min(count, sum(sizes)), f"{last}: valid rows")
        for line in lines:
            shown = array(out, line, "number")
            equal(shown.tolist(), line["ids"], f"{last}: numbers of step {line['step']}")
            if "image" in line["fields"]:
                image = array(out, line, "image")
                equal(image.shape[0], line["rows"], f"{last}: rows of the picture's tensor")
                equal([tuple(image[r, 0, 0]) for r in range(line["rows"])], [(i & 255, i >> 8, 7) for i in line["ids"]], f"{last}: colours")


def colours(work, count, name, shards=2, side=8):
    """Pictures of one colour that tells their number, with the number as text."""
    where = work.path / name
    where.mkdir()
    per = -(-count // shards)
    for k in range(shards):
        members = []
        for i in range(k * per, min(count, (k + 1) * per)):
            Image.new("RGB", (side, side), (i & 255, i >> 8, 7)).save(where / "one.png")
            members += [(f"{i:06d}.png", (where / "one.png").read_bytes()), (f"{i:06d}.txt", str(i).encode())]
        tars.write(where / f"{k}.tar", members)
    return f"{{tar: \"{where}/{{0..{shards - 1}}}.tar\"}}"


def test_rnk_09_the_last_batch(work):
    last_batch(work, colours(work, 10, "c"), 10, 4, 2, PICTURE)
    chance = random.Random(109)
    for kind in range(3):
        batch = chance.randint(3, 9)
        count = batch * chance.randint(2, 4) + chance.randint(1, batch - 1)
        source = numbers_tar(work, count, f"v{kind}")[0] if kind == 0 else colours(work, count, f"v{kind}", kind)
        last_batch(work, source, count, batch, chance.choice((2, 3)), NUMBER if kind == 0 else PICTURE)


# --- RNK-10: failed samples ---

def failed_rows(work, count, broken, batch, tar, order):
    name = f"b{count}"
    where, members = work.path / name, []
    where.mkdir()
    for i in range(count):
        Image.new("RGB", (8, 8), (i & 255, i >> 8, 7)).save(where / "one.png")
        data = (where / "one.png").read_bytes()
        members.append((f"{i:04d}.png", data[:len(data) // 2] if i in broken else data))
    (where / "one.png").unlink()
    if tar:
        tars.write(where / "0.tar", members)
    for key, data in members if not tar else []:
        (where / key).write_bytes(data)
    source = f"{{tar: {where}/0.tar}}" if tar else f"{{folder: {where}}}"
    config = work.config(dataset(source, order, "partial", "    fields:\n      image: {from: [png], decode: image, ops: [{resize: [8, 8]}]}\n"))
    daemon = work.daemon(config)
    key_of = {i: members[i][0][:-4] if tar else members[i][0] for i in range(count)}
    out = work.path / f"out-{name}"
    for policy in ("mask", "substitute,max_rate=1"):
        lines = work.pull("p", batch=batch, seed=4, on_error=policy, out=out / policy[:4], hash=True)
        wanted = reference.Order("global" if "global" in order else "none", 4, 0, count)
        tried = [wanted.at(p) for p in range(count)]
        errors = [(e["key"], e["class"]) for line in lines for e in line["errors"]]
        equal(sorted(errors), sorted((key_of[i], "TRUNCATED") for i in broken), f"{policy}: failures")
        colours_seen = [tuple(image[0, 0]) for line in lines for image in array(out / policy[:4], line, "image")]
        equal(len(colours_seen), count, f"{policy}: rows")
        if policy == "mask":
            equal(sum(line["valid"] for line in lines), count - len(broken), "mask: valid rows")
            equal(ids(lines), tried, "mask: every sample in its place")
            equal(colours_seen, [(0, 0, 0) if i in broken else (i & 255, i >> 8, 7) for i in tried], "mask: pixels")
        else:
            equal(sum(line["valid"] for line in lines), count, "substitute: valid rows")
            shown = ids(lines)
            equal(colours_seen, [(i & 255, i >> 8, 7) for i in shown], "substitute: pixels are those of the id that is told")
            equal([a for a, i in zip(shown, tried) if i not in broken], [i for i in tried if i not in broken], "substitute: the others")
            flagged = [line["step"] * batch + s["row"] for line in lines for s in line["substituted"]]
            equal(flagged, [p for p, i in enumerate(tried) if i in broken], "substitute: flagged rows")
            for p in flagged:
                at = 1
                while reference.substitute(4, 0, count, p, at) in broken:
                    at += 1
                equal(shown[p], reference.substitute(4, 0, count, p, at), "substitute: a function of the position, not the neighbour")
    found = {f["key"]: f["count"] for f in work.ctl("quarantine").document}
    check(set(found) == {key_of[i] for i in broken} and all(n >= 2 for n in found.values()), f"quarantine: {found}")
    daemon.stop()


def test_rnk_10_failed_samples_do_not_repeat_their_neighbour(work):
    failed_rows(work, 10, {3, 4}, 5, False, "shuffle: none")
    chance = random.Random(110)
    for kind in range(3):
        count = chance.randint(20, 40) + 100 * kind
        failed_rows(work, count, set(chance.sample(range(count), chance.randint(3, 8))), chance.randint(3, 7), kind > 0,
                    "shuffle: global" if kind != 1 else "shuffle: none")


# --- RNK-13: slots that are used again ---

def pairs_agree(work, source, count, batch, threads, slots, delays, pauses=0.0):
    """Ranks of different paces, each with a picture whose colour is its label."""
    daemon = work.daemon(work.config(dataset(source, last="partial", fields=PICTURE)), f"threads.decode={threads}", f"slots={slots}")
    chance, ranks = random.Random(count), []
    for k, delay_ms in enumerate(delays):
        out = work.path / f"out-{count}-{k}"
        ranks.append((work.start_pull(work.path / f"lines-{count}-{k}", "pull", "p", "--batch", batch, "--seed", k, "--out", out,
                                      *(["--delay-ms", delay_ms] if delay_ms else [])), out, work.path / f"lines-{count}-{k}"))
    while pauses and any(rank.poll() is None for rank, _, _ in ranks):  # at random moments a rank does nothing for a while
        rank = chance.choice(ranks)[0]
        if rank.poll() is None:
            rank.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0, pauses))
            rank.send_signal(signal.SIGCONT)
            time.sleep(chance.uniform(0, pauses))
    for rank, out, path in ranks:
        equal(rank.wait(120), 0, "exit code of a rank")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        equal(sorted(ids(lines)), list(range(count)), "every sample once")
        for line in lines:
            image, number = array(out, line, "image"), array(out, line, "number")
            equal(number.tolist(), line["ids"], "labels")
            wanted = np.array([(i & 255, i >> 8, 7) for i in line["ids"]], np.uint8)[:, None, None, :]
            check(bool((image == wanted).all()), f"a picture of step {line['step']} does not agree with its label")
    daemon.stop()


def test_rnk_13_pictures_agree_with_their_labels(work):
    pairs_agree(work, colours(work, 1000, "c", 3), 1000, 8, 8, 2, (0, 1, 5))
    chance = random.Random(113)
    for kind in range(3):
        count, batch = chance.randint(200, 400), chance.choice((3, 7, 16))
        pairs_agree(work, colours(work, count, f"v{kind}", kind + 1, chance.choice((4, 16, 40))), count, batch, chance.choice((1, 3, 8)),
                    chance.choice((2, 3)), (0, 2), 0.005)


# --- RNK-16: order and the time that a sample takes ---

def order_holds(work, count, every, tar, order, threads, batch):
    where, members = work.path / f"o{count}", []
    where.mkdir()
    big, small = where / "big.jpg", where / "small.jpg"
    side = 4000 if harness.SLOW else 1200  # 50 times as long, or more
    Image.effect_noise((side, side), 40).convert("RGB").save(big, quality=90)
    Image.effect_noise((60, 60), 40).convert("RGB").save(small, quality=90)
    members = [(f"{i:04d}.jpg", (big if i % every == 0 else small).read_bytes()) for i in range(count)]
    big.unlink(), small.unlink()
    if tar:
        tars.write(where / "0.tar", members)
    for key, data in members if not tar else []:
        (where / key).write_bytes(data)
    source = f"{{tar: {where}/0.tar}}" if tar else f"{{folder: {where}}}"
    fields = "    fields:\n      image: {from: [jpg], decode: image, ops: [{random_resized_crop: {size: 32}}]}\n"
    config = work.config(dataset(source, order, "partial", fields))
    first, *others = [work.pull("p", config=config, batch=batch, seed=2, hash=True, sets=(f"threads.decode={n}", *indexed(work))) for n in threads]
    equal(sorted(ids(first)), list(range(count)), "every sample once")
    if "block" not in order:
        equal(ids(first), [reference.Order("global" if "global" in order else "none", 2, 0, count).at(p) for p in range(count)], "the order")
    for n, other in zip(threads[1:], others):
        equal(without_waits(other), without_waits(first), f"lines on {n} threads")


def test_rnk_16_order_does_not_depend_on_time(work):
    order_holds(work, 100, 7, False, "shuffle: global", (1, 3, 16), 8)
    chance = random.Random(116)
    for kind, order in enumerate(("shuffle: none", "shuffle: block, block_samples: 10", "shuffle: global")):
        order_holds(work, 24 + kind, chance.randint(3, 9), kind > 0, order, (1, chance.choice((2, 5))), chance.choice((2, 5)))


# --- RNK-17: a state says nothing of threads ---

def state_is_taken(work, source, count, batch, used, threads, order):
    config = work.config(dataset(source, order))
    how = dict(config=config, batch=batch, seed=6, hash=True)
    whole = work.pull("p", steps=2 * count // batch, sets=("threads.decode=2", *indexed(work)), **how)
    for before, after in threads:
        first = work.pull("p", steps=used, sets=(f"threads.decode={before[0]}", *before[1:], *indexed(work)), **how)
        rest = work.pull("p", state=first[-1]["state"], steps=len(whole) - used, sets=(f"threads.decode={after[0]}", *after[1:], *indexed(work)),
                         **{**how, "seed": None})
        equal(without_waits(first + rest), without_waits(whole), f"lines with {before}, then {after}")


def test_rnk_17_a_state_says_nothing_of_threads(work):
    state_is_taken(work, synthetic(96), 96, 4, 7, [((8,), (1,)), ((1,), (8,))], "shuffle: global")
    chance = random.Random(117)
    for kind in range(3):
        count, batch = 12 * chance.randint(5, 8), chance.choice((2, 3, 4, 6))
        source = synthetic(count) if kind == 0 else numbers_tar(work, count, f"v{kind}")[0]
        others = [((chance.randint(1, 16), "slots=2"), (chance.randint(1, 16), "fetch.engine=pool")),
                  ((3, "shm=posix"), (1, "fetch.depth=1", "slots=9"))]
        state_is_taken(work, source, count, batch, chance.randint(1, count // batch - 1), others,
                       "shuffle: block, block_samples: 8" if kind == 2 else "shuffle: global")


# --- SYS-37: a slow, a late and a leaving rank ---

def unequal_ranks(work, source, count, batch, slow_ms, late_s, leaves, sets=()):
    """Rank 3 is slow, rank 2 comes late, rank 1 leaves in mid-epoch: rank 0 sees nothing of it, and nobody loses a batch."""
    daemon = work.daemon(work.config(dataset(source, last="partial")), *sets)
    steps = -(-count // batch)
    begun, files = {}, {rank: work.path / f"rank-{count}-{rank}" for rank in range(4)}

    def begin(rank, *words):
        begun[rank] = work.start_pull(files[rank], "pull", "p", "--batch", batch, "--rank", rank, "--world", 4, "--seed", 8, *words)

    began = time.monotonic()
    begin(3, "--delay-ms", slow_ms)
    begin(1, "--steps", leaves)
    begin(0)
    equal(begun[0].wait(60), 0, "exit code of the quick rank")
    equal(begun[1].wait(60), 0, "exit code of the rank that leaves")
    check(begun[3].poll() is None, "the slow rank should be at work still")

    def slow_stream():
        return [s for s in work.ctl("status").document["streams"] if s["rank"] == 3]
    wait_until(lambda: slow_stream() and "the rank: " in slow_stream()[0]["waiting_for"], 10, "the slow rank is named by what its stream waits for")
    equal({s["rank"] for s in work.ctl("status").document["streams"]}, {3}, "streams; that of the rank that left is gone")
    time.sleep(max(0, late_s - (time.monotonic() - began)))
    begin(2)
    equal(begun[2].wait(60), 0, "exit code of the late rank")
    equal(begun[3].wait(120), 0, "exit code of the slow rank")
    lines = {rank: [json.loads(line) for line in path.read_text().splitlines()] for rank, path in files.items()}
    equal({rank: len(lines[rank]) for rank in lines}, {0: steps, 1: leaves, 2: steps, 3: steps}, "batches of the ranks")
    rest = work.pull("p", batch=batch, rank=1, world=4, state=lines[1][-1]["state"])
    lines[1] += rest
    equal(sorted(joined([lines[rank] for rank in range(4)])), list(range(count)), "every sample once")
    daemon.stop()


def test_sys_37_unequal_ranks(work):
    unequal_ranks(work, synthetic(160), 160, 16, 150, 1.0, 4)
    chance = random.Random(137)
    for kind in range(3):
        count = chance.randint(120, 200)
        source = synthetic(count) if kind == 0 else numbers_tar(work, count, f"s{kind}")[0]
        unequal_ranks(work, source, count, 16, 80, chance.uniform(0, 0.5), chance.randint(1, 5), ("shm=posix",) if kind == 2 else ("slots=2",))


if __name__ == "__main__":
    harness.main(globals())
