#!/usr/bin/python3
"""Who may use which dataset, and how much of it: allow, quotas; refusals end with 4 and say who may."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

ALICE, BOB, GROUP = 61001, 61002, 61009
SOURCE = "    source: {synthetic: {samples: 4000, bytes: 64}}\n"
CONFIG = f"""socket_mode: "0666"
datasets:
  all:
{SOURCE}  hers:
{SOURCE}    allow: {{users: ["{ALICE}", nobody-of-that-name]}}
  ours:
{SOURCE}    allow: {{users: [root], groups: ["{GROUP}"]}}
  broken:
    source: {{folder: FOLDER}}
    preset: imagenet-eval
    on_error: {{policy: mask, max_rate: 1, max_consecutive: 10000}}
    allow: {{groups: ["{GROUP}"]}}
"""


class Users:
    """spdlctl as other users, who can reach it and the socket."""

    def __init__(self, work):
        if os.getuid() != 0:
            raise harness.Skip("other users are needed, which takes root")
        self.work = work
        work.path.chmod(0o755)
        self.program = work.path / "spdlctl"
        self.program.write_bytes((harness.BUILD / "spdlctl").read_bytes())
        self.program.chmod(0o755)

    def run(self, user, *words, groups=(), code=0):
        result = subprocess.run([self.program, "--socket", self.work.socket, *map(str, words)], capture_output=True, text=True, user=user, group=user,
                                extra_groups=groups, cwd="/", check=False)
        equal(result.returncode, code, f"exit code of {words} as {user} ({result.stderr.strip()[:300]})")
        return result


def start(work, config=CONFIG, *sets):
    folder = work.path / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "secret-name.jpg").write_bytes(b"no picture")
    return work.daemon(work.config(config.replace("FOLDER", str(folder))), *sets)


def test_allow(work):
    users = Users(work)
    start(work)
    pull = lambda dataset: ("pull", dataset, "--batch", 4, "--steps", 2)  # noqa: E731
    users.run(ALICE, *pull("all"))
    users.run(ALICE, *pull("hers"))
    users.run(BOB, *pull("all"))
    for words in (pull("hers"), ("plan", "hers"), ("index", "hers"), ("quarantine", "hers")):
        result = users.run(BOB, *words, code=4)
        check(f"user {BOB} may not use dataset hers: users {ALICE}, nobody-of-that-name (not known here) may" in result.stderr, result.stderr)
    result = users.run(BOB, *pull("ours"), groups=[5], code=4)
    check(f"user root and group {GROUP} may" in result.stderr, result.stderr)
    users.run(BOB, *pull("ours"), groups=[5, GROUP])
    users.run(GROUP, *pull("ours"))  # its own group
    equal(len(work.pull("hers", batch=4, steps=1)), 1, "lines of root, who may use everything")


def test_names_of_samples_are_kept_too(work):
    users = Users(work)
    start(work)
    users.run(BOB, "pull", "broken", "--batch", 1, "--steps", 1, groups=[GROUP])
    check("secret-name" in users.run(BOB, "quarantine", groups=[GROUP]).stdout, "who may use the dataset does not see what failed")
    check("secret-name" not in users.run(BOB, "--json", "quarantine").stdout, "names of samples are told to who may not use the dataset")


def test_allow_is_live(work):
    users = Users(work)
    daemon = start(work)
    users.run(BOB, "pull", "hers", "--batch", 4, "--steps", 1, code=4)
    daemon.config.write_text(daemon.config.read_text().replace(f'"{ALICE}", nobody', f'"{BOB}", nobody'))
    work.ctl("reload")
    users.run(BOB, "pull", "hers", "--batch", 4, "--steps", 1)
    users.run(ALICE, "pull", "hers", "--batch", 4, "--steps", 1, code=4)
    check(f"allow: {{users: [{BOB}, nobody" in work.ctl("config").document["yaml"], "config does not show who may")


def test_who_sees_the_socket(work):
    users = Users(work)
    work.daemon(work.config(CONFIG.replace("0666", "0660").replace("FOLDER", "/nowhere")))
    result = users.run(BOB, "status", code=4)
    check("members of the group root (0) may, and user 0" in result.stderr, result.stderr)


def test_quota_of_streams(work):
    users = Users(work)
    start(work, CONFIG, "quota.streams=2")
    ranks = [work.start_pull(work.path / f"out{i}", "pull", "all", "--batch", 4, "--steps", 100000, "--delay-ms", 100) for i in range(2)]
    for i in range(2):
        wait_until(lambda at=work.path / f"out{i}": at.stat().st_size, 10, "a rank prints a line")
    result = work.ctl("pull", "all", "--batch", 4, "--steps", 1, code=4)
    check("user 0 has 2 streams" in result.err and "quota.streams" in result.err, result.err)
    users.run(BOB, "pull", "all", "--batch", 4, "--steps", 1)
    work.ctl("set", "quota.streams=3")
    work.pull("all", batch=4, steps=1)
    for rank in ranks:
        rank.kill()


def test_quota_of_memory(work):
    start(work, CONFIG, "quota.memory=1MiB")
    work.pull("all", batch=4, steps=2)
    result = work.ctl("pull", "all", "--batch", 40000, "--steps", 1, code=4)
    check("quota.memory" in result.err and "1048576" in result.err, result.err)
    work.ctl("set", "quota.memory=auto")
    work.pull("all", batch=4000, steps=1)


if __name__ == "__main__":
    harness.main(globals())
