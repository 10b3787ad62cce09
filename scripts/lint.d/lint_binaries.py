"""What can be seen in the programs: exported names, linked libraries, symbols that a process must not have, dead objects."""
import functools
import os
import re
import subprocess

CODECS = re.compile(r"lib(jpeg|turbojpeg|png|avcodec|avformat|webp|tiff|openjp2)")
NETWORK = re.compile(r"lib(uring|curl|protobuf-c|yaml|ssl|nghttp2|systemd)")
# The worker talks on the socket it was given; it makes none, and asks for no name.
NETWORK_CALLS = set("socket socketpair connect bind listen accept accept4 getaddrinfo gethostbyname gethostbyname_r res_query "
                    "execve execv execvp execl posix_spawn fork vfork system popen".split())


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))


@functools.lru_cache(None)
def symbols(path, *options):
    """[(type, name)]; names without versions."""
    found = []
    for line in run("nm", *options, path).splitlines():
        parts = line.split()
        if len(parts) >= 2:
            found.append((parts[-2], parts[-1].split("@")[0]))
    return found


def missing(args, *names):
    for name in names:
        if not os.path.exists(os.path.join(args.build, name)):
            yield f"{args.build}/{name}:1: is not built"


def check_exports(args):
    """The shared library exports spdl_… alone; whatever can be linked into a rank defines spdl_… alone."""
    library = os.path.join(args.build, "libspdl-client.so.0")
    if not os.path.exists(library):
        yield from missing(args, "libspdl-client.so.0")
        return
    for kind, name in symbols(library, "-D", "--defined-only"):
        if not name.startswith("spdl_") and kind in "TDBRVWi":
            yield f"{library}:1: exports {name}"
    for path in objects(args):
        if not re.match(r"(client/[^/]+|shm/|proto/|gpu/|gen/proto/)", path.split("/obj/")[1]) or "/examples/" in path:
            continue
        for kind, name in symbols(path, "--defined-only", "--extern-only"):
            if not re.match(r"spdl_", name) and not re.match(r"client/(ctl|examples)/", path.split("/obj/")[1]):
                yield f"{path}:1: defines {name}: names that can be linked into a rank begin with spdl_"


def check_codecs(args):
    yield from missing(args, "spdld")
    path = os.path.join(args.build, "spdld")
    if not os.path.exists(path):
        return
    for library in needed(path):
        if CODECS.match(library):
            yield f"{path}:1: links {library}: there is no codec where the keys are"
    for _, name in symbols(path):
        if re.match(r"(jpeg_|tj3?[A-Z]|png_|WebP|decode_(jpeg|png|webp|bmp|gif|pnm)|avcodec_)", name):
            yield f"{path}:1: holds {name}: there is no codec where the keys are"


def check_network(args):
    yield from missing(args, "spdld-worker")
    path = os.path.join(args.build, "spdld-worker")
    if not os.path.exists(path):
        return
    for library in needed(path):
        if NETWORK.match(library):
            yield f"{path}:1: links {library}: a worker has no network, no files and no protocol"
    for _, name in symbols(path, "--undefined-only"):
        if name in NETWORK_CALLS:
            yield f"{path}:1: calls {name}: a worker has no network and starts nothing"


def objects(args):
    base = os.path.join(args.build, "obj")
    for folder, _, names in sorted(os.walk(base)):
        for name in sorted(names):
            if name.endswith(".o"):
                yield os.path.join(folder, name)


def check_dead_objects(args):
    """A file of the product that no other file of the product needs, and functions that nothing calls."""
    wanted, from_tests = set(), set()
    own = [path for path in objects(args) if not path.split("/obj/")[1].startswith("tests/")]
    for path in objects(args):
        (wanted if path in own else from_tests).update(name for _, name in symbols(path, "--undefined-only"))
    for path in own:
        short = path.split("/obj/")[1][:-2] + ".c"
        if not os.path.exists(short):
            continue
        defined = [name for kind, name in symbols(path, "--defined-only", "--extern-only") if kind in "TDBR"]
        if "main" in defined or re.match(r"client/client", short) or not defined:
            continue
        if not wanted.intersection(defined):
            yield f"{short}:1: no other file of the product uses this one"
            continue
        for name in defined:
            if name not in wanted and name not in from_tests:
                yield f"{short}:1: warning: {name} is used in this file alone: make it static, or take it away"


CHECKS = {"exports": check_exports, "codecs": check_codecs, "network": check_network, "dead-objects": check_dead_objects}
