#!/usr/bin/python3
"""Faults that users of other loaders met with shards and folders, one function a row, each with its right value and with generated variants
of its kind: other programs, formats, sizes and places. The rows stand in docs/faults.md."""
import io
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import tars  # noqa: E402
from harness import check, equal  # noqa: E402

PYTHON = {"python ustar": tarfile.USTAR_FORMAT, "python gnu": tarfile.GNU_FORMAT, "python pax": tarfile.PAX_FORMAT}
PROGRAMS = {"tar ustar": ["tar", "--format=ustar"], "tar gnu": ["tar", "--format=gnu"], "tar pax": ["tar", "--format=posix"],
            "bsdtar pax": ["bsdtar", "--format=pax"], "bsdtar ustar": ["bsdtar", "--format=ustar"]}


def make(work, how, path, members):
    """A tar of (name, bytes) made by the program and in the format that `how` says; a name that is there twice is a file that is there twice."""
    if how in PYTHON:
        tars.write(path, members, PYTHON[how])
        return
    folder = work.path / f"files-{path.name}"
    words = PROGRAMS[how]
    flags = ["--no-recursion", "--null", "-b2"] if words[0] == "tar" else ["-n", "--null", "-b2"]
    for number, (name, data) in enumerate(members):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        subprocess.run([*words, *flags, "-cf" if number == 0 else "-rf", str(path), "-C", str(folder), "-T", "-"],
                       input=os.fsencode(name), check=True, capture_output=True)
    shutil.rmtree(folder)


def writers():
    """The ways to make a tar that this machine has."""
    return [*PYTHON, *(how for how, words in PROGRAMS.items() if shutil.which(words[0]))]


def fields_of(parts, empty=()):
    return "".join(f"      f{n}: {{from: [\"{part}\"], decode: raw{', missing: empty' if part in empty else ''}}}\n" for n, part in enumerate(parts))


def read(work, where, parts, empty=(), kind="tar", code=0):
    """[(key, [bytes of each part])] of all samples in order, and the document of spdlctl index."""
    text = f"datasets:\n  p:\n    source: {{{kind}: {json.dumps(str(where))}}}\n    fields:\n{fields_of(parts, empty)}    order: {{shuffle: none}}\n    last: partial\n"
    config, sets = work.config(text), [f"index_dir={work.path}/index"]
    index = work.ctl("index", "p", config=config, sets=sets).document
    out = work.path / "rows"
    shutil.rmtree(out, ignore_errors=True)
    lines = work.ctl("pull", "p", "--batch", max(1, index["samples"]), "--steps", 1, "--out", out, config=config, sets=sets, code=code).lines
    columns = []
    for n in range(len(parts)):
        values, offsets = (np.load(out / f"0000-00000000.f{n}.{what}.npy") for what in ("values", "offsets"))
        columns.append([values[a:b].tobytes() for a, b in zip(offsets, offsets[1:])])
    equal(lines[0]["errors"], [], "rows that failed")
    return [(os.fsencode(key), list(row)) for key, row in zip(lines[0]["keys"], zip(*columns))], index


def left_out(index):
    """(shard's name, class, key) of all that was left out."""
    equal(index["broken"], len(index["faults"]), "all that is counted is listed")
    return [(pathlib.Path(fault["shard"]).name, fault["class"], os.fsencode(fault["key"])) for fault in index["faults"]]


def samples_of(members, parts):
    """What those members are as samples, when none is broken: in the order of first members, named up to the first dot of the base name."""
    found = {}
    for name, data in members:
        folder, _, base = os.fsencode(name).rpartition(b"/")
        stem, dot, part = base.partition(b".")
        if stem and part:
            found.setdefault(folder + b"/" * bool(folder) + stem, {})[part.lower()] = data
    return [(key, [got[os.fsencode(part)] for part in parts]) for key, got in found.items() if all(os.fsencode(part) in got for part in parts)]


def pairs(chance, count, name, parts=("jpg", "cls")):
    return [(f"{name(n)}.{part}", chance.randbytes(chance.choice([0, 1, 511, 512, 513, chance.randrange(3000)]) if part == "jpg" else 2))
            for n in range(count) for part in parts]


def test_shd_01_pax(work):
    chance = random.Random(1)
    folder = "/".join(letter * 60 for letter in "abc")
    members = pairs(chance, 4, lambda n: f"{folder}/{n}")
    tars.write(work.path / "long.tar", members, tarfile.PAX_FORMAT)
    rows, index = read(work, work.path / "long.tar", ["jpg", "cls"])
    equal((rows, index["samples"], index["ignored"], index["broken"]), (samples_of(members, ["jpg", "cls"]), 4, 0, 0), "long paths")
    equal(sum(len(row) for _, row in rows), 8, "members")
    with tarfile.open(work.path / "comment.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in pairs(chance, 3, str):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {"comment": "c" * 600}
            tar.addfile(info, io.BytesIO(data))
    rows, index = read(work, work.path / "comment.tar", ["jpg"])
    equal(([key for key, _ in rows], index["broken"]), ([b"0", b"1", b"2"], 0), "comments")
    for how in writers():  # of every writer: names of any length, letters beyond ASCII, a global header where there is one
        lengths = [chance.choice([1, 30, 100 - 5]) for _ in range(5)]  # with number and part at most 100 bytes
        deep = "" if "ustar" in how else "/".join("größe" * chance.randrange(1, 9) for _ in range(chance.randrange(2, 9))) + "/"
        members = pairs(chance, 5, lambda n: f"{deep}{n}{'x' * (lengths[n] - 1 if not deep else lengths[n])}")
        make(work, how, work.path / "made.tar", members)
        rows, index = read(work, work.path / "made.tar", ["jpg", "cls"])
        equal((rows, index["ignored"], index["broken"]), (samples_of(members, ["jpg", "cls"]), 0, 0), how)
        (work.path / "made.tar").unlink()


def test_shd_03_dots(work):
    members = [("some/path/22.0/1.1.png", b"a"), ("some/path/22.0/1.json", b"{}"), ("train.v1/0001.jpg", b"b")]
    tars.write(work.path / "t.tar", members)
    equal(read(work, work.path / "t.tar", ["1.png", "json"])[0], [(b"some/path/22.0/1", [b"a", b"{}"])], "the first dot of the base name")
    equal(read(work, work.path / "t.tar", ["jpg"])[0], [(b"train.v1/0001", [b"b"])], "a dot in a folder")
    chance = random.Random(3)
    for how in writers():
        names = ["".join(chance.choice("ab.") for _ in range(6)) + f"{n}" for n in range(3)]
        folders = [folder.strip(".") or "d" for folder in names]
        members = [(f"{folders[n % 3]}.{n}/k{n}.{part}", bytes([n])) for n in range(6) for part in ("SEG.png", "a.b.c", "x")]
        members += [(f"{folders[0]}/.hidden.x", b"h"), (f"{folders[0]}/nodot", b"n"), (f"{folders[0]}/ends.", b"e")]
        make(work, how, work.path / "made.tar", members)
        rows, index = read(work, work.path / "made.tar", ["seg.png", "a.b.c", "x"])
        equal((rows, index["ignored"]), (samples_of(members, ["seg.png", "a.b.c", "x"]), 3), how)
        (work.path / "made.tar").unlink()


def test_shd_05_duplicates(work):
    tars.write(work.path / "t.tar", [("0.jpg", b"a"), ("0.cls", b"0"), ("0.jpg", b"b"), ("1.jpg", b"c"), ("1.cls", b"1")])
    rows, index = read(work, work.path / "t.tar", ["jpg", "cls"])
    equal((rows, left_out(index)), ([(b"1", [b"c", b"1"])], [("t.tar", "DUPLICATE", b"0")]), "the sample is left out, the next is right")
    check("the part jpg is there twice" in index["faults"][0]["message"] and index["faults"][0]["offset"] == 2048, index["faults"])
    chance = random.Random(5)
    for how in PYTHON:  # anywhere in the shard, more than twice, in other letters; a second shard is whole
        members = pairs(chance, 12, lambda n: f"{n:03d}")
        twice = chance.sample(range(12), 3)
        for n in twice:
            for _ in range(chance.randrange(1, 3)):
                members.insert(chance.randrange(2 * n + 2, len(members) + 1), (f"{n:03d}.{chance.choice(['JPG', 'jpg', 'Cls'])}", b"again"))
        tars.write(work.path / "a.tar", members, PYTHON[how])
        whole = pairs(chance, 3, lambda n: f"{n:03d}")
        tars.write(work.path / "b.tar", whole, PYTHON[how])
        good = [(name, data) for name, data in members if int(name[:3]) not in twice]
        rows, index = read(work, work.path / "[ab].tar", ["jpg", "cls"])
        equal(rows, samples_of(good, ["jpg", "cls"]) + samples_of(whole, ["jpg", "cls"]), f"{how}: samples")
        equal(sorted(left_out(index)), [("a.tar", "DUPLICATE", b"%03d" % n) for n in sorted(twice)], f"{how}: left out")


def test_shd_08_missing_field(work):
    tars.write(work.path / "t.tar", [("0.jpg", b"a"), ("0.cls", b"0"), ("1.jpg", b"b"), ("2.jpg", b"c"), ("2.cls", b"2")])
    rows, index = read(work, work.path / "t.tar", ["jpg", "cls"])
    equal((rows, left_out(index)), ([(b"0", [b"a", b"0"]), (b"2", [b"c", b"2"])], [("t.tar", "INCOMPLETE", b"1")]), "pairs")
    equal((index["samples"], index["faults"][0]["offset"]), (2, 2048), "N, and where it begins")
    rows, index = read(work, work.path / "t.tar", ["jpg", "cls"], empty=["cls"])
    equal((rows, index["broken"]), ([(b"0", [b"a", b"0"]), (b"1", [b"b", b""]), (b"2", [b"c", b"2"])], 0), "missing: empty")
    text = f"datasets:\n  p:\n    source: {{tar: {work.path}/t.tar}}\n    fields: {{c: {{from: cls, decode: raw, bytes: 1, missing: empty}}}}\n    last: partial\n    order: {{shuffle: none}}\n"
    work.ctl("pull", "p", "--batch", 3, "--steps", 1, "--out", work.path / "sized", config=work.config(text))
    equal(np.load(work.path / "sized/0000-00000000.c.npy").tolist(), [[48], [0], [50]], "rows of one size: zeroes")
    chance = random.Random(8)
    for how in PYTHON:  # any part of any sample in two shards, members anywhere in their shard
        shards = [[(name, data) for name, data in pairs(chance, 20, lambda n: f"k{n:03d}", ("jpg", "cls", "txt")) if chance.random() < 0.7] for _ in "ab"]
        for name, members in zip("ab", shards):
            chance.shuffle(members)
            tars.write(work.path / f"{name}.tar", members, PYTHON[how])
        everything = [sample for members in shards for sample in samples_of(members, [])]
        for parts, empty in ((["jpg", "cls", "txt"], []), (["cls"], []), (["jpg", "cls"], ["cls"]), (["txt", "jpg"], ["txt", "jpg"]), (["cls"], ["cls"])):
            rows, index = read(work, work.path / "[ab].tar", parts, empty)
            wanted = []
            for members in shards:
                have = dict(members)
                for key, _ in samples_of(members, [part for part in parts if part not in empty]):
                    wanted.append((key, [have.get(f"{key.decode()}.{part}", b"") for part in parts]))
            equal(rows, wanted, f"{how}: {parts}, {empty} may be empty")
            equal({c for _, c, _ in left_out(index)} | {"INCOMPLETE"}, {"INCOMPLETE"}, f"{how}: classes")
            equal(index["samples"] + index["broken"], len(everything), f"{how}: every sample is delivered or listed")


def test_shd_09_cut_shards(work):
    chance = random.Random(9)
    members = [(f"{n}.{part}", chance.randbytes(5000) if part == "jpg" else b"%d" % n) for n in range(10) for part in ("jpg", "cls")]
    tars.write(work.path / "a.tar", members)
    tars.write(work.path / "b.tar", members)
    os.truncate(work.path / "a.tar", 42936)
    rows, index = read(work, work.path / "[ab].tar", ["jpg", "cls"])
    equal(rows, samples_of(members[:12], ["jpg", "cls"]) + samples_of(members, ["jpg", "cls"]), "0 … 5 of the first, all of the second")
    equal((left_out(index), index["faults"][0]["offset"]), ([("a.tar", "TRUNCATED", b"6")], 39936), "listed once, with its place")
    for how in writers():  # cut inside any part, by any writer; and inside a header behind its name
        data = work.path / "whole.tar"
        members = pairs(chance, 8, lambda n: f"folder/{n:04d}")
        make(work, how, data, members)
        with tarfile.open(data) as tar:
            infos = [info for info in tar if info.isfile()]
        for info in chance.sample([info for info in infos if info.size > 1], 1):
            for cut in (info.offset_data + chance.randrange(1, info.size), info.offset_data - 512 + chance.randrange(101, 511)):
                (work.path / "a.tar").write_bytes(data.read_bytes()[:cut])
                whole = [(name, content) for (name, content), at in zip(members, infos) if at.offset_data + at.size <= cut]
                rows, index = read(work, work.path / "[ab].tar", ["jpg", "cls"])
                equal([row for row in rows if row[0].startswith(b"folder/")], samples_of(whole, ["jpg", "cls"]), f"{how}, cut at {cut}: whole samples")
                equal(len(rows), len(samples_of(whole, ["jpg", "cls"])) + 10, f"{how}, cut at {cut}: the second shard")
                equal(sorted({c for _, c, _ in left_out(index)}), ["TRUNCATED"], f"{how}, cut at {cut}: class")
                equal(index["broken"], 1, f"{how}, cut at {cut}: once")
        data.unlink()


def rank_lines(work, config, world, batch, **how):
    began = time.monotonic()
    lines = [work.pull("p", config=config, sets=[f"index_dir={work.path}/index"], batch=batch, rank=rank, world=world, steps=None, **how) for rank in range(world)]
    check(time.monotonic() - began < 5 * world * harness.PATIENCE, "no rank waits")
    return lines


def test_shd_11_fewer_shards_than_ranks(work):
    def config(pattern, more):
        return work.config(f"datasets:\n  p:\n    source: {{tar: \"{pattern}\"}}\n    fields:\n{fields_of(['jpg'])}{more}")

    def expect(pattern, count, world, batch, shuffle, last):
        lines = rank_lines(work, config(pattern, f"    order: {{shuffle: {shuffle}}}\n    last: {last}\n"), world, batch)
        steps = count // batch if last == "drop" else -(-count // batch)
        equal([len(rank) for rank in lines], [steps] * world, f"batches of each of {world} ranks, {shuffle} {last}")
        ids = [number for rank in lines for line in rank for number in line["ids"]]
        if last == "partial":
            equal(sorted(ids), list(range(count)), "every sample once")
        else:
            equal((len(ids), len(set(ids))), (steps * batch, steps * batch), "no sample twice")

    tars.write(work.path / "one.tar", [(f"{n}.jpg", b"x") for n in range(10)])
    expect(work.path / "one.tar", 10, 4, 4, "none", "drop")
    expect(work.path / "one.tar", 10, 4, 4, "block", "partial")
    chance = random.Random(11)
    for kind, content in (("only end blocks", bytes(10240)), ("no byte", b""), ("only a folder", None)):
        counts = [chance.randrange(1, 9), 0, chance.randrange(1, 9)]
        for name, count in zip("abc", counts):
            tars.write(work.path / f"{name}.tar", [(f"{n}.jpg", b"x") for n in range(count)])
        if content is None:
            subprocess.run(["tar", "-cf", work.path / "b.tar", "-C", work.path, "run"], check=True)
        else:
            (work.path / "b.tar").write_bytes(content)
        world = chance.randrange(3, 6)
        expect(work.path / "[abc].tar", sum(counts), world, world, chance.choice(["none", "global", "block"]), chance.choice(["drop", "partial"]))
        index = read(work, work.path / "[abc].tar", ["jpg"])[1]
        equal((index["samples"], [c for _, c, _ in left_out(index)]), (sum(counts), ["EMPTY"] if content == b"" else []), f"{kind} in the midst")
    tars.write(work.path / "two.tar", [("0.jpg", b"x"), ("1.jpg", b"x")])
    refused = work.ctl("pull", "p", "--batch", 4, "--rank", 0, "--world", 4, config=config(work.path / "two.tar", "    last: drop\n"), code=None)
    check(refused.code and "2" in refused.err and "4" in refused.err, f"fewer samples than a batch: both numbers are said: {refused.err}")


def test_shd_15_names(work):
    names = [b"\xff\xfe0.jpg", b"a\nb.jpg", b'q".jpg']
    chance = random.Random(15)
    for round_number in range(4):
        members = [(os.fsdecode(name), b"p%d" % n) for n, name in enumerate(names)]
        bad = b"k." + chance.choice([b'j\n"', b"\xff\x01", b"\x1b[31m", b"\xed\xa0\x80\t\\"])
        tars.write(work.path / "t.tar", [*members, (os.fsdecode(bad), b"a"), (os.fsdecode(bad), b"b")])
        rows, index = read(work, work.path / "t.tar", ["jpg"])
        equal([key for key, _ in rows], [name[:-4] for name in names], "bytes of the keys")
        equal([data for _, (data,) in rows], [b"p%d" % n for n in range(len(names))], "bytes of the parts")
        equal(left_out(index), [("t.tar", "DUPLICATE", b"k")], "left out")
        text = f"datasets:\n  p:\n    source: {{tar: {work.path}/t.tar}}\n    fields: {{f: {{from: jpg, decode: image, ops: [{{center_crop: 4}}]}}}}\n    on_error: {{policy: mask, max_rate: 1}}\n    last: partial\n"
        daemon = work.daemon(work.config(text))
        lines = work.pull("p", batch=len(names), steps=1)      # none of them is a picture
        equal(sorted(os.fsencode(e["key"]) for e in lines[0]["errors"]), sorted(name[:-4] for name in names), "keys of what failed")
        listed = work.ctl("quarantine").document
        check({name[:-4] for name in names} | {b"k"} <= {os.fsencode(entry["key"]) for entry in listed}, listed)
        for words in (["quarantine"], ["errors"], ["status"], ["index", "p"], ["why"]):
            work.ctl(*words)
            said = subprocess.run(work.command(*words, as_json=False), capture_output=True, env=work.environment(), check=True).stdout
            check(not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", said), f"{words}: control letters in {said!r}")
            said.decode()
        equal(daemon.stop(), 0, "the daemon ends well")
        log = daemon.log.read_bytes()
        check(all(line.startswith(b"spdld: ") for line in log.splitlines()), f"a name has broken a line of the log: {log!r}")
        log.decode()
        check(not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", log), f"control letters in {log!r}")
        names = [bytes(chance.choice([c for c in range(1, 256) if c not in b"./"]) for _ in range(chance.randrange(1, 20))) + b".jpg" for _ in range(5)]
        names = sorted({name: None for name in names})


def test_shd_19_half_an_index(work):
    pattern = tars.shards(harness.photos(300), work.path / "t", per_shard=60)
    config = work.config(tars.config(pattern, preset="imagenet-eval"))
    index = work.path / "index"
    wanted = work.ctl("index", "p", config=config, sets=[f"index_dir={index}"]).document["dataset_id"]
    files = {path: path.read_bytes() for path in index.iterdir()}
    name = next(path for path in files if path.suffix == ".index")
    chance = random.Random(19)
    whole = files[name]
    for kind, content in (("empty", b""), ("cut", whole[:chance.randrange(1, len(whole))]), ("zeros", bytes(len(whole))), ("head alone", whole[:88] + bytes(len(whole) - 88))):
        name.write_bytes(content)
        name.with_name(name.name + ".AbCdEf").write_bytes(whole[:chance.randrange(len(whole))])  # left by a run that failed
        both = [subprocess.Popen(work.command("index", "p", private=True, config=config, sets=[f"index_dir={index}"]), stdout=subprocess.PIPE,
                                 env=work.environment({"SPDL_JOB": f"j{n}"})) for n in range(2)]
        for one in both:
            equal(json.loads(one.communicate()[0])["dataset_id"], wanted, f"two daemons at once on an index that is {kind}")
        equal(work.ctl("index", "p", config=config, sets=[f"index_dir={index}"]).document["read_shards"], 0, f"it is whole behind {kind}")
    for _ in range(3):  # killed while it builds
        name.unlink()
        daemon = work.daemon(config)
        call = subprocess.Popen(work.command("index", "p"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=work.environment())
        time.sleep(chance.random() * 0.02)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        call.kill()
        call.wait()
        os.unlink(work.socket)
        equal(work.ctl("index", "p", config=config, sets=[f"index_dir={index}"]).document["dataset_id"], wanted, "after a builder that was killed")


def test_shd_27_folder(work):
    photo = sorted(harness.photos(300).rglob("*.jpg"))[0].read_bytes()

    def tree(name, files, folders=()):
        root = work.path / name
        for folder in folders:
            (root / folder).mkdir(parents=True)
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_bytes(photo)
        return root

    def expect(root, labels, classes, note):
        text = harness.folder_config(root, preset="imagenet-eval", more="    last: partial\n")
        daemon = work.daemon(work.config(text))
        out = work.path / f"out-{root.name}"
        lines = work.pull("p", batch=len(labels), steps=1, out=out)
        got = np.load(out / "0000-00000000.label.npy").tolist()
        equal(dict(zip(lines[0]["keys"], got)), labels, f"{root.name}: keys and labels")
        equal(lines[0]["errors"], [], f"{root.name}: errors")
        dataset = work.ctl("status").document["datasets"][0]
        equal((dataset["samples"], dataset["classes"]), (len(labels), classes), f"{root.name}: samples, classes")
        check(note in dataset["note"], f"{root.name}: {dataset['note']!r} has no {note!r}")
        equal(work.ctl("quarantine").document, [], f"{root.name}: hidden files are no failures")
        daemon.stop()

    expect(tree("row", ["a/1.jpg", "a/2.JPG", "a/.DS_Store", "a/._1.jpg", "c/3.jpeg", ".DS_Store"], ["b"]),
           {"a/1.jpg": 0, "a/2.JPG": 0, "c/3.jpeg": 2}, 3, "b has no picture; it keeps its class number 1")
    expect(tree("first", ["m/x.JpEg", "m/Thumbs.db", "m/desktop.ini", "n/y.jpg", ".hidden/z.jpg", "n/.git/w.jpg"], ["0-empty"]),
           {"m/x.JpEg": 1, "n/y.jpg": 2}, 3, "0-empty has no picture; it keeps its class number 0")
    expect(tree("last", ["A/1.jpg", "b/2.jpg", "b/._2.jpg", "b/deep/3.jpg"], ["z/only", "c"]), {"A/1.jpg": 0, "b/2.jpg": 1, "b/deep/3.jpg": 1}, 4, "no picture")
    chance = random.Random(27)
    folders = [f"c{n:02d}" for n in range(12)]
    full = chance.sample(folders, 5)
    files = [f"{folder}/{n}.{chance.choice(['jpg', 'JPG', 'Jpeg', 'jpeg'])}" for folder in full for n in range(2)]
    hidden = [f"{chance.choice(folders)}/.{name}" for name in ("x.jpg", "_y.jpg", "DS_Store")]
    expect(tree("any", files + hidden, folders=[folder for folder in folders if folder not in {file.split("/")[0] for file in files + hidden}]),
           {file: folders.index(file.split("/")[0]) for file in files}, 12, "no picture")


if __name__ == "__main__":
    harness.main(globals())
