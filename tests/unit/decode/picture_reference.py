#!/usr/bin/python3
"""Picture files of many kinds, each with the pixels that are right. Exit 77: Pillow is missing.

usage: picture_reference.py      To standard output, one behind the other: a line "NAME WIDTH HEIGHT ORIENTATION FILE_BYTES SLACK" and
                                 the file and its 3 * WIDTH * HEIGHT bytes R, G, B, as they are stored.

The pixels are Pillow's where Pillow is right. SLACK is how far a value may be off: 1 where Pillow cuts and we round. Pictures of 16 bits are
computed here, because Pillow clips or cuts them.
"""
import io
import random
import struct
import sys
import warnings
import zlib

try:
    from PIL import Image
except ImportError:
    sys.exit(77)

warnings.simplefilter("ignore")
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
rng = random.Random(3)


def emit(name, data, pixels, size, orientation=1, slack=0):
    sys.stdout.buffer.write(f"{name} {size[0]} {size[1]} {orientation} {len(data)} {slack}\n".encode() + data + pixels)


def by_pillow(name, data, slack=0):
    picture = Image.open(io.BytesIO(data))
    orientation = picture.getexif().get(0x0112, 1)
    emit(name, data, picture.convert("RGB").tobytes(), picture.size, orientation, slack)


def drawing(width, height, mode="RGB"):
    """Slopes with noise."""
    bands = len(mode)
    values = bytes((x * (5 + c) + y * (9 - 2 * c) + rng.randrange(30)) & 255
                   for y in range(height) for x in range(width) for c in range(bands))
    return Image.frombytes(mode, (width, height), values)


def saved(picture, form, **how):
    out = io.BytesIO()
    picture.save(out, form, **how)
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(samples, depth):
    """Samples of a row as bytes."""
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(width, height, depth, colour, samples, extra=b"", interlaced=False):
    """samples[y][x]: a tuple of channels. Rows have no filter and the left one, by turns."""
    def rows(x0, y0, dx, dy):
        data = b""
        step = max(1, depth * len(samples[0][0]) // 8)
        for n, y in enumerate(range(y0, height, dy)):
            row = packed([c for x in range(x0, width, dx) for c in samples[y][x]], depth)
            if not row:
                return b""
            if n % 2:
                row = b"\1" + bytes((row[i] - (row[i - step] if i >= step else 0)) & 255 for i in range(len(row)))
            else:
                row = b"\0" + row
            data += row
        return data
    data = b"".join(rows(*p) for p in PASSES) if interlaced else rows(0, 0, 1, 1)
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    middle = zlib.compress(data)
    cut = len(middle) // 3
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", middle[:cut]) + chunk(b"IDAT", middle[cut:])
            + chunk(b"IEND", b""))


def random_samples(width, height, channels, depth):
    return [[tuple(rng.randrange(1 << depth) for _ in range(channels)) for _ in range(width)] for _ in range(height)]


def png_files():
    for interlaced in (False, True):
        for depth, colour, channels in ((1, 0, 1), (2, 0, 1), (4, 0, 1), (8, 0, 1), (8, 2, 3), (8, 4, 2), (8, 6, 4),
                                        (1, 3, 1), (2, 3, 1), (4, 3, 1), (8, 3, 1)):
            for width, height in ((1, 1), (3, 2), (5, 9), (33, 17)):
                extra = b""
                if colour == 3:
                    palette = bytes(rng.randrange(256) for _ in range(3 << depth))
                    extra = chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(rng.randrange(256) for _ in range(1 << (depth - 1))))
                elif colour == 0:
                    extra = chunk(b"tRNS", b"\0\1")
                extra += chunk(b"gAMA", struct.pack(">I", 22000))
                samples = random_samples(width, height, channels, depth)
                by_pillow(f"png-{depth}-{colour}-{interlaced}", png(width, height, depth, colour, samples, extra, interlaced))
        for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
            samples = random_samples(19, 7, channels, 16)
            grey = channels <= 2
            pixels = bytes((2 * v + 257) // 514 for row in samples for p in row for v in ([p[0]] * 3 if grey else p[:3]))
            emit(f"png-16-{colour}-{interlaced}", png(19, 7, 16, colour, samples, b"", interlaced), pixels, (19, 7))
    exif = Image.Exif()
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        by_pillow("png-exif", saved(drawing(9, 6), "PNG", exif=exif))
    by_pillow("png-animated", saved(drawing(20, 10), "PNG", save_all=True, append_images=[drawing(20, 10)], duration=50))
    by_pillow("png-other-default", saved(drawing(20, 10), "PNG", save_all=True, default_image=True, append_images=[drawing(20, 10)]))
    by_pillow("png-large", saved(drawing(200, 150, "RGBA"), "PNG", optimize=True))


def webp_files():
    exif = Image.Exif()
    for n, (width, height) in enumerate(((1, 1), (2, 3), (17, 33), (64, 48), (131, 77))):
        exif[0x0112] = n + 2
        by_pillow("webp-lossy", saved(drawing(width, height), "WEBP", quality=40 + 12 * n))
        by_pillow("webp-lossy-alpha", saved(drawing(width, height, "RGBA"), "WEBP", quality=80, exact=True))
        by_pillow("webp-lossless", saved(drawing(width, height), "WEBP", lossless=True, exif=exif))
        by_pillow("webp-lossless-alpha", saved(drawing(width, height, "RGBA"), "WEBP", lossless=True, exact=True))
        by_pillow("webp-icc", saved(drawing(width, height), "WEBP", icc_profile=b"junk" * 100))
        frames = [drawing(width, height, "RGBA") for _ in range(3)]
        by_pillow("webp-animated", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=40, lossless=n % 2 == 0))


def bmp_head(width, height, bits, packing, data, palette=b"", masks=b""):
    offset = 54 + len(masks) + len(palette)
    return (b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset)
            + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, len(data), 2835, 2835, len(palette) // 4, 0) + masks + palette + data)


def bmp_files():
    for width, height in ((1, 1), (5, 4), (33, 9)):
        colour = drawing(width, height)
        by_pillow("bmp-24", saved(colour, "BMP"))
        by_pillow("bmp-8", saved(colour.convert("P", palette=Image.ADAPTIVE), "BMP"))
        by_pillow("bmp-grey", saved(colour.convert("L"), "BMP"))
        by_pillow("bmp-1", saved(colour.convert("1"), "BMP"))
        rows = [bytes(rng.randrange(256) for _ in range(4 * width)) for _ in range(height)]
        for high in (height, -height):
            by_pillow("bmp-32", bmp_head(width, high, 32, 0, b"".join(rows)))
            by_pillow("bmp-32-masks", bmp_head(width, high, 32, 3, b"".join(rows), masks=struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)))
            words = [row[:2 * width] + bytes(-2 * width % 4) for row in rows]
            by_pillow("bmp-555", bmp_head(width, high, 16, 0, b"".join(words)), 1)
            by_pillow("bmp-565", bmp_head(width, high, 16, 3, b"".join(words), masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)), 1)
        palette = bytes(rng.randrange(256) for _ in range(64))
        nibbles = [row[:(width + 1) // 2] + bytes(-((width + 1) // 2) % 4) for row in rows]
        by_pillow("bmp-4", bmp_head(width, height, 4, 0, b"".join(nibbles), palette))
        runs, left = b"", random.Random(width)
        for _ in range(height):
            x = 0
            while x < width:
                count = min(width - x, left.randrange(1, 9))
                runs += bytes([count, left.randrange(16)])
                x += count
            runs += b"\0\0"
        by_pillow("bmp-runs", bmp_head(width, height, 8, 1, runs + b"\0\1", palette))


def gif_blocks(data):
    return b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255)) + b"\0"


def gif_codes(pixels, least_bits):
    """A packer: runs of the table until it is full, then on with that table, then a clear code."""
    clear, end = 1 << least_bits, (1 << least_bits) + 1
    bits = count = 0

    def put(code, size):
        nonlocal bits, count
        bits, count = bits | code << count, count + size

    table, size, run = {(i,): i for i in range(clear)}, least_bits + 1, ()
    put(clear, size)
    for n, pixel in enumerate(pixels):
        if run + (pixel,) in table:
            run += (pixel,)
            continue
        put(table[run], size)
        if len(table) + 2 < 4096:
            table[run + (pixel,)] = len(table) + 2
            if len(table) + 1 == 1 << size and size < 12:  # the reader is one entry behind
                size += 1
        elif n % 3 == 0:
            put(clear, size)
            table, size = {(i,): i for i in range(clear)}, least_bits + 1
        run = (pixel,)
    put(table[run], size)
    put(end, size)
    return bytes([least_bits]) + gif_blocks(bits.to_bytes((count + 7) // 8, "little"))


def gif(canvas, frame, pixels, bits=8, palette=None, local=None, transparent=None, interlaced=False):
    """frame: x, y, width, height. pixels[y][x]: an index."""
    def flags(colours):
        return 0x80 | (len(colours) // 3 - 1).bit_length() - 1 if colours else 0
    rows = pixels
    if interlaced:
        rows = [pixels[y] for start, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(start, len(pixels), step)]
    control = b"!\xf9\4\1\0\0" + bytes([transparent]) + b"\0" if transparent is not None else b""
    return (b"GIF89a" + struct.pack("<HHBBB", *canvas, flags(palette), 0, 0) + (palette or b"") + b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0" + control
            + b"," + struct.pack("<HHHHB", *frame, flags(local) | (0x40 if interlaced else 0)) + (local or b"")
            + gif_codes([p for row in rows for p in row], max(2, bits)) + b";")


def gif_files():
    def colours(bits):
        return bytes(rng.randrange(256) for _ in range(3 << bits))
    for width, height in ((1, 1), (3, 2), (33, 17), (200, 150)):
        by_pillow("gif-saved", saved(drawing(width, height).convert("P", palette=Image.ADAPTIVE), "GIF"))
        by_pillow("gif-grey", saved(drawing(width, height, "L"), "GIF", interlace=0))
        frames = [drawing(width, height).convert("P", palette=Image.ADAPTIVE) for _ in range(3)]
        by_pillow("gif-animated", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=40))
        for bits in (1, 2, 5, 8):
            for interlaced in (False, True):
                pixels = [[min(rng.randrange(1 << bits), (x * y) >> 3 & (1 << bits) - 1) for x in range(width)] for y in range(height)]
                by_pillow(f"gif-{bits}-{interlaced}", gif((width, height), (0, 0, width, height), pixels, bits, colours(bits), interlaced=interlaced))
                by_pillow(f"gif-local-{bits}", gif((width, height), (0, 0, width, height), pixels, bits, colours(3), local=colours(bits), interlaced=interlaced))
                by_pillow(f"gif-transparent-{bits}", gif((width, height), (0, 0, width, height), pixels, bits, colours(bits), transparent=1))
                # The frame is a part of the canvas, or reaches beyond it.
                by_pillow(f"gif-part-{bits}", gif((width + 7, height + 5), (3, 2, width, height), pixels, bits, colours(bits), interlaced=interlaced))
                by_pillow(f"gif-part-transparent-{bits}", gif((width + 7, height + 5), (3, 2, width, height), pixels, bits, colours(bits), transparent=1))
                by_pillow(f"gif-beyond-{bits}", gif((1, 1), (2, 1, width, height), pixels, bits, colours(bits)))
    noise = [[rng.randrange(256) for _ in range(120)] for _ in range(90)]  # fills the table
    by_pillow("gif-noise", gif((120, 90), (0, 0, 120, 90), noise, 8, colours(8)))


def pnm_files():
    for width, height in ((1, 1), (7, 3), (40, 11)):
        colour = drawing(width, height)
        by_pillow("ppm", saved(colour, "PPM"))
        by_pillow("pgm", saved(colour.convert("L"), "PPM"))
        by_pillow("pbm", saved(colour.convert("1"), "PPM"))
        for most in (3, 15, 31, 127, 201):
            values = [rng.randrange(most + 1) for _ in range(3 * width * height)]
            by_pillow(f"ppm-{most}", f"P6\n#{most}\n{width} {height} {most}\n".encode() + bytes(values))
            by_pillow(f"pgm-{most}", f"P5 {width} {height} {most}\n".encode() + bytes(values[:width * height]))
            by_pillow(f"ppm-text-{most}", f"P3 {width} {height} {most} ".encode() + " ".join(map(str, values)).encode() + b"\n")
            by_pillow(f"pgm-text-{most}", f"P2 {width}\n{height}\n{most}\n".encode() + "\n".join(map(str, values[:width * height])).encode() + b"\n")
        for most in (256, 1023, 65535):
            values = [rng.randrange(most + 1) for _ in range(3 * width * height)]
            pixels = bytes((2 * 255 * v + most) // (2 * most) for v in values)
            data = struct.pack(f">{len(values)}H", *values)
            emit(f"ppm-{most}", f"P6 {width} {height} {most}\n".encode() + data, pixels, (width, height))
            pixels = bytes(p for p in pixels[:width * height] for _ in range(3))
            emit(f"pgm-{most}", f"P5 {width} {height} {most}\n".encode() + data[:2 * width * height], pixels, (width, height))
        bits = "".join(rng.choice("01") + rng.choice(["", " ", "\n"]) for _ in range(width * height))
        by_pillow("pbm-text", f"P1 {width} {height}\n{bits}".encode() + b"\n")


png_files()
webp_files()
bmp_files()
gif_files()
pnm_files()
