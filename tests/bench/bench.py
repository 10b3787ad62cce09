#!/usr/bin/python3
"""The benchmark tables, as ratios in one run. CPU is that of daemon, worker and rank together, counted here and not by the programs.

usage: bench.py [--build DIR] [--seconds S]      the bars stand beside each figure; exit 1 when one is missed and STRICT=1
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/lib"))


def rows(args):
    import harness
    work = harness.Work("bench")
    missed = []

    def row(name, value, bar, wanted, unit=""):
        good = value >= wanted if bar == ">=" else value <= wanted
        missed.extend([] if good else [name])
        print(f"{name:68} {value:9.2f} {unit:4} {bar} {wanted:g}{'' if good else '   MISSED'}", flush=True)

    def bare(threads):
        program = harness.BUILD / "bare_decode"
        subprocess.run(["make", "-s", "--no-print-directory", f"BUILD={harness.BUILD}", "bare-decode"], cwd=ROOT, check=True)
        lines = subprocess.run([program, folder, str(1000), str(threads)], capture_output=True, text=True, check=True).stdout.splitlines()
        return next(json.loads(line)["samples_per_cpu_s"] for line in lines if json.loads(line)["bare"] == "train")

    def bench(config, *words, sets=()):
        run = lambda: work.ctl("bench", "p", "--batch", 64, "--seconds", args.seconds, *words, config=config, sets=sets, timeout_s=120)  # noqa: E731
        result, cpu_s = harness.cpu_of(run)
        return result.lines[-1], cpu_s

    try:
        folder = harness.photos(1000)
        train = work.config(harness.folder_config(folder))
        rate = {}
        for threads in (1, 2):
            before = bare(threads)
            result, cpu_s = bench(train, sets=[f"threads.decode={threads}"])
            rate[threads] = (result["samples"] / cpu_s, (before + bare(threads)) / 2)
            row(f"train recipe, {threads} decoder(s): pictures per CPU second, of the bare loop's", rate[threads][0] / rate[threads][1], ">=", 0.75)
        row("two decoders of one, over the bare loop's own ratio", (rate[2][0] / rate[1][0]) / (rate[2][1] / rate[1][1]), ">=", 0.95)
        small = work.config("datasets:\n  p:\n    source: {synthetic: {samples: 10000000, bytes: 1024}}\n    order: {shuffle: global}\n")
        result, cpu_s = bench(small)
        row("synthetic 1 KiB: CPU of everything per sample", cpu_s / result["samples"] * 1e6, "<=", 6, "us")
        row("synthetic 1 KiB: CPU of the rank per batch of 64", result["client_cpu_us_per_batch"], "<=", 20, "us")
        slow = work.config(f"threads: {{decode: 1}}\ndatasets:\n  p:\n    source: {{folder: {folder}}}\n    preset: imagenet-train\n")
        wakes = [bench(slow)[0]["wake_p50_us"] for _ in range(3)]
        row("a starved rank awake after the publish stamp, p50", statistics.median(wakes), "<=", 100, "us")
        starts = [work.pull("p", batch=64, steps=1, config=train)[0]["wait_us"] / 1000 for _ in range(5)]
        print(f"{'first batch of 64 photographs, private daemon, median':68} {statistics.median(starts):9.2f} ms")
        work.end()
    finally:
        work.remove()
    return missed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=int, default=8)
    args = parser.parse_args()
    os.environ["BUILD"] = args.build
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: daemons of our clients are counted too
    missed = rows(args)
    if missed:
        print(f"{len(missed)} missed: {'; '.join(missed)}")
    return 1 if missed and os.environ.get("STRICT") == "1" else 0


if __name__ == "__main__":
    sys.exit(main())
