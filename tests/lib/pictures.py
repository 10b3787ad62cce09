"""Picture files for tests, mostly put together byte by byte, so that what is in them does not depend on a codec; and a table to lay them on.

show() puts files into a folder, each bad one followed by a good one, reads them through a daemon of its own again and again and checks what holds for
every picture whatever is wrong with it. It returns the pixels and the faults.
"""
import io
import pathlib
import random
import struct
import subprocess
import zlib

import harness
import numpy as np
from harness import check, equal
from PIL import Image

# --- PNG ---


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, colour, rows, extra=b"", behind=b""):
    """rows: the stored bytes of each line. extra and behind: chunks before and behind the pixels."""
    return png_of_data(width, height, depth, colour, zlib.compress(b"".join(b"\0" + bytes(row) for row in rows)), extra, behind)


def png_of_data(width, height, depth, colour, packed, extra=b"", behind=b"", interlace=0):
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + extra + png_chunk(b"IDAT", packed) + behind + png_chunk(b"IEND", b"")


def bits_of(values, depth):
    """A line of values packed into bytes, the first in the highest bits."""
    line = "".join(f"{value:0{depth}b}" for value in values)
    line += "0" * (-len(line) % 8)
    return int(line, 2).to_bytes(len(line) // 8, "big")


def png_interlaced(depth, colour, samples, extra=b""):
    """samples: an array [height, width, channels] of values as they are stored."""
    height, width, _ = samples.shape
    lines = []
    for y, x, down, right in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
        part = samples[y::down, x::right]
        if part.size:
            lines += [b"\0" + bits_of([int(v) for v in line.reshape(-1)], depth) for line in part]
    return png_of_data(width, height, depth, colour, zlib.compress(b"".join(lines)), extra, interlace=1)


def png_rgb(pixels, extra=b"", behind=b""):
    return png(pixels.shape[1], pixels.shape[0], 8, 2, [row.tobytes() for row in pixels], extra, behind)


# --- BMP and PNM ---


def bmp(width, height, bits, packing, data, palette=b"", masks=b"", head_bytes=40):
    """The head of 40 bytes; of 12 where that is asked for, and longer ones filled up with zeroes."""
    if head_bytes == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", head_bytes, width, height, 1, bits, packing, len(data), 2835, 2835, len(palette) // 4, 0)
        head += (masks if head_bytes > 40 else b"").ljust(head_bytes - 40, b"\0") + (masks if head_bytes == 40 else b"")
    offset = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + head + palette + data


def bmp_rows(lines, bits):
    """Stored lines, each filled up to four bytes; from below."""
    return b"".join(line + b"\0" * (-len(line) % 4) for line in reversed(lines)) if bits else b""


def bmp_24(pixels):
    return bmp(pixels.shape[1], pixels.shape[0], 24, 0, bmp_rows([row[:, ::-1].tobytes() for row in pixels], 24))


def ppm(pixels):
    return b"P6 %d %d 255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


# --- EXIF ---


def exif(orientation, big=False):
    """The TIFF part that has one entry, the orientation."""
    order = ">" if big else "<"
    return (b"MM" if big else b"II") + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


# --- JPEG ---


def cjpeg(pixels, *options):
    call = ["cjpeg", *map(str, options)]
    return subprocess.run(call, input=ppm(pixels), stdout=subprocess.PIPE, check=True).stdout


def pillow(picture, form, **how):
    out = io.BytesIO()
    picture.save(out, form, **how)
    return out.getvalue()


def segment(marker, data):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def behind_soi(jpeg, *segments):
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def exif_segment(tiff):
    return segment(0xE1, b"Exif\0\0" + tiff)


def place_of(jpeg, *markers):
    """Where the first marker of these is; entropy-coded bytes are not looked at."""
    at = 2
    while at + 4 <= len(jpeg):
        if jpeg[at + 1] in markers:
            return at
        at += 2 + int.from_bytes(jpeg[at + 2:at + 4], "big")
        while jpeg[at] != 0xFF or jpeg[at + 1] == 0 or 0xD0 <= jpeg[at + 1] <= 0xD7:
            at += 1
    raise ValueError(f"no marker {markers}")


FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)


def changed(data, at, *values):
    """The bytes with others from `at` on."""
    return data[:at] + bytes(values) + data[at + len(values):]


def with_size(jpeg, width, height):
    return changed(jpeg, place_of(jpeg, *FRAMES) + 5, height >> 8, height & 255, width >> 8, width & 255)


# --- pictures ---

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def solid(width, height, colour):
    return np.full((height, width, len(colour)), colour, np.uint8)


def slopes(width, height):
    """A smooth picture: (4x, 5y, their mean), modulo 256."""
    y, x = np.mgrid[:height, :width]
    return np.stack([4 * x, 5 * y, (4 * x + 5 * y) // 2], 2).astype(np.uint8)


def quadrants(width, height, colours=(RED, GREEN, BLUE, WHITE)):
    pixels = np.zeros((height, width, 3), np.uint8)
    for number, colour in enumerate(colours):
        y, x = divmod(number, 2)
        pixels[y * height // 2:(y + 1) * height // 2, x * width // 2:(x + 1) * width // 2] = colour
    return pixels


def detailed(width, height, seed=0):
    """Slopes, edges and noise."""
    noise = np.random.default_rng(seed).integers(0, 40, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    return (slopes(width, height) // 2 + ((x // 9 + y // 7) % 2 * 80)[:, :, None] + noise).astype(np.uint8)


# --- the table ---

GOOD = png(1, 1, 8, 2, [b"\x09\x08\x07"])


class Table:
    """What show() saw: `pixels` of the good ones, `faults` of the others as the quarantine lists them."""

    def __init__(self):
        self.pixels, self.faults, self.grown_bytes = {}, {}, 0

    def classes(self):
        return {key: fault["class"] for key, fault in self.faults.items()}


def field(ops, more=""):
    return f"{{from: [jpg, png, webp, bmp, ppm, gif], decode: image, ops: [{ops}]{more}}}"


def window(row, width, height):
    """The picture in the middle of a larger row."""
    top, left = (row.shape[0] - height) // 2, (row.shape[1] - width) // 2
    return row[top:top + height, left:left + width]


def status_of(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def open_files(work, pid, name):
    return harness.descriptor_count(pid, but_under=work.path / name)


def write_files(folder, files):
    folder.mkdir()
    for key, data in files.items():
        (folder / key).write_bytes(data)
        (folder / f"{key}~next.png").write_bytes(GOOD)


def show(work, files, ops=None, more="", side=80, epochs=4, sets=(), seed=0):
    """Reads the files (name: bytes) in order on one thread, `epochs` times over. Without `ops` the pixels are those of the file, in the middle of a row of
    side x side."""
    name = f"table-{len(work.daemons)}"
    write_files(work.path / name, files)
    ops = ops or f"{{center_crop: {{size: [{side}, {side}]}}}}"
    config = work.config(f"datasets:\n  p:\n    source: {{folder: {work.path / name}}}\n    fields:\n      image: {field(ops, more)}\n"
                         "    order: {shuffle: none}\n    last: partial\n    on_error: {policy: mask, max_rate: 1, max_consecutive: 10000}\n")
    daemon = work.daemon(config, "threads.decode=1", *sets)
    table, out, count = Table(), work.path / f"out-{name}", 2 * len(files)
    first = work.pull("p", batch=count, steps=1, seed=seed, out=out)
    rows = np.load(out / "0000-00000000.image.npy")
    pids = [daemon.pid, *daemon.workers()]
    before = [(open_files(work, pid, name), status_of(pid, "VmRSS")) for pid in pids]
    lines = work.pull("p", batch=count, steps=epochs - 1, seed=seed, epoch=1) if epochs > 1 else []
    equal([daemon.pid, *daemon.workers()], pids, "processes after the pictures")
    for pid, (descriptors, resident) in zip(pids, before):
        harness.wait_until(lambda: open_files(work, pid, name) <= descriptors, 5, f"there are no more than {descriptors} descriptors after the repeats")  # noqa: B023
        table.grown_bytes = max(table.grown_bytes, status_of(pid, "VmRSS") - resident)
    table.faults = {fault["key"]: fault for fault in work.ctl("quarantine", "p").document}
    for line in first + lines:
        equal({e["key"]: e["class"] for e in line["errors"]}, table.classes(), f"classes in epoch {line['epoch']}")
        equal((line["rows"], line["valid"]), (count, count - len(table.faults)), "rows and valid rows")
    check_faults(table, epochs, files)
    for row, key in zip(rows, first[0]["keys"]):
        if key in files and key not in table.faults:
            table.pixels[key] = row
        elif key in files:
            check(not row.any(), f"the masked row of {key} is not zero")
        elif not ops.startswith("{random"):
            check((window(row, 1, 1) == ((9, 8, 7) if row.shape[2] == 3 else 8)).all(), f"the sample behind {key[:-9]} is not right")
    daemon.stop()
    return table


def check_faults(table, epochs, files):
    for key, fault in table.faults.items():
        check(key in files, f"{key} failed: {fault}")
        equal(fault["count"], epochs, f"failures of {key}")
        equal((fault["source"], fault["offset"]), (key, 0), f"where {key} is")
        check(fault["message"].strip(), f"no message for {key}")
        check(fault["class"] == "EMPTY" or fault["fault"] is not None and 0 <= fault["fault"] <= len(files[key]), f"{key} has no place: {fault}")


def chance(name):
    """The generator of a row's variants."""
    return random.Random(name)


def far(found, wanted):
    """The largest difference."""
    return int(np.abs(found.astype(int) - np.asarray(wanted, int)).max())
