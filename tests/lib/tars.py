"""Tar shards for tests, made of a folder of pictures."""
import io
import pathlib
import tarfile


def members_of(folder, suffix=""):
    """(name, bytes) of two members a picture, in the order of the folder's samples: the picture, and its class as text."""
    classes = sorted(entry.name for entry in pathlib.Path(folder).iterdir() if entry.is_dir())
    for path in sorted(pathlib.Path(folder).glob("*/*.jpg"), key=lambda p: str(p.relative_to(folder)).encode()):
        key = f"{path.parent.name}/{path.stem}{suffix}"
        yield f"{key}.jpg", path.read_bytes()
        yield f"{key}.cls", f"{classes.index(path.parent.name)}\n".encode()


def write(path, members, form=tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def shards(folder, where, per_shard=100, form=tarfile.USTAR_FORMAT, suffix="", apart=False):
    """WHERE/shard-NNN.tar; with `apart` the classes of a shard come behind all its pictures, in reverse order. Returns the pattern."""
    members = list(members_of(folder, suffix))
    where.mkdir(exist_ok=True)
    count = -(-len(members) // (2 * per_shard))
    for number in range(count):
        share = members[number * 2 * per_shard:(number + 1) * 2 * per_shard]
        if apart:
            share = share[::2] + share[1::2][::-1]
        write(where / f"shard-{number:03d}.tar", share, form)
    return str(where / f"shard-{{000..{count - 1:03d}}}.tar")


def config(pattern, preset="imagenet-train", more=""):
    return f"datasets:\n  p:\n    source: {{tar: \"{pattern}\"}}\n    preset: {preset}\n{more}"
