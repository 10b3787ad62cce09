#!/usr/bin/python3
"""The benchmark tables, as ratios in one run. CPU is that of daemon, worker and rank together, counted here and not by the programs.
What is compared runs by turns, and of all turns the median counts.

usage: bench.py [--build DIR] [--rounds N] [--only WORD]...     the bars stand beside the figures; exit 1 when one is missed and STRICT=1
  --only WORD   of the tables alone that have the word in their name: photographs shards scaling formats bad small ranks index
"""
import argparse
import ctypes
import io
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/lib"))

EPOCH, SEEN = 15, 90  # steps of 64 that a thousand photographs have in an epoch, and of the epochs behind it that are measured
BAD_OF = 20           # every so many-th photograph is cut


class Bench:
    def __init__(self, harness, args):
        self.harness, self.args, self.missed = harness, args, []
        self.work = harness.Work("bench")
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=harness.BUILD))  # large files: on a disk

    def row(self, name, value, bar="", wanted=0.0, unit=""):
        good = bar == "" or (value >= wanted if bar == ">=" else value <= wanted)
        self.missed.extend([] if good else [name])
        print(f"{name:90} {value:9.3f} {unit:4} {bar} {wanted if bar else '':<5}{'' if good else '   MISSED'}", flush=True)

    def by_turns(self, runs, rounds):
        """Runs each of {name: function}, forwards and backwards by turns. Returns {name: its values}."""
        values = {name: [] for name in runs}
        for turn in range(rounds):
            for name in list(runs) if turn % 2 == 0 else reversed(runs):
                values[name].append(runs[name]())
        return values

    def drain(self, config, *words):
        """spdlctl bench. Returns its last line and the CPU seconds of everything."""
        run = lambda: self.work.ctl("bench", "p", "--batch", 64, *words, config=config, timeout_s=240)  # noqa: E731
        result, cpu_s = self.harness.cpu_of(run)
        return result.lines[-1], cpu_s

    def steps(self, config, count):
        result, cpu_s = self.drain(config, "--steps", count)
        return result["samples"], cpu_s

    def rates(self, config):
        """Pictures per CPU second in the first epoch, in a new daemon, and in those behind it."""
        first, first_s = self.steps(config, EPOCH)
        both, both_s = self.steps(config, EPOCH + SEEN)
        return first / first_s, (both - first) / (both_s - first_s)

    def cost_us(self, config, *words):
        result, cpu_s = self.drain(config, *words)
        return cpu_s / result["samples"] * 1e6

    def bare(self, folder, threads):
        """Pictures per CPU second of the bare loops, by their names."""
        program = self.harness.BUILD / "bare_decode"
        subprocess.run(["make", "-s", "--no-print-directory", f"BUILD={self.harness.BUILD}", "bare-decode"], cwd=ROOT, check=True)
        lines = subprocess.run([program, folder, str(1000), str(threads)], capture_output=True, text=True, check=True).stdout.splitlines()
        return {line["bare"]: line["samples_per_cpu_s"] for line in map(json.loads, lines)}

    def folder_config(self, folder, preset="imagenet-train", threads=2):
        return self.work.config(self.harness.folder_config(folder, preset, head=f"threads: {{decode: {threads}}}\n"))

    def end(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.work.remove()


def photographs(bench):
    """The recipes against the bare loops."""
    folder = bench.harness.photos(1000)
    train, evaluate = bench.folder_config(folder), bench.folder_config(folder, "imagenet-eval")
    got = bench.by_turns({"train": lambda: bench.rates(train), "bare": lambda: bench.bare(folder, 2), "eval": lambda: bench.rates(evaluate)},
                         bench.args.rounds)
    for name, mode in (("train", "imagenet-train"), ("eval", "imagenet-eval")):
        for epoch, suffix, words in ((0, "", "first epoch"), (1, "_seen", "from the second epoch on")):
            ratio = statistics.median(rates[epoch] / bare[name + suffix] for rates, bare in zip(got[name], got["bare"]))
            bench.row(f"{mode}, {words}: pictures per CPU second, of the bare loop's {name}{suffix}", ratio, ">=", 0.90)


def shards(bench):
    """The same photographs from tar shards and from their folder."""
    import tars
    folder = bench.harness.photos(1000)
    head = f"threads: {{decode: 2}}\nindex_dir: {bench.scratch}/index\n"
    configs = {"folder": bench.folder_config(folder), "tar": bench.work.config(head + tars.config(tars.shards(folder, bench.scratch / "shards")))}
    bench.steps(configs["tar"], 1)
    got = bench.by_turns({name: lambda config=config: bench.cost_us(config, "--steps", 4 * EPOCH) for name, config in configs.items()},
                         2 * bench.args.rounds)
    ratio = statistics.median(own / tar for own, tar in zip(got["folder"], got["tar"]))
    bench.row("imagenet-train from indexed tar shards, of the folder's rate", ratio, ">=", 0.98)


def scaling(bench):
    folder = bench.harness.photos(1000)
    runs = {}
    for threads in (1, 2):
        config = bench.folder_config(folder, threads=threads)
        runs["own", threads] = lambda config=config: bench.rates(config)[1]
        runs["bare", threads] = lambda threads=threads: bench.bare(folder, threads)["train_seen"]
    got = bench.by_turns(runs, max(1, bench.args.rounds - 1))
    ratio = statistics.median(two / one for one, two in zip(got["own", 1], got["own", 2]))
    bare = statistics.median(two / one for one, two in zip(got["bare", 1], got["bare", 2]))
    bench.row("two decoders of one, per CPU second, over the bare loop's own ratio", ratio / bare, ">=", 0.95)


def formats(bench):
    """What the dtype and the layout cost: everything, of what uint8 nhwc costs."""
    folder = bench.harness.photos(1000)
    runs = {}
    for dtype, layout, normalize in (("uint8", "nhwc", ""), ("float16", "nchw", "imagenet"), ("bfloat16", "nchw", "imagenet"),
                                     ("float32", "nchw", "imagenet")):
        words = f", normalize: {normalize}" if normalize else ""
        config = bench.work.config(f"threads: {{decode: 2}}\ndatasets:\n  p:\n    source: {{folder: {folder}}}\n    order: {{shuffle: global}}\n"
                                   f"    fields:\n      image: {{from: jpg, decode: image, dtype: {dtype}, layout: {layout}{words}, "
                                   "ops: [{random_resized_crop: {size: 224}}, {random_flip: {p: 0.5}}]}\n      label: {from: cls, decode: class}\n")
        runs[dtype] = lambda config=config: bench.cost_us(config, "--steps", 4 * EPOCH)
    got = bench.by_turns(runs, bench.args.rounds + 1)
    for dtype in ("float16", "bfloat16", "float32"):
        ratio = statistics.median(own / plain for own, plain in zip(got[dtype], got["uint8"]))
        bench.row(f"{dtype} nchw normalised: CPU of everything, of uint8 nhwc's", ratio, *(("<=", 1.10) if dtype == "float16" else ()))


def bad(bench):
    """One photograph of twenty is cut at a random place; substitutes stand in."""
    chance = random.Random(3)
    folder, clean = bench.scratch / "bad", bench.harness.photos(1000)
    shutil.copytree(clean, folder)
    for path in sorted(folder.glob("*/*.jpg"))[::BAD_OF]:
        os.truncate(path, int(path.stat().st_size * chance.uniform(0.05, 0.95)))
    more = "    on_error: {policy: substitute, max_rate: 1}\n"
    runs = {name: lambda config=bench.work.config(bench.harness.folder_config(where, more=more)): bench.cost_us(config, "--steps", 4 * EPOCH)
            for name, where in (("clean", clean), ("bad", folder))}
    got = bench.by_turns(runs, 2 * bench.args.rounds)
    ratio = statistics.median(spoilt / own for spoilt, own in zip(got["bad"], got["clean"]))
    bench.row("5 % of the photographs are cut: CPU of everything a row, of that without", ratio, "<=", 1 + 1.10 / BAD_OF)


def small(bench):
    """Samples of a kilobyte: what the engine costs."""
    path = bench.scratch / "small.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(100_000):
            info = tarfile.TarInfo(f"{i:08d}.bin")
            info.size = 1024
            tar.addfile(info, io.BytesIO(i.to_bytes(4, "little") * 256))
    head = f"index_dir: {bench.scratch}/index\n"
    made_up = bench.work.config("datasets:\n  p:\n    source: {synthetic: {samples: 10000000, bytes: 1024}}\n    order: {shuffle: global}\n")
    runs = {"synthetic": lambda: bench.cost_us(made_up, "--seconds", 3)}
    for name, fields in (("a field of one size", "    fields: {data: {from: bin, decode: raw, bytes: 1024}}\n"), ("ragged", "")):
        config = bench.work.config(f"{head}datasets:\n  p:\n    source: {{tar: {path}}}\n    order: {{shuffle: global}}\n{fields}")
        bench.steps(config, 10)
        runs[name] = lambda config=config: bench.cost_us(config, "--seconds", 3)
    got = {name: statistics.median(values) for name, values in bench.by_turns(runs, bench.args.rounds).items()}
    bench.row("synthetic 1 KiB: CPU of everything per sample", got["synthetic"], "<=", 1.5, "us")
    for name in ("a field of one size", "ragged"):
        bench.row(f"1 KiB from one indexed tar, {name}: CPU of everything per sample", got[name], "<=", 2.5, "us")


def ranks(bench):
    """What a rank sees."""
    made_up = bench.work.config("datasets:\n  p:\n    source: {synthetic: {samples: 10000000, bytes: 1024}}\n    order: {shuffle: global}\n")
    slow = bench.folder_config(bench.harness.photos(1000), threads=1)
    results = [bench.drain(made_up, "--seconds", 2)[0]["client_cpu_us_per_batch"] for _ in range(bench.args.rounds)]
    bench.row("synthetic 1 KiB: CPU of the rank per batch of 64", statistics.median(results), "<=", 20, "us")
    wakes = [bench.drain(slow, "--seconds", 3)[0]["wake_p50_us"] for _ in range(bench.args.rounds)]
    bench.row("a starved rank awake after the publish stamp, p50", statistics.median(wakes), "<=", 100, "us")
    starts = [bench.work.pull("p", batch=64, steps=1, config=slow)[0]["wait_us"] / 1000 for _ in range(5)]
    bench.row("first batch of 64 photographs, private daemon, median", statistics.median(starts), unit="ms")


def write_members(path, first, count):
    """A tar of members of 16 bytes named by their numbers, made by numpy, since there are many."""
    import numpy as np
    member = np.zeros(1024, np.uint8)
    for at, text in ((0, b"00000000.bin"), (100, b"0000644\0" + 2 * b"0000000\0" + b"00000000020\0" + b"00000000000\0" + b" " * 8 + b"0"),
                     (257, b"ustar\x0000")):
        member[at:at + len(text)] = np.frombuffer(text, np.uint8)
    with open(path, "wb") as f:
        for begin in range(first, first + count, 4096):
            numbers = np.arange(begin, min(begin + 4096, first + count))
            block = np.tile(member, (len(numbers), 1))
            for digit in range(8):
                block[:, 7 - digit] = 48 + numbers // 10 ** digit % 10
            sums = block[:, :512].sum(axis=1, dtype=np.int64)
            for digit in range(6):
                block[:, 153 - digit] = 48 + (sums >> 3 * digit & 7)
            block[:, 154:156] = (0, 32)
            f.write(block.tobytes())
        f.write(bytes(1024))


def peak_of(work_to_do):
    """Runs it in a process of its own. Returns (its value, the peak of resident bytes of any process that it started)."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        value = work_to_do()
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        os.write(writer, json.dumps((value, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as f:
        text = f.read()
    os.wait()
    return json.loads(text)


def index(bench):
    folder = bench.scratch / "many"
    folder.mkdir()
    for i in range(10):
        write_members(folder / f"{i}.tar", i * 100_000, 100_000)
    config = bench.work.config(f"datasets:\n  p: {{source: {{tar: \"{folder}/*.tar\"}}}}\n")
    look = lambda where: bench.work.ctl("index", "p", config=config, sets=[f"index_dir={where}"], timeout_s=240).document  # noqa: E731
    got = []
    for turn in range(3):
        start = time.monotonic()
        document, peak = peak_of(lambda where=bench.scratch / f"index-{turn}": look(where))
        assert document["samples"] == 1_000_000 and document["read_shards"] == 10, document
        seconds = time.monotonic() - start
        got.append((seconds, peak / 2**20, statistics.median(look(bench.scratch / f"index-{turn}")["seconds"] for _ in range(5))))
    seconds, peaks, again = zip(*got)
    bench.row("index of 1,000,000 small samples in 10 tar shards: time", statistics.median(seconds), "<=", 10, "s")
    bench.row("index of 1,000,000 small samples in 10 tar shards: peak of memory", statistics.median(peaks), "<=", 256, "MiB")
    bench.row("index of 1,000,000 small samples: opening it again", statistics.median(again) * 1000, "<=", 20, "ms")


TABLES = {"photographs": photographs, "shards": shards, "scaling": scaling, "formats": formats, "bad": bad, "small": small, "ranks": ranks, "index": index}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    os.environ["BUILD"] = args.build
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: daemons of our clients are counted too
    import harness
    bench = Bench(harness, args)
    try:
        for name, table in TABLES.items():
            if not args.only or any(word in name for word in args.only):
                table(bench)
        bench.work.end()
    finally:
        bench.end()
    if bench.missed:
        print(f"{len(bench.missed)} missed: {'; '.join(bench.missed)}")
    return 1 if bench.missed and os.environ.get("STRICT") == "1" else 0


if __name__ == "__main__":
    sys.exit(main())
