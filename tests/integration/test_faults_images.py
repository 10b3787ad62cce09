#!/usr/bin/python3
"""Pictures that loaders are known to get wrong, a function a row of docs/faults.md, each with generated variants of its kind."""
import math
import pathlib
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import pictures  # noqa: E402
from harness import check, equal  # noqa: E402
from PIL import Image  # noqa: E402
from pictures import behind_soi, bits_of, bmp, bmp_rows, changed, chance, cjpeg, far, pillow, place_of, png, png_chunk, show, solid, window  # noqa: E402


def good(work, files, **how):
    table = show(work, files, **how)
    equal(table.classes(), {}, "classes")
    return table.pixels


def classes(work, wanted, **how):
    """wanted: {name: (bytes, class)}; names and counts of the failures are checked by show()."""
    table = show(work, {name: data for name, (data, _) in wanted.items()}, **how)
    equal(table.classes(), {name: kind for name, (_, kind) in wanted.items() if kind != "OK"}, "classes")
    return table


def exact(work, files, **how):
    """files: {name: (bytes, pixels)}."""
    seen = good(work, {name: data for name, (data, _) in files.items()}, **how)
    for name, (_, wanted) in files.items():
        found = window(seen[name], wanted.shape[1], wanted.shape[0])
        check((found == wanted).all(), f"{name} is {found.reshape(-1)[:24]}, wanted {wanted.reshape(-1)[:24]}")
        check(seen[name].astype(int).sum() == wanted.astype(int).sum(), f"{name}: something is beside the picture")


# --- colours ---


def ink_to_rgb(ink):
    ink = np.asarray(ink, float)
    return np.rint((255 - ink[..., :3]) * (255 - ink[..., 3:]) / 255)


def ycck(ink):
    """Stores luma and chroma of the ink: what the file says of its colours is changed in a file of plain ink."""
    c, m, y, k = (ink[..., i].astype(float) for i in range(4))
    luma = 0.299 * c + 0.587 * m + 0.114 * y
    stored = np.stack([luma, (y - luma) / 1.772 + 128, (c - luma) / 1.402 + 128, 255 - k], 2)
    jpeg = pillow(Image.fromarray((255 - np.rint(stored).clip(0, 255)).astype(np.uint8), "CMYK"), "JPEG", quality=100, subsampling=0)
    return changed(jpeg, jpeg.index(b"Adobe") + 11, 2)


def test_img_01_cmyk(work):
    def inked(ink, **how):
        return pillow(Image.fromarray(ink, "CMYK"), "JPEG", quality=100, subsampling=0, **how)
    rng = chance("IMG-01")
    made = {"a.jpg": solid(32, 32, (64, 128, 32, 16)), "b.jpg": solid(32, 32, (255, 0, 0, 0))}
    files = {name: inked(ink) for name, ink in made.items()}
    for name, how in (("c.jpg", None), ("d.jpg", {"progressive": True}), ("e.jpg", None)):
        made[name] = solid(rng.randint(1, 70), rng.randint(1, 70), [rng.randrange(256) for _ in range(4)])
        files[name] = ycck(made[name]) if how is None else inked(made[name], **how)
    seen = good(work, files)
    equal(window(seen["a.jpg"], 1, 1).reshape(-1).astype(int).tolist()[0] // 10, 17, "the first colour is not inverted")
    for name, ink in made.items():
        wanted = ink_to_rgb(ink)
        found = window(seen[name], ink.shape[1], ink.shape[0])
        check(far(found, wanted) <= 2, f"{name}: {found[0, 0]} for the ink {ink[0, 0]}, wanted {wanted[0, 0]}")
    check(far(window(seen["a.jpg"], 32, 32), (179, 119, 209)) <= 2 and far(window(seen["b.jpg"], 32, 32), (0, 255, 255)) <= 2, "the colours of the row")


def without_segments(jpeg, *markers):
    for marker in markers:
        at = place_of(jpeg, marker)
        jpeg = jpeg[:at] + jpeg[at + 2 + int.from_bytes(jpeg[at + 2:at + 4], "big"):]
    return jpeg


def test_img_03_stored_rgb(work):
    rng = chance("IMG-03")
    colours = {"a.jpg": (200, 30, 60)}
    files = {"a.jpg": cjpeg(solid(64, 48, colours["a.jpg"]), "-rgb", "-quality", 100)}
    for name, options in (("b.jpg", []), ("c.jpg", ["-progressive"]), ("d.jpg", ["-restart", 1]), ("e.jpg", []), ("f.jpg", ["-sample", "2x2"])):
        colours[name] = tuple(rng.randrange(256) for _ in range(3))
        files[name] = cjpeg(solid(rng.randint(1, 78), rng.randint(1, 78), colours[name]), "-quality", 100, *(["-rgb"] if name < "e" else []), *options)
    files["b.jpg"] = without_segments(files["b.jpg"], 0xEE)  # the names of the components say it alone
    at = place_of(files["c.jpg"], 0xC2) + 10
    named = changed(files["c.jpg"], at, 1)
    named = changed(changed(named, at + 3, 2), at + 6, 3)  # Adobe's part says it alone
    files["c.jpg"] = named.replace(b"R\0G\0B\0", b"\1\0\2\0\3\0")
    scan = 0
    for old, new in (("R", 1), ("G", 2), ("B", 3)):
        named = files["c.jpg"]
        while (scan := named.find(b"\xff\xda\0\x08\1" + old.encode(), 0)) >= 0:
            named = changed(named, scan + 5, new)
        files["c.jpg"] = named
    seen = good(work, files)
    for name, colour in colours.items():
        check(far(window(seen[name], 1, 1), colour) <= (2 if name >= "e" else 1), f"{name}: {window(seen[name], 1, 1)} for {colour}")
    check(far(window(seen["a.jpg"], 64, 48), colours["a.jpg"]) <= 1, "everywhere")


def test_img_05_grey(work):
    rng, base = chance("IMG-05"), pictures.slopes(64, 48)
    doubled = cjpeg(base, "-grayscale", "-quality", 95)
    doubled = changed(doubled, place_of(doubled, 0xC0) + 11, 0x22)  # a factor says nothing where there is one component
    files = {"a.jpg": cjpeg(base, "-grayscale", "-quality", 95), "b.jpg": cjpeg(base, "-quality", 95), "c.jpg": doubled,
             "d.jpg": cjpeg(base, "-grayscale", "-quality", 95, "-progressive"), "e.jpg": cjpeg(base, "-grayscale", "-quality", 95, "-restart", 1)}
    sizes = {}
    for name, options in (("f.jpg", ["-arithmetic"]), ("g.jpg", ["-optimize"]), ("h.jpg", ["-restart", "3B"])):
        sizes[name] = (rng.randint(9, 79), rng.randint(9, 79))
        files[name] = cjpeg(pictures.slopes(*sizes[name]), "-grayscale", "-quality", 95, *options)
    grey = np.frombuffer(bytes(rng.randrange(256) for _ in range(35)), np.uint8).reshape(5, 7)
    files["i.png"] = png(7, 5, 8, 0, [row.tobytes() for row in grey])
    files["j.ppm"] = b"P5 7 5 255\n" + grey.tobytes()
    seen = good(work, files)
    for name in "acde":
        picture = window(seen[f"{name}.jpg"], 64, 48)
        check((picture == picture[:, :, :1]).all(), f"{name}: red, green and blue differ")
        check(abs(picture.mean() - 120.49) <= 0.5, f"{name}: the mean is {picture.mean()}")
    check((seen["a.jpg"] == seen["c.jpg"]).all() and (seen["a.jpg"] == seen["e.jpg"]).all(), "the same pixels in other forms")
    colours = window(seen["b.jpg"], 64, 48).reshape(-1, 3).mean(0)
    check(np.abs(colours - base.reshape(-1, 3).mean(0)).max() <= 0.5, f"the colour file beside it: {colours}")
    for name, (width, height) in sizes.items():
        picture, wanted = window(seen[name], width, height), pictures.slopes(width, height).astype(float) @ (0.299, 0.587, 0.114)
        check((picture == picture[:, :, :1]).all() and abs(picture.mean() - wanted.mean()) <= 0.5, f"{name}: mean {picture.mean()}, wanted {wanted.mean()}")
    for name in ("i.png", "j.ppm"):
        check((window(seen[name], 7, 5) == grey[:, :, None]).all(), name)


def test_img_07_crops_of_a_partial_decode(work):
    """Random crops equal the same windows of whole pictures, at every place, the last row and column among them; the first time a file is seen and later."""
    base, files = pictures.detailed(256, 256), {}
    forms = {"a.jpg": [], "b.jpg": ["-progressive"], "c.jpg": ["-sample", "2x1", "-restart", 1], "d.jpg": ["-sample", "1x1"]}
    for name, options in forms.items():
        files[name] = cjpeg(base[:, :256 if name < "c" else 251], "-quality", 95, *options)
    whole = good(work, files, side=256)
    folder = work.path / "crops"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields:\n      image: {pictures.field('{random_crop: {size: 16}}')}\n"
                         "    order: {shuffle: none}\n")
    out, count = work.path / "out", 300
    edges = {"left": 0, "right": 0, "top": 0, "bottom": 0, "odd": 0}
    for line in work.pull("p", batch=4, steps=count, draws=True, out=out, config=config):
        rows = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
        for key, row, drawn in zip(line["keys"], rows, line["draws"]):
            x, y, width, height = drawn["crop"]
            picture = window(whole[key], 256 if key < "c" else 251, 256)
            check((row == picture[y:y + height, x:x + width]).all(), f"{key}: the crop at {x},{y} is not that of the whole picture")
            for name, met in (("left", x < 9), ("right", x > 227), ("top", y < 9), ("bottom", y > 231), ("odd", x % 16 in (1, 7, 15))):
                edges[name] += met
    check(min(edges.values()) > 10, f"edges were not met: {edges}")


TURNED = {1: "RGBW", 2: "GRWB", 3: "WBGR", 4: "BWRG", 5: "RBGW", 6: "BRWG", 7: "WGBR", 8: "GWRB"}
LETTERS = {"R": pictures.RED, "G": pictures.GREEN, "B": pictures.BLUE, "W": pictures.WHITE}


def turned(width, height, orientation):
    size = (width, height) if orientation < 5 else (height, width)
    return pictures.quadrants(*size, [LETTERS[letter] for letter in TURNED[orientation]])


def oriented(form, base, orientation):
    if form == "png":
        return pictures.png_rgb(base, png_chunk(b"eXIf", pictures.exif(orientation)))
    if form == "late.png":
        return pictures.png_rgb(base, behind=png_chunk(b"eXIf", pictures.exif(orientation, big=True)))
    if form == "webp":
        return pillow(Image.fromarray(base), "WEBP", lossless=True, exif=b"Exif\0\0" + pictures.exif(orientation, big=True))
    jpeg = cjpeg(base, "-quality", 95, *({"jpg": ["-sample", "1x1"], "big.jpg": ["-progressive", "-sample", "1x1"]}[form]))
    return behind_soi(jpeg, pictures.exif_segment(pictures.exif(orientation, big=form == "big.jpg")))


def test_img_08_orientation(work):
    """Turned as shown, before anything else is done to them; an off switch; sides of any length, JPEG, PNG and WebP, either byte order."""
    rng, files, stored, wanted = chance("IMG-08"), {}, {}, {}
    for form in ("jpg", "big.jpg", "png", "late.png", "webp"):
        base = pictures.quadrants(*((64, 48) if form == "jpg" else (2 * rng.randint(8, 39), 2 * rng.randint(8, 39))))
        for n in range(1, 9):
            name = f"{form.split('.')[0]}-{n}.{form.split('.')[-1]}"
            files[name], stored[name], wanted[name] = oriented(form, base, n), base, turned(base.shape[1], base.shape[0], n)
    for shown, more in ((wanted, ""), (stored, ", orientation: ignore")):
        seen = good(work, files, more=more)
        for name, picture in shown.items():
            found, limit = window(seen[name], picture.shape[1], picture.shape[0]), 0 if "jpg" not in name else 12
            check(far(found, picture) <= limit, f"{name}{more}: {far(found, picture)} away from its quadrants")
            check((seen[name] > 12).any(2).sum() == picture.shape[0] * picture.shape[1], f"{name}{more}: it has another size")
    seen = good(work, files, ops="{resize: {size: [40, 40]}}, {center_crop: {size: [30, 30]}}")
    for name, picture in wanted.items():
        for y, x in ((3, 3), (3, 26), (26, 3), (26, 26)):
            check(far(seen[name][y, x], picture[-(y > 20), -(x > 20)]) <= 12, f"{name} is cut or made smaller before it is turned")


# --- damage ---


def test_img_10_truncated(work):
    rng, base = chance("IMG-10"), pictures.detailed(256, 256)
    whole = cjpeg(base, "-quality", 95)
    files = {"a.jpg": (whole[:len(whole) // 2], "TRUNCATED"), "a2.jpg": (whole, "OK")}
    webp = Image.fromarray(base)
    more = {"b.jpg": cjpeg(base, "-progressive"), "c.jpg": cjpeg(base, "-grayscale", "-restart", 2), "d.jpg": cjpeg(base, "-arithmetic"),
            "e.png": pictures.png_rgb(base), "f.webp": pillow(webp, "WEBP", quality=80), "g.webp": pillow(webp, "WEBP", lossless=True),
            "h.bmp": pictures.bmp_24(base), "i.ppm": pictures.ppm(base), "j.jpg": pillow(webp.convert("CMYK"), "JPEG"),
            "k.ppm": b"P3 64 64 255\n" + b" ".join(b"%d" % v for v in base[:64, :64].reshape(-1)) + b"\n"}
    for name, data in more.items():
        for number in range(3):
            files[f"{name[0]}{number}.{name[2:]}"] = (data[:rng.randint(60, len(data) - 60)], "TRUNCATED")
        files[f"{name[0]}3.{name[2:]}"] = (data, "OK")
    for share, crop in ((256, None), (64, "{random_resized_crop: {size: 16}}")):
        table = classes(work, files, side=share, ops=crop)
        for key, fault in table.faults.items():
            equal(fault["fault"], len(files[key][0]), f"{key} ends where it ends")


def test_img_13_bytes_behind_the_end(work):
    rng = chance("IMG-13")
    base, other = pictures.slopes(64, 48), pictures.detailed(256, 256)
    plain, second = cjpeg(base, "-quality", 95), cjpeg(other)
    files = {"a.jpg": plain, "b.jpg": plain + bytes(65536), "c.jpg": plain + second}
    forms = {"d.png": pictures.png_rgb(base), "e.webp": pillow(Image.fromarray(base), "WEBP", lossless=True), "f.bmp": pictures.bmp_24(base),
             "g.ppm": pictures.ppm(base), "h.jpg": cjpeg(base, "-quality", 95, "-progressive"), "i.jpg": cjpeg(base, "-arithmetic", "-quality", 95)}
    for name, data in forms.items():
        tails = [rng.randbytes(rng.randint(1, 3000)), data, second]
        for number, tail in enumerate([b"", *tails]):
            files[f"{name[0]}{number}{name[1:]}"] = data + tail
    seen = good(work, files)
    for name in files:
        plain = "a.jpg" if name[0] in "abc" else f"{name[0]}0{name[2:]}"
        check((seen[name] == seen[plain]).all(), f"{name} is not the picture without what is behind it")
    check(far(window(seen["a.jpg"], 64, 48), base) < 40, "the first picture")


def test_img_16_errors_of_the_library(work):
    """A library's own way to end a program costs a sample and nothing else, 10,000 times over."""
    base = pictures.slopes(64, 48)
    intact = cjpeg(base, "-quality", 95)
    tables, frame = place_of(intact, 0xC4), place_of(intact, 0xC0)
    progressive, grey = cjpeg(base, "-progressive"), cjpeg(base, "-grayscale")
    zipped = pictures.png_rgb(base)
    bad = {"a.jpg": (changed(intact, tables + 5, 255, 255, 255), "CORRUPT"), "b.jpg": (changed(intact, frame + 4, 12), "UNSUPPORTED"),
           "c.jpg": (changed(intact, frame + 5, 0, 0), "CORRUPT"), "d.jpg": (intact[:200], "TRUNCATED"),
           "e.jpg": (changed(progressive, place_of(progressive, 0xC2) + 12, 9), "CORRUPT"),
           "f.jpg": (changed(grey, place_of(grey, 0xDA) + 6, 0x77), "CORRUPT"),
           "g.jpg": (changed(intact, frame + 1, 0xC3), "UNSUPPORTED"),
           "h.png": (changed(zipped, zipped.index(b"IDAT") + 30, *bytes(8)), "CORRUPT"),
           "i.png": (changed(zipped, 24, 3), "CORRUPT")}
    table = classes(work, bad, epochs=10000 // len(bad) + 1)
    check(table.grown_bytes < 8 << 20 or harness.SANITIZED, f"memory grew by {table.grown_bytes} bytes")


def test_img_19_chroma_sampling(work):
    rng, base, files = chance("IMG-19"), pictures.slopes(64, 48), {}
    samplings = ["1x2", "4x1", "4x2", "1x4", "2x4", "3x1", "1x1,2x2,2x2"]
    for number, sampling in enumerate(samplings):
        files[f"a{number}.jpg"] = cjpeg(base, "-quality", 95, "-sample", sampling)
    made = []
    while len(made) < 6:
        factors = [(rng.randint(1, 4), rng.randint(1, 4)) for _ in range(3)]
        most = [max(f[i] for f in factors) for i in range(2)]
        if sum(x * y for x, y in factors) <= 10 and all(most[0] % x == 0 and most[1] % y == 0 for x, y in factors):
            made.append(",".join(f"{x}x{y}" for x, y in factors))
            form = rng.choice([["-progressive"], ["-restart", 1], []])
            files[f"b{len(made)}.jpg"] = cjpeg(base, "-quality", 95, "-sample", made[-1], *form)
    seen = good(work, files)
    for name in files:
        colours = window(seen[name], 64, 48).reshape(-1, 3).mean(0)
        check(np.abs(colours - (126.1, 117.4, 121.8)).max() <= 0.5, f"{name}: the mean colour is {colours} ({samplings}, {made})")


# --- sizes ---


def zeros_png(width, height):
    """A PNG of black bits, made without its rows in memory."""
    packer, row = zlib.compressobj(9), bytes((width + 7) // 8 + 1)
    return pictures.png_of_data(width, height, 1, 0, b"".join(packer.compress(row) for _ in range(height)) + packer.flush())


def webp_claims(width, height):
    """The three places where a WebP says how large it is."""
    lossy = pillow(Image.new("RGB", (8, 8)), "WEBP")
    lossless = pillow(Image.new("RGB", (8, 8)), "WEBP", lossless=True)
    packed = (width - 1) | (height - 1) << 14 | int.from_bytes(lossless[21:25], "little") & 0xF << 28
    canvas = b"VP8X" + struct.pack("<II", 10, 2) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return [changed(lossy, 26, *struct.pack("<HH", width, height)), changed(lossless, 21, *struct.pack("<I", packed)),
            b"RIFF" + struct.pack("<I", 4 + len(canvas) + len(lossy) - 12) + b"WEBP" + canvas + lossy[12:]]


def test_img_21_giants(work):
    """The class comes from the head alone, and a picture of exactly the limit is decoded."""
    rng = chance("IMG-21")
    small = cjpeg(pictures.slopes(32, 32))
    claims = {"a.jpg": pictures.with_size(small, 65500, 65500), "b.png": zeros_png(30000, 30000),
              "c.jpg": pictures.with_size(cjpeg(pictures.slopes(32, 32), "-progressive"), 65535, 65535),
              "d.bmp": bmp(2**31 - 1, -2**31, 32, 0, b""), "e.ppm": b"P6 4294967295 4294967295 65535\n", **{f"f{i}.webp": claim for i, claim in enumerate(webp_claims(16383, 16383))},
              "g.png": pictures.png_of_data(2**31 - 1, 2**31 - 1, 16, 6, b""), "h.bmp": bmp(60000, 60000, 1, 0, b"")}
    claims["i.jpg"] = claims["a.jpg"][:place_of(claims["a.jpg"], 0xDA) + 20]  # nothing but its head
    table = show(work, {"0.png": pictures.GOOD, **claims})
    equal(table.classes(), {name: "LIMIT" for name in claims}, "classes")
    check(table.grown_bytes < 64 << 20, f"memory grew by {table.grown_bytes} bytes")
    for key, fault in table.faults.items():
        limit = "65500" if key == "c.jpg" else "134217728"  # the library's for a side, and that of the configuration
        check(limit in fault["message"], f"{key}: the limit is not named: {fault['message']}")
    width, height = rng.randint(20, 60), rng.randint(20, 60)
    base = pictures.slopes(width, height)
    forms = {"a.jpg": cjpeg(base), "b.png": pictures.png_rgb(base), "c.bmp": pictures.bmp_24(base), "d.ppm": pictures.ppm(base),
             "e.webp": pillow(Image.fromarray(base), "WEBP"), "f.jpg": cjpeg(base, "-progressive"), "g.png": zeros_png(width, height)}
    equal(show(work, forms, sets=[f"limits.pixels={width * height}"]).classes(), {}, "classes exactly at the limit")
    table = show(work, forms, sets=[f"limits.pixels={width * height - 1}"])
    equal(table.classes(), {name: "LIMIT" for name in forms}, "classes one above the limit")


def peak_of(daemon):
    return [pictures.status_of(pid, "VmHWM") for pid in (daemon.pid, *daemon.workers())]


def test_img_21_memory_of_giants(work):
    """The peak of memory, of the daemon and of its worker, after giants of every format."""
    folder = work.path / "in"
    folder.mkdir()
    (folder / "a.png").write_bytes(pictures.GOOD)
    ops = "{center_crop: {size: [4, 4]}}"
    daemon = work.daemon(work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields:\n      image: {pictures.field(ops)}\n"
                                     f"  q:\n    source: {{folder: {work.path / 'giants'}}}\n    fields:\n      image: {pictures.field(ops)}\n"))
    work.pull("p", batch=1)
    before = peak_of(daemon)
    giants = {"a.jpg": pictures.with_size(cjpeg(pictures.slopes(32, 32)), 65500, 65500), "b.png": zeros_png(30000, 30000),
              "c.ppm": b"P6 40000 40000 255\n" + bytes(1000), "d.webp": webp_claims(16000, 16000)[0]}
    pictures.write_files(work.path / "giants", giants)
    line = work.pull("q", batch=8, steps=1)[0]
    equal([e["class"] for e in line["errors"]], ["LIMIT"] * 4, "classes")
    grown = max(after - then for after, then in zip(peak_of(daemon), before))
    check(grown < 64 << 20, f"the peak of memory grew by {grown} bytes")


def test_img_22_degenerate(work):
    rng = chance("IMG-22")
    colours = {"b.png": (9, 8, 7)}
    files = {"a.jpg": (b"", "EMPTY"), "b.png": (png(1, 1, 8, 2, [b"\x09\x08\x07"]), "OK"), "c.png": (png(0, 1, 8, 2, [b"\x09\x08\x07"]), "CORRUPT")}
    for name in ("d.bmp", "e.ppm", "f.webp", "g.png"):
        colours[name] = tuple(rng.randrange(256) for _ in range(3))
        pixel = solid(1, 1, colours[name])
        make = {"bmp": pictures.bmp_24, "ppm": pictures.ppm, "png": pictures.png_rgb, "webp": lambda p: pillow(Image.fromarray(p), "WEBP", lossless=True)}
        files[name] = (make[name[2:]](pixel), "OK")
    jpeg = cjpeg(solid(8, 8, (9, 9, 9)))
    files.update({"h.jpg": (pictures.with_size(jpeg, 0, 8), "CORRUPT"), "i.jpg": (pictures.with_size(jpeg, 8, 0), "CORRUPT"),
                  "j.bmp": (bmp(0, 1, 24, 0, bytes(4)), "CORRUPT"), "k.bmp": (bmp(1, 0, 24, 0, bytes(4)), "CORRUPT"),
                  "l.ppm": (b"P6 0 1 255\n123", "CORRUPT"), "m.ppm": (b"P5 1 0 255\n1", "CORRUPT"), "n.png": (png(1, 0, 8, 2, [b"123"]), "CORRUPT")})
    for name in ("o.png", "p.webp", "q.bmp", "r.ppm"):
        files[name] = (b"", "EMPTY")
    table = classes(work, files, ops="{resize: {size: [224, 224]}}")
    for name, colour in colours.items():
        check((table.pixels[name] == colour).all(), f"{name}: one pixel made large is not constant")


def test_img_23_names_of_other_formats(work):
    rng = chance("IMG-23")
    files, wanted = {}, {}
    forms = {"png": lambda p: pillow(Image.fromarray(p), "PNG"), "bmp": lambda p: pillow(Image.fromarray(p), "BMP"),
             "webp": lambda p: pillow(Image.fromarray(p), "WEBP", quality=95), "jpg": lambda p: cjpeg(p, "-quality", 95, "-sample", "1x1"), "ppm": pictures.ppm}
    for form, make in forms.items():
        for number, name in enumerate(["jpg", *rng.sample(["png", "webp", "bmp", "ppm"], 3)]):
            key = f"{form}{number}.{name}"
            wanted[key] = pictures.quadrants(64, 48) if number == 0 else pictures.quadrants(2 * rng.randint(10, 39), 2 * rng.randint(10, 39))
            files[key] = (make(wanted[key]), "OK")
    files["page.jpg"] = (b"<!DOCTYPE html><html><head><title>404</title></head></html>\n", "BAD_FORMAT")
    for number, text in enumerate((b'{"error": 404}\n', b"\xef\xbb\xbf<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>", bytes(300), rng.randbytes(500).replace(b"\xff\xd8", b""))):
        files[f"text{number}.{rng.choice(['jpg', 'png', 'webp', 'bmp'])}"] = (text, "BAD_FORMAT")
    table = classes(work, files)
    for key, picture in wanted.items():
        found = window(table.pixels[key], picture.shape[1], picture.shape[0])
        for y, x in ((0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)):
            at = (int(y * picture.shape[0]), int(x * picture.shape[1]))
            check(far(found[at], picture[at]) <= 4, f"{key}: {found[at]} at {at}, wanted {picture[at]}")


def test_img_24_sixteen_bits(work):
    rng, values = chance("IMG-24"), [0, 127, 128, 255, 25700, 65535]

    def nearest(stored):
        return (np.asarray(stored, int) * 255 + 32767) // 65535

    def big(stored):
        return np.asarray(stored, ">u2").tobytes()
    files = {"a.png": (png(6, 1, 16, 0, [big(values)]), np.repeat(np.array([[[0], [0], [0], [1], [100], [255]]], np.uint8), 3, 2))}
    for name, colour, channels in (("b.png", 0, 1), ("c.png", 2, 3), ("d.png", 4, 2), ("e.png", 6, 4), ("f.ppm", 5, 1), ("g.ppm", 6, 3), ("h.png", 2, 3)):
        width, height = rng.randint(1, 40), rng.randint(1, 40)
        stored = np.array([rng.randrange(65536) for _ in range(width * height * channels)]).reshape(height, width, channels)
        if name == "h.png":
            data = pictures.png_interlaced(16, colour, stored)
        elif name[2:] == "png":
            data = png(width, height, 16, colour, [big(row) for row in stored])
        else:
            data = b"P%d %d %d 65535\n" % (colour, width, height) + big(stored)
        shown = stored[:, :, :3] if channels >= 3 else np.repeat(stored[:, :, :1], 3, 2)
        files[name] = (data, nearest(shown).astype(np.uint8))
    exact(work, files)


def test_img_25_palettes(work):
    """Colours of a palette with transparent ones: three channels, and rows beside it are untouched."""
    rng = chance("IMG-25")
    colours = np.array([[17, 34, 51], [68, 85, 102], [119, 136, 153]], np.uint8)
    files = {"a.png": (png(3, 1, 8, 3, [b"\0\1\2"], png_chunk(b"PLTE", colours.tobytes()) + png_chunk(b"tRNS", b"\0\x80")), colours[None])}
    for name, depth, interlaced in (("b.png", 1, False), ("c.png", 2, True), ("d.png", 4, False), ("e.png", 8, True), ("f.png", 4, True), ("g.png", 8, False)):
        count = rng.randint(2, 1 << depth)
        width, height = rng.randint(1, 79), rng.randint(1, 79)
        palette = np.array([rng.randrange(256) for _ in range(3 * count)], np.uint8).reshape(-1, 3)
        stored = np.array([rng.randrange(count) for _ in range(width * height)]).reshape(height, width, 1)
        extra = png_chunk(b"PLTE", palette.tobytes()) + png_chunk(b"tRNS", rng.randbytes(rng.randint(1, count)))
        rows = [bits_of([int(v) for v in row.reshape(-1)], depth) for row in stored]
        data = pictures.png_interlaced(depth, 3, stored, extra) if interlaced else png(width, height, depth, 3, rows, extra)
        files[name] = (data, palette[stored[:, :, 0]])
    pixels = np.array([rng.randrange(256) for _ in range(24)], np.uint8).reshape(2, 3, 4)
    files["h.png"] = (png(3, 2, 8, 6, [row.tobytes() for row in pixels]), pixels[:, :, :3])
    files["i.png"] = (png(3, 2, 8, 2, [row[:, :3].tobytes() for row in pixels], png_chunk(b"tRNS", bytes(6))), pixels[:, :, :3])
    exact(work, files)


# --- BMP ---


def rounded(value, bits):
    """A colour of so many bits, expanded to eight."""
    most = (1 << bits) - 1
    return (value * 255 + most // 2) // most


def test_img_32_bmp(work):
    base = np.array([[pictures.RED, pictures.GREEN], [pictures.BLUE, pictures.WHITE]], np.uint8)
    blue_first = [row[:, ::-1].tobytes() for row in base]
    four = [b"".join(bytes([*pixel[::-1], 0]) for pixel in row) for row in base]
    short_565 = [struct.pack("<HH", 0xF800, 0x07E0), struct.pack("<HH", 0x001F, 0xFFFF)]
    short_555 = [struct.pack("<HH", 0x7C00, 0x03E0), struct.pack("<HH", 0x001F, 0x7FFF)]
    palette = b"".join(bytes([*colour[::-1], 0]) for colour in (pictures.RED, pictures.GREEN, pictures.BLUE, pictures.WHITE))
    masks_565, masks_rgbx = struct.pack("<III", 0xF800, 0x07E0, 0x1F), struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    files = {"a.bmp": bmp(2, 2, 24, 0, bmp_rows(blue_first, 24)), "b.bmp": bmp(2, -2, 24, 0, bmp_rows(blue_first[::-1], 24)),
             "c.bmp": bmp(2, 2, 16, 3, bmp_rows(short_565, 16), masks=masks_565), "d.bmp": bmp(2, 2, 16, 0, bmp_rows(short_555, 16)),
             "e.bmp": bmp(2, 2, 32, 0, bmp_rows(four, 32)), "f.bmp": bmp(2, 2, 4, 0, bmp_rows([b"\x01", b"\x23"], 4), palette),
             "g.bmp": bmp(2, -2, 32, 3, bmp_rows(four[::-1], 32), masks=masks_rgbx, head_bytes=124),
             "h.bmp": bmp(2, 2, 24, 0, bmp_rows(blue_first, 24), head_bytes=12)}
    wanted = {name: (data, base) for name, data in files.items()}
    runs = np.array([[pictures.RED] * 2 + [pictures.GREEN] * 2, [pictures.BLUE] * 3 + [pictures.WHITE]], np.uint8)
    wanted["i.bmp"] = (bmp(4, 2, 8, 1, b"\x03\x02\x01\x03\0\0\x02\0\x02\x01\0\0\0\1", palette), runs)
    wanted["j.bmp"] = (bmp(4, 2, 4, 2, b"\x03\x22\x01\x30\0\0\0\x04\x00\x11\0\0\0\1", palette), runs)
    wanted.update(bmp_variants(chance("IMG-32")))
    exact(work, wanted)


def bmp_variants(rng):
    """Random pixels in random sizes: every depth, from above and from below."""
    made = {}
    for number, bits in enumerate([1, 2, 4, 8, 16, 24, 32, 16, 1, 8]):
        width, height, above = rng.randint(1, 79), rng.randint(1, 79), rng.random() < 0.5
        values = np.array([rng.randrange(1 << min(bits, 24)) for _ in range(width * height)]).reshape(height, width)
        if bits <= 8:
            colours = np.array([rng.randrange(256) for _ in range(3 << bits)], np.uint8).reshape(-1, 3)
            palette, pixels = b"".join(bytes([*c[::-1], 0]) for c in colours), colours[values]
            lines = [bits_of([int(v) for v in row], bits) for row in values]
        else:
            palette, widths = b"", (5, 5, 5) if bits == 16 else (8, 8, 8)
            values &= 0x7FFF if bits == 16 else 0xFFFFFF
            shifts = (widths[1] + widths[2], widths[2], 0)
            pixels = np.stack([rounded(values >> s & ((1 << w) - 1), w) for s, w in zip(shifts, widths)], 2).astype(np.uint8)
            lines = [b"".join(int(v).to_bytes(bits // 8, "little") for v in row) for row in values]
        data = bmp(width, -height if above else height, bits, 0, bmp_rows(lines[::-1] if above else lines, bits), palette)
        made[f"v{number}.bmp"] = (data, pixels)
    return made


# --- what is beside the pixels ---


def icc_segments(profile, pieces, numbers=None):
    step = -(-len(profile) // pieces)
    return [pictures.segment(0xE2, b"ICC_PROFILE\0" + bytes([(numbers or range(1, pieces + 1))[i], pieces]) + profile[i * step:(i + 1) * step]) for i in range(pieces)]


def test_img_34_profiles_and_gamma(work):
    rng = chance("IMG-34")
    junk, base = rng.randbytes(200000), pictures.detailed(70, 50)
    plain = cjpeg(base, "-quality", 95)
    grey, shown = cjpeg(base, "-grayscale"), solid(5, 3, (64, 128, 192))
    icc = png_chunk(b"iCCP", b"name\0\0" + zlib.compress(junk[:9000]))
    files = {"a0.jpg": plain, "a1.jpg": behind_soi(plain, *icc_segments(junk, 4)), "a2.jpg": behind_soi(plain, *icc_segments(junk, 4, [4, 2, 2, 9])),
             "a3.jpg": behind_soi(plain, *icc_segments(junk, 7)[2:]), "b0.jpg": grey, "b1.jpg": behind_soi(grey, *icc_segments(junk[:700], 1)),
             "c0.png": pictures.png_rgb(shown), "c1.png": pictures.png_rgb(shown, png_chunk(b"gAMA", struct.pack(">I", 100000))),
             "c2.png": pictures.png_rgb(shown, png_chunk(b"gAMA", struct.pack(">I", 45455)) + icc), "c3.png": pictures.png_rgb(shown, png_chunk(b"iCCP", b"broken")),
             "c4.png": pictures.png_rgb(shown, png_chunk(b"sRGB", b"\0") + png_chunk(b"cHRM", rng.randbytes(32)) + png_chunk(b"sBIT", b"\5\5\5")),
             "d0.webp": pillow(Image.fromarray(shown), "WEBP", lossless=True), "d1.webp": pillow(Image.fromarray(shown), "WEBP", lossless=True, icc_profile=junk)}
    for ops in (None, "{resize: {size: [31, 37]}}", "{random_resized_crop: {size: 24}}"):
        seen = good(work, files, ops=ops)
        for name in files if ops is None or "random" not in ops else []:
            check((seen[name] == seen[f"{name[0]}0{name[2:]}"]).all(), f"{name} with {ops} is not the picture without a profile")
    seen = good(work, {name: data for name, data in files.items() if name[0] == "c"})
    for name, row in seen.items():
        check((window(row, 5, 3) == (64, 128, 192)).all(), f"{name}: {window(row, 1, 1)}")


# --- geometry ---


def test_img_35_shrinking_without_aliases(work):
    rng, files, wanted = chance("IMG-35"), {}, {}

    def stripes(width, height, upright):
        pixels = np.zeros((height, width, 3), np.uint8)
        (pixels[:, ::2] if upright else pixels[::2])[:] = 255
        return pixels
    files["a.png"] = pictures.png_rgb(stripes(255, 255, True))
    files["b.png"] = pictures.png_rgb(stripes(255, 255, False))
    files["c.jpg"] = cjpeg(stripes(255, 255, True), "-quality", 100, "-sample", "1x1")
    for name in ("d.png", "e.bmp", "f.png"):
        pixels = stripes(rng.randint(120, 180) * 2 + 1, rng.randint(120, 180) * 2 + 1, rng.random() < 0.5)
        files[name] = pictures.bmp_24(pixels) if name[2:] == "bmp" else pictures.png_rgb(pixels)
        wanted[name] = pixels
    for kind in ("bilinear", "bicubic"):
        seen = good(work, files, ops=f"{{resize: {{size: [51, 51], filter: {kind}}}}}")
        for name, row in seen.items():
            inner = row[3:-3, 3:-3]
            check(110 <= inner.min() and inner.max() <= 145, f"{name}, {kind}: values are {inner.min()} to {inner.max()}")
            if name in wanted:
                pil = np.asarray(Image.fromarray(wanted[name]).resize((51, 51), {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}[kind]))
                check(far(row, pil) <= 1, f"{name}, {kind}: {far(row, pil)} away from Pillow's")


def many(work, name, data, count, ops):
    """The draws of so many rows of one picture, and the shape of the rows."""
    folder = work.path / name
    folder.mkdir()
    (folder / f"a.{name.split('.')[-1]}").write_bytes(data)
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields:\n      image: {pictures.field(ops)}\n    order: {{shuffle: none}}\n")
    lines = work.pull("p", batch=1, steps=count, seed=11, draws=True, config=config)
    equal(len(lines), count, "lines")
    check(all(line["valid"] == 1 for line in lines), f"a row of {name} is not valid")
    return [line["draws"][0]["crop"] for line in lines], {tuple(line["fields"]["image"]["shape"]) for line in lines}


def test_img_37_thin_pictures(work):
    rng = chance("IMG-37")
    sizes = [(1, 2000), (2000, 1), (3, 900)] + [(rng.randint(1, 4), rng.randint(300, 3000)) for _ in range(3)]
    files = {f"{number}.png": pictures.png_rgb(pictures.slopes(*size)) for number, size in enumerate(sizes)}
    files["6.jpg"], files["7.webp"] = cjpeg(pictures.slopes(1, 700)), pillow(Image.fromarray(pictures.slopes(700, 2)), "WEBP", lossless=True)
    for ops in ("{resize: {size: 224}}, {center_crop: {size: 224}}", "{center_crop: {size: 224}}", "{random_resized_crop: {size: 224}}"):
        table = show(work, files, ops=ops, epochs=2)
        equal(table.classes(), {}, f"classes with {ops}")
        equal({row.shape for row in table.pixels.values()}, {(224, 224, 3)}, "shapes")
    for number, (width, height) in enumerate(sizes[:3]):
        boxes, shapes = many(work, f"thin{number}.png", files[f"{number}.png"], 1000, "{random_resized_crop: {size: 224}}")
        equal(shapes, {(1, 224, 224, 3)}, "shapes")
        check(all(w >= 1 and h >= 1 and x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes), f"a crop leaves {width} x {height}")


def test_img_37_ratios(work):
    data = pictures.png_rgb(pictures.slopes(100, 100))
    large = pictures.png_rgb(solid(1000, 1000, (1, 2, 3)))
    boxes, _ = many(work, "ratio.png", data, 1000, "{random_resized_crop: {size: 8, ratio: [0.75, 0.75]}}")
    check(all(abs(w - 0.75 * h) <= 0.875 for _, _, w, h in boxes), "a ratio is not 0.75 as far as whole pixels allow")
    boxes, _ = many(work, "large.png", large, 60, "{random_resized_crop: {size: 8, ratio: [0.75, 0.75]}}")
    check(all(abs(w / h - 0.75) <= 0.01 for _, _, w, h in boxes), f"a ratio is not 0.75: {boxes}")
    boxes, _ = many(work, "even.png", data, 4000, "{random_resized_crop: {size: 8, ratio: [0.25, 4]}}")
    mean = sum(math.log(w / h) for _, _, w, h in boxes) / len(boxes)
    check(abs(mean) <= 0.05, f"the mean of the logarithm of the ratio is {mean}")


if __name__ == "__main__":
    harness.main(globals())
