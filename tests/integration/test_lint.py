#!/usr/bin/python3
"""The lint itself: each rule broken once in a small tree, and each check finds its own; a tree that keeps the rules passes."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import ROOT, check, equal  # noqa: E402

GOOD = {
    "Makefile": "HOST_ROOMS := base plan\nWORK_ROOMS := base decode\n",
    ".gitignore": "/build/\n",
    "README.md": "scripts/lint lint_files lint_layers lint_text lint_tools lint_binaries plan_x\n",
    "shm/shm_x.h": "/* A header. */\n#ifndef SHM_X_H\n#define SHM_X_H\n\nint spdl_shm_x(int a);\n\n#endif\n",
    "shm/shm_x.c": '/* Its file. */\n#include "shm/shm_x.h"\n\nint spdl_shm_x(int a)\n{\n    return a;\n}\n',
    "daemon/base/thing.h": "/* A thing. */\n#ifndef THING_H\n#define THING_H\n\nint thing_do(int a);\n\n#endif\n",
    "daemon/base/thing.c": '/* A thing. */\n#include "base/thing.h"\n\nint thing_do(int a)\n{\n    return a + 1;\n}\n',
    "daemon/plan/plan_x.c": '/* Plans. */\n#include "base/thing.h"\n\nint plan_x(void);\n\nint plan_x(void)\n{\n    return thing_do(1);\n}\n',
    "scripts/run": "#!/bin/sh\nset -eu\necho \"$1\"\n",
}
HEAD = "/* Wrong on purpose. */\n"
LONG = HEAD + "int plan_long(void);\n\nint plan_long(void)\n{\n" + "    (void)0;\n" * 71 + "    return 0;\n}\n"
MANY = HEAD + "int plan_many(int a, int b, int c, int d, int e, int f, int g)\n{\n    return a;\n}\n"
DEEP = HEAD + "int plan_deep(int a)\n{\n" + "".join("    " * (k + 1) + "if (a) {\n" for k in range(5)) + "".join(
    "    " * (5 - k) + "}\n" for k in range(5)) + "    return a;\n}\n"
# check, file, content
BROKEN = [
    ("layers", "daemon/plan/plan_y.c", HEAD + '#include "shm/shm_x.h"\n'),
    ("layers", "daemon/base/up.c", HEAD + '#include "plan/plan.h"\n'),
    ("layers", "shm/shm_up.c", HEAD + '#include "base/thing.h"\n'),
    ("libraries", "daemon/plan/plan_y.c", HEAD + "#include <jpeglib.h>\n"),
    ("libraries", "client/client_y.c", HEAD + "#include <yaml.h>\n"),
    ("quotes", "daemon/plan/plan_y.c", HEAD + "#include <base/thing.h>\n"),
    ("sizes", "daemon/plan/plan_y.c", LONG),
    ("sizes", "daemon/plan/plan_y.c", MANY),
    ("sizes", "daemon/plan/plan_y.c", DEEP),
    ("sizes", "daemon/plan/plan_y.c", HEAD + "\n" * 801),
    ("sizes", "daemon/plan/plan_y.h", HEAD + "\n" * 251),
    ("comments", "daemon/plan/plan_y.c", HEAD + "int x; // no\n"),
    ("comments", "daemon/plan/plan_y.c", "int no_head;\n"),
    ("forbidden", "daemon/plan/plan_y.c", HEAD + "void f(char *a)\n{\n    strcpy(a, a);\n}\n"),
    ("words", "daemon/plan/plan_y.c", "/* TO" + "DO: later. */\n"),
    ("words", "docs/x.md", "see /" + "work/main\n"),
    ("faults", "docs/faults.md", "| IMG-99 | a fault | `tests/test_x.py:test_nothing` | holds |\n"),
    ("faults", "docs/faults.md", "| IMG-99 | a fault | - | holds |\n"),
    ("names", "daemon/plan/order.c", HEAD),
    ("dead-files", "daemon/plan/plan_dead.h", HEAD),
    ("dead-files", "daemon/fetch/fetch_dead.c", HEAD),
    ("dead-files", "scripts/nobody", "#!/bin/sh\n"),
    ("format", "daemon/plan/plan_y.c", HEAD + "int   x  =1;\n"),
    ("headers", "daemon/plan/plan_y.h", HEAD + "uint32_t x_count;\n"),
    ("shell", "scripts/run", "#!/bin/sh\nset -eu\nrm $1\n"),
    ("python", "scripts/run.py", "#!/usr/bin/env python3\n"),
    ("cppcheck", "daemon/plan/plan_y.c", HEAD + "int plan_y(void)\n{\n    int a[2] = {0};\n    return a[2];\n}\n"),
]
PROGRAMS = [
    ("exports", "libspdl-client.so.0", ["-shared", "-fPIC"], "int foreign(void);\nint foreign(void) { return 1; }\n"),
    ("codecs", "spdld", ["-Wl,--no-as-needed", "-ljpeg"], "int main(void) { return 0; }\n"),
    ("network", "spdld-worker", [], "#include <sys/socket.h>\nint main(void) { return socket(1, 1, 0); }\n"),
    ("network", "spdld-worker", ["-Wl,--no-as-needed", "-lyaml"], "int main(void) { return 0; }\n"),
]


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if content.startswith("#!"):
            path.chmod(0o755)


def small_tree(work):
    root = work.path / "tree"
    write(root, GOOD)
    shutil.copytree(ROOT / "scripts/lint.d", root / "scripts/lint.d", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "scripts/lint", root / "scripts/lint")
    shutil.copy(ROOT / ".clang-format", root / ".clang-format")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def lint(root, *words):
    return subprocess.run(["/usr/bin/python3", root / "scripts/lint", *words], capture_output=True, text=True, env={**os.environ, "LINT_BASE": ""})


def needs_tools():
    for tool in ("clang-format", "cppcheck", "shellcheck", "git"):
        if not shutil.which(tool):
            raise harness.Skip(f"{tool} is not installed")


def test_a_good_tree_passes(work):
    needs_tools()
    root = small_tree(work)
    for name in sorted({name for name, _, _ in BROKEN}):
        r = lint(root, name)
        equal((r.returncode, r.stdout), (0, ""), f"lint {name} on a good tree ({r.stderr[-300:]})")


def test_each_rule_is_held(work):
    needs_tools()
    root = small_tree(work)
    for name, path, content in BROKEN:
        before = (root / path).read_text() if (root / path).exists() else None
        write(root, {path: content})
        r = lint(root, name)
        check(r.returncode == 1 and f"{path}:" in r.stdout, f"lint {name} does not find {content[:60]!r} in {path}: exit {r.returncode}, {r.stdout!r} {r.stderr[-300:]!r}")
        if before is None:
            (root / path).unlink()
        else:
            (root / path).write_text(before)


def test_exceptions_are_taken(work):
    needs_tools()
    root = small_tree(work)
    path = "daemon/plan/plan_y.c"
    write(root, {path: HEAD + "/* exception: layers: the only place that may. */\n" + '#include "shm/shm_x.h"\n'})
    equal(lint(root, "layers").returncode, 0, "an exception with its reason")
    write(root, {path: HEAD + "/* exception: sizes: another rule. */\n" + '#include "shm/shm_x.h"\n'})
    equal(lint(root, "layers").returncode, 1, "an exception of another rule")


def test_programs_are_looked_into(work):
    needs_tools()
    root = small_tree(work)
    (root / "build").mkdir()
    for name, program, words, text in PROGRAMS:
        source = work.path / "x.c"
        source.write_text(text)
        subprocess.run(["gcc", source, "-o", root / "build" / program, *words], check=True)
        r = lint(root, name)
        check(r.returncode == 1 and program in r.stdout, f"lint {name} finds nothing in {program} with {words}: {r.stdout!r} {r.stderr[-300:]!r}")
    equal(lint(root, "nonsense").returncode, 2, "a check that is none")


if __name__ == "__main__":
    harness.main(globals())
