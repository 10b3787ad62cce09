#!/usr/bin/python3
"""With batches ready, `next` makes no system call; what a rank costs does not grow with its batches. Seen by strace."""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, check  # noqa: E402


def traced_calls(work, steps, delay_ms):
    """System calls that spdlctl's main thread makes from its first line on, per kind."""
    trace = work.path / f"trace-{steps}"
    words = work.command("pull", "p", "--batch", 4, "--steps", steps, "--delay-ms", delay_ms)
    r = subprocess.run(["strace", "-qq", "-o", str(trace), *words], capture_output=True, text=True, env=work.environment(), timeout=60)
    if r.returncode and "PTRACE" in r.stderr + r.stdout:
        raise harness.Skip("strace may not trace here")
    check(r.returncode == 0, f"exit {r.returncode}: {r.stderr[-300:]}")
    calls, seen = {}, False
    for line in trace.read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if name and seen:
            calls[name.group(1)] = calls.get(name.group(1), 0) + 1
        seen = seen or line.startswith("write(1,")
    return calls


def test_next_with_a_batch_ready(work):
    if harness.SANITIZED or not shutil.which("strace"):
        raise harness.Skip("needs strace and programs without a sanitizer")
    work.daemon(work.config("datasets:\n  p:\n    source: {synthetic: {samples: 1000000, bytes: 64}}\n"))
    steps = 60
    calls = traced_calls(work, steps, 20)
    waits = sum(calls.get(name, 0) for name in ("poll", "ppoll", "epoll_wait", "epoll_pwait", "select", "futex", "recvmsg", "recvfrom"))
    # The reader sleeps 20 ms a batch, so all batches but the first few are ready when it asks. A wait would be a poll.
    check(waits <= 6, f"{waits} waiting calls for {steps} ready batches: {calls}")
    per_batch = {name: count / steps for name, count in calls.items() if name not in ("write", "clock_nanosleep", "nanosleep")}
    check(sum(per_batch.values()) <= 1.5, f"more than the release of each batch: {per_batch}")
    check((BUILD / "spdlctl").exists(), "spdlctl is gone")


if __name__ == "__main__":
    harness.main(globals())
