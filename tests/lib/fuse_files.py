"""A file system of our own, by FUSE: it shows a folder, and its files hang when they are told to. The kernel's messages are spoken here as they
are; nothing is installed for it. Needs the right to mount, in a mount namespace of the test's own."""
import ctypes
import errno
import os
import pathlib
import signal
import stat
import struct

import harness

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 1, 2, 3, 5, 14, 15, 17, 18, 25, 26, 27, 28, 29
INTERRUPT, BATCH_FORGET = 36, 42
CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x20000, 0x4000, 1 << 18, 2, 4
DIRECT_IO = 1
libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """Runs in a process of its own; hangs the requests that its words say, and answers them when they are taken back."""

    def __init__(self, fuse, folder, words):
        self.fuse, self.words = fuse, words
        self.nodes = {1: pathlib.Path(folder)}
        self.numbers = {self.nodes[1]: 1}
        self.hung, self.kept = {}, []

    def answer(self, unique, body=b"", error=0):
        try:
            os.write(self.fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            pass  # who asked has gone

    def attributes(self, path):
        st = path.stat()
        return struct.pack("<QQQQQQIIIIIIIIII", self.numbers[path], st.st_size, (st.st_size + 511) // 512, int(st.st_atime), st.st_mtime_ns // 10**9,
                           int(st.st_ctime), 0, st.st_mtime_ns % 10**9, 0, st.st_mode | 0o444, 1, 0, 0, 0, 4096, 0)

    def names(self, node):
        return sorted(os.listdir(self.nodes[node]))

    def hangs(self, what, path):
        return any(word == f"{what} {name}" for word in self.hung for name in (path.name, "*"))

    def request(self, message):
        length, code, unique, node = struct.unpack_from("<IIQQ", message)
        body = message[40:length]
        if code == INIT:
            self.answer(unique, struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 2000, 1500, 1 << 17, 1, 32, 0, 0))
            return
        if code in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        if code == LOOKUP:
            path = self.nodes[node] / os.fsdecode(body.split(b"\0")[0])
        else:
            path = self.nodes.get(node, pathlib.Path("/nowhere"))
        what = {LOOKUP: "lookup", OPEN: "open", READ: "read", READDIR: "list"}.get(code)
        if what and self.hangs(what, path):
            self.kept.append(message)
            return
        try:
            self.serve(code, unique, node, path, body)
        except FileNotFoundError:
            self.answer(unique, error=errno.ENOENT)

    def serve(self, code, unique, node, path, body):
        if code == LOOKUP:
            path.stat()
            number = self.numbers.setdefault(path, len(self.numbers) + 1)
            self.nodes[number] = path
            self.answer(unique, struct.pack("<QQQQII", number, 0, 1, 0, 0, 0) + self.attributes(path))
        elif code == GETATTR:
            self.answer(unique, struct.pack("<QII", 0, 0, 0) + self.attributes(path))
        elif code == OPEN or code == OPENDIR:
            self.answer(unique, struct.pack("<QII", 0, DIRECT_IO if code == OPEN else 0, 0))
        elif code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            with open(path, "rb") as f:
                f.seek(offset)
                self.answer(unique, f.read(size))
        elif code == READDIR:
            _, offset, size = struct.unpack_from("<QQI", body)
            out = b""
            for i, name in enumerate(self.names(node)[offset:], offset):
                kind = stat.S_IFMT((path / name).stat().st_mode) >> 12
                raw = os.fsencode(name)
                entry = struct.pack("<QQII", i + 2, i + 1, len(raw), kind) + raw
                entry += b"\0" * (-len(entry) % 8)
                if len(out) + len(entry) > size:
                    break
                out += entry
            self.answer(unique, out)
        elif code in (RELEASE, RELEASEDIR, FLUSH):
            self.answer(unique)
        elif code == STATFS:
            self.answer(unique, struct.pack("<QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0))
        else:
            self.answer(unique, error=errno.ENOSYS)

    def run(self):
        import select
        while True:
            for fd in select.select([self.fuse, self.words], [], [])[0]:
                if fd == self.words:
                    word = os.read(self.words, 4096).decode()
                    if not word:
                        os._exit(0)
                    self.hung = set(filter(None, word.rstrip("\n").split("\n")[-1].split(";")))
                    os.write(self.done, b".")
                    kept, self.kept = self.kept, []
                    for message in kept:
                        self.request(message)
                    continue
                try:
                    self.request(os.read(self.fuse, (1 << 17) + 8192))
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        os._exit(0)


class Mount:
    """`folder` is seen at `point`. hang("read a.jpg", "open *", "list x") sets what hangs; with no words nothing does."""

    def __init__(self, folder, point):
        point = pathlib.Path(point)
        point.mkdir()
        try:
            fuse = os.open("/dev/fuse", os.O_RDWR)
        except OSError:
            raise harness.Skip("there is no /dev/fuse here, or no right to open it") from None
        flags = MS_NOSUID | MS_NODEV
        options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
                libc.mount(b"spdl-test", str(point).encode(), b"fuse", flags, options):
            os.close(fuse)
            raise harness.Skip("no right to mount")
        words, self.words = os.pipe()
        self.done, done = os.pipe()
        self.point, self.pid = point, os.fork()
        if self.pid == 0:
            try:
                libc.prctl(1, signal.SIGKILL, 0, 0, 0)
                os.close(self.words)
                server = Server(fuse, folder, words)
                server.done = done
                server.run()
            finally:
                os._exit(1)
        for fd in (fuse, words, done):
            os.close(fd)

    def hang(self, *words):
        os.write(self.words, (";".join(words) + "\n").encode())
        os.read(self.done, 1)

    def end(self):
        """Whatever still hangs fails."""
        if self.pid == 0:
            return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        libc.umount2(str(self.point).encode(), 2)
        os.close(self.words)
        os.close(self.done)
