#!/usr/bin/python3
"""Carries out picture operations with Pillow, one after the other, in torchvision's meaning.

usage: pillow_reference.py FILE    Exit 77: Pillow is missing.

FILE holds cases, one behind the other: a line "WIDTH HEIGHT OPERATION …" (operations have their
arguments joined by colons) and 3 * WIDTH * HEIGHT bytes R, G, B. The results' bytes go to standard
output. Operations: resize:HEIGHT:WIDTH:FILTER (width 0: the short side becomes HEIGHT),
center_crop:HEIGHT:WIDTH, crop:X:Y:WIDTH:HEIGHT, hflip, vflip.
"""
import sys

try:
    from PIL import Image
except ImportError:
    sys.exit(77)


def resize(picture, height, width, name):
    w, h = picture.size
    if width == 0:
        short, long = (w, h) if w <= h else (h, w)
        new_short, new_long = height, int(height * long / short)
        width, height = (new_short, new_long) if w <= h else (new_long, new_short)
    return picture.resize((width, height), getattr(Image, name.upper()))


def center_crop(picture, height, width):
    w, h = picture.size
    if width > w or height > h:
        left, top = max(width - w, 0) // 2, max(height - h, 0) // 2
        padded = Image.new("RGB", (max(w, width), max(h, height)))
        padded.paste(picture, (left, top))
        picture, (w, h) = padded, padded.size
    x, y = int(round((w - width) / 2.0)), int(round((h - height) / 2.0))
    return picture.crop((x, y, x + width, y + height))


def apply(picture, operation):
    name, *arguments = operation.split(":")
    numbers = [int(a) for a in arguments if a.isdigit()]
    if name == "resize":
        return resize(picture, *numbers, arguments[-1])
    if name == "center_crop":
        return center_crop(picture, *numbers)
    if name == "crop":
        x, y, w, h = numbers
        return picture.crop((x, y, x + w, y + h))
    flips = {"hflip": Image.FLIP_LEFT_RIGHT, "vflip": Image.FLIP_TOP_BOTTOM}
    return picture.transpose(flips[name])


def main(path):
    with open(path, "rb") as f:
        while line := f.readline():
            width, height, *operations = line.decode().split()
            size = (int(width), int(height))
            picture = Image.frombytes("RGB", size, f.read(3 * size[0] * size[1]))
            for operation in operations:
                picture = apply(picture, operation)
            sys.stdout.buffer.write(picture.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
