#!/usr/bin/python3
"""What stands around the programs: a missing package is named, what is installed can be built against and runs, the demo works on ten pictures
of one's own."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, ROOT, check, equal  # noqa: E402

PROGRAM = r"""
#include <spdl/client.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    struct spdl_connect_options connect;
    struct spdl_open_options open;
    struct spdl_connection *connection = NULL;
    struct spdl_stream *stream = NULL;
    struct spdl_batch *batch = NULL;
    memset(&connect, 0, sizeof connect);
    memset(&open, 0, sizeof open);
    connect.options_bytes = sizeof connect;
    connect.is_private = 1;
    connect.config_file = argv[argc - 1];
    connect.reconnect_s = 5;
    open.options_bytes = sizeof open;
    open.dataset = "p";
    open.batch = 8;
    open.limit = 3;
    if (spdl_connect(&connect, &connection) != 0 || spdl_open(connection, &open, &stream) != 0) {
        fprintf(stderr, "%s\n", spdl_connection_error(connection));
        return 1;
    }
    while (spdl_next(stream, 10, &batch) == 0) {
        struct spdl_batch_info info;
        struct spdl_tensor tensor;
        spdl_batch_info(batch, &info);
        if (spdl_batch_find(batch, "bin", &tensor) != 0)
            return 1;
        printf("%u %u %llu\n", (unsigned)info.step, (unsigned)info.rows, (unsigned long long)tensor.bytes);
        spdl_batch_unref(batch);
    }
    fprintf(stderr, "%s\n", spdl_stream_error(stream));
    spdl_close(stream);
    spdl_disconnect(connection);
    return 0;
}
"""


def test_what_is_installed_works(work):
    if harness.SANITIZED:
        raise harness.Skip("a sanitized library needs a sanitized program")
    root = work.path / "root"
    r = subprocess.run(["make", "--no-print-directory", "-s", f"BUILD={BUILD}", f"DESTDIR={root}", "PREFIX=/usr", "install"], cwd=ROOT,
                       capture_output=True, text=True)
    equal(r.returncode, 0, f"make install: {r.stderr[-300:]}")
    for name in ("bin/spdld", "libexec/spdld/spdld-worker", "bin/spdlctl", "lib/libspdl-client.so.0", "lib/libspdl-client.so", "lib/libspdl-client.a",
                 "include/spdl/client.h", "lib/pkgconfig/spdl-client.pc"):
        check((root / "usr" / name).exists(), f"{name} is not installed")
    env = {**work.environment(), "PKG_CONFIG_PATH": str(root / "usr/lib/pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(root),
           "LD_LIBRARY_PATH": str(root / "usr/lib"), "PATH": f"{root}/usr/bin:{os.environ['PATH']}"}
    env.pop("SPDLD")
    words = subprocess.run(["pkg-config", "--cflags", "--libs", "spdl-client"], capture_output=True, text=True, env=env, check=True).stdout.split()
    config = work.config("datasets:\n  p:\n    source: {synthetic: {samples: 100, bytes: 32}}\n")
    for compiler, suffix in (("gcc", "c"), ("g++", "cc")):
        source = work.path / f"rank.{suffix}"
        source.write_text(PROGRAM)
        r = subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", source, "-o", work.path / "rank", *words], capture_output=True, text=True)
        equal(r.returncode, 0, f"{compiler} with pkg-config's words: {r.stderr[-500:]}")
        r = subprocess.run([work.path / "rank", config], capture_output=True, text=True, env=env, timeout=30)
        equal(r.stdout, "0 8 256\n1 8 256\n2 8 256\n", f"what the {compiler} program prints ({r.stderr[-300:]})")


def test_missing_packages_are_named(work):
    r = subprocess.run(["make", "-s", f"BUILD={work.path}/build", "CPPFLAGS=-nostdinc", "all"], cwd=ROOT, capture_output=True, text=True)
    check(r.returncode != 0, "a build without headers passed")
    for package in ("liburing-dev", "libyaml-dev", "libjpeg62-turbo-dev", "libprotobuf-c-dev"):
        check(package in r.stderr, f"make does not name {package}: {r.stderr[-400:]}")


def test_install_deps_says_what_to_run(work):
    """As an ordinary user without sudo, on a machine where two packages are missing."""
    tools = work.path / "bin"
    tools.mkdir()
    listed = subprocess.run([ROOT / "scripts/install-deps", "check", "--list"], capture_output=True, text=True, check=True).stdout.split()
    present = [name for name in listed if name not in ("clang", "libyaml-dev")]
    (work.path / "present").write_text("".join(f"installed {name}\n" for name in present))
    fakes = {"dpkg-query": f"cat {work.path}/present", "id": "echo 1000", "sudo": "exit 1", "apt-get": "echo apt-get must not run; exit 1"}
    for name, body in fakes.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    r = subprocess.run([ROOT / "scripts/install-deps", "check"], capture_output=True, text=True, env=env)
    equal(r.returncode, 1, "exit code")
    check("apt-get install -y --no-install-recommends libyaml-dev clang" in r.stdout, f"no line to run: {r.stdout!r}")
    check("must not run" not in r.stdout + r.stderr, "it ran apt-get without rights")
    (work.path / "present").write_text("".join(f"installed {name}\n" for name in listed))
    r = subprocess.run([ROOT / "scripts/install-deps", "check"], capture_output=True, text=True, env=env)
    equal((r.returncode, r.stdout + r.stderr), (0, ""), "with everything there it does nothing")


def test_demo_on_ten_pictures(work):
    folder = work.path / "my pictures"
    folder.mkdir()
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:10]):
        shutil.copy(path, folder / f"Holiday {i}.JPG")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (folder / "notes.txt").write_text("not a picture")
    r = subprocess.run(["/usr/bin/python3", ROOT / "tests/demo/demo.py", "--build", BUILD, "--out", work.path / "demo"], capture_output=True,
                       text=True, env={**os.environ, "DATA": str(folder)}, timeout=100 * harness.PATIENCE)
    equal(r.returncode, 0, f"exit code of the demo: {r.stdout[-1500:]} {r.stderr[-500:]}")
    for words in ("11 pictures", "Nothing was lost, nothing repeated", "kill -9 of the daemon", "kill -9 of the worker", "kill -9 of rank 1", "broken.jpg"):
        check(words in r.stdout, f"the demo does not say {words!r}: {r.stdout[-1500:]}")
    check((work.path / "demo" / "batch.png").stat().st_size > 1000, "no sheet")
    r = subprocess.run(["/usr/bin/python3", ROOT / "tests/demo/demo.py", "--build", BUILD, "--out", work.path / "demo"], capture_output=True,
                       text=True, env={**os.environ, "DATA": str(work.path / "none")}, timeout=60)
    check(r.returncode == 1 and "none" in r.stdout, f"DATA= of a folder that is not there: exit {r.returncode}, {r.stdout[-300:]!r}")


if __name__ == "__main__":
    harness.main(globals())
