#!/usr/bin/python3
"""A flame graph of daemon, worker and rank while `spdlctl bench` runs: who calls whom, as wide as its share of their CPU.

usage: flame.py [--build DIR] [--seconds S] --config FILE DATASET OUT.svg      needs the program perf, and the right to use it
"""
import argparse
import html
import pathlib
import re
import subprocess
import sys
import tempfile

WIDTH, LINE, LEAST = 1200, 15, 0.0008  # px, px, share of all below which a frame is left out
OURS = re.compile(r"spdld|spdl-dec|spdlctl|chore")


def frame_of(line):
    """The function, or in brackets the library where that has no names."""
    symbol, _, library = line.split(None, 1)[1].rpartition(" (")
    symbol = re.sub(r"\+0x[0-9a-f]+$", "", symbol)
    return f"[{library.rstrip(')').rsplit('/', 1)[-1]}]" if symbol == "[unknown]" else symbol


def stacks(text):
    """(frames from the outermost on, beginning with the thread's name) of each sample of ours."""
    for sample in text.split("\n\n"):
        lines = sample.strip("\n").splitlines()
        if not lines or not OURS.match(lines[0]):
            continue
        name = re.sub(r"-\d+$", "", lines[0].split()[0])
        frames = [frame_of(line) for line in lines[1:] if line.strip()]
        yield [name] + [frame for i, frame in enumerate(frames) if i == 0 or frame != frames[i - 1] or not frame.endswith("]")][::-1]


def tree_of(samples):
    root = {"count": 0, "below": {}}
    for frames in samples:
        node = root
        node["count"] += 1
        for frame in frames:
            node = node["below"].setdefault(frame, {"count": 0, "below": {}})
            node["count"] += 1
    return root


def draw(node, left, depth, total, out):
    for name, below in sorted(node["below"].items(), key=lambda item: -item[1]["count"]):
        share = below["count"] / total
        if share >= LEAST:
            width = share * WIDTH
            shade = sum(map(ord, name)) % 40
            label = html.escape(name[:max(0, int(width / 6.5))]) if width > 20 else ""
            out.append(f'<g><title>{html.escape(name)}: {100 * share:.1f} %</title><rect x="{left:.1f}" y="{depth * LINE}" width="{width:.1f}" height="{LINE - 1}" '
                       f'fill="rgb({215 + shade},{150 + shade},{90 + shade})"/><text x="{left + 2:.1f}" y="{depth * LINE + 11}">{label}</text></g>')
            draw(below, left, depth + 1, total, out)
        left += share * WIDTH


def depth_of(node, total):
    return 1 + max((depth_of(below, total) for below in node["below"].values() if below["count"] / total >= LEAST), default=0)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", default="5")
    parser.add_argument("--config", required=True)
    parser.add_argument("dataset")
    parser.add_argument("out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "perf.data"
        bench = [f"{args.build}/spdlctl", "--private", "-c", args.config, "--json", "bench", args.dataset, "--batch", "64", "--seconds", args.seconds]
        subprocess.run(["perf", "record", "-q", "--call-graph", "dwarf,16384", "-e", "cpu-clock", "-F", "499", "-o", data, "--", *bench], check=True, stdout=subprocess.DEVNULL)
        text = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym,dso"], capture_output=True, text=True, check=True).stdout
    root = tree_of(stacks(text))
    if root["count"] == 0:
        sys.exit("flame.py: no sample of spdld was taken")
    out = []
    draw(root, 0.0, 0, root["count"], out)
    height = LINE * depth_of(root, root["count"])
    pathlib.Path(args.out).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10">\n'
                                      + "\n".join(out) + "\n</svg>\n")
    print(f"{args.out}: {root['count']} samples")


main()
