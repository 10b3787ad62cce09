#!/usr/bin/python3
"""`spdlctl why` names what holds a stream up: a slow rank, a slow disk, a slow decode, short memory; and with `status` it has the evidence."""
# alone: it measures what takes the time
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import check, equal, wait_until  # noqa: E402
from PIL import Image  # noqa: E402


def bottleneck(work, dataset, sets, words, wanted, seconds=2.5):
    daemon = work.daemon(work.config(dataset), *sets)
    out = work.path / f"out-{wanted}"
    rank = work.start_pull(out, "pull", "p", "--steps", 1000000, *words)
    wait_until(lambda: out.stat().st_size > 0 or rank.poll() is not None, 20, "the rank prints a line")
    check(rank.poll() is None, f"the rank ended: {pathlib.Path(str(out) + '.err').read_text()[-300:]}")
    time.sleep(seconds)  # what is measured needs time to happen
    found = work.ctl("why").document
    equal(len(found), 1, "streams that why knows")
    stream = found[0]
    equal(stream["bottleneck"], wanted, f"bottleneck ({stream})")
    check(any(c.isdigit() for c in stream["evidence"]), f"the evidence has no number: {stream['evidence']!r}")
    check(0 < stream["share"] <= 1, f"share {stream['share']}")
    for_people = work.ctl("why", as_json=False).out
    check(wanted in for_people, f"why prints {for_people!r}")
    rank.kill()
    rank.wait()
    daemon.stop()


def test_slow_rank(work):
    bottleneck(work, harness.folder_config(harness.photos(300)), [], ["--batch", 16, "--delay-ms", 150], "rank")


def test_slow_rank_of_a_slow_disk(work):
    """Most of the time a batch is being read, and there are others ready all the same: the rank is the slow one."""
    bottleneck(work, harness.folder_config(harness.photos(300)), ["fetch.faulty=delay_us=150000"], ["--batch", 8, "--delay-ms", 200], "rank")


def test_slow_disk(work):
    bottleneck(work, harness.folder_config(harness.photos(300)), ["fetch.faulty=delay_us=40000", "fetch.depth=2"], ["--batch", 16], "reads")


def test_slow_decode(work):
    folder = work.path / "big"
    folder.mkdir()
    noise = Image.effect_noise((2400, 2400), 80).convert("RGB")
    for i in range(32):
        noise.save(folder / f"{i}.jpg", quality=90)
    bottleneck(work, harness.folder_config(folder), ["threads.decode=1"], ["--batch", 8], "decode")


def test_short_memory(work):
    """Big files, and room for hardly two of them at a time, on a disk that takes its time."""
    folder = work.path / "big"
    folder.mkdir()
    photo = sorted(harness.photos(300).rglob("*.jpg"))[0].read_bytes()
    for i in range(32):
        (folder / f"{i}.jpg").write_bytes(photo + bytes(900_000))
    bottleneck(work, harness.folder_config(folder), ["limits.sample=1MiB", "fetch.memory=2MiB", "fetch.faulty=delay_us=20000", "fetch.depth=64"],
               ["--batch", 16], "memory")


if __name__ == "__main__":
    harness.main(globals())
