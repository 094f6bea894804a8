#!/usr/bin/env python3
"""Records what real RocksDB makes of damaged WALs, in each recovery mode.

    make_recovery_cases.py TEMPLATE_DB_LIBRARY NAME=LIBRARY [NAME=LIBRARY ...] > recovery_cases.json

Each LIBRARY is a librocksdb with the C API: Debian's librocksdb.so.7.8, or the
librocksdbjni-linux64.so inside the jar org.rocksdb:rocksdbjni:11.8.1. The first one makes the
empty database into which every WAL is put (the older one: both can open what it writes).

A case is a list of steps that build a WAL, so that the test of the log crate can build the same
file with its own writer; `crc32c` proves that the two are equal. Steps:

    ["records", log_number or null, first, [value sizes]]   WriteBatches that put k<first>, ...
    ["physical", type, log_number or null, payload]         one physical record
    ["bytes", hex] ["fill", byte, n] ["zeros", n]                             appended as they are
    ["truncate", length] ["zero", from, to] ["flip", offset, bit]

Results are in the order of `modes`; each is the list of recovered records as ranges ("0-3,7"), "fails: <status>", or "hangs".
"""
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

BLOCK = 32768
LOG = 100
MODES = ["kTolerateCorruptedTailRecords", "kAbsoluteConsistency", "kPointInTimeRecovery",
         "kSkipAnyCorruptedRecords"]

TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
    TABLE.append(c)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 255] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def pattern(n):
    return bytes((7 * i + 3) & 255 for i in range(n))


def batch(index, size):
    key = b"k%05d" % index
    return ((index + 1).to_bytes(8, "little") + b"\1\0\0\0\1" + varint(len(key)) + key
            + varint(size) + pattern(size))


class Wal:
    def __init__(self):
        self.buf = bytearray()
        self.steps = []
        self.starts = []      # of logical records
        self.physical_at = []  # of physical records
        self.index = 0

    def emit(self, kind, log_number, payload):
        self.physical_at.append(len(self.buf))
        covered = bytes([kind]) + (b"" if log_number is None else
                                   (log_number & 0xFFFFFFFF).to_bytes(4, "little")) + payload
        c = crc32c(covered)
        masked = ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
        self.buf += masked.to_bytes(4, "little") + len(payload).to_bytes(2, "little") + covered

    def records(self, sizes, log_number=None):
        self.steps.append(["records", log_number, self.index, list(sizes)])
        header = 7 if log_number is None else 11
        base = 0 if log_number is None else 4
        for size in sizes:
            data = batch(self.index, size)
            self.index += 1
            first, at = True, 0
            while True:
                room = BLOCK - len(self.buf) % BLOCK
                if room < header:
                    self.buf += bytes(room)
                    room = BLOCK
                if first:
                    self.starts.append(len(self.buf))
                piece = data[at:at + room - header]
                at += len(piece)
                last = at == len(data)
                kind = {(1, 1): 1, (1, 0): 2, (0, 0): 3, (0, 1): 4}[int(first), int(last)]
                self.emit(kind + base, log_number, piece)
                first = False
                if last:
                    break
        return self

    def physical(self, kind, payload=b"", log_number=None):
        self.steps.append(["physical", kind, log_number, payload.hex()])
        self.emit(kind, log_number, payload)
        return self

    def bytes(self, data):
        self.steps.append(["bytes", data.hex()])
        self.buf += data
        return self

    def fill(self, byte, n):
        self.steps.append(["fill", byte, n])
        self.buf += bytes([byte]) * n
        return self

    def zeros(self, n):
        self.steps.append(["zeros", n])
        self.buf += bytes(n)
        return self

    def truncate(self, n):
        self.steps.append(["truncate", n])
        del self.buf[n:]
        return self

    def zero(self, a, b):
        self.steps.append(["zero", a, b])
        self.buf[a:b] = bytes(b - a)
        return self

    def flip(self, offset, bit):
        self.steps.append(["flip", offset, bit])
        self.buf[offset] ^= 1 << bit
        return self


SMALL = [20, 0, 300, 45, 1, 90]
MEDIUM = [9000] * 12           # several per block, fragments across blocks
FRAGMENT = [100, 50, 40000]    # the last one in two fragments


def cases():
    for name, number in (("legacy", None), ("recyclable", LOG)):
        header = 7 if number is None else 11

        def w(sizes):
            return Wal().records(sizes, number)

        yield f"{name}: clean", w(SMALL)
        yield f"{name}: clean, several blocks", w(MEDIUM)
        for n in (1, 3, 6, 7, 8, 10, 11, 100, 4096, 5 * BLOCK):
            yield f"{name}: {n} zeros behind", w(SMALL).zeros(n)
        x = w(SMALL)
        yield f"{name}: zeros to the end of the block", x.zeros(BLOCK - len(x.buf))
        x = w(MEDIUM)
        yield f"{name}: several blocks, many zeros behind", x.zeros(3 * BLOCK)

        for what, cut in (("header", 3), ("header, 6 bytes", 6), ("behind header", header),
                          ("body", header + 20)):
            x = w(SMALL)
            yield f"{name}: cut in {what}", x.truncate(x.starts[-1] + cut)
        x = w(SMALL)
        yield f"{name}: last byte missing", x.truncate(len(x.buf) - 1)
        x = w(FRAGMENT)
        yield f"{name}: cut in second fragment", x.truncate(len(x.buf) - 100)
        x = w(FRAGMENT)
        yield f"{name}: cut behind the first fragment", x.truncate(BLOCK)
        x = w(FRAGMENT)
        yield f"{name}: cut in header of second fragment", x.truncate(BLOCK + 5)
        x = w(FRAGMENT)
        yield f"{name}: cut in first fragment", x.truncate(BLOCK - 1000)

        for tail in (0, 100, 2 * BLOCK):
            x = w(SMALL)
            yield (f"{name}: last record's second half is zeros, {tail} more behind",
                   x.zero(len(x.buf) - 50, len(x.buf)).zeros(tail))
        for n in (1, 4, 5, 6, 7):
            x = w(SMALL)
            yield (f"{name}: torn after {n} bytes of header, then zeros",
                   x.zero(x.starts[-1] + n, len(x.buf)).zeros(1000))
        x = w(FRAGMENT)
        yield f"{name}: second fragment is zeros", x.zero(BLOCK, len(x.buf)).zeros(1000)
        x = w(FRAGMENT)
        yield f"{name}: second fragment is torn, then zeros", x.zero(BLOCK + 600, len(x.buf)).zeros(BLOCK)

        x = w(SMALL)
        yield f"{name}: a record in the middle is zeros", x.zero(x.starts[2], x.starts[3])
        x = w(MEDIUM)
        yield f"{name}: a record is zeros, the block's last goes on", x.zero(x.starts[1], x.starts[2])
        x = w(MEDIUM)
        yield f"{name}: the second block is zeros", x.zero(BLOCK, 2 * BLOCK)
        # Records that end exactly with a block: batch head 12 + tag 1 + key 7 + length 3.
        whole = BLOCK - header - 23
        x = w([whole, whole, whole, 5])
        assert x.starts == [0, BLOCK, 2 * BLOCK, 3 * BLOCK], x.starts
        yield f"{name}: a block that is one record is zeros", x.zero(BLOCK, 2 * BLOCK)
        x = w([whole, whole, whole, 5])
        yield f"{name}: the first block that is one record is zeros", x.zero(0, BLOCK)
        x = w([whole, whole])
        yield f"{name}: the file ends with a block", x
        x = w([whole, whole])
        yield f"{name}: the file ends with a block, last record's length is too long", x.flip(BLOCK + 5, 7)
        x = w([whole, whole])
        yield f"{name}: the file ends with a block, last checksum wrong", x.flip(BLOCK + 1, 0)

        yield f"{name}: random bytes behind", w(SMALL).bytes(pattern(999)[9:300])
        yield f"{name}: letters behind", w(SMALL).bytes(b"The quick brown fox jumps over the lazy dog. " * 5)
        yield f"{name}: ff behind", w(SMALL).fill(255, 100)
        yield f"{name}: ff behind, many", w(SMALL).fill(255, 40000)

        fields = (("checksum", 1, 3), ("length, shorter or longer", 4, 1), ("length, far too long", 5, 7),
                  ("type", 6, 1), ("payload", header + 15, 0))
        for what, at, bit in fields:
            for which in (0, 2, -1):
                x = w(SMALL)
                yield f"{name}: flip in {what} of record {which}", x.flip(x.starts[which] + at, bit)
            x = w(MEDIUM)
            yield f"{name}: several blocks, flip in {what} of record 5", x.flip(x.starts[5] + at, bit)
            x = w(MEDIUM)
            fragment = [p for p in x.physical_at if p % BLOCK == 0][1]
            yield f"{name}: several blocks, flip in {what} of a fragment at a block's start", x.flip(fragment + at, bit)

        for kind in (12, 60, 128, 200):
            yield f"{name}: record type {kind} in the middle", w(SMALL).physical(kind, b"what is this").records(SMALL, number)
            yield f"{name}: record type {kind} at the end", w(SMALL).physical(kind, b"what is this")
        f = 0 if number is None else 4
        for n in (0, 5, 11):
            yield f"{name}: record of {n} bytes in the middle", w(SMALL).physical(1 + f, bytes(n), number).records(SMALL, number)
            yield f"{name}: record of {n} bytes at the end", w(SMALL).physical(1 + f, bytes(n), number)
        b = batch(6, 30)
        for n, kinds in (("middle without first", [3]), ("last without first", [4]), ("first, first", [2]),
                         ("first, middle", [2, 3])):
            x = w(SMALL)
            for k in kinds:
                x.physical(k + f, b[:20], number)
            x.index += 1
            yield f"{name}: {n}, then records", x.records(SMALL, number)
        x = w(SMALL).physical(2 + f, b"", number).records(SMALL, number)
        yield f"{name}: empty first, then a full record", x
        x = w(SMALL).physical(2 + f, b"", number).physical(4 + f, b, number)
        x.index += 1
        yield f"{name}: empty first, then last", x.records(SMALL, number)
        ts = (0).to_bytes(4, "little") + (8).to_bytes(2, "little")
        other = (7).to_bytes(4, "little") + (8).to_bytes(2, "little")
        t = 10 if number is None else 11
        yield f"{name}: timestamp sizes of an unknown family", Wal().physical(t, other, number).records(SMALL, number)
        yield f"{name}: timestamp sizes twice for a family", Wal().physical(t, other, number).records(SMALL, number).physical(t, other, number).records(SMALL, number)
        yield f"{name}: timestamp sizes cut off", Wal().physical(t, other[:5], number).records(SMALL, number)
        p = 130 if number is None else 131
        info = (99).to_bytes(8, "little") + (12345).to_bytes(8, "little") + (0).to_bytes(8, "little")
        yield f"{name}: predecessor", Wal().physical(p, info, number).records(SMALL, number)

    yield "empty file", Wal()
    yield "nothing but zeros", Wal().zeros(70000)
    for n in (1, 6, 7, 100):
        yield f"nothing but {n} zeros", Wal().zeros(n)
    yield "recyclable: another log's records only", Wal().records(SMALL, 99)
    yield "recyclable: another log's records behind", Wal().records(SMALL, LOG).records(SMALL, 99)
    yield "recyclable: another log's records behind, cut", Wal().records(SMALL, LOG).records(SMALL, 99).truncate(600)
    yield "recyclable: another log's long record behind", Wal().records(SMALL, LOG).records([3000, 50], 99)
    x = Wal().records(SMALL, LOG).records([3000], 99)
    yield "recyclable: another log's cut record behind", x.truncate(len(x.buf) - 500)
    x = Wal().records(SMALL, LOG)
    x.physical(6, batch(6, 30)[:20], LOG)
    x.index = 7
    yield "recyclable: another log's record inside a fragmented one", x.records(SMALL, 99)
    x = Wal().records(MEDIUM, LOG)
    yield "recyclable: middle of another log's payload behind", x.bytes(pattern(5000))
    yield "recyclable, then legacy", Wal().records(SMALL, LOG).records(SMALL)
    yield "legacy, then recyclable", Wal().records(SMALL).records(SMALL, LOG)
    yield "legacy, then another log's recyclable", Wal().records(SMALL).records(SMALL, 99)
    compression = (7).to_bytes(4, "little")
    yield "compression of an unknown kind", Wal().physical(9, (5).to_bytes(4, "little")).records(SMALL)
    yield "compression behind the first record", Wal().records(SMALL).physical(9, compression).records(SMALL)


C = ctypes.c_char_p
P = ctypes.c_void_p


def load(path):
    lib = ctypes.CDLL(path)
    for name in ("rocksdb_options_create", "rocksdb_open", "rocksdb_readoptions_create",
                 "rocksdb_create_iterator", "rocksdb_iter_key", "rocksdb_writeoptions_create"):
        getattr(lib, name).restype = P
    lib.rocksdb_iter_valid.restype = ctypes.c_ubyte
    return lib


def open_db(lib, path, mode=2, create=False, compression=0):
    options = P(lib.rocksdb_options_create())
    lib.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(create))
    lib.rocksdb_options_set_wal_recovery_mode(options, ctypes.c_int(mode))
    if compression:
        lib.rocksdb_options_set_wal_compression(options, ctypes.c_int(compression))
    err = C()
    db = lib.rocksdb_open(options, path.encode(), ctypes.byref(err))
    if err.value is not None:
        return None, err.value.decode(errors="replace")
    return P(db), None


def scan(lib, db):
    it = P(lib.rocksdb_create_iterator(db, P(lib.rocksdb_readoptions_create())))
    lib.rocksdb_iter_seek_to_first(it)
    out = []
    while lib.rocksdb_iter_valid(it):
        n = ctypes.c_size_t()
        key = ctypes.string_at(lib.rocksdb_iter_key(it, ctypes.byref(n)), n.value)
        out.append(int(key[1:]))
        lib.rocksdb_iter_next(it)
    return out


def ranges(numbers):
    parts = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def child(library, path, mode):
    lib = load(library)
    db, error = open_db(lib, path, mode)
    if error is not None:
        # The path differs from run to run.
        print("fails: " + error.replace(path, "DB").split("\n")[0])
    else:
        print("ok: " + ranges(scan(lib, db)))
        sys.stdout.flush()
    os._exit(0)


def run(library, template, wal, mode, work):
    db = os.path.join(work, "db")
    shutil.rmtree(db, ignore_errors=True)
    shutil.copytree(template, db)
    with open(os.path.join(db, f"{LOG:06}.log"), "wb") as f:
        f.write(wal)
    try:
        out = subprocess.run([sys.executable, __file__, "--child", library, db, str(mode)],
                             capture_output=True, timeout=10, text=True)
    except subprocess.TimeoutExpired:
        return "hangs"
    line = out.stdout.strip()
    if out.returncode != 0 or not line:
        return f"dies: {out.returncode}"
    return line[4:] if line.startswith("ok: ") else "none" if line == "ok:" else line


def compressed(library, work):
    """A WAL that the library wrote with zstd, under the number of the cases."""
    lib = load(library)
    path = os.path.join(work, "compressed")
    db, error = open_db(lib, path, create=True, compression=7)
    assert error is None, error
    options = P(lib.rocksdb_writeoptions_create())
    for i, size in enumerate([20, 0, 300, 40000, 1, 100000]):
        key, value, err = b"k%05d" % i, pattern(size), C()
        lib.rocksdb_put(db, options, key, ctypes.c_size_t(len(key)), value,
                        ctypes.c_size_t(size), ctypes.byref(err))
        assert err.value is None, err.value
    logs = [f for f in os.listdir(path) if f.endswith(".log")]
    assert len(logs) == 1, logs
    with open(os.path.join(path, logs[0]), "rb") as f:
        data = f.read()
    shutil.rmtree(path)
    return data


def compressed_cases(library, work):
    data = compressed(library, work)
    yield "compressed", Wal().bytes(data)
    yield "compressed, zeros behind", Wal().bytes(data).zeros(5000)
    yield "compressed, cut", Wal().bytes(data).truncate(len(data) - 5)
    yield "compressed, flip", Wal().bytes(data).flip(len(data) // 2, 3)


def main():
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    libraries = [a.split("=", 1) for a in sys.argv[2:]]
    work = tempfile.mkdtemp()
    template = os.path.join(work, "template")
    # In a process of its own: the database must be closed, and the libraries kept apart.
    subprocess.run([sys.executable, "-c", f"""
import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import make_recovery_cases as m
lib = m.load({sys.argv[1]!r})
db, error = m.open_db(lib, {template!r}, create=True)
assert error is None, error
lib.rocksdb_close(db)
"""], check=True)
    for name in os.listdir(template):
        if name.endswith(".log") or name.startswith("LOG"):
            os.remove(os.path.join(template, name))
    rows = []
    every = list(cases()) + list(compressed_cases(sys.argv[1], work))
    for name, wal in every:
        data = bytes(wal.buf)
        results = {library: [run(path, template, data, mode, work) for mode in range(len(MODES))]
                   for library, path in libraries}
        rows.append({"name": name, "steps": wal.steps, "crc32c": crc32c(data), "results": results})
        print(name, results, file=sys.stderr)
    shutil.rmtree(work)
    print('{"log_number": %d, "modes": %s, "cases": [' % (LOG, json.dumps(MODES)))
    print(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
    print("]}")


if __name__ == "__main__":
    main()
