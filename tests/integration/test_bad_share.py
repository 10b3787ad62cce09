#!/usr/bin/python3
"""Bad samples among good ones, as they come in real sets: each class is counted as the order says, from a folder and from shards, whatever threads, ranks and
steps are asked for; and what is damaged is found whichever part of the picture is wanted."""
import collections
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import order_reference as ref  # noqa: E402
import pictures  # noqa: E402
from harness import check, equal, without_waits  # noqa: E402
from PIL import Image  # noqa: E402
from pictures import changed, cjpeg, pillow, place_of, png_chunk  # noqa: E402

BATCH, SEED = 20, 7
ANY = "substitute,max_rate=1,max_consecutive=10000"
FORMS = {"4:2:0": [], "4:4:4": ["-sample", "1x1"], "4:1:1": ["-sample", "4x1"], "4:4:0": ["-sample", "1x2"], "grey": ["-grayscale"], "rgb": ["-rgb"],
         "progressive": ["-progressive"], "restart": ["-restart", 1], "restart progressive": ["-restart", "3B", "-progressive"], "optimized": ["-optimize"],
         "arithmetic": ["-arithmetic"], "grey progressive": ["-grayscale", "-progressive"]}


def jpeg(form, pixels, quality=80):
    if form.startswith("cmyk"):
        return pillow(Image.fromarray(pixels).convert("CMYK"), "JPEG", quality=quality, progressive=form == "cmyk progressive")
    return cjpeg(pixels, "-quality", quality, *FORMS[form])


def cut(data, rng, spare=2):
    """A beginning of the file; with all but the end marker it would be whole."""
    return data[:rng.randint(12, len(data) - spare - 1)]


def unwritten(data, rng):
    """Room was made for the file, and its end was never written."""
    first = data.index(b"\xff\xda") + 30
    return data[:rng.randint(first, max(first, len(data) - 60))].ljust(len(data) + 100, b"\0")


def wrong_zlib(pixels):
    """The stored sums are right; the packed rows end in the middle, or are no packed rows."""
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    return pictures.png_of_data(pixels.shape[1], pixels.shape[0], 8, 2, packed[:60] + bytes(8) + packed[68:])


def kinds():
    """{name: (what makes the file from pixels and a generator, class)}."""
    made = {f"{form} cut": (lambda p, r, form=form: cut(jpeg(form, p), r), "TRUNCATED") for form in [*FORMS, "cmyk", "cmyk progressive"]}
    made.update({f"{form} unwritten": (lambda p, r, form=form: unwritten(jpeg(form, p), r), "TRUNCATED") for form in ("4:2:0", "progressive", "grey", "cmyk")})
    made.update({
        "empty": (lambda p, r: b"", "EMPTY"),
        "page": (lambda p, r: b"<!DOCTYPE html><title>404</title>" + r.randbytes(40), "BAD_FORMAT"),
        "text": (lambda p, r: b'{"message": "not found"}' * r.randint(1, 50), "BAD_FORMAT"),
        "tiff": (lambda p, r: pillow(Image.fromarray(p), "TIFF"), "UNSUPPORTED"),
        "12 bits": (lambda p, r: changed(jpeg("4:2:0", p), place_of(jpeg("4:2:0", p), 0xC0) + 4, 12), "UNSUPPORTED"),
        "tables": (lambda p, r: changed(jpeg("4:2:0", p), place_of(jpeg("4:2:0", p), 0xC4) + 5, 255, 255, 255), "CORRUPT"),
        "huge jpeg": (lambda p, r: pictures.with_size(jpeg("4:2:0", p), 65000, r.randint(60000, 65000)), "LIMIT"),
        "huge png": (lambda p, r: pictures.png_of_data(r.randint(1 << 20, 1 << 30), 1 << 20, 8, 2, b""), "LIMIT"),
        "png cut": (lambda p, r: cut(pictures.png_rgb(p), r, 30), "TRUNCATED"),
        "png sum": (lambda p, r: wrong_byte(pictures.png_rgb(p), r), "CORRUPT"),
        "png data": (lambda p, r: wrong_zlib(p), "CORRUPT"),
        "png size": (lambda p, r: pictures.png_of_data(0, 5, 8, 2, b""), "CORRUPT"),
        "webp cut": (lambda p, r: cut(pillow(Image.fromarray(p), "WEBP"), r), "TRUNCATED"),
        "lossless webp cut": (lambda p, r: cut(pillow(Image.fromarray(p), "WEBP", lossless=True), r), "TRUNCATED"),
        "gif cut": (lambda p, r: cut(pillow(Image.fromarray(p), "GIF"), r, 30), "TRUNCATED"),
        "bmp cut": (lambda p, r: cut(pictures.bmp_24(p), r), "TRUNCATED"),
        "ppm cut": (lambda p, r: cut(pictures.ppm(p), r), "TRUNCATED")})
    return made


def wrong_byte(data, rng):
    """One byte of the packed rows is another."""
    first = data.index(b"IDAT") + 4
    at = rng.randint(first, len(data) - 21)
    return changed(data, at, data[at] ^ rng.randint(1, 255))


def mixed_set(share=0.05):
    """[(name, bytes, class or None)] in the order of the folder: good pictures of every kind, and one bad in twenty."""
    rng, made, all_kinds, number = random.Random(15), [], kinds(), 0
    count = int(len(all_kinds) / share)
    bad = dict(zip(rng.sample(range(count), len(all_kinds)), all_kinds))
    for i in range(count):
        pixels = pictures.detailed(rng.randint(24, 60), rng.randint(24, 60), i)
        if i in bad:
            make, kind = all_kinds[bad[i]]
            made.append((f"{i:04d}.jpg", make(pixels, rng), kind))
        else:
            form = list(FORMS)[number % len(FORMS)]
            made.append((f"{i:04d}.jpg", jpeg(form, pixels) if number % 3 else pictures.png_rgb(pixels), None))
            number += 1
    return made


def write_folder(folder, made):
    folder.mkdir()
    for name, data, _ in made:
        (folder / name).write_bytes(data)
    return f"folder: {folder}"


def write_shards(folder, made, per_shard=130):
    folder.mkdir()
    for first in range(0, len(made), per_shard):
        with tarfile.open(folder / f"s{first // per_shard:02d}.tar", "w") as tar:
            for name, data, _ in made[first:first + per_shard]:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return f'tar: "{folder}/s*.tar"'


def config(source, ops="{random_resized_crop: {size: 24}}", more="    order: {shuffle: global}\n"):
    return f"datasets:\n  p:\n    source: {{{source}}}\n    fields:\n      image: {pictures.field(ops)}\n{more}"


def tried(classes, seed, epoch, position):
    """The samples tried at a position, by the document of the order: those that fail, then the one shown."""
    count = len(classes)
    chain = [ref.Order("global", seed, epoch, count).at(position)]
    while classes[chain[-1]]:
        chain.append(ref.substitute(seed, epoch, count, position, len(chain)))
    return chain


def check_counts(work, lines, classes, names):
    """Counts per class, of the list of failures and of its sum, against what the order says; every line too."""
    wanted, each = collections.Counter(), collections.Counter()
    for line in lines:
        chains = [tried(classes, SEED, line["epoch"], line["step"] * BATCH + row) for row in range(line["rows"])]
        equal(line["ids"], [chain[-1] for chain in chains], f"ids of epoch {line['epoch']}, step {line['step']}")
        equal([(e["row"], e["class"]) for e in line["errors"]], [(r, classes[c[0]]) for r, c in enumerate(chains) if len(c) > 1], "errors of rows")
        equal(line["valid"], line["rows"], "valid rows")
        for chain in chains:
            each.update(names[sample] for sample in chain[:-1])
            wanted.update(classes[sample] for sample in chain[:-1])
    found = {fault["key"]: fault for fault in work.ctl("quarantine", "p").document}
    equal({key: fault["count"] for key, fault in found.items()}, dict(each), "failures of each sample")
    kinds_of = dict(zip(names, classes))
    equal({key: fault["class"] for key, fault in found.items()}, {key: kinds_of[key] for key in found}, "class of each sample")
    sums = collections.Counter()
    for error in work.ctl("errors").document:
        sums[error["class"]] += error["count"]
    equal(sums, wanted, "failures per class")
    return found


def check_share(work, source, names, classes):
    how = {"batch": BATCH, "seed": SEED, "hash": True, "on_error": ANY}
    steps, text = len(names) // BATCH, config(source)
    daemon = work.daemon(work.config(text), "threads.decode=2")
    whole = work.pull("p", steps=2 * steps, **how)
    check_counts(work, whole, classes, names)
    pids = [daemon.pid, *daemon.workers()]
    order = list(range(steps))
    random.Random(4).shuffle(order)
    for step in order[:steps if harness.SLOW else 6]:
        equal(without_waits(work.pull("p", step=step, steps=1, **how)), without_waits(whole[step:step + 1]), f"step {step} alone")
    parts = [work.pull("p", rank=rank, world=2, steps=steps, **how) for rank in (1, 0)]
    joined = [key for halves in zip(*parts[::-1]) for half in halves for key in half["keys"]]
    equal(joined, [key for line in whole[:steps] for key in line["keys"]], "two ranks put together")
    equal([daemon.pid, *daemon.workers()], pids, "processes")
    daemon.stop()
    for sets in (["threads.decode=1"], ["threads.decode=2", "fetch.engine=pool", "slots=2"]):
        daemon = work.daemon(work.config(text), f"index_dir={work.path}/index-{sets[0]}", *sets)  # an index, and a list of failures, of its own
        lines = work.pull("p", steps=2 * steps, **how)
        equal(without_waits(lines), without_waits(whole), f"lines with {sets}")
        check_counts(work, lines, classes, names)
        daemon.stop()


def test_share_in_a_folder(work):
    made = mixed_set()
    check_share(work, write_folder(work.path / "in", made), [name for name, _, _ in made], [kind for _, _, kind in made])


def test_share_in_shards(work):
    made = mixed_set()
    check_share(work, write_shards(work.path / "in", made), [name[:-4] for name, _, _ in made], [kind for _, _, kind in made])


def spoil(folder, names, victims):
    """Does to files what happens to files behind their listing. Returns {id: class}."""
    made = {}
    for i, how in zip(victims, ("removed", "folder", "cut", "grown", "touched", "other", "forbidden")):
        path, made[i] = folder / names[i], "CHANGED"
        if how in ("removed", "folder"):
            path.unlink()
            made[i] = "IO_ERROR"
            if how == "folder":
                path.mkdir()
        elif how == "cut":
            os.truncate(path, path.stat().st_size - 20)
        elif how == "grown":
            path.write_bytes(path.read_bytes() + b"more")
        elif how == "touched":
            os.utime(path, (1, 1))
        elif how == "other":
            (folder / "other").write_bytes(path.read_bytes()[::-1])
            (folder / "other").rename(path)
        elif os.geteuid() == 0:
            del made[i]  # nothing is forbidden to root
        else:
            path.chmod(0)
            made[i] = "IO_ERROR"
    return made


def test_share_with_files_that_went_away(work):
    """Removed, forbidden, replaced and grown behind the listing, beside those that are broken."""
    made = mixed_set()
    folder, names, classes = work.path / "in", [name for name, _, _ in made], [kind for _, _, kind in made]
    daemon, out = work.daemon(work.config(config(write_folder(folder, made))), "slots=2", "fetch.depth=4"), work.path / "lines"
    rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--seed", SEED, "--steps", len(names) // BATCH, "--on-error", ANY, "--delay-ms", 40)
    harness.wait_until(lambda: out.stat().st_size > 0, 10, "the rank prints a line")
    early = {sample for position in range(10 * BATCH) for sample in tried(classes, SEED, 0, position)}
    classes_now = spoil(folder, names, [i for i, kind in enumerate(classes) if not kind and i not in early][::40])
    for i, kind in classes_now.items():
        classes[i] = kind
    equal(rank.wait(60 * harness.PATIENCE), 0, "exit code of the rank")
    check(len(classes_now) >= 6, "too few files were spoilt")
    found = check_counts(work, [json.loads(line) for line in out.read_text().splitlines()], classes, names)
    check({names[i] for i in classes_now} <= found.keys(), "what went away was not read: nothing is tested")
    check(daemon.process.poll() is None, "the daemon is gone")


# --- damage and crops ---


def classes_of(work, folder, ops, epochs=1, out=None):
    """[{key: class}] of so many epochs, and the rows of the good ones of the first."""
    found, rows = [], {}
    text = config(f"folder: {folder}", ops, "    order: {shuffle: none}\n    last: partial\n    on_error: {policy: mask, max_rate: 1, max_consecutive: 10000}\n")
    for epoch in range(epochs):
        lines = work.pull("p", batch=50, epoch=epoch, seed=epoch, config=work.config(text), out=out)
        found.append({e["key"]: e["class"] for line in lines for e in line["errors"]})
        for line in lines if out and epoch == 0 else []:
            array = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
            rows.update((key, row) for key, row in zip(line["keys"], array))
    return found, rows


SIDE, COUNT = 72, 1000 if harness.SLOW else 200
WHOLE, CROPS = f"{{center_crop: {{size: [{SIDE}, {SIDE}]}}}}", "{random_resized_crop: {size: 8, scale: [0.02, 0.4]}}"


def originals(seed, count):
    """(form, whole file) of pictures of every form."""
    rng, forms = random.Random(seed), [*FORMS, "cmyk", "cmyk progressive"]
    for i in range(count):
        form = forms[i % len(forms)]
        yield rng, form, jpeg(form, pictures.detailed(rng.randint(20, SIDE), rng.randint(20, SIDE), seed + i), rng.choice((50, 75, 90, 97)))


def check_crops(work, folder, whole, out):
    """The classes of whole pictures are those of any part of them."""
    found, rows = classes_of(work, folder, WHOLE, out=out)
    parts, _ = classes_of(work, folder, CROPS, 5 if harness.SLOW else 3)
    for number, part in enumerate(parts):
        odd = {key for key in part.keys() | found[0].keys() if part.get(key) != found[0].get(key)}
        equal({key: (found[0].get(key), part.get(key)) for key in odd}, {}, f"classes that depend on the crop, draw {number}")
    return found[0], rows


def test_cut_jpegs(work):
    """Cut anywhere, none is delivered, and each is called TRUNCATED."""
    folder = work.path / "in"
    folder.mkdir()
    for i, (rng, form, data) in enumerate(originals(100, COUNT)):
        (folder / f"{i:04d} {form.replace(':', '-')}.jpg").write_bytes(data[:rng.randint(3, len(data) - 3)])
    found, _ = check_crops(work, folder, None, work.path / "out")
    equal({key: kind for key, kind in found.items() if kind != "TRUNCATED"}, {}, "cut pictures that are called something else")
    equal(len(found), COUNT, "cut pictures that are not delivered")


def scan_headers(data):
    """Places of the bytes of every scan's header, its length among them."""
    places, at = [], 0
    while (at := data.find(b"\xff\xda", at)) >= 0:
        places += range(at + 2, at + 2 + int.from_bytes(data[at + 2:at + 4], "big"))
        at += 2
    return places


def test_flipped_scan_headers(work):
    """One byte of a scan's header is another: what is delivered all the same has the pixels of the intact file."""
    folder, intact = work.path / "in", work.path / "intact"
    folder.mkdir()
    intact.mkdir()
    for i, (rng, form, data) in enumerate(originals(200, COUNT)):
        name, at = f"{i:04d} {form.replace(':', '-')}.jpg", rng.choice(scan_headers(data))
        (intact / name).write_bytes(data)
        (folder / name).write_bytes(changed(data, at, data[at] ^ (1 << rng.randrange(8) if i % 2 else rng.randint(1, 255))))
    found, rows = check_crops(work, folder, intact, work.path / "out")
    none, wanted = classes_of(work, intact, WHOLE, out=work.path / "wanted")
    equal(none, [{}], "classes of intact pictures")
    wrong = [key for key, row in rows.items() if key not in found and not (row == wanted[key]).all()]
    irregular = [key for key in wrong if subprocess.run(["djpeg", "-strict", folder / key], capture_output=True, check=False).returncode]
    equal(irregular, [], "damaged pictures that are delivered")
    check(len(wrong) <= COUNT // 100, f"too many files that are another picture without being irregular: {wrong}")
    check(len(found) > COUNT // 2, f"only {len(found)} were found")
    equal(set(found.values()) <= {"CORRUPT", "TRUNCATED", "UNSUPPORTED", "LIMIT"}, True, "classes")


if __name__ == "__main__":
    harness.main(globals())
