"""What can be seen in the text: sizes, names, comments, forbidden functions and words, files that nothing uses."""
import os
import re

from lint_files import BINARY, COPIED, all_files, c_files, code_of, excepted, lines_of

FILE_WARN, FILE_MAX, HEADER_MAX, FUNCTION_MAX, PARAMETERS_MAX, LEVELS_MAX = 500, 800, 250, 70, 6, 4
FORBIDDEN = ("sprintf vsprintf strcpy strcat stpcpy gets alloca strtok rand srand system popen atoi atol "
             "atoll tmpnam mktemp setjmp").split()
SETJMP_PLACE = re.compile(r"(daemon/decode/decode_|tests/)[\w/]+\.c")  # codecs' error exits
# Written so that this file does not hold the words itself.
WORDS = ["/" + "work/", "TO" + "DO", "FIX" + "ME", "XX" + "X:", "/home/" + "user"]


def functions(name):
    """Yields (first line, line of '{', line of '}', signature) of each function: braces in column 0."""
    code = code_of(name)
    opened = None
    for index, line in enumerate(code):
        if line.startswith("{") and opened is None:
            start = index
            while start > 0 and not re.search(r"[;}]\s*$|^\s*$|^#", code[start - 1]):
                start -= 1
            opened = (start, index)
        elif line.startswith("}") and opened is not None:
            start, brace = opened
            yield start + 1, brace + 1, index + 1, " ".join(code[start:brace])
            opened = None


def parameter_count(signature):
    begin = signature.find("(")
    if begin < 0:
        return 0
    depth, commas = 0, 0
    for char in signature[begin:]:
        depth += {"(": 1, ")": -1}.get(char, 0)
        commas += char == "," and depth == 1
        if depth == 0:
            break
    return commas + 1


def deepest(name, brace, end):
    """The line with most control blocks around it in a function, and how many."""
    stack, worst, where = [], 0, brace
    for number in range(brace + 1, end):
        line = code_of(name)[number - 1]
        control = re.search(r"\b(if|else|for|while|do|switch)\b.*\{\s*$", line) or re.match(r"\s*\{\s*$", line)
        for char in line:
            if char == "{":
                stack.append(bool(control))
                if sum(stack) > worst:
                    worst, where = sum(stack), number
            elif char == "}" and stack:
                stack.pop()
    return worst, where


def check_sizes(_args):
    for name in c_files():
        count = len(lines_of(name)) - 1
        limit = HEADER_MAX if name.endswith(".h") else FILE_MAX
        if count > limit and not excepted(name, 1, "sizes"):
            yield f"{name}:{limit}: {count} lines; at most {limit}"
        elif count > FILE_WARN and name.endswith(".c"):
            yield f"{name}:{FILE_WARN}: warning: {count} lines; above {FILE_WARN} two files are often clearer"
        for start, brace, end, signature in functions(name):
            if end - brace - 1 > FUNCTION_MAX and not excepted(name, start, "sizes"):
                yield f"{name}:{start}: a function of {end - brace - 1} lines; at most {FUNCTION_MAX}"
            if parameter_count(signature) > PARAMETERS_MAX and not excepted(name, start, "sizes"):
                yield f"{name}:{start}: {parameter_count(signature)} parameters; at most {PARAMETERS_MAX}"
            levels, where = deepest(name, brace, end)
            if levels > LEVELS_MAX and not excepted(name, start, "sizes"):
                yield f"{name}:{where}: {levels} levels of blocks; at most {LEVELS_MAX}"


def check_comments(_args):
    for name in c_files():
        for number, line in enumerate(code_of(name), 1):
            if "//" in line:
                yield f"{name}:{number}: comments are /* sentences */"
        first = lines_of(name)[0]
        if not first.startswith("/*"):
            yield f"{name}:1: a file begins with a comment that says what it is"


def check_forbidden(_args):
    pattern = re.compile(r"\b(" + "|".join(FORBIDDEN) + r")\s*\(")
    for name in c_files():
        for number, line in enumerate(code_of(name), 1):
            match = pattern.search(line)
            if not match or (match.group(1) == "setjmp" and SETJMP_PLACE.fullmatch(name)):
                continue
            if not excepted(name, number, "forbidden"):
                yield f"{name}:{number}: {match.group(1)} is not used here"


def check_words(_args):
    for name in all_files():
        if BINARY.search(name) or name in COPIED or name == "LICENSE":
            continue
        for number, line in enumerate(lines_of(name), 1):
            for word in WORDS:
                if word in line:
                    yield f"{name}:{number}: '{word}' does not belong in the tree"


def check_names(_args):
    for name in c_files():
        parts, stem = name.split("/"), os.path.basename(name)
        if parts[0] == "daemon" and len(parts) == 3 and parts[1] not in ("base", "item"):
            room = parts[1]
        elif parts[0] in ("shm", "proto", "gpu") and len(parts) == 2:
            room = parts[0]
        elif name.startswith("client/ctl/"):
            room = "ctl"
        elif parts[0] == "client" and len(parts) == 2:
            room = "client"
        else:
            continue
        if not re.match(rf"{room}([_.])", stem):
            yield f"{name}:1: the name of a file begins with its room's: {room}_…"


def check_dead_files(_args):
    texts = {name: "\n".join(lines_of(name)) for name in all_files() if not BINARY.search(name)}
    makefile = texts.get("Makefile", "")
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"^(?:HOST|WORK)_ROOMS := (.*)$", makefile, re.M))))
    for name in texts:
        parts, base = name.split("/"), os.path.basename(name)
        if name.endswith(".h"):
            if not any(re.search(rf'#\s*include\s+["<][^">]*\b{re.escape(base)}[">]', text) for text in texts.values()):
                yield f"{name}:1: no file includes this header"
        elif name.startswith("daemon/") and name.endswith(".c") and len(parts) == 3 and parts[1] not in listed:
            yield f"{name}:1: no program links the room {parts[1]}"
        elif name.endswith(".c") and parts[0] == "tests" and name not in COPIED and not linked_test(name):
            yield f"{name}:1: no program links this file"
        elif parts[0] in ("scripts", "tests") and name.endswith((".py", ".sh")) or parts[0] == "scripts":
            stem = base[:-3] if base.endswith(".py") else base
            wild = re.fullmatch(r"tests/integration/test_\w+\.py", name)
            used = any(re.search(rf"\b{re.escape(stem)}\b", text) for other, text in texts.items() if other != name)
            if not wild and not used:
                yield f"{name}:1: nothing mentions this file"


def linked_test(name):
    return re.fullmatch(r"tests/(unit/\w+/test_\w+|hostile/\w+|pipeline/(test|sim)_\w+|fuzz/(fuzz_\w+|seeds\w*)|lib/\w+)\.c", name)


def check_faults(_args):
    """Each row of docs/faults.md names tests that are there, or says what it waits for."""
    path = "docs/faults.md"
    for number, line in enumerate(lines_of(path) if os.path.isfile(path) else [], 1):
        cells = [cell.strip() for cell in line.split("|")]
        if not re.match(r"\| [A-Z]{3}-\d\d ", line):
            continue
        if len(cells) != 6:
            yield f"{path}:{number}: a row is | row | the fault | test | state |"
            continue
        tests = re.findall(r"`([\w/]+\.(?:py|c)):(test_\w+)`", cells[3])
        if not tests and not (cells[3] == "-" and cells[4].startswith("with that format")):
            yield f"{path}:{number}: {cells[1]} names no test (`FILE:FUNCTION`) and is not 'with that format'"
        for name, function in tests:
            if not os.path.isfile(name) or not any(re.match(rf"(def|static void) {function}\(", text) for text in lines_of(name)):
                yield f"{path}:{number}: {cells[1]}: there is no {function} in {name}"


CHECKS = {"sizes": check_sizes, "comments": check_comments, "forbidden": check_forbidden, "words": check_words,
          "names": check_names, "faults": check_faults, "dead-files": check_dead_files}
