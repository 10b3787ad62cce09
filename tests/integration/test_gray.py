#!/usr/bin/python3
"""Fields of one channel: what Pillow's mode L gives, beside RGB from the same decode, in every dtype and layout, turned and not."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
import harness  # noqa: E402
from harness import check, equal  # noqa: E402

SIZE = 48
OPS = f"ops: [{{resize: {{size: [{SIZE}, {SIZE}], filter: bicubic}}}}]"


def pictures(work):
    """Photographs in colour and in gray, as JPEG and PNG, in two orientations."""
    folder, shown = work.path / "p", {}
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:12]):
        picture = Image.open(path).convert("L" if i % 4 == 3 else "RGB")
        exif = Image.Exif()
        exif[0x0112] = 1 if i % 3 else 6
        name = f"{i:02d}.{'png' if i % 2 else 'jpg'}"
        picture.save(folder / name, exif=exif)
        stored = Image.open(folder / name).convert("RGB")
        shown[name] = stored if i % 3 else stored.transpose(Image.Transpose.ROTATE_270)
    return folder, shown


def array(out, name):
    return np.load(out / f"0000-00000000.{name}.npy")


def test_against_pillow(work):
    folder, shown = pictures(work)
    fields = {"gray": "mode: gray", "colour": "mode: rgb", "planes": "mode: gray, layout: nchw", "floats": "mode: gray, dtype: float32, normalize: {mean: [0.25], std: [0.5]}",
              "halves": "mode: gray, dtype: float16", "seen": "mode: gray, views: 2"}
    text = f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields:\n"
    text += "".join(f"      {name}: {{from: [jpg, png], decode: image, {OPS}, {words}}}\n" for name, words in fields.items())
    out, config = work.path / "out", work.config(text)
    line = work.pull("p", batch=12, hash=True, out=out, config=config)[0]
    equal((line["valid"], sorted(line["keys"])), (12, sorted(shown)), "samples")
    gray = array(out, "gray")
    equal((gray.shape, array(out, "planes").shape, array(out, "seen").shape), ((12, SIZE, SIZE, 1), (12, 1, SIZE, SIZE), (12, 2, SIZE, SIZE, 1)), "shapes")
    for row, key in enumerate(line["keys"]):
        how = ((SIZE, SIZE), Image.Resampling.BICUBIC)
        wanted = np.asarray(shown[key].convert("L").resize(*how))
        equal(gray[row, :, :, 0].tolist(), wanted.tolist(), f"{key} in gray")
        check((array(out, "colour")[row] == np.asarray(shown[key].resize(*how))).all(), f"{key} in colour")
    check((array(out, "planes")[:, 0] == gray[:, :, :, 0]).all(), "planes")
    check((array(out, "seen") == gray[:, None]).all(), "views")
    check((array(out, "halves") == gray.astype(np.float16)).all(), "float16")
    check((array(out, "floats") == ((gray / 255.0 - 0.25) / 0.5).astype(np.float32)).all(), "normalised")
    plain = work.pull("p", batch=12, hash=True, config=work.config(text.replace("mode: rgb, ", "").replace(", mode: rgb", "")))[0]
    equal((plain["fields"], plain["state"]), (line["fields"], line["state"]), "rgb is what a field is without a mode")
    other = work.pull("p", batch=12, config=work.config(text.replace("mode: rgb", "mode: gray")))[0]
    check(other["state"] != line["state"], "another mode is another plan")
    work.ctl("preview", "p", "--batch", "4", "-o", work.path / "sheet.png", config=config)
    check(Image.open(work.path / "sheet.png").size[0] > SIZE, "a sheet")


def test_refused(work):
    folder, _ = pictures(work)
    for words, sentence in (("mode: rgba", "mode is one of rgb gray, not 'rgba'"), ("mode: gray, dtype: float32, normalize: imagenet", "is of three channels"),
                            ("mode: gray, dtype: float32, normalize: {mean: [1, 2, 3], std: [1, 1, 1]}", "mean is a list of 1 numbers")):
        config = work.config(f"datasets:\n  p:\n    source: {{folder: {folder}}}\n    fields:\n      x: {{from: jpg, decode: image, {OPS}, {words}}}\n")
        result = work.ctl("check", config, code=None, as_json=False)
        check(sentence in result.out + result.err and result.code == 1, f"{words}: {result.out} {result.err}")


if __name__ == "__main__":
    harness.main(globals())
