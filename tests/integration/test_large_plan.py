#!/usr/bin/python3
"""A plan of 10^9 samples: step 1,000,000 comes as soon as step 0, and nothing costs memory per sample."""
# alone: it measures time
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import PATIENCE, check, equal  # noqa: E402

N = 1_000_000_000


def test_step_one_million(work):
    daemon = work.daemon(work.config(f"datasets:\n  p:\n    source: {{synthetic: {{samples: {N}, bytes: 1024}}}}\n    order: {{shuffle: global}}\n"))
    work.pull("p", batch=64, steps=1)

    def first_wait_us(step):
        """What `next` waited for the first batch, the median of 9."""
        lines = [work.pull("p", batch=64, steps=1, step=step)[0] for _ in range(9)]
        equal({line["step"] for line in lines}, {step}, "step")
        return statistics.median(line["wait_us"] for line in lines)

    zero, million, last = first_wait_us(0), first_wait_us(1_000_000), first_wait_us(N // 64 - 1)
    for name, value in (("1,000,000", million), ("the last", last)):
        check(value <= 20_000 * PATIENCE, f"the first batch at step {name} took {value} µs, wanted at most 20,000")
        check(value <= 1.5 * zero + 500 * PATIENCE, f"the first batch at step {name} took {value} µs, that at step 0 {zero} µs")
    ids = work.pull("p", batch=64, steps=4, step=1_000_000)
    found = [number for line in ids for number in line["ids"]]
    check(len(set(found)) == 256 and all(0 <= number < N for number in found), "ids repeat or are out of range")
    check(max(found) > N // 2 > min(found), "ids of a global shuffle are not spread")
    resident = harness.resident_bytes(daemon.pid)
    check(resident < (1000 if harness.SANITIZED else 200) << 20, f"spdld takes {resident >> 20} MiB for a plan of 10^9 samples")
    r = work.ctl("pull", "p", "--batch", 64, "--step", N // 64, code=2)
    check(str(N // 64) in r.err, f"beyond the epoch: {r.err!r}")


if __name__ == "__main__":
    harness.main(globals())
