#!/usr/bin/python3
"""Writes or checks the vectors of docs/order.md, computed by tests/lib/order_reference.py.

usage: order_vectors.py [--write]
  without words  compares tests/data/order_vectors.json, order_vectors.txt and the examples in docs/order.md with what
                 the reference gives; exit 1 and a line for each that differs
  --write        writes them

A row of order_vectors.txt is the name of its kind and its values, in the order of the kind's columns in the JSON file.
Doubles are the 16 hexadecimal digits of their bits, texts and bytes are hexadecimal, integers decimal; "-" is an empty value.
"""
import json
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))

import order_reference as ref  # noqa: E402

JSON_FILE = "tests/data/order_vectors.json"
TEXT_FILE = "tests/data/order_vectors.txt"
DOCUMENT = "docs/order.md"

SCALE, RATIO = [0.08, 1.0], [3 / 4, 4 / 3]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Pick:
    """Inputs chosen by the generator itself, so that they are the same everywhere."""

    def __init__(self, number):
        self.number, self.at = number, 0

    def bits(self, count=64):
        words = ref.philox((self.at, 0, 0, 0xFFFFFFFF), (self.number, 0x7E57))
        self.at += 1
        return (words[0] | words[1] << 32) >> (64 - count)

    def below(self, n):
        return self.bits() % n

    def one_of(self, values):
        return values[self.below(len(values))]


def bits_of(x):
    return struct.pack(">d", x).hex()


def double_of(bits):
    return struct.unpack(">d", struct.pack(">Q", bits))[0]


def columns(words):
    return words.split()


KINDS = {}  # name -> (columns, function that gives the rows)


def kind(name, words):
    def add(function):
        KINDS[name] = (columns(words), function)
        return function

    return add


@kind("philox", "c0 c1 c2 c3 k0 k1 w0 w1 w2 w3")
def philox_rows():
    pick = Pick(1)
    full = ref.M32
    inputs = [[0] * 6, [full] * 6, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]]
    inputs += [[pick.bits(32) for _ in range(6)] for _ in range(13)]
    for row in inputs:
        yield row + ref.philox(row[:4], row[4:])


@kind("round_keys", "seed epoch key0 key1 key2 key3 key4 key5 key6 key7")
def round_key_rows():
    pick = Pick(2)
    inputs = [(0, 0), (0, 1), (1, 0), (ref.M64, ref.M32)] + [(pick.bits(), pick.bits(32)) for _ in range(8)]
    for seed, epoch in inputs:
        yield [seed, epoch] + ref.round_keys(seed, epoch)


@kind("permutation", "seed epoch samples order")
def permutation_rows():
    pick = Pick(3)
    for n in list(range(1, 18)) + [24, 25, 26, 50, 97, 100, 255, 256, 257]:
        for seed, epoch in [(0, 0), (0, 1), (pick.bits(), pick.bits(32))]:
            order = ref.Order("global", seed, epoch, n)
            found = [order.at(p) for p in range(n)]
            assert sorted(found) == list(range(n))
            yield [seed, epoch, n, ",".join(map(str, found))]


@kind("order", "shuffle seed epoch samples position sample")
def order_rows():
    pick = Pick(4)
    sizes = [1000, 65535, 65536, 65537, 1281167, 10**9, 2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**62, 2**63 - 1, 2**63]
    for n in sizes:
        for p in [0, 1, n // 2, n - 1] + [pick.below(n) for _ in range(4)]:
            seed, epoch = pick.one_of([0, 1, 42, pick.bits()]), pick.one_of([0, 1, 89, pick.bits(32)])
            yield ["global", seed, epoch, n, p, ref.Order("global", seed, epoch, n).at(p)]
        yield ["none", 7, 3, n, n - 1, ref.Order("none", 7, 3, n).at(n - 1)]


@kind("substitute", "seed epoch samples position attempt sample")
def substitute_rows():
    pick = Pick(44)
    for n in [1, 2, 3, 10, 100, 1000, 65537, 1281167, 2**32 + 1, 2**62]:
        for attempt in [1, 2, 3, 100, ref.M32]:
            seed, epoch, p = pick.one_of([0, 1, 42, pick.bits()]), pick.one_of([0, 1, pick.bits(32)]), pick.below(n)
            yield [seed, epoch, n, p, attempt, ref.substitute(seed, epoch, n, p, attempt)]


def shard_tables():
    """Samples of each shard."""
    return [[1], [10], [0, 7], [3, 0, 0, 5, 1, 0], [1] * 9, [4, 1, 9, 2, 2, 6], [0, 13, 0], [5, 5, 5, 5, 5, 5, 5],
            [1, 30, 1, 2, 1, 17], [8] * 12, [97], [2, 1] * 20]


@kind("block", "shuffle seed epoch block_samples lanes batch shards order")
def block_rows():
    pick = Pick(40)
    for shards in shard_tables():
        n = sum(shards)
        for shuffle, block, lanes, batch in [("block", 1, 1, 1), ("block", 4, 1, 3), ("block", n, 1, 1), ("block", n + 5, 1, 2),
                                             ("block", 3, 2, 4), ("block", 5, 3, 3), ("block", 2**48, 4, 8),
                                             ("none", 0, 2, 4), ("none", 0, 5, 10)]:
            seed, epoch = pick.one_of([0, 7, pick.bits()]), pick.one_of([0, 1, pick.bits(32)])
            found = ref.block_order(shuffle, seed, epoch, shards, block, lanes, batch)
            assert sorted(found) == list(range(n))
            yield [shuffle, seed, epoch, block, lanes, batch, ",".join(map(str, shards)), ",".join(map(str, found))]


@kind("block_large", "seed epoch block_samples lanes batch shard_count shard_samples position sample")
def block_large_rows():
    pick = Pick(41)
    for count, size in [(1000, 1281), (1, 10**6), (777, 2**40), (2000, 2**51)]:
        n = count * size
        for block in [1, 1000, 65536, 2**48]:
            for lanes, batch in [(1, 256), (8, 1024), (6, 96), (1024, 4096)]:
                p = pick.one_of([0, n - 1, n // 2, pick.below(n)])
                plan = dict(seed=pick.bits(), epoch=pick.one_of([0, pick.bits(32)]), shard_count=count, shard_samples=size,
                            block=block, lanes=lanes, batch=batch)
                yield [plan["seed"], plan["epoch"], block, lanes, batch, count, size, p, ref.large_block_at(plan, p)]


def draw_inputs(pick, rows):
    for i in range(rows):
        if i < 2:
            yield [0, i, 0, 0, 0]
        elif i == 2:
            yield [ref.M64, ref.M64, ref.M32, 15, 15]
        else:
            yield [pick.bits(), pick.one_of([pick.below(2**21), pick.bits()]), pick.one_of([0, 1, pick.bits(32)]),
                   pick.below(16), pick.below(16)]


DRAWS = "seed position epoch field operation"


@kind("draw", DRAWS + " draw bits u n below")
def draw_rows():
    pick = Pick(5)
    for i, inputs in enumerate(draw_inputs(pick, 48)):
        draws = ref.Draws(*inputs)
        draw = i if i < 12 else pick.one_of([pick.below(40), pick.bits(32)])
        n = pick.one_of([0, 1, 2, 3, 100, pick.bits(32), ref.M32])
        yield inputs + [draw, draws.bits(draw), bits_of(draws.u(draw)), n, draws.below(draw, n)]


def doubles(pick, rows):
    yield from [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 700.0, -700.0, 710.0, -745.0, 2.0**-1022, 2.0**52,
                -(2.0**53), 1e300, float("inf"), float("-inf")]
    for i in range(rows):
        scale = [1.0, 10.0, 1000.0, 1e12][i % 4]
        yield (pick.below(2**53) / 2.0**53 - (0.25 if i % 8 < 4 else 0.0)) * scale
    for _ in range(rows // 4):
        x = double_of(pick.bits())
        if x == x:
            yield x


def function_rows(function, number):
    for x in doubles(Pick(number), 64):
        yield [bits_of(x), bits_of(function(x))]


kind("exp", "x y")(lambda: function_rows(ref.exact_exp, 6))
kind("log", "x y")(lambda: function_rows(ref.exact_log, 7))
kind("sqrt", "x y")(lambda: function_rows(ref.exact_sqrt, 8))


@kind("round", "x y")
def round_rows():
    for x in doubles(Pick(9), 64):
        yield [bits_of(x), ref.exact_round(x)]


def sizes(pick):
    return pick.one_of([(500, 375), (375, 500), (1, 1), (2, 3), (640, 480), (6000, 4000), (65535, 65535), (1, 65535),
                        (4000, 3), (1 + pick.below(1000), 1 + pick.below(1000))])


@kind("random_resized_crop", DRAWS + " width height scale0 scale1 ratio0 ratio1 x y w h")
def crop_rows():
    pick = Pick(10)
    laws = [(SCALE, RATIO)] * 5 + [([0.9, 1.0], RATIO), ([0.08, 1.0], [1.0, 1.0]), ([1.0, 1.0], [0.5, 2.0]),
                                   ([1e-9, 1e-9], RATIO), ([0.3, 0.3], [1 / 1024, 1024.0])]
    for inputs in draw_inputs(pick, 240):
        width, height = sizes(pick)
        scale, ratio = pick.one_of(laws)
        box = ref.random_resized_crop(ref.Draws(*inputs), width, height, scale, ratio)
        assert box[0] >= 0 and box[1] >= 0 and box[2] >= 1 and box[3] >= 1
        assert box[0] + box[2] <= width and box[1] + box[3] <= height
        yield inputs + [width, height] + [bits_of(v) for v in scale + ratio] + list(box)


@kind("random_crop", DRAWS + " width height crop_width crop_height fits x y")
def random_crop_rows():
    pick = Pick(11)
    for inputs in draw_inputs(pick, 48):
        width, height = sizes(pick)
        crop = pick.one_of([(1, 1), (224, 224), (width, height), (1 + pick.below(width), 1 + pick.below(height))])
        box = ref.random_crop(ref.Draws(*inputs), width, height, *crop)
        yield inputs + [width, height, *crop] + ([1, box[0], box[1]] if box else [0, 0, 0])


@kind("flip", DRAWS + " p flipped")
def flip_rows():
    pick = Pick(12)
    for inputs in draw_inputs(pick, 48):
        p = pick.one_of([0.0, 1.0, 0.5, 0.5, pick.below(1000) / 1000])
        yield inputs + [bits_of(p), int(ref.flip(ref.Draws(*inputs), p))]


@kind("half_even", "n y")
def half_even_rows():
    for n in list(range(-9, 10)) + [65534, 65535, -65535, 2**31 - 1, -(2**31) + 1]:
        yield [n, ref.half_even(n)]


@kind("steps", "samples batch last steps")
def steps_rows():
    for n, g in [(10, 3), (10, 5), (10, 10), (10, 11), (1, 1), (2**62, 1), (2**62, 2**62), (2**62, 2**62 - 1), (1281167, 256)]:
        for last in ("drop", "pad", "partial"):
            yield [n, g, last, ref.steps(n, g, last)]


PLACE = "samples batch world rank last epoch position step"
BATCH = "epoch step position first rows next_epoch next_position next_step".split()


def batch_row(plan, k):
    out = ref.batch_at(plan, k)
    return [plan[name] for name in PLACE.split()] + [k] + [out[name] for name in BATCH]


@kind("batch", PLACE + " k " + " ".join("out_" + name for name in BATCH))
def batch_rows():
    def plan(n, g, world, rank, last, epoch=0, position=0, step=0):
        return dict(zip(PLACE.split(), [n, g, world, rank, last, epoch, position, step]))

    for last in ("drop", "pad", "partial"):
        for world in (1, 2, 4):
            for rank in range(world):
                for k in range(7):  # 10 samples, batches of 4
                    yield batch_row(plan(10, 4, world, rank, last), k)
        for position in range(11):  # every place, also those that another G left
            for k in range(4):
                yield batch_row(plan(10, 4, 2, 1, last, 5, position, position // 2), k)
        yield batch_row(plan(12, 4, 4, 3, last, 0, 12, 3), 0)
        yield batch_row(plan(2**62, 2**20, 8, 5, last, 0, 2**61, 7), 2**41 - 1)
        yield batch_row(plan(2**62, 2**20, 8, 5, last, 0, 2**61, 7), 2**41)
        yield batch_row(plan(10**9, 256, 8, 7, last, 2, 0, 0), 10_000_000)
        yield batch_row(plan(1281167, 1024, 16, 3, last, 88, 1280000, 1250), 2**31)
    for last in ("pad", "partial"):
        for rank in range(5):  # fewer samples than the batch
            yield batch_row(plan(3, 10, 5, rank, last), 1)
    pick = Pick(13)
    for _ in range(120):
        world = 1 + pick.below(8)
        g = world * (1 + pick.below(40))
        n = g + pick.below(1000)
        position = pick.below(n + 1)
        yield batch_row(plan(n, g, world, pick.below(world), pick.one_of(["drop", "pad", "partial"]), pick.below(100),
                             position, pick.below(position + 1)), pick.one_of([pick.below(60), pick.below(2**30)]))


STATE = "format decode plan_id seed epoch position step batch"


def states():
    pick = Pick(14)
    zero, ones = "0" * 32, "f" * 32
    rows = [[1, 1, zero, 0, 0, 0, 0, 1], [1, 1, "00112233445566778899aabbccddeeff", 42, 3, 1024, 16, 64],
            [1, ref.M32, ones, ref.M64, ref.M32, ref.M64, ref.M64, ref.M64]]
    for _ in range(9):
        position = pick.bits(40)
        rows.append([1, 1, f"{pick.bits():016x}{pick.bits():016x}", pick.bits(), pick.bits(32), position,
                     pick.below(position + 1), 1 + pick.bits(16)])
    return [dict(zip(STATE.split(), row)) for row in rows]


@kind("state", STATE + " text")
def state_rows():
    for state in states():
        yield [state[name] for name in STATE.split()] + [ref.state_encode(state)]


def manifests():
    folder = [(b"cat/0001.jpg", 102400), (b"cat/0002.JPG", 7), (b"dog/\xc3\xa9.jpeg", 0)]
    long = [(f"class{i % 10}/{i:06d}.jpg".encode(), 1000 + i) for i in range(200)]
    return [ref.folder_manifest(folder), ref.folder_manifest(folder[:1]), ref.folder_manifest(folder, [b"emu", b"fox"]),
            ref.folder_manifest(long), ref.synthetic_manifest(1, 1), ref.synthetic_manifest(10**9, 1024)]


@kind("manifest", "text id")
def manifest_rows():
    for text in manifests():
        yield [text.hex(), ref.xxh3_128_digits(text)]


def flip_op(name, p):
    return {"kind": name, "p": p}


def crop_op(name, height, width):
    return {"kind": name, "height": height, "width": width}


def sampled_op(name, height, width, filter_name, scale=None, ratio=None):
    return {"kind": name, "height": height, "width": width, "filter": filter_name, "scale": scale, "ratio": ratio}


def image(name="image", ops=(), **more):
    """A picture as the configuration says it; None where it is left out."""
    words = {"name": name, "decode": "image", "from": ["jpg", "jpeg"], "dtype": None, "layout": None, "channels": None,
             "ignore_orientation": 0, "bytes": 0, "max_pixels": None, "mean": None, "std": None, "ops": list(ops)}
    return {**words, **more}


def other(name, decoder, part, size=0):
    return image(name, (), decode=decoder, bytes=size, **{"from": [part]})


def finished(field):
    """The field with its defaults filled in and its dims worked out, for the text."""
    out = dict(field)
    if field["decode"] == "class":
        return {**out, "dtype": "int64", "dims": []}
    if field["decode"] == "raw":
        return {**out, "dtype": "uint8", "dims": [field["bytes"]]}
    out["dtype"] = field["dtype"] or "uint8"
    out["layout"] = field["layout"] or "nhwc"
    out["channels"] = field["channels"] or 3
    out["max_pixels"] = field["max_pixels"] or 128 * 1024 * 1024
    out["orientation"] = "ignored" if field["ignore_orientation"] else "applied"
    size = [(op["height"], op["width"]) for op in field["ops"] if "height" in op][-1]
    out["dims"] = [*size, 3] if out["layout"] == "nhwc" else [3, *size]
    return out


def plans():
    """(dataset id, shuffle with block_samples and lanes where there are any, last, fields)."""
    label = other("label", "class", "cls")
    train = [sampled_op("random_resized_crop", 224, 224, "bilinear", SCALE, RATIO), flip_op("random_flip", 0.5)]
    test = [sampled_op("resize", 256, 0, "bilinear"), crop_op("center_crop", 224, 224)]
    folder, synthetic = (ref.xxh3_128_digits(manifests()[i]) for i in (0, 5))
    normal = {"dtype": "float32", "layout": "nchw", "mean": MEAN, "std": STD}
    many = [sampled_op("resize", 300, 400, "bicubic"), crop_op("random_crop", 250, 260), flip_op("vertical_flip", 0.125),
            crop_op("center_crop", 16384, 1), flip_op("random_flip", -0.0)]
    parts = ["jpg", "jpeg", "png", "webp"]
    yield folder, "global", "drop", [image(ops=train), label]
    yield folder, "global", "drop", [label, image(ops=train)]
    yield folder, "global", "drop", [image("picture", train), label]
    yield folder, "global", "pad", [image(ops=train, **normal), label]
    yield folder, "none", "partial", [image(ops=test), label]
    yield folder, "none", "partial", [image(ops=test, dtype="uint8", layout="nhwc", channels=3, max_pixels=2**27), label]
    yield folder, "global", "drop", [image(ops=test, dtype="float16", ignore_orientation=1, max_pixels=10**6)]
    yield folder, "global", "drop", [image("a.b-c_d", many, dtype="bfloat16", mean=[0.0, -0.0, 1.5], std=[1.0, 2.0, 0.1],
                                           **{"from": parts}), other("copy", "raw", "jpg", 100000)]
    yield synthetic, "global", "drop", [other("bin", "raw", "bin", 1024)]
    yield "f" * 32, "none", "drop", []
    yield "0" * 31 + "1", "global", "partial", [image(f"field{i}", train * 8, **normal) for i in range(16)]
    yield folder, "block 65536 1", "drop", [image(ops=train), label]
    yield folder, "block 281474976710656 65536", "drop", [image(ops=train), label]
    yield folder, "none 0 8", "partial", [label]


@kind("plan_field", "name decode from dtype layout channels ignore_orientation bytes max_pixels normalize "
      "mean0 mean1 mean2 std0 std1 std2")
def no_rows():
    return []  # written with the plans below


@kind("plan_op", "kind height width filter scale0 scale1 ratio0 ratio1 p")
def no_op_rows():
    return []


@kind("plan", "dataset_id shuffle block_samples lanes last text id")
def plan_rows():
    """Rows that begin with another kind's name in front: the fields and their operations precede their plan."""
    nothing = [0.0, 0.0]
    for dataset, shuffle, last, fields in plans():
        for f in fields:
            yield ("plan_field", [f["name"], f["decode"], ",".join(f["from"]), f["dtype"] or "-", f["layout"] or "-",
                                  f["channels"] or 0, f["ignore_orientation"], f["bytes"], f["max_pixels"] or 0,
                                  int(f["mean"] is not None)] + [bits_of(x) for x in f["mean"] or [0.0] * 3]
                   + [bits_of(x) for x in f["std"] or [0.0] * 3])
            for op in f["ops"]:
                yield ("plan_op", [op["kind"], op.get("height", 0), op.get("width", 0), op.get("filter", "-")]
                       + [bits_of(x) for x in (op.get("scale") or nothing) + (op.get("ratio") or nothing)]
                       + [bits_of(op.get("p", 0.0))])
        shuffle, block, lanes = [*shuffle.split(), 0, 1][:3]
        text = ref.plan_text(dataset, shuffle, last, [finished(f) for f in fields], int(block), int(lanes))
        yield ("plan", [dataset, shuffle, block, lanes, last, text.hex(), ref.xxh3_128_digits(text)])


def all_rows():
    """(kind, values as strings) in order."""
    for name, (words, function) in KINDS.items():
        for row in function():
            own, values = row if isinstance(row, tuple) else (name, row)
            values = [str(value) for value in values]
            assert len(values) == len(KINDS[own][0]) and all(values) and not any(" " in v for v in values), (own, values)
            yield own, values


def files():
    rows = list(all_rows())
    document = {"format": 1, "order_version": ref.ORDER_VERSION, "state_format": ref.STATE_FORMAT, "kinds": {
        name: words for name, (words, _) in KINDS.items()}, "rows": [[name, *values] for name, values in rows]}
    text = json.dumps(document).replace('"rows": [[', '"rows": [\n[').replace("], [", "],\n[") + "\n"
    lines = "".join(" ".join([name, *values]) + "\n" for name, values in rows)
    head = "# Vectors of docs/order.md; written by tests/unit/plan/order_vectors.py, columns in order_vectors.json.\n"
    return {JSON_FILE: text, TEXT_FILE: head + lines}


# Examples in the document: between `<!-- example NAME -->` and the next `<!-- end -->`.


def example_order():
    keys = ref.round_keys(0, 0)
    out = ["seed 0, epoch 0: key[0] = %016x, key[1] = %016x, … key[7] = %016x" % (keys[0], keys[1], keys[7]), ""]
    for seed, epoch in [(0, 0), (0, 1), (1, 0)]:
        order = ref.Order("global", seed, epoch, 10)
        out.append(f"N = 10, seed {seed}, epoch {epoch}: " + " ".join(str(order.at(p)) for p in range(10)))
    n = 10**9
    order = ref.Order("global", 42, 7, n)
    out += ["", f"N = {n}, seed 42, epoch 7: a = {order.a}, b = {order.b}; "
            + ", ".join(f"order({p}) = {order.at(p)}" for p in (0, 1, n - 1))]
    return out


def example_substitutes():
    out = []
    for attempt in (1, 2, 3):
        shown = " ".join(str(ref.substitute(0, 0, 10, p, attempt)) for p in range(10))
        out.append(f"N = 10, seed 0, epoch 0, attempt {attempt}: {shown}")
    return out


def example_block():
    shards = [4, 3, 0, 5]
    out = ["shards of 4, 3, 0 and 5 samples (N = 12), seed 0, block_samples 4:", ""]
    for epoch in (0, 1):
        turns = [ref.permute(ref.round_keys(0, epoch, 1), 4, t) for t in range(4)]
        out.append(f"epoch {epoch}: shards {' '.join(map(str, turns))}; order "
                   + " ".join(map(str, ref.block_order("block", 0, epoch, shards, 4, 1, 1))))
    out += ["", "the same with lanes 2 and G = 4, a batch a group:", ""]
    for epoch in (0, 1):
        order = ref.block_order("block", 0, epoch, shards, 4, 2, 4)
        out.append(f"epoch {epoch}: " + " | ".join(" ".join(map(str, order[i:i + 4])) for i in range(0, 12, 4)))
    order = ref.block_order("none", 0, 0, [11], 0, 2, 4)
    out += ["", "shuffle none, N = 11, lanes 2, G = 4: " + " | ".join(" ".join(map(str, order[i:i + 4])) for i in range(0, 11, 4))]
    return out


def example_draws():
    draws = ref.Draws(42, 1000, 3, 0, 1)
    return ["seed 42, position 1000, epoch 3, field 0, operation 1:",
            "bits(0 … 4) = " + " ".join(str(draws.bits(d)) for d in range(5)),
            f"u(0) = {draws.u(0)!r}    below(1, 100) = {draws.below(1, 100)}"]


def example_crops():
    out = ["seed 42, epoch 3, field 0; random_resized_crop (operation 0) of 500 x 375 with scale [0.08, 1], ratio [3/4, 4/3];",
           "random_flip (operation 1) with p 0.5:", ""]
    for position in range(4):
        box = ref.random_resized_crop(ref.Draws(42, position, 3, 0, 0), 500, 375, SCALE, RATIO)
        flipped = ref.flip(ref.Draws(42, position, 3, 0, 1), 0.5)
        out.append(f"position {position}: x {box[0]}, y {box[1]}, {box[2]} x {box[3]}, {'flipped' if flipped else 'not flipped'}")
    box = ref.random_resized_crop(ref.Draws(42, 0, 3, 0, 0), 2000, 30, SCALE, RATIO)
    out += ["", f"position 0 of a picture of 2000 x 30, no attempt fits: x {box[0]}, y {box[1]}, {box[2]} x {box[3]}"]
    return out


def example_batches():
    out = ["N = 10, G = 4, W = 2, opened at (epoch 0, position 0, step 0); rows of rank 0 | rank 1, * for valid = 0:", ""]
    for last in ("drop", "pad", "partial"):
        for k in range(4):
            rows = []
            for rank in range(2):
                b = ref.batch_at(dict(samples=10, batch=4, world=2, rank=rank, last=last, epoch=0, position=0, step=0), k)
                places = range(b["first"], b["first"] + b["rows"])
                rows.append(" ".join(f"{q % 10}*" if q >= 10 else str(q) for q in places) or "none")
            behind = (b["next_epoch"], b["next_position"], b["next_step"])
            out.append(f"{last + ',':8} k = {k}: epoch {b['epoch']}, step {b['step']}, positions {' | '.join(rows)}; behind it {behind}")
    return out


def example_state():
    state = states()[1]
    return [", ".join(f"{name} {value}" for name, value in state.items()) + ":", ref.state_encode(state)]


def example_plan():
    dataset, shuffle, last, fields = list(plans())[3]
    text = ref.plan_text(dataset, shuffle, last, [finished(f) for f in fields])
    keys = [line.split("\0") for line in manifests()[0].decode().split("\n")[1:-1]]
    return ["folder of " + ", ".join(f"{key} ({size} bytes)" for key, size in keys) + ":", f"dataset id {dataset}", "",
            *text.decode().rstrip("\n").split("\n"), "", f"plan id {ref.xxh3_128_digits(text)}"]


EXAMPLES = {"order": example_order, "substitutes": example_substitutes, "block": example_block, "draws": example_draws,
            "crops": example_crops, "batches": example_batches,
            "state": example_state, "plan": example_plan}


def document_with_examples(text):
    def fill(match):
        lines = EXAMPLES[match.group(1)]()
        return match.group(0).split("\n")[0] + "\n\n" + "\n".join(f"    {line}".rstrip() for line in lines) + "\n\n<!-- end -->"

    found = re.findall(r"<!-- example (\w+) -->", text)
    assert sorted(found) == sorted(EXAMPLES), found
    return re.sub(r"<!-- example (\w+) -->.*?<!-- end -->", fill, text, flags=re.S)


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    with open(os.path.join(ROOT, DOCUMENT), encoding="utf-8") as f:
        wanted = {**files(), DOCUMENT: document_with_examples(f.read())}
    failed = 0
    for name, text in wanted.items():
        path = os.path.join(ROOT, name)
        if sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            continue
        try:
            with open(path, encoding="utf-8") as f:
                is_equal = f.read() == text
        except FileNotFoundError:
            is_equal = False
        if not is_equal:
            print(f"{name}: differs from what tests/lib/order_reference.py gives; if that is meant: order_vectors.py --write")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
