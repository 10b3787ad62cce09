#!/usr/bin/python3
"""Real photographs for tests and the demo, cut out of Debian's MATE wallpapers (package mate-backgrounds, free licences: its
copyright file has them). The same count gives the same pictures. They are made where they are used and kept beside the build.

usage: photos.py FOLDER [COUNT]      FOLDER/classNN/imgNNNNN.jpg, 400 by default: 300 to 640 pixels a side, 4:2:0
"""
import fcntl
import glob
import multiprocessing
import os
import random
import shutil
import sys

SIDES = [(500, 375), (500, 333), (375, 500), (500, 500), (480, 360), (500, 400), (640, 480), (400, 300)]
CLASSES = 10


class NoWallpapers(Exception):
    pass


def make_share(job):
    """One process's share: whole wallpapers, so that each is decoded once."""
    from PIL import Image  # not needed by callers whose pictures are there already

    folder, path, numbers = job
    whole = Image.open(path).convert("RGB")
    for number in numbers:
        rng = random.Random(1000 + number)
        width, height = rng.choice(SIDES)
        room = min(whole.width / width, whole.height / height)
        zoom = rng.uniform(1.0, min(2.0, room)) if room > 1 else 1.0
        w, h = min(whole.width, int(width * zoom)), min(whole.height, int(height * zoom))
        x, y = rng.randint(0, whole.width - w), rng.randint(0, whole.height - h)
        cut = whole.resize((width, height), Image.LANCZOS, box=(x, y, x + w, y + h))
        cut.save(f"{folder}/class{number % CLASSES:02d}/img{number:05d}.jpg", quality=97, subsampling="4:2:0")


def make(folder, count=400):
    """Makes the pictures unless `folder` is there; several processes may ask at once. Returns the folder."""
    if os.path.isdir(folder):
        return folder
    wallpapers = sorted(glob.glob("/usr/share/backgrounds/mate/nature/*.jpg"))
    if not wallpapers:
        raise NoWallpapers("no wallpapers to cut photographs from: Debian package mate-backgrounds (scripts/install-deps)")
    os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            return folder
        part = folder + ".part"
        shutil.rmtree(part, ignore_errors=True)
        for number in range(CLASSES):
            os.makedirs(f"{part}/class{number:02d}")
        jobs = [(part, path, range(k, count, len(wallpapers))) for k, path in enumerate(wallpapers)]
        # fork: a spawning pool leaves a process of its own behind, and tests count what stays
        with multiprocessing.get_context("fork").Pool() as pool:
            pool.map(make_share, jobs, chunksize=1)
        os.rename(part, folder)
    return folder


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        print(make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 400))
    except NoWallpapers as error:
        sys.exit(str(error))
