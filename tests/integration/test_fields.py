#!/usr/bin/python3
"""Fields that are no pictures: bytes of any length as they lie in the files, text, JSON and numbers, padded or as values and offsets."""
import base64
import io
import json
import pathlib
import random
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import order_reference as reference  # noqa: E402
import tars  # noqa: E402
from harness import check, equal  # noqa: E402

FIELD_LINES = "    order: {shuffle: global, seed: 3}\n    last: partial\n    fields:\n"


def files(work, contents, name="n", extension="jpg"):
    """A folder of files in two classes; the folder's source knows pictures by their names only, so anything may be in them."""
    folder = work.path / name
    for i, content in enumerate(contents):
        (folder / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (folder / "ab"[i % 2] / f"{i:04d}.{extension}").write_bytes(content)
    return folder


def random_files(count, most, seed=5):
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice((0, 1, chance.randrange(most), most))) for _ in range(count)]


def array(out, line, field):
    return np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.{field}.npy")


def ragged_rows(out, line, field):
    """The rows of a field of unequal lengths, as bytes."""
    values, offsets = array(out, line, field + ".values"), array(out, line, field + ".offsets")
    equal((values.dtype, offsets.dtype, values.ndim), (np.dtype("uint8"), np.dtype("int64"), 1), "types of a ragged field")
    equal((len(offsets), offsets[0], offsets[-1]), (line["rows"] + 1, 0, len(values)), "offsets of a ragged field")
    return [values[offsets[i]:offsets[i + 1]].tobytes() for i in range(line["rows"])]


def config_of(folder, fields, head="", more=""):
    return f"{head}datasets:\n  p:\n    source: {{folder: {folder}}}\n{FIELD_LINES}" + "".join(f"      {f}\n" for f in fields) + more


def test_sixteen_parts_of_a_sample(work):
    """As many parts as a sample may have, each a field of its own: all arrive."""
    names = [f"p{k:02d}" for k in range(16)]
    tars.write(work.path / "t.tar", [(f"{i:03d}.{name}", f"{100 * i + k}".encode()) for i in range(20) for k, name in enumerate(names)])
    fields = "".join(f"      {name}: {{from: [{name}], decode: int}}\n" for name in names)
    config = f"datasets:\n  p:\n    source: {{tar: {work.path}/t.tar}}\n    fields:\n{fields}"
    out = work.path / "out"
    lines = work.pull("p", config=work.config(config), sets=(f"index_dir={work.path}/index",), batch=5, out=out)
    equal(sum(line["valid"] for line in lines), 20, "valid rows")
    for line in lines:
        for k, name in enumerate(names):
            equal(array(out, line, name).tolist(), [100 * i + k for i in line["ids"]], f"field {name}")


def test_a_folder_without_fields(work):
    """Every part raw under its own name: what arrives is what lies in the files, byte for byte; an empty file is of class EMPTY."""
    folder, out = files(work, random_files(203, 9000)), work.path / "out"
    empty = {str(p.relative_to(folder)) for p in folder.rglob("*.jpg") if p.stat().st_size == 0}
    check(len(empty) > 10, "the folder has empty files")
    lines = work.pull(None, private=True, source=f"folder:{folder}", batch=16, hash=True, out=out, on_error="mask")
    keys = []
    for line in lines:
        equal(sorted(line["fields"]), ["cls", "jpg.offsets", "jpg.values"], "fields")
        rows = ragged_rows(out, line, "jpg")
        for key, row, label in zip(line["keys"], rows, array(out, line, "cls")):
            equal(row, (folder / key).read_bytes(), f"bytes of {key}")
            equal(label, 0 if key in empty else "ab".index(key[0]), f"class of {key}")
        equal({error["key"] for error in line["errors"]}, empty & set(line["keys"]), "files without bytes")
        keys += line["keys"]
        field = line["fields"]["jpg.values"]
        equal(field["shape"], [sum(map(len, rows))], "shape of the values")
        equal(len(field["row_hashes"]), line["rows"], "a hash for each row")
        check("row_hashes" not in line["fields"]["jpg.offsets"], "offsets have no rows of their own")
    equal(sorted(keys), sorted(str(p.relative_to(folder)) for p in folder.rglob("*.jpg")), "every file once")
    # A row's hash depends on its bytes alone, not on what lies beside it in the batch; a substitute has its own.
    again = work.pull(None, private=True, source=f"folder:{folder}", batch=7, hash=True, on_error="substitute,max_rate=1")
    first = {key: value for _, key, value in harness.rows_of(lines, "jpg.values")}
    for _, key, value in harness.rows_of(again, "jpg.values"):
        check(key not in empty, f"{key} has no bytes and is shown")
        equal(value, first[key], f"hash of {key} in another batch")
    equal(sum(len(line["substituted"]) for line in again), len(empty), "substituted rows")


def test_worlds_and_restarts_agree(work):
    folder = files(work, random_files(64, 3000))
    config = work.config(config_of(folder, ["jpg: {from: jpg, decode: raw}"], head="shm: posix\n"))
    whole = work.pull("p", batch=8, steps=12, hash=True, config=config)
    parts = [work.pull("p", batch=8, steps=12, hash=True, rank=r, world=2, config=config) for r in range(2)]
    both = [row for pair in zip(*parts) for line in pair for row in harness.rows_of([line], "jpg.values")]
    equal(both, harness.rows_of(whole, "jpg.values"), "rows of two ranks and of one")
    behind = work.pull("p", batch=8, steps=7, hash=True, state=whole[4]["state"], config=config)
    equal(harness.without_waits(behind), harness.without_waits(whole[5:]), "resumed")
    pool = work.pull("p", batch=8, steps=12, hash=True, config=config, sets=["fetch.engine=pool", "threads.decode=1", "slots=2"])
    equal(harness.without_waits(pool), harness.without_waits(whole), "another engine, number of threads and of slots")


def test_text_json_and_numbers(work):
    texts = [f'"caption {i}: é{"x" * (i % 40)}"'.encode() for i in range(50)]
    folder, out = files(work, texts), work.path / "out"
    config = work.config(config_of(folder, ["padded: {from: jpg, decode: text, max_bytes: 64}", "free: {from: [txt, jpg], decode: text}",
                                            "most: {from: jpg, decode: json, max_bytes: 1KiB, pad: false}", "label: {from: cls, decode: int}",
                                            "part: {from: cls, decode: float}"]))
    lines = work.pull("p", batch=8, hash=True, out=out, config=config)
    equal(sum(line["valid"] for line in lines), 50, "valid rows")
    for line in lines:
        wanted = [(folder / key).read_bytes() for key in line["keys"]]
        equal(ragged_rows(out, line, "free"), wanted, "text")
        equal(ragged_rows(out, line, "most"), wanted, "JSON")
        equal([json.loads(row) for row in ragged_rows(out, line, "most")], [json.loads(row) for row in wanted], "JSON as values")
        padded = array(out, line, "padded")
        equal((padded.dtype, padded.shape), (np.dtype("uint8"), (line["rows"], 64)), "padded text")
        equal([row.tobytes() for row in padded], [row.ljust(64, b"\0") for row in wanted], "padded text")
        labels = ["ab".index(key[0]) for key in line["keys"]]
        equal((array(out, line, "label").tolist(), array(out, line, "part").tolist()), (labels, labels), "numbers")
        equal((line["fields"]["label"]["dtype"], line["fields"]["part"]["dtype"]), ("int64", "float32"), "types of numbers")


def tar_of(work, samples, name="s.tar"):
    """A shard: for each sample its parts by extension."""
    path = work.path / name
    with tarfile.open(path, "w") as shard:
        for i, parts in enumerate(samples):
            for extension, content in parts.items():
                member = tarfile.TarInfo(f"{i:03d}.{extension}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    return path


def test_parts_of_a_shard(work):
    """Captions, JSON and numbers beside a picture's bytes, as shards have them; a caption may be empty."""
    chance, samples = random.Random(8), []
    for i in range(37):
        samples.append({"jpg": chance.randbytes(chance.randrange(1, 2000)), "txt": f"cäption {i}".encode() * (i % 5),
                        "json": json.dumps({"i": i, "deep": [[i]]}).encode(), "cls": str(i).encode(), "score": f"{i / 8}".encode()})
    shard, out = tar_of(work, samples), work.path / "out"
    fields = ["jpg: {from: jpg, decode: raw}", "txt: {from: txt, decode: text}", "json: {from: json, decode: json}", "cls: {from: cls, decode: int}",
              "score: {from: score, decode: float}"]
    config = work.config(config_of(work.path, fields).replace(f"folder: {work.path}", f"tar: {shard}"))
    lines = work.pull("p", batch=8, hash=True, out=out, config=config)
    seen = []
    for line in lines:
        wanted = [samples[int(key)] for key in line["keys"]]
        seen += line["keys"]
        for name in ("jpg", "txt", "json"):
            equal(ragged_rows(out, line, name), [parts[name] for parts in wanted], name)
        equal(array(out, line, "cls").tolist(), [int(key) for key in line["keys"]], "int")
        equal(array(out, line, "score").tolist(), [int(key) / 8 for key in line["keys"]], "float")
    equal(sorted(seen), [f"{i:03d}" for i in range(37)], "every sample once")
    # Without fields: each part raw under its own name, cls as a number.
    line = work.pull(None, private=True, source=f"tar:{shard}", batch=37, hash=True, out=out)[0]
    equal(sorted(line["fields"]), sorted(["cls"] + [f"{name}.{half}" for name in ("jpg", "txt", "json", "score") for half in ("values", "offsets")]), "fields")
    for name in ("jpg", "txt", "json", "score"):
        equal(ragged_rows(out, line, name), [samples[int(key)][name] for key in line["keys"]], f"{name} without fields")


def test_numbers_as_text(work):
    numbers = [b"1", b"-2.5\n", b"1e3", b" 0.1 ", b"16777217"]
    folder, out = files(work, numbers), work.path / "out"
    lines = work.pull("p", batch=5, out=out, config=work.config(config_of(folder, ["x: {from: jpg, decode: float}"])))
    got = dict(zip(lines[0]["keys"], array(out, lines[0], "x")))
    for i, text in enumerate(numbers):
        equal(got[f"{'ab'[i % 2]}/{i:04d}.jpg"], np.float32(text.decode()), f"{text!r} as a float32")


def test_bad_rows_have_no_bytes(work):
    """What is not as its field wants it: masked, counted with its class, and of length 0 between its neighbours."""
    good, bad = b'{"a": 1}', {3: (b'{"a":', "TRUNCATED"), 8: (b"<html>", "BAD_FORMAT"), 9: (b"", "EMPTY"), 14: (b"[1,]", "CORRUPT"),
                              15: (b"[" * 200, "LIMIT"), 19: (b'"' + b"x" * 300 + b'"', "LIMIT")}
    folder, out = files(work, [bad[i][0] if i in bad else good for i in range(24)]), work.path / "out"
    config = work.config(config_of(folder, ["j: {from: jpg, decode: json, max_bytes: 256, pad: false}", "label: {from: cls, decode: class}"],
                                   more="    on_error: {policy: mask}\n"))
    lines = work.pull("p", batch=6, hash=True, out=out, config=config)
    errors = {}
    for line in lines:
        rows = ragged_rows(out, line, "j")
        for error in line["errors"]:
            errors[int(error["key"][2:6])] = error["class"]
            equal(rows[error["row"]], b"", f"bytes of {error['key']}")
            equal(array(out, line, "label")[error["row"]], 0, f"label of {error['key']}")
        failed = {error["row"] for error in line["errors"]}
        equal([row for i, row in enumerate(rows) if i not in failed], [good] * (line["rows"] - len(failed)), "good rows beside bad ones")
    equal(errors, {number: name for number, (_, name) in bad.items()}, "classes")


def test_raw_above_its_room(work):
    folder = files(work, [b"x" * n for n in (10, 100, 101, 5)])
    lines = work.pull("p", batch=4, config=work.config(config_of(folder, ["x: {from: jpg, decode: raw, max_bytes: 100}"],
                                                                 more="    on_error: {policy: mask}\n")))
    equal([(e["key"], e["class"]) for e in lines[0]["errors"]], [("a/0002.jpg", "LIMIT")], "a part above max_bytes")
    check("101" in lines[0]["errors"][0]["message"] and "100" in lines[0]["errors"][0]["message"], "the message has both numbers")
    equal(lines[0]["fields"]["x.values"]["shape"], [115], "bytes of the others")


def test_refusals_say_what_to_do(work):
    mixed = files(work, [b"a", b"b"])
    files(work, [b"c"], extension="png")
    r = work.ctl("pull", "--source", f"folder:{mixed}", "--batch", 1, private=True, code=2)
    check("fields" in r.err and "jpg" in r.err and "png" in r.err, f"mixed parts: {r.err!r}")
    named = config_of(mixed, ["bytes: {from: [jpg, png], decode: raw}"])
    equal(sum(line["valid"] for line in work.pull("p", batch=3, config=work.config(named))), 3, "mixed parts in one field")
    # Room is made for the largest file in every row: when that is too much the numbers are said, and the way out.
    large = files(work, [b"x" * (8 << 20), b"y"], name="large")
    r = work.ctl("pull", "--source", f"folder:{large}", "--batch", 64, private=True, sets=["memory=1GiB"], code=4)
    check("max_bytes" in r.err and str(8 << 20) in r.err and "jpg" in r.err, f"too much memory: {r.err!r}")


def test_plan_ids(work):
    """What can change a sample is in the plan id, as docs/order.md writes it; how much room a row has is not."""
    folder = files(work, [b"1", b"22", b"333"])
    samples = [(str(p.relative_to(folder)).encode(), p.stat().st_size) for p in folder.rglob("*.jpg")]
    dataset_id = reference.xxh3_128_digits(reference.folder_manifest(sorted(samples)))
    ids = set()
    for words, dims, max_bytes in (("", ["ragged"], 0), (", max_bytes: 9", [9], 0), (", max_bytes: 9, pad: false", ["ragged"], 9)):
        field = {"name": "x", "decode": "text", "from": ["jpg"], "dtype": "uint8", "dims": dims, "max_bytes": max_bytes}
        wanted = reference.xxh3_128_digits(reference.plan_text(dataset_id, "global", "partial", [field]))
        line = work.pull("p", batch=3, config=work.config(config_of(folder, [f"x: {{from: jpg, decode: text{words}}}"])))[0]
        state = line["state"].split(".")[1]
        equal(base64.urlsafe_b64decode(state + "=" * (-len(state) % 4))[8:24].hex(), wanted, f"plan id with {words!r}")
        ids.add(wanted)
    equal(len(ids), 3, "different plans")


def test_views(work):
    """n draws of the same picture: the first is that of the field without views, the others are their own, and all come back after a restart."""
    folder, out, plain_out = harness.photos(40), work.path / "out", work.path / "plain"
    ops = "[{random_resized_crop: 32}, random_flip]"
    fields = [f"image: {{from: jpg, decode: image, ops: {ops}, views: 3}}", f"other: {{from: jpg, decode: image, ops: {ops}, dtype: float32, layout: nchw}}"]
    config = work.config(config_of(folder, fields))
    lines = work.pull("p", batch=8, hash=True, out=out, draws=True, config=config)
    plain = work.pull("p", batch=8, out=plain_out, draws=True, config=work.config(config_of(folder, [fields[0].replace(", views: 3", "")])))
    other = work.pull("p", batch=8, out=plain_out, config=work.config(config_of(folder, [fields[1].replace("other", "first"), fields[1]])))
    for line, single, pair in zip(lines, plain, other):
        views, first = array(out, line, "image"), array(plain_out, single, "image")
        equal(views.shape, (line["rows"], 3, 32, 32, 3), "shape of three views")
        equal((line["keys"], line["draws"]), (single["keys"], single["draws"]), "samples and draws")
        check((views[:, 0] == first).all(), "the first view is the field without views")
        for a, b in ((0, 1), (0, 2), (1, 2)):
            check((views[:, a] != views[:, b]).any(axis=(1, 2, 3)).all(), f"views {a} and {b} differ in every row")
        check((array(out, line, "other") == array(plain_out, pair, "other")).all(), "a field beside views is what it is beside another")
    behind = work.pull("p", batch=8, hash=True, draws=True, state=lines[1]["state"], config=config, steps=len(lines) - 2)
    equal(harness.without_waits(behind), harness.without_waits(lines[2:]), "resumed")


def test_synthetic_keeps_its_form(work):
    config = work.config("datasets:\n  s:\n    source: {synthetic: {samples: 5, bytes: 16}}\n  r:\n    source: {synthetic: {samples: 5, bytes: 16}}\n"
                         "    fields: {bin: {from: bin, decode: raw, max_bytes: 64}}\n")
    line = work.pull("s", batch=5, hash=True, config=config)[0]
    equal(line["fields"]["bin"]["shape"], [5, 16], "rows of one size")
    ragged = work.pull("r", batch=5, hash=True, config=config)[0]
    equal(ragged["fields"]["bin.values"]["shape"], [80], "the same, asked for as rows of any length")
    equal(ragged["fields"]["bin.values"]["hash"], line["fields"]["bin"]["hash"], "the same bytes")


if __name__ == "__main__":
    harness.main(globals())
