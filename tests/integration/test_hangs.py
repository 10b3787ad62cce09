#!/usr/bin/python3
"""Storage that does not answer: a real file system (FUSE) whose files hang when the test says so, and the engine that makes faults. What hangs waits
with its reason; everything else goes on at its pace; what comes back late is taken as if nothing had been."""
import json
import os
import pathlib
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import fuse_files  # noqa: E402
import harness  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402

ENGINES = ("uring", "pool")  # each in turn by the name of the test, both with TEST_SLOW=1
COUNT = 400


def files(work, count=COUNT):
    """Small files with names in order; what is in them is their number."""
    folder = work.path / "in"
    (folder / "a").mkdir(parents=True)
    for i in range(count):
        (folder / "a" / f"{i:04d}.bin").write_bytes(i.to_bytes(4, "little") * 500)
    shutil.copytree(folder, work.path / "local")
    return folder


def config(work):
    """What is read goes to the worker, but for `place`: there it is the row, and is read to where that stands."""
    fields = "data: {from: bin, decode: raw, bytes: 2000}"
    return work.config("datasets:\n" + "".join(
        f"  {name}:\n    source: {{tar: {work.path}/{folder}/*.tar}}\n    fields: {{{fields}{more}}}\n    order: {{shuffle: none}}\n" for name, folder, more in
        (("far", "far", ", copy: {from: bin, decode: raw, bytes: 2000}"), ("near", "local", ", copy: {from: bin, decode: raw, bytes: 2000}"),
         ("place", "far", ""))))


def mounted(work, engine, *sets, count=COUNT):
    """Two datasets of the same samples, in shards of 4: one on the file system that hangs, one on a disk."""
    import tarfile
    folder = work.path / "in"
    folder.mkdir()
    for i in range(0, count, 4):
        with tarfile.open(folder / f"{i:04d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for k in range(i, i + 4):
                path = work.path / f"{k:04d}.bin"
                path.write_bytes(k.to_bytes(4, "little") * 500)
                tar.add(path, path.name)
                path.unlink()
    shutil.copytree(folder, work.path / "local")
    mount = fuse_files.Mount(folder, work.path / "far")
    try:
        daemon = work.daemon(config(work), f"fetch.engine={engine}", *sets)
        equal(len(work.pull("far", batch=4, steps=2)), 2, "lines before anything hangs")
        reference = work.pull("near", batch=4, hash=True)
        time.sleep(1.1)  # files are kept open for a second
        return mount, daemon, reference
    except BaseException:
        mount.end()
        raise


def started(work, *words):
    out = work.path / f"out-{len(work.started)}"
    return work.start_pull(out, "pull", *words), out


def lines_of(out):
    return harness.without_waits(json.loads(line) for line in out.read_text().splitlines() if line.startswith("{"))


def waits(work, dataset):
    return [s["waiting_for"] for s in work.ctl("why").document if s["dataset"] == dataset]


def end_while_it_hangs(work, daemon, mount):
    """SIGTERM: in a few seconds its ranks are let go and the next daemon serves. The kernel keeps the process itself while a thread of it waits in
    the file system, until that answers or is taken away."""
    began = time.monotonic()
    daemon.process.terminate()
    wait_until(lambda: not os.path.exists(work.socket), 6, "the socket is gone")
    following = work.daemon(work.config("datasets:\n  s:\n    source: {synthetic: {samples: 1000, bytes: 100}}\n"))
    equal(len(work.pull("s", batch=4, steps=10)), 10, "lines of the next daemon")
    check(time.monotonic() - began < 8 * harness.PATIENCE, f"it took {time.monotonic() - began:.1f} s")
    equal(following.stop(), 0, "exit code of the next daemon")
    mount.end()
    equal(daemon.process.wait(10 * harness.PATIENCE), 0, "exit code of the daemon that was held")


def for_each_engine(test):
    def run(work):
        for engine in ENGINES if harness.SLOW else (ENGINES[len(test.__name__) % 2],):
            harness.apart(work, test, engine)
    run.__doc__ = test.__doc__
    return run


@for_each_engine
def test_a_hung_file_holds_up_its_stream_alone(work, engine):
    """Named with its time; other streams of the same files and of others go on; at last all lines are right."""
    mount, daemon, reference = mounted(work, engine)
    try:
        mount.hang("read 0040.tar")  # batch 10
        hung, hung_out = started(work, "far", "--batch", 4, "--hash", "--steps", 60)
        wait_until(lambda: any("0040.tar has not been read for" in words for words in waits(work, "far")), 10, "why names the file and the time")
        said = work.ctl("status", as_json=False).out
        check("0040.tar" in said, f"status does not name the file: {said}")
        check(hung_out.read_bytes().count(b"\n") <= 10, "batches behind the file that hangs came")
        began = time.monotonic()
        equal(harness.without_waits(work.pull("near", batch=4, hash=True)), harness.without_waits(reference), "lines of other files")
        beside_s = time.monotonic() - began
        check(beside_s < 10 * harness.PATIENCE, f"they took {beside_s:.1f} s")
        other = work.pull("far", batch=4, hash=True, step=20, steps=60)
        equal([line["fields"] for line in other], [line["fields"] for line in reference[20:80]], "lines of other shards of the same dataset")
        check(hung.poll() is None, "the rank that waits is gone")
        mount.hang()
        equal(hung.wait(20 * harness.PATIENCE), 0, "exit code of the rank that waited")
        equal([line["fields"] for line in lines_of(hung_out)], [line["fields"] for line in reference[:60]], "its lines")
        check(not any(line["errors"] for line in lines_of(hung_out)), "a sample failed since it was late")
        equal(daemon.stop(5), 0, "exit code of the daemon")
    finally:
        mount.end()


@for_each_engine
def test_many_hung_reads_leave_the_others_their_threads(work, engine):
    """More reads than the engine has threads at first hang, of several streams; the same user's other files are read."""
    mount, daemon, reference = mounted(work, engine)
    try:
        mount.hang("read *", "open *")
        for step in (0, 1, 2):
            started(work, "far", "--batch", 128, "--hash", "--step", step)
        wait_until(lambda: len([w for w in waits(work, "far") if "has not been read for" in w]) == 3, 10, "all three wait")
        for _ in range(2):
            equal(harness.without_waits(work.pull("near", batch=4, hash=True)), harness.without_waits(reference), "lines of other files")
        end_while_it_hangs(work, daemon, mount)
    finally:
        mount.end()


@for_each_engine
def test_a_closed_stream_leaves_what_its_read_needs(work, engine):
    """Its rank is dead: the bytes that the read writes to stay taken, and all is given back when it is done."""
    mount, _, reference = mounted(work, engine)
    try:
        before = work.ctl("status").document
        for dataset, most in (("far", 4 * 4096), ("place", 0)):
            mount.hang("read 0000.tar")
            rank, _ = started(work, dataset, "--batch", 4, "--hash")
            wait_until(lambda: any("0000.tar has not" in words for words in waits(work, dataset)), 10, "it hangs")  # noqa: B023
            rank.kill()
            rank.wait()
            wait_until(lambda: not work.ctl("status").document["streams"], 5, "the stream of the dead rank is gone")
            wait_until(lambda: (most > 0) <= work.ctl("status").document["arena"]["used"] <= most, 5,  # noqa: B023
                       "nothing but the hung reads is left in the arena")
            check(work.ctl("status").document["memory"]["used"] > before["memory"]["used"], "the memory that is still needed is not counted")
            equal(harness.without_waits(work.pull("near", batch=4, hash=True)), harness.without_waits(reference), "lines of other files")
            mount.hang()
            wait_until(lambda: (lambda s: s["arena"]["used"] == 0 and s["memory"]["used"] <= before["memory"]["used"])(work.ctl("status").document), 5,
                       "all is given back")
        equal([line["fields"] for line in work.pull("far", batch=4, hash=True)], [line["fields"] for line in reference], "the same files, later")
    finally:
        mount.end()


def test_a_folder_that_is_not_listed(work):
    """Its stream waits for the list; others are opened meanwhile, as many as there are; the end does not wait."""
    folder = files(work, 20)
    mount = fuse_files.Mount(folder, work.path / "far")
    try:
        text = "datasets:\n"
        for i in range(6):
            text += f"  far{i}:\n    source: {{folder: {work.path}/far}}\n    preset: imagenet-eval\n"
        daemon = work.daemon(work.config(text + "  near:\n    source: {synthetic: {samples: 1000, bytes: 100}}\n"))
        mount.hang("list *", "lookup *")
        for i in range(6):
            started(work, f"far{i}", "--batch", 4)
        time.sleep(0.3)
        equal(len(work.pull("near", batch=4, steps=10)), 10, "lines of another dataset")
        states = {d["name"]: d["state"] for d in work.ctl("status").document["datasets"]}
        equal([states[f"far{i}"] for i in range(6)], ["listing"] * 6, "what is said of the folders")
        end_while_it_hangs(work, daemon, mount)
    finally:
        mount.end()


@for_each_engine
def test_reads_that_never_come(work, engine):
    """By the engine that makes faults: every 40th read never ends. Who meets one waits with the reason, the end does not."""
    folder = harness.photos(300)
    daemon = work.daemon(work.config(harness.folder_config(folder)), f"fetch.engine={engine}", "fetch.faulty=hang_every=40")
    ranks = [started(work, "p", "--batch", 8, "--hash") for _ in range(3)]
    wait_until(lambda: len([w for w in waits(work, "p") if "has not been read for" in w]) == 3, 20, "all wait with a reason")
    for rank, _ in ranks:
        check(rank.poll() is None, "a rank ended")
    ranks[0][0].send_signal(signal.SIGKILL)
    wait_until(lambda: len(work.ctl("status").document["streams"]) == 2, 5, "the stream of the dead rank is gone")
    equal(daemon.stop(5), 0, "exit code of the daemon")


if __name__ == "__main__":
    harness.main(globals())
