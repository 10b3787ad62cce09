"""Checks that ask another program: clang-format, the compilers, shellcheck, cppcheck, clang-tidy."""
import os
import random
import re
import subprocess
import time

from lint_files import BINARY, COPIED, all_files, c_files, flags, lines_of

TIDY = ("-*,bugprone-*,cert-*,clang-analyzer-*,concurrency-*,performance-*,-bugprone-easily-swappable-parameters,"
        "-concurrency-mt-unsafe,-cert-err33-c,-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp,"
        "-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-performance-no-int-to-ptr,"
        "-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,-cert-err34-c,"
        "-bugprone-assignment-in-if-condition,-bugprone-branch-clone,-cert-dcl03-c,-bugprone-signal-handler,-cert-sig30-c,"
        "-bugprone-not-null-terminated-result,-bugprone-misplaced-widening-cast,-bugprone-sizeof-expression,"
        "-clang-analyzer-unix.Vfork,-clang-analyzer-security.insecureAPI.vfork,-clang-analyzer-optin.performance.Padding")
# Tests: what ends a function there (assert_…) is not known to, so that whatever they look at seems to be missing.
TIDY_TESTS = (",-clang-analyzer-core.*,-clang-analyzer-unix.Malloc,-bugprone-suspicious-missing-comma,-bugprone-suspicious-memory-comparison,"
              "-cert-exp42-c,-cert-flp37-c")
TIDY_FILES_MAX = 40  # in one check; check-slow looks at all


def run(command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True)


def lines_with_places(output):
    """The lines `file:line:column: what` of a tool's output, as `file:line: what`."""
    for line in output.splitlines():
        match = re.match(r"(?:\./)?([^:\s]+):(\d+):\d+: (?:error|warning|style|performance|portability|fatal error): (.*)", line)
        if match:
            yield f"{match.group(1)}:{match.group(2)}: {match.group(3)}"


def check_format(_args):
    result = run(["clang-format", "--dry-run", "-Werror", *c_files(), *[n for n in all_files() if n.endswith(".cc")]])
    seen = set()
    for line in lines_with_places(result.stderr):
        name = line.split(":")[0]
        if name not in seen:  # the first place of a file is enough: `make format` mends them all
            seen.add(name)
            yield f"{line.split(' [')[0]}: run `make format`"


def check_headers(args):
    """Each header stands alone; those for clients in C++ too."""
    generated = os.path.join(args.build, "gen")
    for name in c_files():
        if not name.endswith(".h") or name.startswith("tests/"):
            continue
        kinds = [("c", ["gcc", *flags()])]
        if name.startswith("client/include/") or 'extern "C"' in "\n".join(lines_of(name)):
            kinds.append(("c++", ["g++", "-std=c++17", *flags()[1:]]))
        for language, command in kinds:
            result = run([*command, f"-I{generated}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language, "-"],
                         f'#include "{name}"\n#include "{name}"\n')
            if result.returncode:
                first = next(iter(lines_with_places(result.stderr)), result.stderr.strip().split("\n")[0])
                yield f"{name}:1: does not compile alone as {language}: {first}"


def check_shell(_args):
    scripts = [name for name in all_files() if not BINARY.search(name) and re.match(r"#!/bin/(ba)?sh", lines_of(name)[0])]
    result = run(["shellcheck", "-f", "gcc", *scripts])
    yield from lines_with_places(result.stdout.replace(": note: ", ": warning: "))


def check_python(_args):
    for name in all_files():
        if name.endswith(".py") or "python" in lines_of(name)[0][:40]:
            if BINARY.search(name):
                continue
            try:
                compile("\n".join(lines_of(name)), name, "exec")
            except SyntaxError as error:
                yield f"{name}:{error.lineno}: {error.msg}"
            if lines_of(name)[0].startswith("#!") and lines_of(name)[0] != "#!/usr/bin/python3":
                yield f"{name}:1: scripts say #!/usr/bin/python3"


def check_cppcheck(args):
    sources = [name for name in c_files() if name.endswith(".c") and not name.startswith("tests/")]
    if not sources:
        return
    result = run(["cppcheck", "--quiet", "--std=c11", "--enable=warning,performance,portability", "--inline-suppr", "-j2",
                  "--suppress=missingInclude", "--suppress=unknownMacro", "--suppress=uninitvar", "--suppress=normalCheckLevelMaxBranches",
                  "--suppress=preprocessorErrorDirective", f"--suppress=*:{args.build}/gen/*", "--error-exitcode=0",
                  "--template={file}:{line}:{column}: {severity}: {message} ({id})", "-D_GNU_SOURCE", "-I.", "-Idaemon",
                  "-Iclient/include", "-Iclient", f"-I{args.build}/gen", *sources])
    yield from lines_with_places(result.stderr)


def changed_files():
    """C files that differ from what was there before: from the upstream branch, else from the commit before."""
    base = os.environ.get("LINT_BASE", "")
    if not base:
        base = "HEAD~1"
        upstream = run(["git", "rev-parse", "--verify", "-q", "@{upstream}"]).stdout.strip()
        if upstream and upstream != run(["git", "rev-parse", "HEAD"]).stdout.strip():
            base = upstream
    names = run(["git", "diff", "--name-only", "--diff-filter=d", base]).stdout.split("\n")
    return [name for name in names if name.endswith(".c") and name not in COPIED and os.path.exists(name)]


def check_tidy(args):
    names = [n for n in c_files() if n.endswith(".c")] if args.all else changed_files()
    if args.all and args.part < 1:  # another part each day
        rng = random.Random(int(time.time() / 86400))
        names = sorted(rng.sample(names, max(1, int(len(names) * args.part))))
    if len(names) > TIDY_FILES_MAX and not args.all:
        yield f"Makefile:1: warning: {len(names)} changed files, the first {TIDY_FILES_MAX} looked at; `scripts/lint --all tidy` looks at all"
        names = names[:TIDY_FILES_MAX]
    if not names:
        return
    words = " ".join([*flags(), f"-I{args.build}/gen"])
    # $1 is split into words
    one_file = f'case $2 in tests/*) more="{TIDY_TESTS}";; *) more=;; esac; exec clang-tidy --quiet "--checks=$0$more" "$2" -- $1'
    result = subprocess.run(["xargs", "-0", "-P2", "-n1", "sh", "-c", one_file, TIDY, words],
                            input="\0".join(names), capture_output=True, text=True)
    root = os.getcwd() + "/"
    yield from sorted(set(lines_with_places(result.stdout.replace(root, ""))))


CHECKS = {"format": check_format, "headers": check_headers, "shell": check_shell, "python": check_python,
          "cppcheck": check_cppcheck, "tidy": check_tidy}
