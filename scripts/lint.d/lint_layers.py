"""Who may include what: rooms, and which file names a third-party library."""
import re

from lint_files import c_files, excepted, lines_of

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')

PLUGIN_ROOMS = ("plan", "source", "fetch", "cache", "unpack", "decode", "transform", "sink", "worker")
# Room: the rooms whose headers it may include beside its own. A word with a slash allows that header alone.
MAY_INCLUDE = {
    "shm": (),
    "proto": (),
    "gpu": (),
    "client": ("shm", "proto", "gpu"),
    "base": (),
    "item": ("base", "shm/shm_class.h"),
    "config": ("base", "item"),
    "plan": ("base", "item"),
    "source": ("base", "item"),
    "fetch": ("base", "item"),
    "cache": ("base", "item"),
    "unpack": ("base", "item"),
    "decode": ("base", "item"),
    "transform": ("base", "item"),
    "sink": ("base", "item", "shm", "gpu"),
    # shm: the segments that it makes and the rings that it shares with the worker
    "pipeline": ("base", "item", "config", "shm", *(f"{room}/{room}.h" for room in PLUGIN_ROOMS)),
    "worker": ("base", "item", "shm", "unpack", "decode", "transform", "sink"),
    "control": ("base", "config", "pipeline", "proto", "shm"),
    "metrics": ("base",),
    "service": ("base",),
}
# Header of a library: where it may be named.
LIBRARIES = {
    r"liburing\.h": r"daemon/fetch/fetch_uring\w*\.[ch]",
    r"jpeglib\.h|jerror\.h|turbojpeg\.h": r"daemon/decode/decode_jpeg\w*\.[ch]",
    r"yaml\.h": r"daemon/config/\w+\.[ch]",
    r"protobuf-c/.*|.*\.pb-c\.h": r"(proto|daemon/control|client|client/ctl)/\w+\.[ch]",
    r"png\.h": r"client/ctl/\w+\.[ch]|daemon/decode/decode_png\w*\.c",
    r"webp/.*": r"daemon/decode/decode_webp\w*\.c",
    r"systemd/.*": r"daemon/service/\w+\.[ch]",
    r"xxhash\.h": r"(client/ctl|daemon/(plan|source|base|pipeline|config|control))/\w+\.[ch]",
    r"cmocka\.h": r"tests/.*",
    r"jemalloc/.*": r"daemon/main\w*\.c",
    r"curl/.*": r"daemon/fetch/fetch_http\w*\.c",
    r"libav.*": r"daemon/decode/decode_av\w*\.c",
    r"systemd/.*": r"daemon/service/\w+\.c",
    r"cuda.*": r"gpu/gpu_cuda\w*\.c",
}


def room_of(name):
    parts = name.split("/")
    if parts[0] == "daemon" and len(parts) == 3:
        return parts[1]
    if parts[0] in ("shm", "proto", "gpu", "client") and len(parts) > 1 and parts[1] != "examples":
        return parts[0]
    return None


def included(name):
    for number, line in enumerate(lines_of(name), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_layers(_args):
    for name in c_files():
        room = room_of(name)
        if room is None:
            continue
        if room not in MAY_INCLUDE:
            yield f"{name}:1: the room {room} has no row in the table of scripts/lint.d/lint_layers.py"
            continue
        for number, _, target in included(name):
            other = target.split("/")[0]
            if "/" not in target or other not in MAY_INCLUDE or other == room or (room == "client" and other == "spdl"):
                continue
            allowed = MAY_INCLUDE[room]
            if other not in allowed and target not in allowed and not excepted(name, number, "layers"):
                yield f"{name}:{number}: {room} may not include {target}: only {' '.join(allowed) or 'libc'}"


def check_libraries(_args):
    for name in c_files():
        for number, _, target in included(name):
            for header, place in LIBRARIES.items():
                if not re.fullmatch(header, target) or re.fullmatch(place, name) or name.startswith("tests/"):
                    continue
                if not excepted(name, number, "libraries"):
                    yield f"{name}:{number}: {target} is named in {place} alone"


def check_quotes(_args):
    for name in c_files():
        for number, sign, target in included(name):
            ours = target.split("/")[0] in MAY_INCLUDE and "/" in target
            public = target.startswith("spdl/")
            if ours and sign == "<":
                yield f'{name}:{number}: our own headers are included as "{target}"'
            elif sign == '"' and not ours and not public and room_of(name) and "/" not in target:
                yield f'{name}:{number}: write "{target}" with its room: "room/{target}"'


CHECKS = {"layers": check_layers, "libraries": check_libraries, "quotes": check_quotes}
