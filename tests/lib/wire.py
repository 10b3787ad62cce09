"""Just enough of the control socket's messages to misbehave on it: frames and protobuf fields by hand, as a foreign client would."""
import array
import socket
import struct

FRAME_MAX = 1 << 20


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def blob(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def frame(payload):
    return struct.pack("<I", len(payload)) + payload


# Bodies of ToDaemon by their field numbers.
def hello(protocol=1, layout=1, client="test"):
    return frame(number(1, 1) + blob(2, number(1, protocol) + number(2, layout) + blob(3, client) + number(4, 1)))


def open_stream(dataset="p", batch=8, rank=0, world=1, request=2, slots=0):
    body = blob(1, dataset) + number(3, batch) + number(4, rank) + number(5, world) + (number(9, slots) if slots else b"")
    return frame(number(1, request) + blob(3, body))


def release(stream, sequences):
    return frame(blob(4, number(1, stream) + b"".join(number(2, s) for s in sequences)))


def close(stream):
    return frame(blob(5, number(1, stream)))


def status(request=9):
    return frame(number(1, request) + blob(8, b""))


def fields(payload):
    """{field number: [values]} of a message: numbers and bytes."""
    at, found = 0, {}

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(payload):
        key = read_varint()
        kind = key & 7
        if kind == 0:
            value = read_varint()
        elif kind == 2:
            size = read_varint()
            value, at = payload[at:at + size], at + size
        elif kind == 1:
            value, at = payload[at:at + 8], at + 8
        else:
            value, at = payload[at:at + 4], at + 4
        found.setdefault(key >> 3, []).append(value)
    return found


class Client:
    def __init__(self, path, timeout_s=5.0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)  # waits while the daemon is busy with others that connect
        self.socket.settimeout(timeout_s)
        self.bytes, self.fds = b"", []

    def send(self, content):
        self.socket.sendall(content)

    def receive(self):
        """The next frame's fields; None when the daemon closed the connection."""
        while True:
            if len(self.bytes) >= 4:
                size = struct.unpack("<I", self.bytes[:4])[0]
                if len(self.bytes) >= 4 + size:
                    payload, self.bytes = self.bytes[4:4 + size], self.bytes[4 + size:]
                    return fields(payload)
            try:
                content, ancillary, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_SPACE(16 * 4))
            except ConnectionError:
                return None
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self.fds += array.array("i", data[:len(data) - len(data) % 4])
            if not content:
                return None
            self.bytes += content

    def is_closed(self):
        """True when the daemon closes the connection, whatever it says before."""
        try:
            while self.receive() is not None:
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True
