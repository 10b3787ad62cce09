#!/usr/bin/python3
"""The documents are true: every command in them is run, what they show is printed, links lead somewhere, tests and messages that they name exist.

How a document is written, for all files *.md:
- a block ```sh is run, in the document's order, by one bash (-e) in a folder of the document's own that has `pictures` (60 photographs in 10
  folders), `shards` (train-000.tar, train-001.tar: the same as WebDataset writes them), and
  `build` (also on PATH), `client` and `configs` of the tree;
- a block ```text right behind it is what it prints (standard error too): line by line, `…` stands for anything, also for whole lines;
- `<!-- not run: why -->` before a block leaves it out; a block ```console is a transcript that a test elsewhere holds;
- a block ```yaml is a configuration without mistakes; `<!-- a part: why -->` before it says that it is none;
- `path::function` names a test; in the tables of messages of docs/operations.md each message stands in the sources.
"""
import pathlib
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
from harness import BUILD, PATIENCE, ROOT, check  # noqa: E402

RUN = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOTE = re.compile(r"<!-- (not run|a part): (\S.*?) -->\s*\Z", re.S)


def documents():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True, text=True, check=False)
    return [ROOT / name for name in names.stdout.split()] or [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def blocks(text):
    """(line, language, body, note) of each fenced block."""
    for found in BLOCK.finditer(text):
        note = NOTE.search(text[:found.start()])
        yield text[:found.start()].count("\n") + 1, found.group(1), found.group(2), note and note.group(1)


def make_data(folder):
    """What the commands of the documents work on."""
    made = harness.photos(60)
    subprocess.run(["cp", "-r", str(made), str(folder / "pictures")], check=True)
    (folder / "shards").mkdir()
    for name, place in (("build", BUILD), ("client", ROOT / "client"), ("configs", ROOT / "configs")):
        (folder / name).symlink_to(place)
    pictures = sorted((folder / "pictures").rglob("*.jpg"))
    for shard in range(2):
        with tarfile.open(folder / f"shards/train-00{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(30 * shard, 30 * shard + 30):
                label = folder / "label"
                label.write_text(f"{int(pictures[number].parent.name[-2:])}\n")
                tar.add(pictures[number], f"{number:06d}.jpg")
                tar.add(label, f"{number:06d}.cls")
                label.unlink()


def matches(wanted, got):
    """Do these lines, in which … stands for anything, say what was printed?"""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(re.escape(part.rstrip()) for part in line.split("…")) + "[ ]*\n"
                      for line in wanted.splitlines())
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in got.splitlines()))


def run_document(work, name):
    """Runs the blocks of one document. Returns how many were run."""
    folder = work.path / name.replace("/", "-")
    folder.mkdir()
    make_data(folder)
    todo, shown = [], {}
    previous = None
    for line, language, body, note in blocks((ROOT / name).read_text()):
        if language == "sh" and note != "not run":
            todo.append((line, body))
            previous = line
        else:
            if language == "text" and previous:
                shown[previous] = (line, body)
            previous = None
    script = ["set -eo pipefail"]
    for line, body in todo:
        (folder / f".block-{line}").write_text(body)
        script.append(f". ./.block-{line} >.out-{line} 2>&1\necho {line}")
    env = work.environment({"PATH": f"{BUILD}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)})
    env.pop("SPDL_LOG")
    if not todo:
        return 0
    r = subprocess.run(["bash", "-c", "\n".join(script)], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                       timeout=120 * PATIENCE)
    wrong = []
    done = [int(word) for word in r.stdout.split()]
    for line, body in todo:
        out = folder / f".out-{line}"
        printed = out.read_text(errors="replace") if out.exists() else ""
        check(line in done, f"{name}:{line}: it failed with {r.returncode}: {printed[-1500:]}{r.stderr[-500:]}")
        if line in shown and not matches(shown[line][1], printed):
            wrong.append(f"{name}:{shown[line][0]}: shown is\n{shown[line][1]}and printed was\n{printed}")
    check(not wrong, "\n".join(wrong))
    return len(todo)


def test_commands(work):
    if harness.SANITIZED:
        raise harness.Skip("the commands are for people's builds")
    counts = {name: run_document(work, name) for name in RUN}
    print("        blocks run: " + ", ".join(f"{name} {count}" for name, count in counts.items() if count))
    check(counts["README.md"] >= 1 and counts["docs/guide.md"] >= 8 and counts["docs/operations.md"] >= 3, f"few commands were found: {counts}")


def test_blocks_are_known(work):
    """No command hides in a block that is not run."""
    for path in documents():
        for line, language, body, note in blocks(path.read_text()):
            place = f"{path.relative_to(ROOT)}:{line}"
            check(language in ("", "sh", "text", "console", "yaml", "c", "proto", "python", "cmake", "make"), f"{place}: a block of {language!r}")
            check(language != "" or not re.search(r"^ *(\$ |spdlctl |make |sudo )", body, re.M), f"{place}: commands outside of a block ```sh")
            if language == "sh" and note != "not run":
                check(str(path.relative_to(ROOT)) in RUN, f"{place}: a block ```sh in a document that is not run")


def test_configurations(work):
    for path in documents():
        for line, language, body, note in blocks(path.read_text()):
            if language != "yaml" or note == "a part":
                continue
            file = work.config(body)
            r = subprocess.run([str(BUILD / "spdld"), "--check", "-c", str(file)], capture_output=True, text=True, check=False, timeout=30 * PATIENCE)
            said = re.sub(rf"^{re.escape(str(file))}:\d+:\d+: dataset \S+: .*$", "", r.stderr, flags=re.M)  # roots that are not here
            check(f"{file}:" not in said, f"{path.relative_to(ROOT)}:{line}: {said.replace(str(file), 'block')}")


def test_links(work):
    for path in documents():
        text = BLOCK.sub("", path.read_text())
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = (path.parent / file) if file else path
            check(there.exists(), f"{path.relative_to(ROOT)}: the link {target} leads nowhere")
            if anchor:
                heads = [re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in re.findall(r"^#+ (.*)$", there.read_text(), re.M)]
                check(anchor in heads, f"{path.relative_to(ROOT)}: {target}: there are the headings {heads}")


def test_named_tests_exist(work):
    count = 0
    for path in documents():
        for file, function in re.findall(r"`([\w./-]+)::(\w+)`", path.read_text()):
            there = ROOT / file
            check(there.exists(), f"{path.relative_to(ROOT)} names {file}, which is not there")
            pattern = rf"^def {function}\(" if file.endswith(".py") else rf"^(static )?(void|int) {function}\("
            check(re.search(pattern, there.read_text(), re.M), f"{path.relative_to(ROOT)}: {file} has no {function}")
            count += 1
    check(count >= 40, f"only {count} tests are named")


def sources():
    """The text of all strings of the programs, those in parts put together; a place that is filled in is …"""
    text = ""
    for path in [*(ROOT / "daemon").rglob("*.c"), *(ROOT / "client").rglob("*.c")]:
        source = re.sub(r'"\s*PRI[a-zX0-9]+\s*"', "\0", path.read_text())
        source = re.sub(r'"\s*"', "", source)
        text += re.sub(r"%[-.*0-9]*(?:ll|z|l)?[a-z]|%\0", "…", source).replace("%%", "%").replace('\\"', '"')
    return text


def test_messages_exist(work):
    text, count = sources(), 0
    messages = (ROOT / "docs/operations.md").read_text().split("\n## Messages\n")[1].split("\n## ")[0]
    for message in re.findall(r"^\| `([^`]+)` \|", messages, re.M):
        for part in message.split("…"):
            part = part.strip()
            check(part in text, f"docs/operations.md: no program says {part!r} ({message})")
        count += 1
    check(count >= 30, f"only {count} messages were found")


harness.main(globals())
