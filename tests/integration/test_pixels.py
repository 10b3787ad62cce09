#!/usr/bin/python3
"""Pixels against Pillow within 1: samplings, grey, progressive, eight orientations; bilinear and bicubic; eval and train recipes; and the
forms of the output (dtype, layout, normalise)."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
from harness import check, equal  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402

COUNT, BATCH = 120, 20
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def many_kinds(work):
    """Photographs of every sampling, grey, progressive, in eight orientations; odd sizes too. Returns {key: picture as shown}."""
    folder, shown = work.path / "in", {}
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:COUNT]):
        picture = Image.open(path).convert("RGB")
        picture = picture.crop((0, 0, picture.width - i % 7, picture.height - i % 5))
        exif = Image.Exif()
        exif[0x0112] = 1 + i % 8
        kind, how = i % 6, {}
        if kind == 3:
            picture = picture.convert("L")
        else:
            how["subsampling"] = [0, 1, 2, 0, 2, 0][kind]
        picture.save(folder / f"{i:04d}.jpg", quality=88 + i % 10, progressive=kind >= 4, exif=exif, **how)
        shown[f"{i:04d}.jpg"] = ImageOps.exif_transpose(Image.open(folder / f"{i:04d}.jpg")).convert("RGB")
    return folder, shown


def arrays(work, lines, out, field="image"):
    for line in lines:
        array = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.{field}.npy")
        equal(list(array.shape), line["fields"][field]["shape"], "shape of the file and of the line")
        yield line, array


def difference(a, b):
    return int(np.abs(np.asarray(a).astype(int) - b.astype(int)).max())


def eval_reference(picture, filter_number, short=256, crop=224):
    w, h = picture.size
    size = (short, int(short * h / w)) if w <= h else (int(short * w / h), short)
    picture = picture.resize(size, filter_number)
    x, y = int(round((size[0] - crop) / 2.0)), int(round((size[1] - crop) / 2.0))
    return picture.crop((x, y, x + crop, y + crop))


def test_eval_recipe(work):
    folder, shown = many_kinds(work)
    for name, number in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
        config = work.config(f"""datasets:
  p:
    source: {{folder: {folder}}}
    fields:
      image: {{from: jpg, decode: image, ops: [{{resize: {{size: 256, filter: {name}}}}}, {{center_crop: {{size: 224}}}}],
               dtype: uint8, layout: nhwc}}
    order: {{shuffle: none}}
""")
        out, worst, seen = work.path / name, (0, ""), 0
        for line, array in arrays(work, work.pull("p", batch=BATCH, out=out, config=config), out):
            for row, key in zip(array, line["keys"]):
                worst = max(worst, (difference(eval_reference(shown[key], number), row), key))
                seen += 1
        equal(seen, COUNT, "pictures")
        check(worst[0] <= 1, f"{name}: a pixel of {worst[1]} is {worst[0]} away from Pillow's")


def train_rows(work, config, filter_number, **how):
    """Checks each row of a train pull against its draws; returns (rows, flipped, crops)."""
    out, flips, crops, worst = work.path / f"train-{filter_number}", 0, [], (0, "")
    lines = work.pull("p", batch=BATCH, seed=9, draws=True, out=out, config=config, **how)
    shown = {}
    for line, array in arrays(work, lines, out):
        for row, key, draw in zip(array, line["keys"], line["draws"]):
            shown[key] = picture = shown.get(key) or ImageOps.exif_transpose(Image.open(how_folder[0] / key)).convert("RGB")
            x, y, w, h = draw["crop"]
            check(w > 0 and h > 0 and x >= 0 and y >= 0 and x + w <= picture.width and y + h <= picture.height,
                  f"crop {draw['crop']} of {key} leaves its {picture.size}")
            reference = picture.crop((x, y, x + w, y + h)).resize((224, 224), filter_number)
            if draw["flip"]:
                reference = ImageOps.mirror(reference)
                flips += 1
            crops.append((key, w * h / (picture.width * picture.height), w / h))
            worst = max(worst, (difference(reference, row), key))
    check(worst[0] <= 1, f"a pixel of {worst[1]} is {worst[0]} away from Pillow's")
    return flips, crops


how_folder = [None]


def test_train_recipe(work):
    how_folder[0], _ = many_kinds(work)
    config = work.config(harness.folder_config(how_folder[0]))
    flips, crops = train_rows(work, config, Image.BILINEAR, steps=18)
    equal(len(crops), 18 * BATCH, "rows")
    check(130 <= flips <= 230, f"{flips} of {len(crops)} flipped: not one half")
    outside = [c for c in crops if not (0.07 <= c[1] <= 1 and 0.74 <= c[2] <= 1.35)]
    check(not outside, f"crops outside the law: {outside[:3]}")
    areas = [c[1] for c in crops]
    check(min(areas) < 0.2 and max(areas) > 0.8, f"areas from {min(areas):.2f} to {max(areas):.2f}: too narrow for 8 to 100 %")


def test_train_bicubic(work):
    how_folder[0], _ = many_kinds(work)
    config = work.config(f"""datasets:
  p:
    source: {{folder: {how_folder[0]}}}
    fields:
      image: {{from: jpg, decode: image, ops: [{{random_resized_crop: {{size: 224, scale: [0.3, 1.0], filter: bicubic}}}}, {{random_flip: {{p: 0.5}}}}],
               dtype: uint8, layout: nhwc}}
    order: {{shuffle: global}}
""")
    _, crops = train_rows(work, config, Image.BICUBIC, steps=6)
    check(all(c[1] >= 0.29 for c in crops), "a crop is smaller than the scale allows")


def test_forms_of_the_output(work):
    """float32 nchw normalised holds the values of uint8 nhwc; labels are the class numbers."""
    folder = harness.photos(300)
    base = "    source: {folder: %s}\n    preset: imagenet-eval\n" % folder
    plain, other = work.path / "plain", work.path / "other"
    one = work.pull("p", batch=8, steps=2, out=plain, config=work.config("datasets:\n  p:\n" + base))
    more = f"    normalize: {{mean: {list(MEAN)}, std: {list(DEVIATION)}}}\n    dtype: float32\n    layout: nchw\n"
    two = work.pull("p", batch=8, steps=2, out=other, config=work.config("datasets:\n  p:\n" + base + more))
    for (line, bytes_), (_, floats) in zip(arrays(work, one, plain), arrays(work, two, other)):
        equal((bytes_.dtype, floats.dtype), (np.dtype("uint8"), np.dtype("float32")), "dtypes")
        wanted = (bytes_.astype(np.float64) / 255 - MEAN) / DEVIATION
        off = np.abs(wanted.transpose(0, 3, 1, 2) - floats).max()
        check(off < 1e-5, f"normalised values are off by {off}")
        labels = np.load(plain / f"{line['epoch']:04d}-{line['step']:08d}.label.npy")
        equal(labels.dtype, np.dtype("int64"), "dtype of labels")
        equal(labels.tolist(), [int(key[5:7]) for key in line["keys"]], "labels")


if __name__ == "__main__":
    harness.main(globals())
