#!/usr/bin/python3
"""Pictures of every format, told by their bytes whatever they are called: the same row as Pillow's, the same class for what is broken."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
from harness import check, equal  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402

CORNERS = {(0, 0): (255, 0, 0), (1, 0): (0, 255, 0), (0, 1): (0, 0, 255), (1, 1): (255, 255, 255)}


def quadrants(width=64, height=48):
    picture = Image.new("RGB", (width, height))
    for (x, y), colour in CORNERS.items():
        picture.paste(colour, (x * width // 2, y * height // 2, (x + 1) * width // 2, (y + 1) * height // 2))
    return picture


def pull(work, folder, size=32, **how):
    """{key: row} and {key: class}."""
    config = work.config(f"""datasets:
  p:
    source: {{folder: {folder}}}
    fields:
      image: {{from: [jpg, jpeg, png, webp, bmp, ppm, pgm, pbm], decode: image, ops: [{{resize: {{size: [{size}, {size}]}}}}],
               dtype: uint8, layout: nhwc}}
    order: {{shuffle: none}}
    last: partial
    on_error: {{policy: mask}}
""")
    out, rows, classes = work.path / f"out-{folder.name}", {}, {}
    for line in work.pull("p", batch=4, out=out, config=config, **how):
        array = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy")
        rows.update(zip(line["keys"], array))
        classes.update({error["key"]: error["class"] for error in line["errors"]})
    return rows, classes


def check_corners(row, key):
    size = len(row)
    for (x, y), colour in CORNERS.items():
        found = row[size // 4 + y * size // 2, size // 4 + x * size // 2].astype(int)
        check(np.abs(found - colour).max() <= 3, f"{key}: corner {x},{y} is {found}, wanted {colour}")


def test_names_do_not_matter(work):
    """Each format under the name of another; a page and a format without a codec are named for what they are."""
    folder = work.path / "names"
    folder.mkdir()
    picture = quadrants()
    made = {"png.jpg": "PNG", "bmp.jpg": "BMP", "webp.jpg": "WEBP", "ppm.jpg": "PPM", "jpeg.png": "JPEG", "png.webp": "PNG", "webp.bmp": "WEBP", "gif.jpg": "GIF"}
    for key, form in made.items():
        picture.save(folder / key, form, **({"quality": 95} if form in ("JPEG", "WEBP") else {}))
    (folder / "page.jpg").write_bytes(b"<!DOCTYPE html><html><body>404</body></html>\n" * 30)
    rows, classes = pull(work, folder)
    equal(classes, {"page.jpg": "BAD_FORMAT"}, "classes")
    for key in made:
        check_corners(rows[key], key)


def test_eval_against_pillow(work):
    """Photographs as every format, in eight orientations where there are such, within 1 of Pillow's resize."""
    folder, shown = work.path / "eval", {}
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:32]):
        picture = Image.open(path).convert("RGB")
        picture = picture.crop((0, 0, picture.width - i % 7, picture.height - i % 5)).reduce(2)
        exif = Image.Exif()
        exif[0x0112] = 1 + i // 4 % 8
        form, how = [("png", {"exif": exif}), ("webp", {"quality": 85, "exif": exif}), ("bmp", {}), ("webp", {"lossless": True, "exif": exif})][i % 4]
        if i % 8 == 4:
            picture.putalpha(picture.convert("L"))
        key = f"{i:03d}.{form}"
        picture.save(folder / key, **how)
        shown[key] = ImageOps.exif_transpose(Image.open(folder / key)).convert("RGB")
    rows, classes = pull(work, folder, 96)
    equal(classes, {}, "classes")
    equal(set(rows), set(shown), "keys")
    for key, picture in shown.items():
        wanted = np.asarray(picture.resize((96, 96), Image.BILINEAR)).astype(int)
        check(np.abs(wanted - rows[key].astype(int)).max() <= 1, f"{key} is not Pillow's")


def broken(folder):
    """Broken pictures of every format. Returns {key: class}."""
    picture, classes = quadrants(), {}
    for form in ("png", "webp", "bmp", "ppm"):
        picture.save(folder / f"good.{form}")
        data = (folder / f"good.{form}").read_bytes()
        for name, content, kind in (("cut", data[:len(data) // 2], "TRUNCATED"), ("late", data[:len(data) - 20], "TRUNCATED"), ("none", b"", "EMPTY")):
            (folder / f"{name}.{form}").write_bytes(content)
            classes[f"{name}.{form}"] = kind
    data = bytearray((folder / "good.png").read_bytes())
    data[data.index(b"IDAT") + 20] ^= 4
    (folder / "flip.png").write_bytes(data)
    data = bytearray((folder / "good.png").read_bytes())
    data[16:20] = bytes(4)
    (folder / "narrow.png").write_bytes(data)
    classes.update({"flip.png": "CORRUPT", "narrow.png": "CORRUPT"})
    (folder / "giant.ppm").write_bytes(b"P6 60000 60000 255\n" + bytes(100))
    classes["giant.ppm"] = "LIMIT"
    return classes


def test_broken_pictures(work):
    folder = work.path / "broken"
    folder.mkdir()
    wanted = broken(folder)
    Image.new("RGB", (1, 1), (9, 8, 7)).save(folder / "one.png")
    for sets in ([], ["threads.decode=1"]):
        rows, classes = pull(work, folder, sets=sets)
        equal(classes, wanted, f"classes with {sets}")
        check((rows["one.png"] == (9, 8, 7)).all(), "one pixel made large is not constant")
        for form in ("png", "webp", "bmp", "ppm"):
            check_corners(rows[f"good.{form}"], form)


if __name__ == "__main__":
    harness.main(globals())
