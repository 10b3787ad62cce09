#!/usr/bin/python3
"""make install into a folder of its own: what is there is complete, finds itself, and says of itself what the code says."""
# alone: it builds
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import ROOT, check, equal  # noqa: E402

FILES = """bin/spdld bin/spdlctl libexec/spdld/spdld-worker lib/libspdl-client.so.0 lib/libspdl-client.so lib/libspdl-client.a lib/pkgconfig/spdl-client.pc
include/spdl/client.h lib/systemd/system/spdld.service lib/systemd/system/spdld.socket lib/systemd/user/spdld.service lib/sysusers.d/spdld.conf
lib/tmpfiles.d/spdld.conf lib/systemd/catalog/spdld.catalog share/spdld/gpu.conf share/man/man1/spdlctl.1 share/man/man3/spdl_client.3 share/man/man5/spdld.yaml.5 share/man/man8/spdld.8
share/bash-completion/completions/spdlctl share/zsh/vendor-completions/_spdlctl share/fish/vendor_completions.d/spdlctl.fish""".split()


def install(work, prefix="/usr"):
    if harness.SANITIZED:
        raise harness.Skip("what is installed has no sanitizers")
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "SAN", "CC")}
    to = work.path / "installed"
    done = subprocess.run(["make", "-s", "-C", str(ROOT), f"BUILD={os.path.relpath(harness.BUILD, ROOT)}", f"DESTDIR={to}", f"PREFIX={prefix}", "install"],
                          capture_output=True, text=True, env=env, check=False)
    check(done.returncode == 0, f"make install: {done.stderr[-400:]}")
    return to, to / prefix.lstrip("/")


def test_everything_is_there(work):
    for prefix in ("/usr", "/opt/spdld"):
        to, root = install(work, prefix)
        missing = [name for name in FILES if not (root / name).exists()]
        equal(missing, [], f"what is missing under {prefix}")
        check((to / "etc/spdld/spdld.yaml").exists() and (to / "etc/spdld/datasets.d").is_dir(), "no configuration")
        unit = (root / "lib/systemd/system/spdld.service").read_text()
        check(f"ExecStart={prefix}/bin/spdld " in unit, "the unit names another program")
        (to / "etc/spdld/spdld.yaml").write_text("slots: 5\n")
        install(work, prefix)
        equal((to / "etc/spdld/spdld.yaml").read_text(), "slots: 5\n", "a configuration that was there")


def test_what_is_installed_runs(work):
    _, root = install(work)
    shutil.move(root, work.path / "elsewhere")
    root = work.path / "elsewhere"
    config = work.config("datasets:\n  a:\n    source: {synthetic: {samples: 100, bytes: 8}}\n")
    work.daemon(config, program=root / "bin/spdld")
    done = subprocess.run([root / "bin/spdlctl", "--socket", work.socket, "pull", "a", "--batch", "4", "--steps", "2"], capture_output=True, text=True, check=False)
    equal(done.returncode, 0, f"exit code of pull ({done.stderr})")


def test_pages_and_completions_name_what_there_is(work):
    _, root = install(work)
    told = subprocess.run([root / "bin/spdlctl", "--help"], capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^  ([a-z]+) ", told.split("Options of every verb")[0], re.M)
    check({"status", "pull", "set", "reload"} <= set(verbs), f"verbs {verbs}")
    page = (root / "share/man/man1/spdlctl.1").read_text()
    for name in ("share/bash-completion/completions/spdlctl", "share/zsh/vendor-completions/_spdlctl", "share/fish/vendor_completions.d/spdlctl.fish"):
        text = (root / name).read_text()
        for verb in verbs:
            check(re.search(rf"\b{verb}\b", text), f"{name} does not know {verb}")
        check("--on-error" in text or "-l on-error" in text, f"{name} does not know the options of pull")
    for verb in verbs:
        check(f"\n.SS {verb} " in page, f"the page of spdlctl does not know {verb}")
    settings = re.findall(r"^(\w+):", subprocess.run([root / "bin/spdlctl", "--private", "config"], capture_output=True, text=True, check=True, env=work.environment()).stdout, re.M)
    yaml = (root / "share/man/man5/spdld.yaml.5").read_text()
    for key in settings:
        check(f"{key}:" in yaml.replace("\\-", "-"), f"the page of spdld.yaml does not know {key}")
    client = (root / "share/man/man3/spdl_client.3").read_text()
    for call in re.findall(r"^SPDL_API [^;]*?(spdl_\w+)\(", (ROOT / "client/include/spdl/client.h").read_text(), re.M):
        check(call in client, f"the page of the client library does not know {call}")
    subprocess.run(["bash", "-n", root / "share/bash-completion/completions/spdlctl"], check=True)
    if shutil.which("groff"):
        for path in (root / "share/man").rglob("*.[1-8]"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", "-K", "utf8", path], capture_output=True, text=True, check=False)
            check(done.returncode == 0 and not done.stderr, f"{path.name}: {done.stderr[:300]}")


def test_every_message_id_is_explained(_work):
    ids = dict(re.findall(r'#define LOG_ID_(\w+) "([0-9a-f]{32})"', (ROOT / "daemon/base/log.h").read_text()))
    check(len(ids) >= 8 and len(set(ids.values())) == len(ids), f"{ids}")
    equal(set(re.findall(r"^-- ([0-9a-f]{32})$", (ROOT / "configs/systemd/spdld.catalog").read_text(), re.M)), set(ids.values()), "ids in the catalog")
    equal(set(re.findall(r"^\| `([0-9a-f]{32})` \|", (ROOT / "docs/operations.md").read_text(), re.M)), set(ids.values()), "ids in docs/operations.md")


def complete(root, words):
    script = f'source {root}/share/bash-completion/completions/spdlctl\nCOMP_WORDS=({words})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_spdlctl\necho "${{COMPREPLY[@]}}"\n'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_completion_in_bash(work):
    _, root = install(work)
    equal(complete(root, "spdlctl st"), ["status", "streams"], "verbs that begin with st")
    check("--on-error" in complete(root, "spdlctl pull --o") and "--on-error" not in complete(root, "spdlctl status --o"), "options are those of the verb")
    equal(complete(root, "spdlctl --soc"), ["--socket"], "options of every verb")


if __name__ == "__main__":
    harness.main(globals())
