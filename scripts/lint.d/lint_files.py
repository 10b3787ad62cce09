"""What the checks share: the files of the tree and the exceptions written in them."""
import functools
import os
import re
import subprocess

COPIED = {"tests/bench/bare_decode.c"}  # kept as it came
BINARY = re.compile(r"\.(png|jpg|jpeg|bin|npy)$")


@functools.lru_cache(None)
def all_files():
    """Every file of the tree that git does not ignore, committed or not."""
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True)
    names = sorted(name for name in out.stdout.decode().split("\0") if name)
    return [name for name in names if os.path.isfile(name)]


def c_files():
    return [name for name in all_files() if name.endswith((".c", ".h")) and name not in COPIED]


@functools.lru_cache(None)
def lines_of(name):
    with open(name, encoding="utf-8", errors="surrogateescape") as f:
        return f.read().split("\n")


def excepted(name, number, rule):
    """Is there `exception: RULE: why` on line `number` (from 1), on the one before, or in the file's first 30 lines?"""
    pattern = re.compile(r"exception: " + re.escape(rule) + r": \S")
    lines = lines_of(name)
    near = lines[max(0, number - 2):number]
    return any(pattern.search(line) for line in lines[:30] + near)


@functools.lru_cache(None)
def code_of(name):
    """The lines of a C file with comments and the contents of strings blanked out; line numbers stay."""
    text = "\n".join(lines_of(name))
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group(0)
        if found.startswith("//"):
            return "//"  # seen by the check of comments
        mark = found[0] if found[0] in "\"'" else " "
        return mark + re.sub(r"[^\n]", " ", found[1:-1]) + mark

    return pattern.sub(blank, text).split("\n")


def flags():
    """Compiler words that find every header, as the Makefile's."""
    return ["-std=c17", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", '-DSPDL_VERSION="0"', "-I.", "-Idaemon", "-Iclient/include", "-Iclient"]
