#!/usr/bin/python3
"""What the worker's sandbox costs: pictures of the training recipe per CPU second with it and without it, by turns, in a build with points.

usage: sandbox_cost.py [ROUNDS]      prints the median of the ratios; 1 is free
"""
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402


def rate(work, config, without):
    bench = lambda: work.ctl("bench", "p", "--batch", 64, "--seconds", 4, config=config, sets=["threads.decode=1"], timeout_s=60,  # noqa: E731
                             env={"SPDL_LOCK_WITHOUT": without})
    result, cpu_s = harness.cpu_of(bench)
    return result.lines[-1]["samples"] / cpu_s


def main():
    harness.use_points()
    work = harness.Work("sandbox-cost")
    config = work.config(harness.folder_config(harness.photos(300)))
    ratios = [rate(work, config, "") / rate(work, config, "landlock,seccomp") for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 8)]
    work.end()
    work.remove()
    print(f"pictures per CPU second with the sandbox, of those without it: {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
