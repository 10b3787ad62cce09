#!/usr/bin/python3
"""Tar shards give the samples that the folder they were made of gives, whoever wrote them and however they are read; what is broken in
them is left out; their index is kept and used."""
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import tars  # noqa: E402
from harness import BUILD, check, equal, without_waits  # noqa: E402

COUNT, STEPS, BATCH, SEED = 300, 4, 32, 5


def facts(lines):
    """(id, picture, label) of every row, in order."""
    return [row for line in lines for row in zip(line["ids"], line["fields"]["image"]["row_hashes"], line["fields"]["label"]["row_hashes"])]


def pull(work, text, steps=STEPS, batch=BATCH, sets=("threads.decode=2",), **how):
    return work.pull("p", config=work.config(text), sets=[*sets, f"index_dir={work.path}/index"], steps=steps, batch=batch, seed=SEED, hash=True, **how)


def test_same_as_the_folder(work):
    folder = harness.photos(COUNT)
    wanted = pull(work, harness.folder_config(folder), steps=COUNT // BATCH)
    check(len({row[2] for row in facts(wanted)}) > 3, "the labels differ")
    for name, how in (("ustar", {"form": tarfile.USTAR_FORMAT}), ("gnu", {"form": tarfile.GNU_FORMAT, "suffix": "-" + "n" * 150}),
                      ("pax", {"form": tarfile.PAX_FORMAT, "suffix": "-größe" + "n" * 150}), ("apart", {"apart": True})):
        got = pull(work, tars.config(tars.shards(folder, work.path / name, **how)), steps=COUNT // BATCH)
        equal(facts(got), facts(wanted), f"rows of {name} shards")
        keys = [key for line in got for key in line["keys"]]
        equal(keys, [key[:-4] + how.get("suffix", "") for line in wanted for key in line["keys"]], f"keys of {name} shards")


def test_same_from_tar_programs(work):
    folder = harness.photos(COUNT)
    wanted = pull(work, harness.folder_config(folder))
    unpacked = work.path / "unpacked"
    for name, data in tars.members_of(folder):
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_bytes(data)
    names = "\n".join(name for name, _ in tars.members_of(folder))
    (unpacked / "links").mkdir()
    os.link(unpacked / names.splitlines()[0], unpacked / "links" / "hard.jpg")
    (unpacked / "links" / "soft.jpg").symlink_to("hard.jpg")
    extra = "\nlinks\nlinks/hard.jpg\nlinks/soft.jpg"
    for program, words in (("tar", ["--format=gnu"]), ("tar", ["--format=posix"]), ("tar", ["--format=v7"]), ("bsdtar", [])):
        if not shutil.which(program):
            continue
        out = work.path / "made.tar"
        subprocess.run([program, *words, "--no-recursion" if program == "tar" else "-n", "-cf", str(out), "-C", str(unpacked), "-T", "-"],
                       input=(names + extra).encode(), check=True)
        equal(facts(pull(work, tars.config(out))), facts(wanted), f"rows of {program} {words}")


def test_threads_engines_worlds_states(work):
    text = tars.config(tars.shards(harness.photos(COUNT), work.path / "t", apart=True))
    whole = pull(work, text)
    equal(len(whole), STEPS, "lines")
    for sets in (["threads.decode=1"], ["fetch.engine=pool"], ["shm=posix"], ["slots=7", "fetch.depth=1"], ["index_dir=none"]):
        began = time.monotonic()
        equal(without_waits(pull(work, text, sets=sets)), without_waits(whole), f"lines with {sets}")
        check(time.monotonic() - began < 8 * harness.PATIENCE, f"a pull with {sets} takes long: a sample of two ranges with one read at a time")
    if "inproc" not in os.environ.get("SPDLD", ""):
        equal(without_waits(pull(work, text, env={"SPDLD": str(BUILD / "spdld-inproc")})), without_waits(whole), "lines of spdld-inproc")
    parts = [pull(work, text, rank=rank, world=2) for rank in range(2)]
    equal([row for step in zip(*parts) for part in step for row in facts([part])], facts(whole), "world 2 put together")
    equal(without_waits(pull(work, text, state=whole[1]["state"], steps=2)), without_waits(whole[2:]), "from a state")
    equal(facts(pull(work, text, state=whole[1]["state"], batch=16, steps=4)), facts(whole[2:]), "from a state with another batch")


def test_broken_shards(work):
    folder = harness.photos(COUNT)
    members = list(tars.members_of(folder))
    wanted = facts(pull(work, harness.folder_config(folder, preset="imagenet-eval", more="    last: partial\n"), steps=None, batch=64))
    by_number = {row[0]: row[1:] for row in wanted}
    shard = work.path / "t"
    shard.mkdir()
    tars.write(shard / "0.tar", members[:20] + members[:1] + members[20:40])           # sample 0 twice
    tars.write(shard / "1.tar", members[40:80])
    whole = (shard / "1.tar").read_bytes()
    (shard / "1.tar").write_bytes(whole[:tarfile.open(shard / "1.tar").getmembers()[30].offset_data + 100])  # sample 35 is cut
    tars.write(shard / "2.tar", members[80:120])
    spoilt = bytearray((shard / "2.tar").read_bytes())
    second = tarfile.open(shard / "2.tar").getmembers()[38].offset
    spoilt[second] ^= 1                                                                # from sample 59 on
    (shard / "2.tar").write_bytes(spoilt)
    (shard / "3.tar").write_bytes(bytes(10240))                                        # no sample, nothing wrong
    shutil.copy(harness.ROOT / "tests/data/webdataset/gzip.tar.gz", shard / "4.tar")
    tars.write(shard / "5.tar", members[120:140])
    good = [*range(1, 20), *range(20, 35), *range(40, 59), *range(60, 70)]
    lines = pull(work, tars.config(shard / "*.tar", preset="imagenet-eval", more="    last: partial\n"), steps=None, batch=64)
    equal([row[1:] for row in facts(lines)], [by_number[number] for number in good], "the samples that are whole")
    equal(sum(len(line["errors"]) for line in lines), 0, "errors")

    config = work.config(tars.config(shard / "*.tar"))
    index = work.ctl("index", "p", config=config, sets=[f"index_dir={work.path}/index"]).document
    wanted = {"samples": len(good), "shards": 6, "read_shards": 0, "ignored": 0, "broken": 4, "parts": ["jpg", "cls"],
              "classes": {"DUPLICATE": 1, "TRUNCATED": 1, "CORRUPT": 1, "UNSUPPORTED": 1}}
    equal({key: index[key] for key in wanted}, wanted, "spdlctl index")
    key = [name.rpartition(".")[0] for name, _ in members[::2]]
    equal([(pathlib.Path(f["shard"]).name, f["class"], f["key"]) for f in index["faults"]],
          [("0.tar", "DUPLICATE", key[0]), ("1.tar", "TRUNCATED", key[35]), ("2.tar", "CORRUPT", ""), ("4.tar", "UNSUPPORTED", "")], "faults")
    equal(index["faults"][2]["offset"], second, "where the header is wrong")
    text = work.ctl("index", "p", config=config, sets=[f"index_dir={work.path}/index"], as_json=False).out
    check("DUPLICATE 1" in text and f"TRUNCATED {key[35]}: the shard ends inside the part jpg" in text, text)


def test_sparse_members_are_refused_by_name(work):
    folder = work.path / "holes"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.jpg").write_bytes(b"picture")
    with open(folder / "1.jpg", "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    ways = [["tar", "--format=gnu", "-S"], *(["tar", "--format=posix", "-S", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))]
    if shutil.which("bsdtar"):
        ways.append(["bsdtar", "--format=pax", "--read-sparse"])
    for way in ways:
        subprocess.run([*way, "-cf", work.path / "t.tar", "-C", folder, "0.jpg", "1.jpg", "2.jpg"], check=True)
        index = work.ctl("index", "--source", f"tar:{work.path}/t.tar", private=True).document
        equal((index["samples"], index["classes"], index["faults"][0]["key"]), (2, {"UNSUPPORTED": 1}, "1"), f"{way}")
        check("the part jpg is a sparse file (tar --sparse)" in index["faults"][0]["message"], index["faults"])


def test_incomplete_samples_are_left_out(work):
    members = list(tars.members_of(harness.photos(COUNT)))[:20]
    wanted = facts(pull(work, tars.config(tars.shards(harness.photos(COUNT), work.path / "whole"), preset="imagenet-eval", more="    last: partial\n"), steps=1, batch=10))
    key = [name.rpartition(".")[0] for name, _ in members[::2]]
    tars.write(work.path / "a.tar", members[:3] + members[4:9] + members[10:12])         # no class of 1, no picture of 4's class
    tars.write(work.path / "b.tar", [(f"only/{n}.cls", b"1") for n in range(3)])         # no picture at all
    tars.write(work.path / "c.tar", [*members[12:14], (key[7] + ".txt", b"t"), *members[14:19]])  # one part more; no class of 9
    text = tars.config(work.path / "[abc].tar", preset="imagenet-eval", more="    last: partial\n")
    lines = pull(work, text, steps=1, batch=10)
    good = [0, 2, 3, 5, 6, 7, 8]
    equal([row[1:] for row in facts(lines)], [wanted[n][1:] for n in good], "rows")
    equal((lines[0]["ids"], lines[0]["keys"], lines[0]["errors"]), (list(range(7)), [key[n] for n in good], []), "ids, keys, errors")
    config, sets = work.config(text), [f"index_dir={work.path}/index"]
    index = work.ctl("index", "p", config=config, sets=sets).document
    equal((index["samples"], index["broken"], index["classes"]), (7, 6, {"INCOMPLETE": 6}), "counts")
    equal([(pathlib.Path(f["shard"]).name, f["key"], f["message"].split(",")[0]) for f in index["faults"]],
          [("a.tar", key[1], "no part for the field label"), ("a.tar", key[4], "no part for the field label"),
           *[("b.tar", f"only/{n}", "no part for the field image") for n in range(3)], ("c.tar", key[9], "no part for the field label")], "faults")
    with tarfile.open(work.path / "c.tar") as tar:
        equal(index["faults"][-1]["offset"], tar.getmember(key[9] + ".jpg").offset, "where its first part's header is")
    # What is left out hangs on the fields: one that can be made from more parts, and none at all.
    both = "fields: {any: {from: [jpg, cls], decode: raw}}"
    either = work.ctl("index", "p", config=work.config(tars.config(work.path / "[abc].tar").replace("preset: imagenet-train", both)), sets=sets).document
    equal((either["samples"], either["broken"], either["read_shards"]), (13, 0, 0), "fields that every sample has; the same index")
    every = work.ctl("index", "--source", f"tar:{work.path}/[abc].tar", private=True, sets=sets).document
    equal((every["samples"], every["broken"]), (13, 0), "without fields")
    check(len({index["dataset_id"], every["dataset_id"]}) == 2 and every["dataset_id"] == either["dataset_id"], "the id has what can be had")
    result = work.ctl("pull", "p", "--batch", 1, config=work.config(tars.config(work.path / "b.tar")), sets=sets, code=1)
    check("no part for the field image, which is made from jpg or jpeg" in result.err, result.err)


def test_reasons_are_counted(work):
    """A folder of classes that was packed as it is has no labels: what is said has each reason with its count, in whole words."""
    pictures = [(f"pics/{n % 3}/{n}.jpg", path.read_bytes()) for n, path in enumerate(sorted(harness.photos(COUNT).rglob("*.jpg"))[:12])]
    tars.write(work.path / "t.tar", [("pics/0/only.txt", b"t"), *pictures])
    said = work.ctl("pull", "--source", f"tar:{work.path}/t.tar", "--preset", "imagenet-eval", "--batch", 2, private=True, code=1).err
    for words in ("13 left out as broken: 12: no part for the field label, which is made from cls; 1: no part for the field image, which is made from jpg",
                  f"heic; the first: {work.path}/t.tar at byte 0"):
        check(words in said, f"{words!r} is in {said}")


def test_incomplete_pictures_of_a_folder(work):
    (work.path / "in/a").mkdir(parents=True)
    photos = sorted(harness.photos(300).rglob("*.jpg"))[:4]
    for path, name in zip(photos, ("1.jpg", "2.png", "3.jpeg", "4.jpg")):                # decided by the name, as its parts are
        shutil.copy(path, work.path / "in/a" / name)
    fields = "fields: {image: {from: [jpg], decode: image, ops: [{center_crop: 32}]}, label: {from: cls, decode: class}}"
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {work.path}/in}}\n    {fields}\n    last: partial\n")
    lines = work.pull("p", config=config, batch=4, steps=1)
    equal((lines[0]["keys"], lines[0]["errors"]), (["a/1.jpg", "a/4.jpg"], []), "keys, errors")
    index = work.ctl("index", "p", config=config).document
    equal((index["samples"], index["classes"], [f["key"] for f in index["faults"]]), (2, {"INCOMPLETE": 2}, ["a/2.png", "a/3.jpeg"]), "index")


def test_shards_that_change(work):
    pattern = tars.shards(harness.photos(COUNT), work.path / "t")
    config = work.config(tars.config(pattern, preset="imagenet-eval", more="    on_error: {policy: mask, max_rate: 1, max_consecutive: 1000}\n"))
    work.daemon(config, f"index_dir={work.path}/index", "slots=2")
    before = work.pull("p", batch=BATCH, hash=True)
    out = work.path / "out"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--hash", "--delay-ms", 300)
    harness.wait_until(lambda: out.read_bytes().count(b"\n"), 20, "a first line")
    for path in (work.path / "t").iterdir():
        with open(path, "ab") as f:
            f.write(b"\0")
    equal(rank.wait(60), 0, "the pull ends well")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    failed = {error["class"] for line in lines for error in line["errors"]}
    equal(failed, {"CHANGED"}, "classes of what failed")
    for got, wanted in zip(lines, before):
        bad = {error["row"] for error in got["errors"]}
        for row, (a, b) in enumerate(zip(got["fields"]["image"]["row_hashes"], wanted["fields"]["image"]["row_hashes"])):
            check(row in bad or a == b, f"row {row} of step {got['step']} is delivered as good and differs")
    harness.wait_until(lambda: facts(work.pull("p", batch=BATCH, hash=True)) == facts(before), 10,  # … and the old stream is gone
                       "a new stream looks at the shards anew")


def test_the_index_is_kept(work):
    pattern = tars.shards(harness.photos(COUNT), work.path / "t")
    text = tars.config(pattern, preset="imagenet-eval")
    first = pull(work, text, steps=1)
    files = list((work.path / "index").glob("*.index"))
    equal(len(files), 1, "files of the index")
    stamp = files[0].stat()
    equal(without_waits(pull(work, text, steps=1)), without_waits(first), "by the kept index")
    equal(files[0].stat().st_ino, stamp.st_ino, "an index that is right is not written again")
    files[0].write_bytes(files[0].read_bytes()[:1000] + b"damage" + files[0].read_bytes()[1006:])
    equal(without_waits(pull(work, text, steps=1)), without_waits(first), "by an index that was damaged")
    check(files[0].stat().st_ino != stamp.st_ino, "a damaged index is made anew")
    cache = {"XDG_CACHE_HOME": str(work.path / "cache")}
    direct = work.ctl("pull", "--source", f"tar:{pattern}", "--preset", "imagenet-eval", "--batch", BATCH, "--seed", SEED, "--steps", 1,
                      "--hash", private=True, env=cache)
    equal(facts(direct.lines), facts(first), "--source tar:PATTERN")
    equal(len(list((work.path / "cache/spdld/index").glob("*.index"))), 1, "files of a private daemon's index")


def npy_bytes(path):
    """What stands behind the header of a .npy file of version 1."""
    data = path.read_bytes()
    return data[10 + int.from_bytes(data[8:10], "little"):]


def test_what_the_webdataset_package_reads(work):
    folder = harness.ROOT / "tests/data/webdataset"
    manifest = json.loads((folder / "manifest.json").read_text())["datasets"]
    wanted = [sample for name in ("gnu.tar", "pax.tar", "ustar.tar") for sample in manifest[name]["samples"]]
    lines = work.ctl("pull", "--source", f"tar:{folder}/{{gnu,pax,ustar}}.tar", "--batch", len(wanted), "--steps", 1, "--out", work.path / "out",
                     private=True).lines
    equal(lines[0]["keys"], [sample["key"] for sample in wanted], "keys")
    classes = struct.unpack(f"<{len(wanted)}q", npy_bytes(work.path / "out/0000-00000000.cls.npy"))
    equal([(hashlib.sha256(str(c).encode()).hexdigest()) for c in classes], [s["fields"]["cls"]["sha256"] for s in wanted], "classes")
    for part in ("jpg", "json"):
        values = npy_bytes(work.path / f"out/0000-00000000.{part}.values.npy")
        offsets = struct.unpack(f"<{len(wanted) + 1}q", npy_bytes(work.path / f"out/0000-00000000.{part}.offsets.npy"))
        got = [hashlib.sha256(values[a:b]).hexdigest() for a, b in zip(offsets, offsets[1:])]
        equal(got, [s["fields"][part]["sha256"] for s in wanted], f"bytes of the parts {part}")


def test_index_verb(work):
    pattern = tars.shards(harness.photos(COUNT), work.path / "t")
    source = ["index", "--source", f"tar:{pattern}"]
    first = work.ctl(*source, private=True).document
    equal((first["samples"], first["shards"], first["read_shards"], first["broken"]), (COUNT, 3, 3, 0), "a first look")
    check(pathlib.Path(first["file"]).stat().st_size >= first["index_bytes"] > 0, "the index is kept")
    tars.write(work.path / "t/shard-001.tar", [("a/b.jpg", b"x"), ("a/README", b"y"), ("a/b.JPG", b"z")])
    then = work.ctl(*source, private=True).document
    equal((then["samples"], then["read_shards"], then["ignored"], then["classes"]), (200, 1, 1, {"DUPLICATE": 1}), "one shard has changed")
    check(first["dataset_id"] != then["dataset_id"], "another content has another id")
    unkept = work.ctl(*source, private=True, sets=["index_dir=none"]).document
    equal((unkept["file"], unkept["dataset_id"], unkept["read_shards"]), ("", then["dataset_id"], 3), "without a folder")
    many = [(f"{n // 2:05d}.a", b"") for n in range(5000)]
    tars.write(work.path / "t/shard-002.tar", [("ok.a", b""), *many])  # each part twice
    last = work.ctl(*source, private=True).document
    equal((last["broken"], last["classes"], len(last["faults"])), (2501, {"DUPLICATE": 2501}, 1000), "many faults")
    for words, code in ((["index", "nothing"], 1), (["index"], 2), (["index", "p", "--rank", "1"], 2), (["index", "--source", "tar:/none.tar"], 3)):
        result = work.ctl(*words, private=True, code=None)
        check(result.code and result.err.strip(), f"{words}: exit {result.code} {result.err!r}")
    synthetic = work.ctl("index", "--source", "synthetic:1000,16", private=True).document
    equal((synthetic["samples"], synthetic["file"], synthetic["parts"]), (1000, "", ["bin"]), "synthetic samples")


def test_a_published_index(work):
    (work.path / "t").mkdir()
    tars.shards(harness.photos(COUNT), work.path / "t/deep")
    shutil.move(work.path / "t/deep/shard-000.tar", work.path / "t/first.tar")

    def index(folder, *words, **how):
        pattern = f"tar:{folder}/{{first,deep/*}}.tar"
        return work.ctl("index", "--source", pattern, *words, private=True, sets=how.pop("sets", ["index_dir=none"]), **how)

    before = index(work.path / "t").document
    equal((before["read_shards"], before["published"], before["file"]), (3, "", ""), "nothing is published yet")
    said = index(work.path / "t", "--publish").document
    published = pathlib.Path(said["published"])
    equal((published.parent, said["read_shards"]), (work.path / "t", 3), "in the folder that they have in common")
    found = index(work.path / "t").document
    wanted = {**before, "read_shards": 0, "file": str(published), "seconds": found["seconds"], "index_bytes": found["index_bytes"]}
    equal(found, wanted, "by the published index")
    shutil.copytree(work.path / "t", work.path / "u", copy_function=shutil.copyfile)  # other times, another path
    moved = index(work.path / "u").document
    equal((moved["dataset_id"], moved["read_shards"]), (before["dataset_id"], 0), "copied with the data")
    kept = index(work.path / "u", sets=[f"index_dir={work.path}/kept"]).document
    equal((kept["read_shards"], kept["file"].startswith(f"{work.path}/kept/")), (0, True), "taken into one's own folder")
    with open(work.path / "u/first.tar", "r+b") as f:                                  # of the same size
        f.seek(tarfile.open(work.path / "u/first.tar").getmembers()[0].offset)
        f.write(tarfile.TarInfo("other/0.jpg").tobuf(tarfile.USTAR_FORMAT))
    equal(index(work.path / "u").document["read_shards"], 1, "a shard with another content is read")
    whole = published.read_bytes()
    for content in (whole[:-9], b"", os.urandom(2000), whole[:900] + bytes([whole[900] ^ 1]) + whole[901:]):
        published.write_bytes(content)
        again = index(work.path / "t").document
        equal((again["dataset_id"], again["read_shards"]), (before["dataset_id"], 3), "with a damaged index")
    published.unlink()
    published.mkdir()
    refused = index(work.path / "t", "--publish", code=1)
    check(f"cannot be published as {published}: " in refused.err, refused.err)
    folder = work.ctl("index", "--source", f"folder:{harness.photos(COUNT)}", "--publish", private=True, code=1)
    check("has no index to publish" in folder.err, folder.err)


def test_shards_with_the_same_size_and_time(work):
    tars.shards(harness.photos(COUNT), work.path / "t", per_shard=150)
    source = ["index", "--source", f"tar:{work.path}/t/*.tar"]
    first = work.ctl(*source, private=True).document
    a, b = sorted((work.path / "t").iterdir())
    stamp, data = os.stat(a), bytearray(a.read_bytes())
    header = tarfile.open(a).getmembers()[100].offset
    info = tarfile.TarInfo("renamed/0.jpg")
    info.size = tarfile.open(a).getmembers()[100].size
    data[header:header + 512] = info.tobuf(tarfile.USTAR_FORMAT)
    a.write_bytes(data)
    os.utime(a, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    then = work.ctl(*source, private=True).document
    equal((then["read_shards"], os.stat(a).st_mtime_ns), (1, stamp.st_mtime_ns), "one header is another, size and time are not")
    check(first["dataset_id"] != then["dataset_id"], "another id")


def many_shards(work, count=60, members=10000 if harness.SANITIZED else 30000):
    """One shard under many names: enough to be read for a while."""
    folder = work.path / "many"
    folder.mkdir()
    blocks = []
    for number in range(members):
        info = tarfile.TarInfo(f"{number // 2:07d}.{('jpg', 'cls')[number % 2]}")
        blocks.append(info.tobuf(tarfile.USTAR_FORMAT))
    (folder / "000.tar").write_bytes(b"".join(blocks) + bytes(1024))
    for number in range(1, count):
        os.link(folder / "000.tar", folder / f"{number:03d}.tar")
    return f"{folder}/*.tar", members // 2 * count


def reading(words, count=60):
    """(shard, percent) of words such as: indexing shard 12 of 60, 34 %"""
    match = re.search(rf"indexing shard (\d+) of {count}, (\d+) %", words)
    return match and tuple(map(int, match.groups()))


def test_progress(work):
    pattern, samples = many_shards(work)
    work.daemon(work.config(tars.config(pattern)))
    pull = work.start_pull(work.path / "out", "pull", "p", "--batch", 4, "--steps", 1)
    told = []

    def look():
        for stream in work.ctl("why").document:
            if reading(stream["waiting_for"]):
                told.append((stream["stream"], stream["bottleneck"], reading(stream["waiting_for"]), reading(stream["evidence"])))
        return len(told) > 1 or pull.poll() is not None

    harness.wait_until(look, 30, "why says which shard is indexed")
    check(told, "nothing was said while shards were read")
    for stream, bottleneck, (shard, percent), evidence in told:
        check((stream, bottleneck) == (0, "opening") and evidence and 1 <= shard <= 60 and 0 <= percent <= 100, told)
    equal(told, sorted(told), "it goes on")
    pull.wait(60)
    equal(work.ctl("status").document["datasets"][0]["progress"], "", "progress at the end")

    shutil.rmtree(work.path / "index")
    main, end = pty.openpty()                                       # a terminal
    index = subprocess.Popen(work.command("index", "p", as_json=False), stdout=subprocess.PIPE, stderr=end, env=work.environment())
    os.close(end)
    shown = b""
    while True:
        try:
            data = os.read(main, 4096)
        except OSError:                                             # it has ended
            break
        if not data:
            break
        shown += data
    os.close(main)
    said = index.stdout.read().decode()
    equal(index.wait(), 0, "exit")
    check(said.startswith(f"{samples} samples in 60 shards, 60 of them read now"), said)
    bars = [text for text in shown.decode().split("\r") if reading(text)]
    check(bars and all(re.match(r"\[#*\.*\] ", bar) for bar in bars), shown)
    check(shown.endswith(b"\r\x1b[K"), "the bar is taken away")
    shutil.rmtree(work.path / "index")
    quiet = subprocess.run(work.command("index", "p"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=work.environment(), check=True)
    equal((json.loads(quiet.stdout)["samples"], quiet.stderr), (samples, b""), "--json, and not a terminal")


def test_a_client_that_leaves_before_its_index(work):
    pattern = tars.shards(harness.photos(COUNT), work.path / "t")
    daemon = work.daemon(work.config(tars.config(pattern)))
    for _ in range(10):
        call = subprocess.Popen(work.command("index", "p"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=work.environment())
        time.sleep(0.002)
        call.kill()
        call.wait()
    equal(work.ctl("index", "p").document["samples"], COUNT, "samples")
    equal(daemon.stop(), 0, "the daemon ends well")


def test_what_cannot_be_read_is_said(work):
    folder = work.path / "t"
    folder.mkdir()
    tars.write(folder / "a.tar", [("x.jpg", b"x")])
    for pattern, words in ((folder / "b.tar", "it does not exist"), (folder / "{a,c}.tar", "c.tar: it does not exist"),
                           (folder / "z*.tar", "no file matches"), (folder, "it is a folder; for the files in it write"),
                           (harness.ROOT / "tests/data/webdataset/gzip.tar.gz", "compressed (gzip)")):
        result = work.ctl("pull", "p", "--batch", 1, config=work.config(tars.config(pattern)), sets=[f"index_dir={work.path}/index"], code=1)
        check(words in result.err, f"{pattern}: {result.err!r}")


if __name__ == "__main__":
    harness.main(globals())
