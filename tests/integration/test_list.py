#!/usr/bin/python3
"""Lists (CSV, JSON lines) give the rows that the folder they name gives, with their further columns beside them; what is broken is left out."""
import csv
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import numpy as np  # noqa: E402
import harness  # noqa: E402
from harness import BUILD, check, equal, without_waits  # noqa: E402

COUNT, BATCH = 60, 8
LETTERS = 'abc ,"\n\r\t\\/{}[]:é€😀\x01'


def members(folder):
    """(path, class) of each picture, as the folder source has them."""
    paths = sorted(path.relative_to(folder).as_posix() for path in pathlib.Path(folder).rglob("*.jpg"))
    classes = sorted({path.split("/")[0] for path in paths})
    return [(path, classes.index(path.split("/")[0])) for path in paths]


def facts(lines, fields=("image", "label")):
    return [row for line in lines for row in zip(line["ids"], line["keys"], *(line["fields"][name]["row_hashes"] for name in fields))]


def write_csv(path, names, rows, **how):
    with open(path, "w", newline="", encoding=how.pop("encoding", "utf-8")) as f:
        writer = csv.writer(f, **how)
        writer.writerows([names, *rows])
    return path


def write_json(path, names, rows, ascii_only=True):
    path.write_text("".join(json.dumps(dict(zip(names, row)), ensure_ascii=ascii_only) + "\n" for row in rows), encoding="utf-8")
    return path


def array(out, line, name):
    return np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.{name}.npy")


def texts(out, line, name):
    values, offsets = array(out, line, f"{name}.values"), array(out, line, f"{name}.offsets")
    return [bytes(values[a:b]).decode() for a, b in zip(offsets[:-1], offsets[1:])]


def test_same_as_the_folder(work):
    folder = harness.photos(COUNT)
    how = {"private": True, "preset": "imagenet-train", "batch": BATCH, "seed": 3, "hash": True, "draws": True}
    wanted = facts(work.pull(None, source=f"folder:{folder}", **how))
    named = [(path, path.split("/")[0]) for path, _ in members(folder)]
    lists = work.path / "lists"
    lists.mkdir()
    for name, rows in (("numbers", members(folder)), ("names", named)):
        write_csv(lists / f"{name}.csv", ("path", "label"), [(str(folder / path), label) for path, label in rows])
        config = work.config(f"datasets:\n  p:\n    source: {{list: {lists}/{name}.csv, root: {folder}}}\n    preset: imagenet-train\n")
        equal(facts(work.pull("p", config=config, batch=BATCH, seed=3, hash=True)), wanted, f"rows by absolute paths, labels are {name}")
    # A list beside its pictures needs no configuration.
    beside = shutil.copytree(folder, work.path / "beside")
    for path in (write_csv(beside / "l.csv", ("path", "label"), named), write_json(beside / "l.jsonl", ("label", "path"), [(b, a) for a, b in named])):
        equal(facts(work.pull(None, source=f"list:{path}", **how)), wanted, f"rows of {path.name}")


def make_texts(chance, count):
    """Texts that need quotes and escapes, and some that do not."""
    return ["".join(chance.choice(LETTERS) for _ in range(chance.randrange(12))) if i % 3 else f"caption {i}" for i in range(count)]


def columns_of(work):
    chance = random.Random(11)
    captions = make_texts(chance, COUNT)
    rows = []
    for i, caption in enumerate(captions):
        (work.path / "f").mkdir(exist_ok=True)
        (work.path / "f" / f"{i:03d}.bin").write_bytes(chance.randbytes(chance.randrange(1, 50)))
        rows.append((f"f/{i:03d}.bin", i % 7, caption, i * 10 ** 12 - 5, i / 8, json.dumps({"i": [i, caption]})))
    return ("path", "label", "caption", "big", "score", "meta"), rows


FIELDS = """    fields:
      raw: {from: path, decode: raw}
      label: {from: cls, decode: class}
      again: {from: label, decode: float}
      caption: {from: caption, decode: text}
      start: {from: caption, decode: text, max_bytes: 64, pad: true}
      big: {from: big, decode: int}
      score: {from: score, decode: float}
      meta: {from: meta, decode: json}
"""


def list_config(work, *paths, more=""):
    return work.config(f"datasets:\n  p:\n    source: {{list: [{', '.join(map(str, paths))}]{more}}}\n{FIELDS}    order: {{shuffle: global}}\n    on_error: {{policy: mask, max_rate: 1}}\n")


def test_columns_are_parts(work):
    names, rows = columns_of(work)
    lists = [write_csv(work.path / "a.csv", names, rows), write_csv(work.path / "b.tsv", names, rows, delimiter="\t", lineterminator="\n"),
             write_csv(work.path / "c.csv", names, rows, quoting=csv.QUOTE_ALL, encoding="utf-8-sig"), write_json(work.path / "d.jsonl", names, rows),
             write_json(work.path / "e.ndjson", names, rows, ascii_only=False)]
    first = None
    for path in lists:
        out = work.path / f"out-{path.name}"
        lines = work.pull("p", batch=BATCH, seed=4, hash=True, out=out, config=list_config(work, path))
        first = first or lines
        equal(without_waits(lines), without_waits(first), f"lines of {path.name}")  # plan id, keys, hashes, states
        for line in lines:
            wanted = [rows[i] for i in line["ids"]]
            equal(line["keys"], [row[0] for row in wanted], "keys")
            equal(texts(out, line, "caption"), [row[2] for row in wanted], f"captions of {path.name}")
            equal(array(out, line, "start").tolist(), [list(row[2].encode().ljust(64, b"\0")) for row in wanted], "padded captions")
            equal(array(out, line, "label").tolist(), [row[1] for row in wanted], "labels")
            equal(array(out, line, "again").tolist(), [row[1] for row in wanted], "labels as numbers")
            equal(array(out, line, "big").tolist(), [row[3] for row in wanted], "integers")
            equal(array(out, line, "score").tolist(), [row[4] for row in wanted], "floats")
            equal(texts(out, line, "meta"), [row[5] for row in wanted], "json")
    equal(sorted(i for line in first for i in line["ids"]), list(range(COUNT)), "every row once")


def test_values_alone(work):
    """A row that is made of one raw value, which needs no codec: what is escaped in the list is not in the row."""
    names, rows = columns_of(work)
    for path in (write_csv(work.path / "a.csv", names, rows), write_json(work.path / "b.jsonl", names, rows)):
        for words in ("decode: raw", "decode: raw, max_bytes: 40, pad: true"):
            out = work.path / f"out-{path.name}-{len(words)}"
            config = work.config(f"datasets:\n  p:\n    source: {{list: {path}}}\n    fields: {{caption: {{from: caption, {words}}}}}\n")
            line = work.pull("p", batch=COUNT, out=out, config=config)[0]
            equal(line["valid"], COUNT, "valid rows")
            if "pad" in words:
                equal(array(out, line, "caption").tolist(), [list(row[2].encode().ljust(40, b"\0")) for row in rows], "padded")
            else:
                equal(texts(out, line, "caption"), [row[2] for row in rows], f"values of {path.name}")


def test_equalities(work):
    names, rows = columns_of(work)
    halves = [write_csv(work.path / "1.csv", names, rows[:25]), write_json(work.path / "2.jsonl", names, rows[25:])]
    config, how = list_config(work, *halves), {"batch": BATCH, "seed": 4, "hash": True}
    whole = work.pull("p", config=config, **how)
    equal([line["keys"] for line in whole], [line["keys"] for line in work.pull("p", config=list_config(work, write_csv(work.path / "all.csv", names, rows)), **how)],
          "two lists are one")
    for sets in (["threads.decode=1"], ["threads.decode=3", "fetch.engine=pool"], ["shm=posix", "fetch.depth=2"]):
        equal(without_waits(work.pull("p", config=config, sets=sets, **how)), without_waits(whole), f"lines with {sets}")
    equal(without_waits(work.pull("p", config=config, env={"SPDLD": str(BUILD / "spdld-inproc")}, **how)), without_waits(whole), "lines of spdld-inproc")
    parts = [work.pull("p", config=config, rank=rank, world=2, **how) for rank in range(2)]
    equal([key for step in zip(*parts) for part in step for key in part["keys"]], [key for line in whole for key in line["keys"]], "world 2")
    equal(without_waits(work.pull("p", config=config, state=whole[2]["state"], steps=len(whole) - 3, batch=BATCH, hash=True)), without_waits(whole[3:]), "from a state")


def test_broken_rows(work):
    names, rows = columns_of(work)
    path, text = work.path / "l.csv", io.StringIO()
    csv.writer(text).writerows([names, *rows[:4]])
    bad = 'f/000.bin,1\n../x.bin,1,a,1,1,1\nf/001.bin,1,"a"b,1,1,1\n,1,a,1,1,1\n'
    path.write_text(text.getvalue() + bad + "f/none.bin,1,a,1,1,{}\nf/002.bin,1,a,1,1,{\n", newline="")
    config = list_config(work, path)
    index = work.ctl("index", "p", config=config).lines[0]
    equal((index["samples"], index["broken"], index["classes"]), (6, 4, {"BAD_FORMAT": 2, "INCOMPLETE": 2}), "what the index finds")
    begin = len(text.getvalue().encode())
    equal([(fault["shard"], fault["offset"], fault["class"]) for fault in index["faults"]],
          [(str(path), begin, "INCOMPLETE"), (str(path), begin + 12, "BAD_FORMAT"), (str(path), begin + 46, "BAD_FORMAT"), (str(path), begin + 54, "INCOMPLETE")],
          "where they are")
    check("line" in index["faults"][2]["message"] and "column 16" in index["faults"][2]["message"], index["faults"][2]["message"])
    daemon = work.daemon(config)
    line = work.pull("p", batch=6, hash=True)[0]
    equal((line["rows"], line["valid"], sorted((e["key"], e["class"]) for e in line["errors"])), (6, 4, [("f/002.bin", "TRUNCATED"), ("f/none.bin", "IO_ERROR")]),
          "what fails when it is read")
    quarantine = work.ctl("quarantine", "p").out
    for word in ("f/none.bin", "IO_ERROR", "TRUNCATED", "INCOMPLETE", str(path)):
        check(word in quarantine, f"{word} is in {quarantine}")
    equal(daemon.stop(), 0, "exit code")
    plan = work.ctl("plan", "p", config=config, as_json=False).out
    check(f"list:{path}" in plan, plan)
    # The list is changed while it is in use: its values are no longer what was listed.
    before = path.read_bytes()
    daemon = work.daemon(config)
    pull = work.start_pull(work.path / "lines", "pull", "p", "--batch", "1", "--steps", "60", "--delay-ms", "20", "--seed", "1")
    harness.wait_until(lambda: (work.path / "lines").stat().st_size > 0, 20, "the first line")
    path.write_bytes(before.replace(b"caption", b"Caption"))
    os.utime(path, ns=(1, 1))
    equal(pull.wait(60 * harness.PATIENCE), 0, "exit code of the pull")
    lines = [json.loads(line) for line in (work.path / "lines").read_text().splitlines()]
    classes = {error["class"] for line in lines for error in line["errors"]}
    check("CHANGED" in classes, f"{classes} names what changed")


def test_many_columns(work):
    """Without fields every column comes under its own name; a row may be made of more than a few."""
    names = ["path", *(f"column_number_{i}" for i in range(12))]
    (work.path / "x").write_bytes(b"abc")
    write_csv(work.path / "l.csv", names, [["x", *(f"value {i}{k}" for i in range(12))] for k in range(5)])
    out = work.path / "out"
    line = work.pull(None, private=True, source=f"list:{work.path}/l.csv", batch=5, out=out)[0]
    equal(line["valid"], 5, "valid rows")
    for i in range(12):
        equal(texts(out, line, f"column_number_{i}"), [f"value {i}{k}" for k in range(5)], f"column {i}")
    equal(texts(out, line, "path"), ["abc"] * 5, "the file")


def test_columns_that_are_missing(work):
    """A row without a part that a field needs is left out at opening; with none left, the columns and the name that was meant are said."""
    folder = harness.photos(COUNT)
    rows = [(str(folder / path), label) for path, label in members(folder)[:6]]
    pull = ("pull", "p", "--batch", 2)
    text = "datasets:\n  p:\n    source: {list: %s, root: " + str(folder) + "}\n    preset: imagenet-eval\n    last: partial\n"
    for path in (write_csv(work.path / "lb.csv", ("path", "lable"), rows), write_json(work.path / "lb.jsonl", ("path", "lable"), rows)):
        said = work.ctl(*pull, config=work.config(text % path), code=1).err
        for words in ("no sample is left: 6 rows left out", "no part for the field label, which is made from cls; its columns are path, lable; did you mean label?"):
            check(words in said, f"{words!r} is in {said}")
    some = write_csv(work.path / "some.csv", ("path", "label"), [row if i % 3 else (row[0], "") for i, row in enumerate(rows)])
    config = work.config(text % some)
    index = work.ctl("index", "p", config=config).document
    equal((index["samples"], index["broken"], index["classes"]), (4, 2, {"INCOMPLETE": 2}), "with some rows left")
    equal([(f["key"], f["message"]) for f in index["faults"]],
          [(members(folder)[i][0], f"line {i + 2}: no part for the field label, which is made from cls") for i in (0, 3)], "which are left out")
    lines = work.pull("p", batch=4, steps=1, config=config)
    equal((lines[0]["keys"], lines[0]["errors"]), ([members(folder)[i][0] for i in (1, 2, 4, 5)], []), "rows")
    # No column is named path, and the first one has no paths.
    said = work.ctl(*pull, config=work.config(text % write_csv(work.path / "ab.csv", ("a", "b"), [(1, 2)])), code=1).err
    check("it has no column path" in said and "its columns are a, b" in said and "path_column" in said, said)
    first = write_csv(work.path / "first.csv", ("file", "label"), rows)
    equal(len(work.pull("p", batch=2, config=work.config(text % first))), 3, "batches of a list whose first column has the paths")


def test_check(work):
    text = "datasets:\n  p:\n    source: {list: %s, root: %s}\n"
    write_csv(work.path / "l.csv", ["path"], [["x"]])
    for path, root, code, words in ((work.path / "l.csv", work.path, 0, ""), (work.path / "none.csv", work.path, 1, "none.csv"), (work.path / "l.csv", "/none/x", 1, "/none/x")):
        result = subprocess.run([BUILD / "spdld", "--check", "-c", work.config(text % (path, root))], capture_output=True, text=True)
        equal(result.returncode, code, f"exit code: {result.stderr}")
        check(words in result.stderr, result.stderr)


def test_rows_that_lack_a_part(work):
    """They are no samples of a dataset whose fields are made from it, and are of one that does without."""
    folder = work.path / "f"
    folder.mkdir()
    rows = [{"path": f"f/{i}.bin", "label": i % 3, "caption": f"c{i}"} for i in range(30)]
    for i, row in enumerate(rows):
        (folder / f"{i}.bin").write_bytes(bytes([i]) * 8)
        if i % 5 == 2:
            del row["caption"]
        if i % 7 == 3:
            del row["label"]
    path = work.path / "l.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"raw": "{from: bin, decode: raw, bytes: 8}", "label": "{from: cls, decode: class}", "caption": "{from: caption, decode: text}"}
    needs = {("raw",): (), ("raw", "label"): ("label",), ("raw", "label", "caption"): ("label", "caption")}
    for names, needed in needs.items():
        config = work.config(f"datasets:\n  p:\n    source: {{list: {path}}}\n    order: {{shuffle: none}}\n    last: partial\n    fields:\n"
                             + "".join(f"      {name}: {fields[name]}\n" for name in names))
        whole = [i for i, row in enumerate(rows) if all(name in row for name in needed)]
        lines = work.pull("p", batch=BATCH, hash=True, out=work.path / f"out-{len(names)}", config=config)
        equal([key for line in lines for key in line["keys"]], [rows[i]["path"] for i in whole], f"samples with {names}")
        equal([line["errors"] for line in lines if line["errors"]], [], "faults")
        equal([row[0] for line in lines for row in array(work.path / f"out-{len(names)}", line, "raw")[:line["valid"]].tolist()], whole, "their bytes")
        index = work.ctl("index", "p", config=config).document
        equal((index["samples"], index["classes"]), (len(whole), {"INCOMPLETE": 30 - len(whole)} if len(whole) < 30 else {}), "what the index finds")
    check(any("line 3: no part for the field caption" in fault["message"] for fault in index["faults"]), f"{index['faults'][:3]}")


if __name__ == "__main__":
    harness.main(globals())
