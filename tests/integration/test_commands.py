#!/usr/bin/python3
"""The commands themselves: exit codes, complaints of a configuration with file, line and column, sockets in use, what each verb prints."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, check, equal, wait_until  # noqa: E402


def spdld(work, *words, timeout_s=20):
    return subprocess.run([str(BUILD / "spdld"), *map(str, words)], capture_output=True, text=True, timeout=timeout_s,
                          stdin=subprocess.DEVNULL, env=work.environment())


def test_complaints_name_the_place(work):
    cases = [
        ("slots: 4\nslotz: 5\n", 2, 1, "slots"),
        ("slots: many\n", 1, 8, ""),
        ("slots: 0\n", 1, 8, ""),
        ("threads:\n  decode: 2\n  decoed: 3\n", 3, 3, "decode"),
        ("shm: memfdd\n", 1, 6, "memfd"),
        ("memory: 12XB\n", 1, 9, ""),
        ("datasets:\n  p:\n    source: {folder: /x}\n    preset: imagenet-trian\n", 4, 13, "imagenet-train"),
        ("datasets:\n  p:\n    source: {foldr: /x}\n", 3, 14, "folder"),
        ("datasets:\n  p:\n    source: {folder: /x}\n    last: dorp\n", 4, 11, "drop"),
        ("slots: [1\n", 2, None, ""),
        ("\tslots: 4\n", 1, None, ""),
        ("slots: 4\nslots: 5\n", 2, 1, ""),
    ]
    for text, line, column, near in cases:
        path = work.config(text)
        for words in (["-c", path, "--check"], ["-c", path, "--foreground", "--socket", work.socket]):
            r = spdld(work, *words)
            equal(r.returncode, 1, f"exit code of spdld for {text!r}")
            said = r.stderr + r.stdout
            place = f"{path}:{line}:" + (f"{column}:" if column else "")
            check(place in said, f"{text!r}: wanted {place!r} in {said!r}")
            check(near in said, f"{text!r}: wanted the nearest name {near!r} in {said!r}")
    two = spdld(work, "-c", work.config("slotz: 4\nmemorie: 2GiB\n"), "--check")
    check(":1:1:" in two.stderr + two.stdout and ":2:1:" in two.stderr + two.stdout, f"not both complaints: {two.stderr}{two.stdout}")


def test_roots_that_do_not_exist(work):
    """A check says where they are named; a start warns, and serves the others."""
    none, path = work.path / "none", work.config(f"datasets:\n  p:\n    source: {{folder: {work.path}/none}}\n  q:\n    last: drop\n    source: {{tar: {work.path}/none/*.tar}}\n")
    said = spdld(work, "-c", path, "--check")
    equal(said.returncode, 1, "exit code")
    for words in (f"{path}:3:5: dataset p: {none}: No such file", f"{path}:6:5: dataset q: tar {none}/*.tar"):
        check(words in said.stderr, f"{words!r} is in {said.stderr}")
    daemon = work.daemon(path)
    for name in "pq":
        harness.wait_until(lambda name=name: f"warning: dataset {name}: {none} does not exist" in daemon.log.read_text(), 20, f"the warning about {name}")
    equal(daemon.stop(), 0, "exit code")


def test_spdld_exit_codes(work):
    equal(spdld(work, "--version").returncode, 0, "--version")
    equal(spdld(work, "--nonsense").returncode, 2, "an unknown option")
    equal(spdld(work, "surplus").returncode, 2, "a surplus word")
    equal(spdld(work, "-c", work.path / "missing.yaml", "--check").returncode, 1, "a configuration file that is not there")
    equal(spdld(work, "-c", work.config("slots: 4\n"), "--set", "slotz=4", "--check").returncode, 1, "a wrong --set")
    equal(spdld(work, "-c", work.config("slots: 4\n"), "--check").returncode, 0, "--check of a good file")
    defaults = spdld(work, "--print-defaults")
    equal(defaults.returncode, 0, "--print-defaults")
    check("slots" in defaults.stdout and "memory" in defaults.stdout, "the sample configuration lacks settings")
    sample = work.path / "sample.yaml"
    sample.write_text(defaults.stdout)
    equal(spdld(work, "-c", sample, "--check").returncode, 0, "--check of the sample configuration")


def test_socket_in_use_and_stale(work):
    config = work.config("slots: 4\n")
    first = work.daemon(config)
    second = work.daemon(config, ready=False)
    equal(second.process.wait(10), 3, "a second daemon on the same socket")
    check(work.socket in second.log.read_text(), f"the sentence does not name the socket: {second.log.read_text()!r}")
    check(first.process.poll() is None, "the first daemon ended")
    first.kill()
    check(os.path.exists(work.socket), "a killed daemon cannot have removed its socket")
    third = work.daemon(config)
    equal(third.stop(), 0, "exit code after SIGTERM")
    check(not os.path.exists(work.socket), "the socket stays after SIGTERM")


def test_not_writable_socket_folder(work):
    r = spdld(work, "-c", work.config("slots: 4\n"), "--foreground", "--socket", work.path / "none" / "s")
    check(r.returncode in (1, 4) and "none/s" in r.stderr, f"exit {r.returncode}: {r.stderr!r}")
    r = spdld(work, "-c", work.config("slots: 4\n"), "--foreground", "--socket", "/tmp/" + "x" * 200)
    check(r.returncode in (1, 2, 4) and r.stderr.strip(), f"a socket name that is too long: exit {r.returncode}: {r.stderr!r}")


def test_sigterm_and_sigint_while_streaming(work):
    config = work.config("datasets:\n  p:\n    source: {synthetic: {samples: 1000000, bytes: 1024}}\n")
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = work.daemon(config)
        pull = work.start_pull(work.path / "out", "pull", "p", "--batch", 16, "--steps", 100000, "--reconnect", 0)
        wait_until(lambda: (work.path / "out").stat().st_size > 1000, 10, "the pull prints lines")
        daemon.process.send_signal(number)
        equal(daemon.process.wait(10), 0, f"exit code after signal {number}")
        check(pull.wait(20) != 0, "a pull whose daemon is gone for good ended with 0")
        check((work.path / "out.err").read_text().strip(), "that pull said nothing")


def test_ctl_without_daemon_and_wrong_usage(work):
    for words in (["status"], ["pull", "p", "--batch", 4], ["why"]):
        r = work.ctl(*words, code=3)
        check(work.socket in r.err and r.err.count("\n") <= 4, f"no helpful sentence: {r.err!r}")
    for words in ([], ["nonsense"], ["pull"], ["pull", "p", "--batch"], ["pull", "p", "--batch", "x"],
                  ["pull", "p", "--batch", 4, "--nonsense"], ["bench"], ["status", "surplus"]):
        r = work.ctl(*words, code=2)
        check(r.err.strip(), f"{words}: no sentence")


def test_exit_codes_of_what_is_missing(work):
    """1 for what is not there, whoever looks for it; 3 only for a daemon that is not there."""
    work.daemon(work.config("".join(["datasets:\n"] + [f"  d{i}: {{source: {{synthetic: {{samples: 10, bytes: 8}}}}}}\n" for i in range(7)])))
    (work.path / "nope").mkdir()
    for words in (["pull", "nope"], ["bench", "nope"], ["preview", "nope", "-o", work.path / "x.png"], ["plan", "nope"], ["index", "nope"],
                  ["errors", "nope"], ["quarantine", "nope"]):
        said = work.ctl(*words, code=1).err
        check("no dataset 'nope' (there are d0, d1, d2, d3, d4 and 2 more)" in said, f"{words}: {said!r}")
    r = subprocess.run(work.command("plan", "nope"), capture_output=True, text=True, cwd=work.path, env=work.environment())
    check("--private --source folder:nope" in r.stderr and r.returncode == 1, f"no hint at the folder of that name: {r.stderr!r}")
    check("did you mean 'd1'" in work.ctl("errors", "d11", code=1).err, "no hint at a name that is near")
    for verb in ("pull", "index", "plan"):
        for source in ("folder:nowhere", "tar:nowhere*.tar", "list:nowhere.csv"):
            work.ctl(verb, "--source", source, private=True, code=1)
    work.ctl("datasets", private=True, env={"SPDL_LOG": str(work.path / "none" / "x")}, code=1)
    work.ctl("datasets", private=True, env={"SPDLD": str(work.path / "none")}, code=1)


def test_private_look(work):
    """Verbs that only read take the job's daemon as it is, and start none to see nothing in it."""
    job = {"SPDL_JOB": "seen"}
    none = work.ctl("status", private=True, env=job, code=3).err
    check("no private spdld of job seen runs, and none of another" in none, f"said {none!r}")
    pull = subprocess.Popen(work.command("pull", "--source", "synthetic:100,8", "--batch", 4, "--delay-ms", 100, private=True, sets=["slots=3"]),
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=work.environment(job))
    try:
        check(pull.stdout.readline(), "no batch came")
        for verb in ("status", "why", "streams", "errors", "quarantine", "datasets", "config"):
            work.ctl(verb, private=True, env=job, as_json=verb != "config")
        pid = work.ctl("status", private=True, env=job).document["pid"]
        check("slots" in work.ctl("status", private=True, sets=["slots=4"], env=job, code=4).err, "a setting that was given and differs is said")
        for verb in ("status", "why", "streams", "errors", "quarantine"):
            said = work.ctl(verb, private=True, env={"SPDL_JOB": "other"}, code=3).err
            check("no private spdld of job other runs" in said and f"spdld-seen.sock (pid {pid})" in said, f"{verb}: {said!r}")
        check("slots" in work.ctl("config", private=True, env={"SPDL_JOB": "other"}, as_json=False).out, "config shows the defaults")
    finally:
        pull.kill()
        pull.wait()
        pull.stdout.close()


def test_help_and_hints(work):
    equal(work.ctl("help", as_json=False).out, work.ctl("--help", as_json=False).out, "help")
    equal(work.ctl("help", "pull", as_json=False).out, work.ctl("pull", "--help", as_json=False).out, "help pull")
    work.daemon(work.config("datasets:\n  p:\n    source: {synthetic: {samples: 10, bytes: 8}}\n    last: drop\n"))
    for said in (work.ctl("set", "decode.threads=3", code=None).err, work.ctl("datasets", private=True, sets=["decode.threads=3"], env={"SPDL_LOG": ""}, code=1).err):
        check("did you mean 'threads.decode'" in said, f"no hint at the words in another order: {said!r}")
    said = work.ctl("pull", "p", "--batch", 64, code=2).err
    check("in the dataset's configuration" in said, f"it does not say where: {said!r}")
    work.ctl("pull", "--source", "synthetic:100,8", "--batch", 4, "--steps", 1, private=True)
    log = (work.path / "private.log").read_text()
    check("dataset synthetic:100 samples of 8 bytes: 100 samples" in log, f"the log does not name the source: {log[-400:]!r}")


def test_ended_while_batches_wait(work):
    work.daemon(work.config("datasets:\n  p:\n    source: {synthetic: {samples: 10, bytes: 8}}\n"))
    pull = work.start_pull(work.path / "out", "pull", "p", "--batch", 2, "--steps", 3, "--slots", 4, "--delay-ms", 60000)
    wait_until(lambda: "all is made, and 2 batches wait for the rank" in work.ctl("status", as_json=False).out, 10, "status says what lies ready")
    check("all is made, and 2 batches wait" in work.ctl("why", as_json=False).out, "why says what lies ready")
    pull.kill()


def test_status_and_lists(work):
    folder = harness.photos(300)
    daemon = work.daemon(work.config(harness.folder_config(folder)))
    pull = work.start_pull(work.path / "out", "pull", "p", "--batch", 8, "--steps", 1000, "--rank", 1, "--world", 2, "--delay-ms", 20)
    wait_until(lambda: (work.path / "out").read_text().count("\n") >= 3, 10, "the pull prints lines")
    status = work.ctl("status").document
    equal(status["pid"], daemon.pid, "pid")
    for name in ("version", "uptime_s", "generation", "memory", "datasets", "streams"):
        check(name in status, f"status has no {name}")
    check(0 < status["memory"]["used"] <= status["memory"]["limit"], f"memory {status['memory']}")
    stream = status["streams"][0]
    for name in ("dataset", "rank", "world", "step", "ready_slots", "starved_ratio", "samples_per_s", "failures", "waiting_for"):
        check(name in stream, f"a stream of status has no {name}")
    equal((stream["dataset"], stream["rank"], stream["world"]), ("p", 1, 2), "stream")
    listed = work.ctl("datasets").out
    check('"p"' in listed and "300" in listed, f"datasets prints {listed[:300]!r}")
    settings = work.ctl("config").out
    check("slots" in settings, f"config prints {settings[:200]!r}")
    text = work.ctl("status", as_json=False).out
    check("p" in text and "\x1b" not in text, "the status of people has colours where there is no terminal")
    pull.terminate()
    pull.wait(5)
    wait_until(lambda: not work.ctl("status").document["streams"], 2, "the stream of a pull that ended is gone")


def test_bench_and_preview(work):
    config = work.config(harness.folder_config(harness.photos(300)))
    work.daemon(config)
    line = work.ctl("bench", "p", "--batch", 32, "--seconds", 2).lines[-1]
    for name in ("samples", "wall_s", "samples_per_s", "cpu_s", "samples_per_cpu_s", "cpu_us_per_sample", "client_cpu_us_per_batch",
                 "wait_p50_us", "wait_p99_us", "wake_p50_us", "first_batch_ms", "pss_mib"):
        check(isinstance(line.get(name), (int, float)), f"bench has no number {name}: {line}")
    check(line["samples"] > 0 and line["cpu_s"] > 0 and line["pss_mib"] > 0, f"numbers of bench: {line}")
    near = line["samples"] / line["wall_s"]
    check(abs(near - line["samples_per_s"]) <= 0.02 * near + 1, "samples_per_s is not samples by wall_s")
    ranks = work.ctl("bench", "p", "--batch", 32, "--seconds", 1, "--ranks", 2).lines[-1]
    check(ranks["samples"] > 0, "bench with two ranks")
    sheet = work.path / "sheet.png"
    work.ctl("preview", "p", "--batch", 16, "-o", sheet)
    from PIL import Image
    picture = Image.open(sheet)
    check(picture.width >= 400 and picture.height >= 400 and len(set(picture.convert("L").getdata())) > 100, f"sheet of {picture.size}")


def test_check_of_files(work):
    good, bad = work.config("slots: 4\n"), work.config("slots: 4\nslotz: 2\n")
    work.ctl("check", good)
    r = work.ctl("check", good, bad, code=1)
    check(f"{bad}:2:1:" in r.out + r.err, f"check prints {r.out!r} {r.err!r}")


def test_private_daemon(work):
    """Ends with its process, is found again by its job, refuses another configuration, leaves nothing."""
    config = work.config(harness.folder_config(harness.photos(300)))
    direct = work.ctl("pull", "--source", f"folder:{harness.photos(300)}", "--preset", "imagenet-train", "--batch", 8, "--steps", 2, private=True)
    equal(len(direct.lines), 2, "lines of --source and --preset")
    wait_until(lambda: not harness.reap(), 2, "the daemon of a single process ends with it")
    job = {"SPDL_JOB": "shared"}
    first = work.start_pull(work.path / "out", "pull", "p", "--batch", 8, "--steps", 1000, "--delay-ms", 20, config=config, env=job)
    wait_until(lambda: (work.path / "out").stat().st_size > 0, 10, "the first rank prints lines")
    same = work.ctl("status", config=config, env=job).document
    also = work.ctl("status", config=config, env=job).document
    equal(same["pid"], also["pid"], "two clients of one job meet the same daemon")
    equal(len(same["streams"]), 1, "and it has the first rank's stream")
    mode = os.stat(work.path / "run" / "spdld-shared.sock").st_mode & 0o777
    equal(oct(mode), oct(0o600), "mode of the private socket")
    r = work.ctl("status", config=config, env=job, sets=["slots=9"], code=4)
    check("slots" in r.err, f"the difference is not named: {r.err!r}")
    first.terminate()
    first.wait(5)
    began = time.monotonic()
    wait_until(lambda: not harness.is_alive(same["pid"]), 9, "the daemon of a job ends 5 s after its last client")
    check(time.monotonic() - began > 3, "it ended at once, though the job may have more clients to come")
    check(not list((work.path / "run").glob("*.sock")), "its socket stays")


def test_wrong_private_configuration(work):
    r = work.ctl("pull", "p", "--batch", 8, config=work.config("slotz: 1\n"), code=None)
    check(r.code == 1 and ":1:1:" in r.err + (work.path / "private.log").read_text(), f"exit {r.code}: {r.err!r}")
    r = work.ctl("pull", "p", "--batch", 8, config=work.config("slots: 1\n"), env={"SPDLD": "/nowhere/spdld"}, code=None)
    check(r.code in (1, 3) and "/nowhere/spdld" in r.err, f"a program that is not there: exit {r.code}: {r.err!r}")


def test_socket_is_no_socket(work):
    pathlib.Path(work.socket).write_text("a file")
    daemon = work.daemon(work.config("slots: 4\n"), ready=False)
    check(daemon.process.wait(10) != 0, "a plain file was replaced by the socket")
    equal(pathlib.Path(work.socket).read_text(), "a file", "content of the file")
    os.unlink(work.socket)
    with socket.socket(socket.AF_UNIX) as other:  # somebody else's live socket, without our lock
        other.bind(work.socket)
        other.listen(1)
        r = work.ctl("status", code=None, timeout_s=40)
        check(r.code != 0, "a peer that says nothing passed for a daemon")


def test_json_of_keys_that_are_not_utf8(work):
    folder = work.path / "in"
    folder.mkdir()
    photo = sorted(harness.photos(300).rglob("*.jpg"))[0].read_bytes()
    for name in (b"a\xff\xfe.jpg", "ü \"x\"\n.jpg".encode(), b"plain.jpg"):
        with open(os.path.join(os.fsencode(folder), name), "wb") as f:
            f.write(photo)
    result = work.ctl("pull", "p", "--batch", 3, config=work.config(harness.folder_config(folder)))
    keys = json.loads(result.out)["keys"]
    equal(sorted(os.fsencode(key) for key in keys), sorted([b"a\xff\xfe.jpg", "ü \"x\"\n.jpg".encode(), b"plain.jpg"]), "keys")


if __name__ == "__main__":
    harness.main(globals())
