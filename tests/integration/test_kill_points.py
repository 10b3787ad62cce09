#!/usr/bin/python3
"""kill -9 exactly at each named point of the daemon, the worker and a rank (shm/shm_failpoint.h): what is printed before and after, put together,
is what an unkilled pull prints, and nothing stays behind. The points are found in the sources, so that a new one is tested at once."""
# alone: it builds
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import order_reference as ref  # noqa: E402
import tars  # noqa: E402
from harness import ROOT, check, equal, wait_until  # noqa: E402

STEPS, BATCH = 10, 16
POINT = re.compile(r'SPDL_FAILPOINT\("([a-z.-]+)"\)')


def points(prefix):
    found = set()
    for room in ("daemon", "shm", "proto", "client"):
        for path in (ROOT / room).rglob("*.c"):
            found |= set(POINT.findall(path.read_text()))
    return sorted(name for name in found if name.startswith(prefix))


def whole_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def facts(line):
    return (line["epoch"], line["step"], line["rows"], line["valid"], line["ids"], line["keys"], line["state"],
            line["fields"]["image"]["row_hashes"])


def death_env(work, point, nth):
    token = work.path / "token"
    token.write_text("")
    return {"SPDL_FAILPOINT": f"{point}:{nth}", "SPDL_FAILPOINT_TOKEN": str(token)}, token


def pull_over_deaths(work, config, daemon, daemon_env, rank_env):
    """Lines of one pull; whoever dies is started again without the point."""
    got, state, out = [], None, work.path / "out"
    while len(got) < STEPS:
        rank = work.start_pull(out, "pull", "p", "--batch", BATCH, "--seed", 3, "--hash", "--steps", STEPS - len(got), *(["--state", state] if state else []),
                               env=rank_env)
        while rank.poll() is None:
            if daemon.process.poll() is not None:
                daemon = work.daemon(config, env=daemon_env)
            try:
                rank.wait(0.01)
            except subprocess.TimeoutExpired:
                pass
        check(rank.returncode in (0, -signal.SIGKILL), f"the pull ended with {rank.returncode}: {pathlib.Path(str(out) + '.err').read_text()[-300:]}")
        lines = whole_lines(out)
        check(lines or rank.returncode, "a pull ended well without a line")
        got += lines
        state = got[-1]["state"] if got else None
    return got, daemon


def without_streams(work, config, daemon, env, name):
    """Waits until the daemon has no stream; it may also die behind the last batch, and is started again then."""
    def no_stream():
        nonlocal daemon
        if daemon.process.poll() is not None:
            daemon = work.daemon(config, env=env)
        result = work.ctl("status", code=None)
        return result.code == 0 and not result.document["streams"]
    wait_until(no_stream, 15, f"no stream is left behind {name}")  # a status under which the daemon dies waits for it for 10 s
    return daemon


def try_points(work, prefix, hits):
    harness.use_points()
    config = work.config(harness.folder_config(harness.photos(300)))
    daemon = work.daemon(config)
    unkilled = [facts(line) for line in work.pull("p", batch=BATCH, seed=3, hash=True, steps=STEPS)]
    daemon.stop()
    names, died = points(prefix), 0
    check(len(names) >= 3, f"only {names} found")
    for name in names:
        for nth in hits:
            env, token = death_env(work, name, nth)
            daemon = work.daemon(config, env=env if not name.startswith("rank.") else None)
            got, daemon = pull_over_deaths(work, config, daemon, env, env if name.startswith("rank.") else None)
            equal([facts(line) for line in got], unkilled, f"lines with a kill at {name}, time {nth}")
            daemon = without_streams(work, config, daemon, env if not name.startswith("rank.") else None, name)
            if nth == 1:  # some points come behind the rank's end, and behind that of its stream
                wait_until(lambda: not token.exists(), 5, f"the point {name} is reached")
            died += not token.exists()
            daemon.stop()
            left = work.shm_left()
            check(not left, f"left in /dev/shm behind {name}: {left}")
    print(f"        {len(names)} points, {died} deaths")


def test_points_of_the_daemon(work):
    try_points(work, "daemon.", (1, 9))


def test_points_of_the_worker(work):
    try_points(work, "worker.", (1, 20))


def test_points_of_a_rank(work):
    try_points(work, "rank.", (1, 4))


def test_a_codec_that_crashes(work):
    """It costs one sample each: the worker is started again, nobody else's batch changes, and the sample is of class CRASH and gives way."""
    harness.use_points()
    folder, marker = work.path / "in", "a marker that no picture has"
    folder.mkdir()
    keys = [f"g{i:03d}.jpg" for i in range(120)]
    for key, path in zip(keys, sorted(harness.photos(300).rglob("*.jpg"))):
        (folder / key).write_bytes(path.read_bytes())
    config = work.config(harness.folder_config(folder, more="    on_error: {max_rate: 1}\n"))
    daemon = work.daemon(config)
    good = {row[1]: row for row in harness.rows_of(work.pull("p", batch=BATCH, seed=3, hash=True, steps=7))}
    daemon.stop()
    bad = {5, 17, 60}
    for i in bad:
        with open(folder / keys[i], "ab") as f:
            f.write(marker.encode())
    env = {"SPDL_CRASH_MARKER": marker}
    lines = {}
    for threads in (1, 2):
        daemon = work.daemon(config, f"threads.decode={threads}", env=env)
        beside = work.start_pull(work.path / "beside", "pull", "p", "--batch", BATCH, "--seed", 3, "--steps", 7, "--hash")
        lines[threads] = work.pull("p", batch=BATCH, seed=3, hash=True, steps=7)
        equal(beside.wait(60), 0, "exit code of the rank beside it")
        equal(harness.without_waits(whole_lines(work.path / "beside")), harness.without_waits(lines[threads]), "lines of the rank beside it")
        found = {f["key"]: f["class"] for f in work.ctl("quarantine").document}
        equal(found, {keys[i]: "CRASH" for i in bad if i in {ref.Order("global", 3, 0, 120).at(p) for p in range(7 * BATCH)}}, "quarantine")
        check(work.ctl("status").document["worker_restarts"] >= 2 * len(found), "the worker was not started again")
        daemon.stop()
    equal(harness.without_waits(lines[1]), harness.without_waits(lines[2]), "lines on 1 and 2 threads")
    for line in lines[1]:
        tried = [ref.Order("global", 3, 0, 120).at(line["step"] * BATCH + r) for r in range(BATCH)]
        equal([(e["row"], e["key"], e["class"]) for e in line["errors"]],
              [(r, keys[i], "CRASH") for r, i in enumerate(tried) if i in bad], "errors")
        for row in harness.rows_of([line]):
            check(row[0] not in bad, "a sample that crashes its codec is shown")
    same = [row for row in harness.rows_of(lines[1]) if row[1] in good and row == good[row[1]]]
    check(len(same) >= 7 * BATCH - len(bad), f"{len(same)} rows are as they were before")


def crash_lines(work, text, keys, bad, marker, policy):
    """Pulls an epoch beside crashes and checks that each costs its sample and nothing else."""
    daemon = work.daemon(work.config(text), "threads.decode=2", env={"SPDL_CRASH_MARKER": marker})
    lines = work.pull("p", batch=BATCH, seed=3, hash=True, steps=6, on_error=policy)
    tried = [ref.Order("global", 3, 0, len(keys)).at(p) for p in range(6 * BATCH)]
    failed = [(e["row"] + line["step"] * BATCH, e["key"], e["class"]) for line in lines for e in line["errors"]]
    equal(failed, [(p, keys[i], "CRASH") for p, i in enumerate(tried) if i in bad], f"errors with {policy}")
    equal(sum(line["valid"] for line in lines), 6 * BATCH - (len(failed) if "mask" in policy else 0), f"valid rows with {policy}")
    shown = {key for line in lines for row, key in enumerate(line["keys"]) if row not in {e["row"] for e in line["errors"]} or "mask" not in policy}
    check(not shown & {keys[i] for i in bad}, "a sample that crashes its codec is shown")
    found = {f["key"]: f for f in work.ctl("quarantine").document}
    equal({key: f["class"] for key, f in found.items()}, {key: "CRASH" for _, key, _ in failed}, "quarantine")
    check(all(f["message"].strip() and f["source"] and f["count"] >= 1 for f in found.values()), f"the list says too little: {found}")
    # Two that die together share one of their two deaths.
    check(daemon.process.poll() is None and work.ctl("status").document["worker_restarts"] > len(found), "the worker was not started again")
    daemon.stop()
    return lines, found


def test_a_codec_that_dies_in_every_way(work):
    """SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT and SIGSYS, in a folder and in shards, substituted and masked."""
    harness.use_points()
    folder, marker, count = work.path / "in", "a marker that no picture has", 96
    (folder / "c").mkdir(parents=True)
    bad = {7 + 15 * kind: kind for kind in range(6)}
    for i, path in enumerate(sorted(harness.photos(300).rglob("*.jpg"))[:count]):
        (folder / "c" / f"{i:03d}.jpg").write_bytes(path.read_bytes() + (f"{marker}{bad[i]}".encode() if i in bad else b""))
    pattern, lines = tars.shards(folder, work.path / "tar", per_shard=40), {}
    for policy in ("substitute,max_rate=1", "mask,max_rate=1"):
        lines["folder", policy], _ = crash_lines(work, harness.folder_config(folder), [f"c/{i:03d}.jpg" for i in range(count)], bad, marker, policy)
        lines["tar", policy], found = crash_lines(work, tars.config(pattern), [f"c/{i:03d}" for i in range(count)], bad, marker, policy)
        equal([line["ids"] for line in lines["tar", policy]], [line["ids"] for line in lines["folder", policy]], "ids of shards and folder")
        equal([line["fields"] for line in lines["tar", policy]], [line["fields"] for line in lines["folder", policy]], "rows of shards and folder")
        check(all(f["source"].endswith(".tar") and f["offset"] >= 512 for f in found.values()), f"where they are in their shards: {found}")


if __name__ == "__main__":
    harness.main(globals())
