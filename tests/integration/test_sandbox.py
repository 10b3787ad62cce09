#!/usr/bin/python3
"""The worker's sandbox, through the whole daemon: a codec that was taken over tries to reach files, sockets, processes and the daemon's memory, and
gets nothing; what it costs is its own sample. What holds is told by status and is what the kernel says."""
# alone: it builds
import collections
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import ROOT, check, equal, wait_until  # noqa: E402

BATCH, MARKER = 16, "a probe that no picture has: "
FILES = ("open-file", "open-for-writing", "open-daemon-memory", "open-own-memory", "start-program", "trace-daemon", "read-daemon")
SIGNALS = ("signal-daemon", "signal-daemon-thread")  # refused by Landlock since its version 6
NO_SUCH_CALL = "make-process-3"  # is answered that it does not exist
MORE = "    order: {shuffle: none}\n    last: partial\n    on_error: {policy: mask, max_rate: 1}\n"


def probes():
    """Every probe in the sources, so that a new one is tried at once."""
    names = re.findall(r'^    {"([a-z0-9-]+)", ', (ROOT / "daemon/worker/worker_probe.c").read_text(), re.M)
    check(len(names) > 20, f"only {names} found")
    return names


def folder_of(work, names):
    """Photographs, every fourth with a probe behind its last byte. Returns (folder, {key: probe})."""
    folder, keys = work.path / "in", {}
    folder.mkdir()
    photos = sorted(harness.photos(300).rglob("*.jpg"))
    for i in range(4 * len(names)):
        name = names[i // 4] if i % 4 == 3 else None
        (folder / f"g{i:03d}.jpg").write_bytes(photos[i].read_bytes() + (f"{MARKER}{name}\n".encode() if name else b""))
        if name:
            keys[f"g{i:03d}.jpg"] = name
    return folder, keys


def rows(lines):
    """{key: hash} of good rows, {key: class} of bad ones."""
    good, bad = {}, {}
    for line in lines:
        failed = {e["row"]: e for e in line["errors"]}
        for row, key in enumerate(line["keys"]):
            if row in failed:
                bad[failed[row]["key"]] = failed[row]["class"]
            else:
                good[key] = line["fields"]["image"]["row_hashes"][row]
    return good, bad


def pull_all(work, keys):
    count = 4 * len(keys)
    return rows(work.pull("p", batch=BATCH, hash=True, steps=(count + BATCH - 1) // BATCH))


def test_a_codec_that_was_taken_over_gets_nothing(work):
    harness.use_points()
    names = probes()
    folder, keys = folder_of(work, names)
    config = work.config(harness.folder_config(folder, more=MORE))
    plain = work.daemon(config)
    calm, none = pull_all(work, keys)
    equal(none, {}, "bad rows where nothing is tried")
    plain.stop()
    daemon = work.daemon(config, env={"SPDL_PROBE_MARKER": MARKER})
    good, bad = pull_all(work, keys)
    equal(bad, {key: "CRASH" for key, name in keys.items() if name != NO_SUCH_CALL}, "samples that ended their worker")
    equal(good, {key: value for key, value in calm.items() if key not in bad}, "all other samples")
    log = daemon.log.read_text()
    check("GOT IT" not in log, f"a probe got something: {[line for line in log.splitlines() if 'GOT IT' in line]}")
    check(f"probe {NO_SUCH_CALL} was refused (Function not implemented)" in log, "clone3 was not answered")
    deaths = collections.Counter(re.findall(r"a worker is gone: it died by signal (\d+)", log))
    equal(set(deaths), {"31"}, "signals that workers died of")
    check(work.ctl("status").document["worker_restarts"] >= len(bad), "each sample is tried twice, at times two together")


def test_each_layer_holds_alone(work):
    """Without seccomp Landlock refuses every file, program and signal by itself; without Landlock seccomp is enough."""
    harness.use_points()
    folder, keys = folder_of(work, [*FILES, *SIGNALS])
    config = work.config(harness.folder_config(folder, more=MORE))
    daemon = work.daemon(config, env={"SPDL_PROBE_MARKER": MARKER, "SPDL_LOCK_WITHOUT": "seccomp"})
    _, bad = pull_all(work, keys)
    equal(bad, {}, "without seccomp nothing ends the worker")
    rank = work.start_pull(work.path / "out", "pull", "p", "--batch", 16, "--steps", 1000, "--delay-ms", 1000)
    sandbox = wait_until(lambda: work.ctl("status").document["workers"], 10, "a worker is there")[0]["sandbox"]
    rank.kill()
    equal(sandbox["seccomp"], False, "seccomp that was left out")
    if sandbox["landlock"] == 0:
        raise harness.Skip("this kernel has no Landlock")
    log = daemon.log.read_text()
    for name in keys.values():
        if name in SIGNALS and sandbox["landlock"] < 6:
            continue
        check(re.search(rf"probe {name} was refused \((Permission denied|Operation not permitted)\)", log), f"{name} without seccomp: {log[-300:]}")
    check("runs without a filter of system calls" in log, "the log does not say that seccomp is missing")
    daemon.stop()
    daemon = work.daemon(config, env={"SPDL_PROBE_MARKER": MARKER, "SPDL_LOCK_WITHOUT": "landlock"})
    _, bad = pull_all(work, keys)
    equal(bad, {key: "CRASH" for key in keys}, "samples that ended their worker without Landlock")
    check("GOT IT" not in daemon.log.read_text(), "a probe got something without Landlock")


def kernel_says(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def test_status_says_what_holds(work):
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))))
    rank = work.start_pull(work.path / "out", "pull", "p", "--batch", 16, "--steps", 1000, "--delay-ms", 1000)
    wait_until(lambda: (work.path / "out").stat().st_size, 20, "the rank prints a line")
    document = work.ctl("status").document
    text = work.ctl("status", as_json=False).out
    equal([w["pid"] for w in document["workers"] if w["pid"]], document["worker_pids"], "pids of the workers")
    equal([w["uid"] for w in document["workers"]], [os.getuid()], "whose worker it is")
    sandbox = document["workers"][0]["sandbox"]
    if os.path.basename(os.environ.get("SPDLD", "")) == "spdld-inproc":
        equal(sandbox, {"seccomp": False, "landlock": 0, "no_new_privs": False, "limits": False, "relaxed": False}, "sandbox of threads")
        check("sandbox: none, they are threads of spdld" in text, text[:400])
        return
    pid = daemon.workers()[0]
    kernel = kernel_says(pid)
    equal((sandbox["no_new_privs"], sandbox["seccomp"]), (kernel["NoNewPrivs"] == "1", kernel["Seccomp"] == "2"), "what status and the kernel say")
    check(sandbox["no_new_privs"] and sandbox["seccomp"], f"sandbox: {sandbox}")
    equal(sandbox["relaxed"], harness.SANITIZED, "relaxed")
    check("sandbox: seccomp" in text and "no_new_privs" in text, text[:400])
    if not harness.SANITIZED:
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        check(re.search(r"Max core file size +0 +0", limits) and re.search(r"Max open files +16 +16", limits), limits)
        check(sandbox["limits"], "limits")
    # Every thread has the filter, and it holds nothing but its last words, its socket and an eventfd.
    for thread in os.listdir(f"/proc/{pid}/task"):
        equal(kernel_says(f"{pid}/task/{thread}")["Seccomp"], "2", f"seccomp of thread {thread}")
    kinds = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    equal((kinds["0"], kinds["1"], kinds["3"].startswith("socket:"), len(kinds)), ("/dev/null", "/dev/null", True, 5), f"descriptors {kinds}")
    rank.kill()


def test_memory_of_a_worker_is_a_setting(work):
    if harness.SANITIZED or os.environ.get("SPDLD"):
        raise harness.Skip("a sanitized worker has no limit of memory")
    daemon = work.daemon(work.config(harness.folder_config(harness.photos(300))), "limits.worker=256MiB")
    work.pull("p", batch=16, steps=2)
    rank = work.start_pull(work.path / "out", "pull", "p", "--batch", 16, "--steps", 1000, "--delay-ms", 1000)
    wait_until(lambda: (work.path / "out").stat().st_size, 20, "the rank prints a line")
    limits = pathlib.Path(f"/proc/{daemon.workers()[0]}/limits").read_text()
    check(re.search(rf"Max data size +{256 << 20} +{256 << 20}", limits), limits)
    rank.kill()


if __name__ == "__main__":
    harness.main(globals())
