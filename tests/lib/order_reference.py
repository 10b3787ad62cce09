"""The order, the draws, the crops, the schedule, the state and the ids, written a second time from
docs/order.md. Standard library only. Slow and plain: it is there to disagree with the C code."""

import base64
import math
import struct

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1

ORDER_VERSION = 1
STATE_FORMAT = 1


# 1. Philox4x32-10


def philox(counter, key):
    """Four words from a counter of four words and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a = 0xD2511F53 * c0
        b = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & M32, (a >> 32) ^ c3 ^ k1, a & M32
        k0 = (k0 + 0x9E3779B9) & M32
        k1 = (k1 + 0xBB67AE85) & M32
    return [c0, c1, c2, c3]


# 2. The order


def mix(x):
    z = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def round_keys(seed, epoch, kind=0, number=0):
    keys = []
    for j in range(4):
        at = 4 * number + j
        counter = (at & M32, at >> 32, epoch, 0x80000000 + 65536 * kind + ORDER_VERSION)
        w = philox(counter, (seed & M32, seed >> 32))
        keys += [w[0] + (w[1] << 32), w[2] + (w[3] << 32)]
    return keys


def permute(keys, n, p):
    a = math.isqrt(n)
    if a * a < n:
        a += 1
    b = -(-n // a)
    x = p
    while True:
        left, right = divmod(x, b)
        for i in range(0, 8, 2):
            left = (left + (mix(right ^ keys[i]) * a >> 64)) % a
            right = (right + (mix(left ^ keys[i + 1]) * b >> 64)) % b
        x = left * b + right
        if x < n:
            return x


class Order:
    """The order of one epoch, none or global."""

    def __init__(self, shuffle, seed, epoch, samples, attempt=0):
        self.shuffle = shuffle
        self.samples = samples
        self.keys = round_keys(seed, epoch, 0, attempt << 30)  # a and b are for the examples
        self.a = math.isqrt(samples)
        if self.a * self.a < samples:
            self.a += 1
        self.b = -(-samples // self.a)

    def at(self, position):
        if self.shuffle == "none":
            return position
        return permute(self.keys, self.samples, position)


def lane_order(samples, lanes, batch):
    """Position -> (lane, place in it), all of an epoch: dealt out batch by batch."""
    length = [samples // lanes + (lane < samples % lanes) for lane in range(lanes)]
    taken = [0] * lanes
    out = []
    for _ in range(samples // batch):
        for lane in range(lanes):
            for _ in range(batch // lanes):
                out.append((lane, taken[lane]))
                taken[lane] += 1
    for lane in range(lanes):
        out += [(lane, x) for x in range(taken[lane], length[lane])]
    return out


def block_order(shuffle, seed, epoch, shards, block, lanes, batch):
    """Samples by position, all of an epoch of block or none with lanes. shards: samples of each. Lists, windows and lanes
    are laid out whole."""
    samples = sum(shards)
    firsts = [sum(shards[:i]) for i in range(len(shards))]
    places = list(range(samples))
    if shuffle == "block":
        keys = round_keys(seed, epoch, 1)
        turns = [permute(keys, len(shards), t) for t in range(len(shards))]
        places = [firsts[s] + i for s in turns for i in range(shards[s])]
    lane_places, start = [], 0
    for lane in range(lanes):
        length = samples // lanes + (lane < samples % lanes)
        own = []
        for f in range(start, start + length, block if shuffle == "block" else max(length, 1)):
            n = min(block, start + length - f) if shuffle == "block" else length
            if shuffle == "block":
                keys = round_keys(seed, epoch, 2, f)
                own += [places[f + permute(keys, n, x)] for x in range(n)]
            else:
                own += places[f : f + n]
        lane_places.append(own)
        start += length
    return [lane_places[lane][x] for lane, x in lane_order(samples, lanes, batch)]


def large_block_at(plan, position):
    """One position of a large dataset whose shards all have the same size; plan: seed epoch shard_count shard_samples block
    lanes batch. Nothing is laid out."""
    size, count = plan["shard_samples"], plan["shard_count"]
    samples, lanes, batch = size * count, plan["lanes"], plan["batch"]
    q, r = divmod(samples, lanes)
    starts = lambda lane: lane * q + min(lane, r)  # noqa: E731
    step, i = divmod(position, batch)
    share, whole = batch // lanes, samples // batch * (batch // lanes)
    if step < samples // batch:
        lane, x = i // share, step * share + i % share
    else:
        lane = 0
        while i >= starts(lane + 1) - starts(lane) - whole:
            i -= starts(lane + 1) - starts(lane) - whole
            lane += 1
        x = whole + i
    f = starts(lane) + x // plan["block"] * plan["block"]
    n = min(plan["block"], starts(lane + 1) - f)
    place = f + permute(round_keys(plan["seed"], plan["epoch"], 2, f), n, starts(lane) + x - f)
    turn, inside = divmod(place, size)
    return permute(round_keys(plan["seed"], plan["epoch"], 1), count, turn) * size + inside


def substitute(seed, epoch, samples, position, attempt):
    """What stands at a position when its own sample and `attempt - 1` substitutes failed."""
    return Order("global", seed, epoch, samples, attempt).at(position)


# 3. Draws


class Draws:
    """The draws of one operation of one row."""

    def __init__(self, seed, position, epoch, field, operation):
        self.seed = seed
        self.position = position
        self.epoch = epoch
        self.op = (256 * field + operation) & M32

    def bits(self, draw):
        counter = (self.position & M32, self.position >> 32, self.epoch, draw // 4)
        key = (self.seed & M32, (self.seed >> 32) ^ (0x9E3779B9 * self.op & M32))
        return philox(counter, key)[draw % 4]

    def u(self, draw):
        return (self.bits(draw) >> 8) / 16777216.0

    def below(self, draw, n):
        return self.bits(draw) * n >> 32


# 4. Exact functions. Python's float operations are single IEEE double operations.

INV_LN2 = float.fromhex("0x1.71547652b82fep+0")
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
ROOT_2 = float.fromhex("0x1.6a09e667f3bcdp+0")
TINY = 2.0**-1022


def exact_exp(x):
    if math.isnan(x):
        return x
    x = min(max(x, -700.0), 700.0)
    t = x * INV_LN2 + 0.5
    k = math.floor(t)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = 1.0 / math.factorial(13)
    for n in range(12, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    return math.ldexp(p, k)


def exact_log(x):
    if math.isnan(x) or x == math.inf:
        return x
    if x < TINY:
        return -math.inf
    m, e = math.frexp(x)  # in [0.5, 1)
    m, e = m * 2, e - 1
    if m > ROOT_2:
        m, e = m / 2, e + 1
    s = (m - 1) / (m + 1)
    z = s * s
    t = 2 * s
    q = 1.0 / 23
    for n in range(21, 2, -2):
        q = q * z + 1.0 / n
    return e * LN2_HIGH + (e * LN2_LOW + (t + t * (z * q)))


def exact_sqrt(x):
    if math.isnan(x) or x < TINY or x == math.inf:
        return 0.0
    return math.sqrt(x)


def exact_round(x):
    if math.isnan(x):
        return 0
    return round(min(max(x, -(2.0**52)), 2.0**52))


# 5. Crops and flips


def random_resized_crop(draws, width, height, scale, ratio):
    """Box as (x, y, width, height)."""
    span = exact_log(ratio[1] / ratio[0])
    for k in range(10):
        part = scale[0] + draws.u(4 * k) * (scale[1] - scale[0])
        target = float(width * height) * part
        aspect = ratio[0] * exact_exp(draws.u(4 * k + 1) * span)
        w = exact_round(exact_sqrt(target * aspect))
        h = exact_round(exact_sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            y = draws.below(4 * k + 2, height - h + 1)
            x = draws.below(4 * k + 3, width - w + 1)
            return (x, y, w, h)
    low, high = min(ratio), max(ratio)
    own = width / height
    w, h = width, height
    if own < low:
        h = exact_round(width / low)
    elif own > high:
        w = exact_round(height * high)
    w = min(max(w, 1), width)
    h = min(max(h, 1), height)
    return ((width - w) // 2, (height - h) // 2, w, h)


def random_crop(draws, width, height, crop_width, crop_height):
    """Box, or None where the picture is smaller than the crop."""
    if crop_width > width or crop_height > height:
        return None
    y = draws.below(0, height - crop_height + 1)
    x = draws.below(1, width - crop_width + 1)
    return (x, y, crop_width, crop_height)


def flip(draws, p):
    return draws.u(0) < p


def half_even(n):
    return round(n / 2)


# 6. Batches and ranks


def steps(samples, batch, last):
    return samples // batch if last == "drop" else -(-samples // batch)


def batch_at(plan, k):
    """plan: dict of samples batch world rank last epoch position step. Walks batch by batch from
    the epoch it must be in, so that it shares no arithmetic with an O(1) rule except the skip over
    whole epochs."""
    samples, size, last = plan["samples"], plan["batch"], plan["last"]
    epoch, position, step = plan["epoch"], plan["position"], plan["step"]

    def is_there(at):
        return at + size <= samples if last == "drop" else at < samples

    todo = k
    whole = steps(samples, size, last)
    if not is_there(position):
        epoch, position, step = epoch + 1, 0, 0
    left = steps(samples - position, size, last)
    if todo >= left:
        todo -= left
        epoch, position, step = epoch + 1 + todo // whole, 0, 0
        todo %= whole
    if todo > 2000:  # a jump inside the epoch, then a few single steps
        jump = todo - 2
        position, step, todo = position + jump * size, step + jump, 2
    while todo > 0:
        position, step, todo = position + size, step + 1, todo - 1
    if is_there(position + size):
        behind = (epoch, position + size, step + 1)
    else:
        behind = (epoch + 1, 0, 0)
    share = size // plan["world"]
    first = position + plan["rank"] * share
    rows = share
    if last == "partial":
        rows = max(0, min(first + share, samples) - first)
    return {
        "epoch": epoch,
        "step": step,
        "position": position,
        "first": first,
        "rows": rows,
        "next_epoch": behind[0],
        "next_position": behind[1],
        "next_step": behind[2],
    }


# 7. The state


def state_encode(state):
    """state: dict of format decode plan_id (32 digits) seed epoch position step batch."""
    raw = struct.pack("<II", state["format"], state["decode"])
    raw += bytes.fromhex(state["plan_id"])
    raw += struct.pack(
        "<QIQQQ",
        state["seed"],
        state["epoch"],
        state["position"],
        state["step"],
        state["batch"],
    )
    raw += struct.pack("<I", xxh3_64(raw) & M32)
    return "spdl1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


# 8. Ids


def folder_manifest(samples, empty_classes=()):
    """samples: (key as bytes, size) in order; names of classes without samples, as bytes."""
    text = b"spdl-folder 1\n"
    for key, size in samples:
        text += key + b"\0" + str(size).encode() + b"\n"
    for name in empty_classes:
        text += name + b"/\0\n"
    return text


def synthetic_manifest(samples, size):
    return f"spdl-synthetic 1\n{samples} {size}\n".encode()


def double_digits(x):
    return struct.pack(">d", x + 0.0).hex()


def op_text(op):
    """op: dict of kind and its parameters."""
    kind = op["kind"]
    if kind in ("random_flip", "vertical_flip"):
        return f"op {kind} {double_digits(op['p'])}\n"
    words = [kind, str(op["height"]), str(op["width"])]
    if kind in ("resize", "random_resized_crop"):
        words.append(op["filter"])
    if kind == "random_resized_crop":
        words += [double_digits(x) for x in op["scale"] + op["ratio"]]
    return "op " + " ".join(words) + "\n"


def field_text(field):
    """field: dict of name decode from dtype dims, and for images layout channels orientation
    max_pixels, mean and std (or None) and ops."""
    out = f"field {field['name']}\ndecode {field['decode']}\n"
    out += "from " + " ".join(field["from"]) + "\n"
    out += f"dtype {field['dtype']}\n"
    out += " ".join(["dims"] + [str(d) for d in field["dims"]]) + "\n"  # ["ragged"]: rows differ in length
    if field["dims"] == ["ragged"] and field.get("max_bytes"):
        out += f"max_bytes {field['max_bytes']}\n"
    if field.get("missing") == "empty":
        out += "missing empty\n"
    if field["decode"] == "image":
        out += f"layout {field['layout']}\nchannels {field['channels']}\n"
        out += f"orientation {field['orientation']}\nmax_pixels {field['max_pixels']}\n"
        if field.get("views"):
            out += f"views {field['views']}\n"
        if field["mean"] is not None:
            out += " ".join(["mean"] + [double_digits(x) for x in field["mean"]]) + "\n"
            out += " ".join(["std"] + [double_digits(x) for x in field["std"]]) + "\n"
        out += "".join(op_text(op) for op in field["ops"])
    return out + "end\n"


def plan_text(dataset_id, shuffle, last, fields, block=0, lanes=1):
    head = f"spdl-plan 1\norder {ORDER_VERSION}\ndataset {dataset_id}\nshuffle {shuffle}\n"
    if shuffle == "block":
        head += f"block_samples {block}\n"
    if lanes > 1:
        head += f"lanes {lanes}\n"
    head += f"last {last}\nfields {len(fields)}\n"
    return (head + "".join(field_text(f) for f in fields)).encode()


# XXH3 with seed 0 and the default secret, for inputs of 17 bytes and more (no text here is shorter).

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def _fold(x, y):
    product = x * y
    return (product & M64) ^ (product >> 64)


def _avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & M64
    return h ^ (h >> 32)


def _mix16(data, at, secret):
    return _fold(_u64(data, at) ^ _u64(SECRET, secret), _u64(data, at + 8) ^ _u64(SECRET, secret + 8))


def _mix32(acc, data, one, two, secret):
    acc[0] = (acc[0] + _mix16(data, one, secret)) & M64
    acc[0] ^= (_u64(data, two) + _u64(data, two + 8)) & M64
    acc[1] = (acc[1] + _mix16(data, two, secret + 16)) & M64
    acc[1] ^= (_u64(data, one) + _u64(data, one + 8)) & M64


def _finish_128(acc, n):
    low = _avalanche((acc[0] + acc[1]) & M64)
    high = _avalanche((acc[0] * P64_1 + acc[1] * P64_4 + n * P64_2) & M64)
    return ((M64 + 1 - high) & M64) << 64 | low


def _stripe(acc, data, at, secret):
    for i in range(8):
        value = _u64(data, at + 8 * i)
        keyed = value ^ _u64(SECRET, secret + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & M64
        acc[i] = (acc[i] + (keyed & M32) * (keyed >> 32)) & M64


def _merge(acc, secret, start):
    for i in range(4):
        start += _fold(acc[2 * i] ^ _u64(SECRET, secret + 16 * i),
                       acc[2 * i + 1] ^ _u64(SECRET, secret + 16 * i + 8))
    return _avalanche(start & M64)


def _long(data):
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    n = len(data)
    stripes = (n - 1) // 64
    for stripe in range(stripes):
        _stripe(acc, data, 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i in range(8):
                acc[i] ^= acc[i] >> 47
                acc[i] = (acc[i] ^ _u64(SECRET, 128 + 8 * i)) * P32_1 & M64
    _stripe(acc, data, n - 64, 121)
    return acc


def xxh3_64(data):
    n = len(data)
    if not 17 <= n <= 128:
        raise ValueError("length not needed here")
    acc = n * P64_1
    for i in range((n - 1) // 32, -1, -1):
        acc += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
    return _avalanche(acc & M64)


def xxh3_128(data):
    n = len(data)
    if n < 17:
        raise ValueError("length not needed here")
    if n > 240:
        acc = _long(data)
        low = _merge(acc, 11, n * P64_1 & M64)
        high = _merge(acc, 117, ~(n * P64_2) & M64)
        return high << 64 | low
    acc = [n * P64_1 & M64, 0]
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            _mix32(acc, data, 16 * i, n - 16 * (i + 1), 32 * i)
        return _finish_128(acc, n)
    for i in range(4):
        _mix32(acc, data, 32 * i, 32 * i + 16, 32 * i)
    acc = [_avalanche(acc[0]), _avalanche(acc[1])]
    for i in range(4, n // 32):
        _mix32(acc, data, 32 * i, 32 * i + 16, 3 + 32 * (i - 4))
    _mix32(acc, data, n - 16, n - 32, 103)
    return _finish_128(acc, n)


def xxh3_128_digits(data):
    return f"{xxh3_128(data):032x}"
