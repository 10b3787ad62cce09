#!/usr/bin/python3
"""Live settings: set, reload, SIGHUP and config --diff change a running daemon, all or nothing, and no rank notices."""
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import PATIENCE, Skip, check, equal, wait_until  # noqa: E402

SYNTHETIC = "{source: {synthetic: {samples: %d, bytes: 2000}}, order: {shuffle: global, seed: 3}}"
RELOADS = 50 if harness.SANITIZED else 1000 if harness.SLOW else 200


def config_text(datasets, head="slots: 4\n"):
    return head + "datasets:\n" + "".join(f"  {name}: {text}\n" for name, text in datasets.items())


def status(work):
    return work.ctl("status").document


def settings(work):
    return work.ctl("config").document["yaml"]


def threads_of(daemon):
    """{name: CPU ticks} of the worker's decoding threads."""
    found = {}
    for worker in daemon.workers():
        for task in pathlib.Path(f"/proc/{worker}/task").iterdir():
            words = (task / "stat").read_text()
            name = words[words.index("(") + 1:words.rindex(")")]
            if name.startswith("spdl-dec-"):
                found[name] = sum(map(int, words.rsplit(")", 1)[1].split()[11:13]))
    return found


def changes(result):
    return [(one["name"], one["was"], one["now"]) for one in result.document["changes"]]


def hashes(lines):
    return [(line["epoch"], line["step"], line["fields"]["bin"]["hash"]) for line in lines]


def pulled(path):
    return harness.Result(0, path.read_text(), "").lines


def test_set(work):
    if "inproc" in os.environ.get("SPDLD", ""):
        raise harness.Skip("it looks at the threads of the worker's process, and kills it")
    daemon = work.daemon(work.config(config_text({"s": SYNTHETIC % 4000}, "threads: {decode: 1}\nmemory: 64MiB\n")))
    pull = work.start_pull(work.path / "out", "pull", "s", "--batch", 8, "--steps", 2000, "--delay-ms", 1, "--hash")
    wait_until(lambda: status(work)["streams"] and len(threads_of(daemon)) == 1, 10, "the stream runs")
    before = status(work)
    equal(changes(work.ctl("set", "threads.decode=3", "slots=7", "fetch.depth=5", "memory=128MiB", "log.level=debug")),
          [("memory", "64MiB", "128MiB"), ("slots", "4", "7"), ("threads.decode", "1", "3"), ("fetch.depth", "auto", "5"), ("log.level", "info", "debug")],
          "what was changed")
    wait_until(lambda: len(threads_of(daemon)) == 3, 10, "three decoding threads run")
    now = status(work)
    equal((now["decode_threads"], now["memory"]["limit"]), (3, 128 << 20), "threads and memory in the status")
    equal((now["pid"], now["generation"], now["worker_pids"]), (before["pid"], before["generation"], before["worker_pids"]), "who runs")
    equal([(s["stream"], s["slots"]) for s in now["streams"]], [(before["streams"][0]["stream"], 4)], "the open stream")
    equal(len(work.pull("s", batch=8, steps=2)), 2, "batches of a new stream")
    # One that is one too many rests: all the work is done by the first.
    work.ctl("set", "threads.decode=1")
    work.pull("s", batch=8, steps=20)
    rest = threads_of(daemon)
    equal(len(work.pull("s", batch=64, steps=60)), 60, "batches with one thread")
    after = threads_of(daemon)
    equal([after[name] - rest[name] for name in ("spdl-dec-1", "spdl-dec-2")], [0, 0], "CPU ticks of the threads that are too many")
    # The new number holds for a worker that is started later.
    work.ctl("set", "threads.decode=2")
    os.kill(now["worker_pids"][0], signal.SIGKILL)
    wait_until(lambda: len(threads_of(daemon)) == 2, 10, "the new worker has two threads")
    check(work.ctl("set", "slots=7").document["changes"] == [], "a setting that has its value already is a change")
    equal(pull.wait(30 * PATIENCE), 0, "exit code of the rank")
    equal(hashes(pulled(work.path / "out")), hashes(work.pull("s", batch=8, steps=2000, hash=True)), "the batches of the rank")
    log = daemon.log.read_text()
    for words in ("slots was 4, is 7", "log.level was info, is debug", "memory was 64MiB, is 128MiB"):
        check(f"of user {os.getuid()}: {words}" in log and "set by process " in log, f"the log does not say {words!r}")


def test_all_or_nothing(work):
    work.daemon(work.config(config_text({"s": SYNTHETIC % 100})))
    before = settings(work)
    for code, words, said in (
            (4, ["slots=9", "shm=posix", "socket=/x"], ["socket, shm", "starts again"]),
            (4, ["limits.sample=1MiB", "threads.decode=2"], ["limits.sample"]),
            (2, ["slots=9", "slots=65"], ["'65' is outside 2 to 64"]),
            (2, ["slots=9", "threads.decod=2", "memory=much"], ["did you mean 'threads.decode'?", "memory is a size"]),
            (2, ["slots=9", "slots"], ["KEY=VALUE"]), (2, ["=9"], ["KEY=VALUE"]), (2, ["slots="], ["slots"]), (2, [], ["KEY=VALUE"]),
            (2, ["datasets.s.last=drop"], ["datasets are read from files"]),
            (4, ["slots=9", "memory=16MiB"], ["fetch.memory"])):
        r = work.ctl("set", *words, code=code)
        for text in said:
            check(text in r.err, f"{words}: no {text!r} in {r.err!r}")
        equal(settings(work), before, f"the settings after {words}")


def test_memory(work):
    head = "fetch: {memory: 8MiB}\nmemory: 64MiB\n"
    work.daemon(work.config(config_text({"s": SYNTHETIC % 100000}, head)))
    first = work.start_pull(work.path / "out", "pull", "s", "--batch", 2000, "--delay-ms", 2, "--steps", 100000)
    wait_until(lambda: (work.path / "out").stat().st_size > 0, 10, "the first rank has a batch")
    used = status(work)["memory"]["used"]
    work.ctl("set", f"memory={16 << 20}")
    now = status(work)["memory"]
    equal((now["limit"], now["used"]), (16 << 20, used), "the limit is below what is used, and the stream stays")
    size = (work.path / "out").stat().st_size
    wait_until(lambda: (work.path / "out").stat().st_size > size, 10, "the rank goes on")
    refused = work.ctl("pull", "s", "--batch", 2000, "--steps", 1, code=4)
    check("memory is short" in refused.err and " 0 of the limit" in refused.err, f"no numbers: {refused.err!r}")
    work.ctl("set", "memory=64MiB")
    equal(len(work.pull("s", batch=2000, steps=1)), 1, "batches with the memory of before")
    first.kill()


def test_reload_datasets(work):
    old, new = SYNTHETIC % 1000, SYNTHETIC % 2000
    path = work.config(config_text({"s": old, "gone": old, "same": old}))
    daemon = work.daemon(path)
    rank = work.start_pull(work.path / "out", "pull", "s", "--batch", 10, "--steps", 1500, "--delay-ms", 1, "--hash")
    wait_until(lambda: status(work)["streams"], 10, "the stream runs")
    path.write_text(config_text({"s": new, "same": old, "more": old}, "slots: 6\n"))
    pending = work.ctl("config", "--diff").document
    source = "{synthetic: {samples: %d, bytes: 2KB}}"
    wanted = [("slots", "4", "6"), ("datasets.s.source", source % 1000, source % 2000), ("datasets.gone", "there", None), ("datasets.more", None, "there")]
    equal([(one["name"], one["was"], one["now"]) for one in pending["pending"]], wanted, "what a reload would change")
    check("# `spdlctl reload` would change:\n#   slots: 4 -> 6\n" in work.ctl("config", "--diff", as_json=False).out, "config --diff for people")
    equal(status(work)["streams"][0]["slots"], 4, "slots before the reload")
    equal(changes(work.ctl("reload")), wanted, "what the reload changed")
    equal(work.ctl("config", "--diff").document["pending"], [], "what a second reload would change")
    equal(work.ctl("reload", as_json=False).out, "nothing has changed\n", "a second reload")
    listed = {one["name"]: one for one in status(work)["datasets"]}
    equal(sorted(listed), ["more", "s", "same"], "names of the datasets")
    equal(len(work.pull("s", batch=10)), 200, "steps of an epoch of the changed dataset")
    equal(len(work.pull("more", batch=10)), 100, "steps of an epoch of the added dataset")
    check("gone" in work.ctl("pull", "gone", "--batch", 10, code=None).err, "the removed dataset is there")
    equal(rank.wait(30 * PATIENCE), 0, "exit code of the rank with the former dataset")
    lines = pulled(work.path / "out")
    equal((len(lines), lines[-1]["epoch"]), (1500, 14), "batches and last epoch of 1,000 samples")
    again = config_text({"s": old})
    path.write_text(again)
    work.ctl("reload")
    equal(hashes(lines), hashes(work.pull("s", batch=10, steps=1500, hash=True)), "the batches of the rank")
    wait_until(lambda: len(status(work)["datasets"]) == 1, 10, "a dataset that nobody has any more is gone")
    check("datasets.more is added" in daemon.log.read_text(), "the log does not name the added dataset")


def test_reload_refused(work):
    path = work.config(config_text({"s": SYNTHETIC % 100}))
    daemon = work.daemon(path)
    before = settings(work)
    good = path.read_text()
    for code, text, said in (
            (1, good.replace("slots: 4", "slots: 5\nslotz: 4"), f"{path}:2:1: unknown key 'slotz'"),
            (1, good.replace("slots: 4", "slots: [4"), f"{path}:"),
            (1, good + "  t: {source: {foldr: /x}}\n", f"{path}:4:"),
            (1, "\0\xff" * 100, f"{path}:"),
            (4, good.replace("slots: 4", "slots: 5\nshm: posix\nindex_dir: /x"), "shm"),
            (1, None, "No such file")):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        r = work.ctl("reload", code=code)
        check(said in r.err, f"no {said!r} in {r.err!r}")
        check(said in daemon.log.read_text(), f"no {said!r} in the log")
        equal(work.ctl("config", "--diff").document["complaints"], [r.err.splitlines()[0].split(": ", 1)[1], *[
            line.split(": ", 1)[1] for line in r.err.splitlines()[1:]]], "the complaints of config --diff")
        equal(settings(work), before, f"the settings after {said}")
    path.write_text(good)
    equal(changes(work.ctl("reload")), [], "a reload of the file of before")


def test_sighup(work):
    path = work.config(config_text({"s": SYNTHETIC % 100}))
    daemon = work.daemon(path)
    path.write_text(path.read_text().replace("slots: 4", "slots: 9"))
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "slots: 9" in settings(work), 10, "SIGHUP reads the file")
    said = f"reload by SIGHUP from process {os.getpid()} of user {os.getuid()}: slots was 4, is 9"
    check(said in daemon.log.read_text(), f"no {said!r} in the log")
    path.write_text("slotz: 9\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "is refused" in daemon.log.read_text(), 10, "the log refuses the second SIGHUP")
    check("slots: 9" in settings(work) and daemon.process.poll() is None, "a bad file changed something")


def test_reload_takes_back_what_was_set(work):
    """The file and the command line say what holds after a reload; what spdlctl set changed is until then."""
    path = work.config(config_text({"s": SYNTHETIC % 100}))
    work.daemon(path, "threads.decode=2")
    work.ctl("set", "slots=8", "threads.decode=3")
    check("slots: 8 # default 4, by spdlctl set" in work.ctl("config", "--diff").document["yaml"], "config --diff does not say who set it")
    equal(changes(work.ctl("reload")), [("slots", "8", "4"), ("threads.decode", "3", "2")], "what the reload took back")


def test_reloads_under_load(work):
    """Datasets, threads, depth, slots and memory change again and again below two ranks, which see nothing of it."""
    folder = harness.photos(300)
    texts = []
    for i in range(4):
        head = f"slots: {4 + i}\nthreads: {{decode: {1 + i}}}\nfetch: {{depth: {2 + 60 * i}, memory: 64MiB}}\nmemory: {512 + i}MiB\n"
        datasets = {"p": f"{{source: {{folder: {folder}}}, preset: imagenet-train, order: {{seed: {i // 2}}}}}", "s": SYNTHETIC % (1000 + i)}
        if i % 2:
            datasets["more"] = SYNTHETIC % 10
        texts.append(config_text(datasets, head))
    path = work.config(texts[0])
    daemon = work.daemon(path)
    ranks = []
    for name, batch, delay_ms in (("p", 16, 40), ("s", 50, 10)):
        out = work.path / f"{name}.out"
        ranks.append((name, batch, out, work.start_pull(out, "pull", name, "--batch", batch, "--steps", 1000000, "--hash", "--reconnect", 0,
                                                         "--delay-ms", delay_ms)))
    wait_until(lambda: len(status(work)["streams"]) == 2, 10, "both streams run")
    before = status(work)

    def timed(*words):
        began = time.monotonic()
        work.ctl(*words)
        return time.monotonic() - began
    reloads, asked = [], []
    for i in range(1, RELOADS + 1):
        path.write_text(texts[i % 4])
        reloads.append(timed("reload"))
        if i % 10 == 0:
            asked.append(timed("datasets"))
    now = status(work)
    equal((now["pid"], now["generation"]), (before["pid"], before["generation"]), "pid and generation")
    equal([s["stream"] for s in now["streams"]], [s["stream"] for s in before["streams"]], "numbers of the streams")
    check(len(now["datasets"]) <= 6, f"datasets pile up: {[one['name'] for one in now['datasets']]}")
    equal(now["worker_restarts"], 0, "worker restarts")
    print(f"        {RELOADS} reloads: median {statistics.median(reloads) * 1000:.1f} ms, longest {max(reloads) * 1000:.1f} ms; "
          f"`datasets` for comparison {statistics.median(asked) * 1000:.1f} ms")
    check(statistics.median(reloads) < 3 * statistics.median(asked) + 0.05, "a reload takes much longer than a question")
    for name, batch, out, rank in ranks:
        check(rank.poll() is None, f"the rank of {name} ended: {pathlib.Path(str(out) + '.err').read_text()}")
        rank.kill()
        rank.wait()
    path.write_text(texts[0])
    work.ctl("reload")
    for name, batch, out, rank in ranks:
        lines = pulled(out)[:-1]  # the last may be cut
        field = "image" if name == "p" else "bin"
        wanted = work.pull(name, batch=batch, steps=len(lines), hash=True)
        check(len(lines) > 3, f"only {len(lines)} batches of {name}")
        equal([(x["epoch"], x["step"], x["fields"][field]["hash"]) for x in lines],
              [(x["epoch"], x["step"], x["fields"][field]["hash"]) for x in wanted], f"the batches of {name}")
    check(daemon.process.poll() is None, "the daemon ended")


def test_rights(work):
    if os.getuid() != 0:
        raise Skip("needs root, to be other users")
    work.path.chmod(0o755)
    path = work.config(config_text({"s": SYNTHETIC % 100}, "slots: 4\nsocket_mode: 0666\n"))
    work.daemon(path)

    def ctl(user, *words, groups=None):
        who = ["setpriv", "--reuid", user, "--regid", user, f"--groups={groups}" if groups else "--clear-groups"]
        return subprocess.run([*who, *work.command(*words, as_json=False)], capture_output=True, text=True, timeout=30, env=work.environment())
    for words in (["set", "slots=5"], ["reload"]):
        r = ctl("65534", *words)
        equal(r.returncode, 4, f"exit code of {words} by another user")
        for who in ("user 65534", "root", "its own user (0)", "spdld-admin"):
            check(who in r.stderr, f"{words}: no {who!r} in {r.stderr!r}")
    path.write_text(path.read_text().replace("slots: 4", "slots: 5"))
    shown = ctl("65534", "config", "--diff")
    check(shown.returncode == 0 and "reload" not in shown.stdout, f"another user sees what the file says: {shown.stdout!r}")
    check("slots: 4" in settings(work), "a refused change was made")


def test_own_user_and_group(work):
    if os.getuid() != 0:
        raise Skip("needs root, to be other users")
    work.path.chmod(0o777)
    groups = work.path / "group"
    groups.write_text(pathlib.Path("/etc/group").read_text() + "spdld-admin:x:61234:\n")
    path = work.config(config_text({"s": SYNTHETIC % 100}, "slots: 4\nsocket_mode: 0666\n"))
    script = f"mount --bind {groups} /etc/group && exec setpriv --reuid 65533 --regid 65533 --clear-groups \"$0\" \"$@\""
    if subprocess.run(["unshare", "-m", "sh", "-c", f"mount --bind {groups} /etc/group"], capture_output=True, check=False).returncode != 0:
        raise Skip("mounts cannot be made here")
    log = open(work.path / "own.log", "wb")  # noqa: SIM115
    daemon = subprocess.Popen(["unshare", "-m", "sh", "-c", script, str(harness.BUILD / "spdld"), "-c", str(path), "--socket", work.socket,
                               "--set", "index_dir=none"], stdout=log, stderr=log)
    work.started.append(daemon)
    wait_until(lambda: work.ctl("status", code=None).code == 0, 10, "the daemon listens")

    def ctl(user, group, groups, *words):
        who = ["setpriv", "--reuid", user, "--regid", group, f"--groups={groups}" if groups else "--clear-groups"]
        return subprocess.run([*who, *work.command(*words, as_json=False)], capture_output=True, text=True, timeout=30, env=work.environment())
    for user, group, more, code in (("65533", "65533", "", 0), ("65534", "65534", "61234", 0), ("65534", "61234", "", 0), ("0", "0", "", 0),
                                    ("65534", "65534", "", 4), ("65534", "65533", "4,5", 4)):
        for words in (["set", f"slots={5 + code}"], ["reload"]):
            r = ctl(user, group, more, *words)
            equal(r.returncode, code, f"{words} by user {user} of groups {group} {more}: {r.stderr}")
    daemon.terminate()
    equal(daemon.wait(10 * PATIENCE), 0, "exit code")


def test_private(work):
    """What was set in a private daemon turns no other rank of its job away."""
    config = work.config(config_text({"s": SYNTHETIC % 5000}))
    job = {"SPDL_JOB": "live"}
    sets = ("threads.decode=2",)
    first = work.start_pull(work.path / "out", "pull", "s", "--batch", 10, "--delay-ms", 2, "--steps", 100000, config=config, sets=sets, env=job)
    wait_until(lambda: (work.path / "out").stat().st_size > 0, 10, "the first rank has a batch")
    equal(changes(work.ctl("set", "slots=8", "threads.decode=1", config=config, sets=sets, env=job)),
          [("slots", "4", "8"), ("threads.decode", "2", "1")], "what was changed")
    equal(len(work.pull("s", batch=10, steps=3, config=config, sets=sets, env=job)), 3, "batches of another rank")
    refused = work.ctl("pull", "s", "--batch", 10, "--steps", 1, config=config, sets=("threads.decode=2", "fetch.depth=9"), env=job, code=4)
    check("fetch.depth" in refused.err, f"the difference is not named: {refused.err!r}")
    first.kill()
    os.kill(work.ctl("status", config=config, sets=sets, env=job).document["pid"], signal.SIGTERM)  # or it stays for 5 s


harness.main(globals())
