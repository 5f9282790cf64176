"""Compares compressors for sealed blocks: ratio, speed, import cost, memory and the GIL.

Block images of real records with four kinds of payload (`corpora`) go through every candidate in
independent chunks of 16, 64 and 256 KiB, on one thread. A candidate that is not installed is
skipped, so the same command measures one library or all of them:

    pip install zstandard lz4 cramjam && python benchmarks/compression.py

docs/decisions/0012-compression.md records the choice made from its figures. This compares
compressors, not our sealing of blocks: that is benchmarks/seal_cost.py.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from penstock.records.record_codec import RecordKeys, encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 8 << 20
CHUNK_SIZES = (16 << 10, 64 << 10, 256 << 10)
RECORD_BYTES_MIN, RECORD_BYTES_MAX = 128, 4096
MB = 1e6
ROUNDS = 3
SWITCH_SECONDS = 1000.0
TURNS_MIN = 10


class Compressor(Protocol):
    """One candidate at one setting; `restore` gets the length, as from a block's table."""

    def shrink(self, data: bytes) -> bytes: ...
    def restore(self, data: bytes, length: int) -> object: ...


# ------------------------------------------------------------------------ candidates


class Zstandard:
    def __init__(self, level: int) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=level, write_content_size=False)
        self._decompressor = zstandard.ZstdDecompressor()

    def shrink(self, data: bytes) -> bytes:
        return self._compressor.compress(data)

    def restore(self, data: bytes, length: int) -> bytes:
        return self._decompressor.decompress(data, max_output_size=length)


class BackportsZstd:
    """The zstd module of Python 3.14's standard library, for older versions."""

    def __init__(self, level: int) -> None:
        from backports import zstd

        self._zstd, self._level = zstd, level

    def shrink(self, data: bytes) -> bytes:
        return self._zstd.compress(data, self._level)

    def restore(self, data: bytes, length: int) -> bytes:
        return self._zstd.ZstdDecompressor().decompress(data, length)


class Lz4Block:
    def __init__(self) -> None:
        import lz4.block

        self._lz4 = lz4.block

    def shrink(self, data: bytes) -> bytes:
        return bytes(self._lz4.compress(data, store_size=False))

    def restore(self, data: bytes, length: int) -> object:
        return self._lz4.decompress(data, uncompressed_size=length)


class Lz4Frame:
    def __init__(self) -> None:
        import lz4.frame

        self._lz4 = lz4.frame

    def shrink(self, data: bytes) -> bytes:
        return bytes(self._lz4.compress(data))

    def restore(self, data: bytes, length: int) -> object:
        return self._lz4.decompress(data)


class CramjamSnappy:
    def __init__(self) -> None:
        import cramjam

        self._snappy = cramjam.snappy

    def shrink(self, data: bytes) -> bytes:
        return bytes(self._snappy.compress_raw(data))

    def restore(self, data: bytes, length: int) -> object:
        return self._snappy.decompress_raw(data)


class CramjamLz4:
    def __init__(self) -> None:
        import cramjam

        self._lz4 = cramjam.lz4

    def shrink(self, data: bytes) -> bytes:
        return bytes(self._lz4.compress_block(data, store_size=False))

    def restore(self, data: bytes, length: int) -> object:
        return self._lz4.decompress_block(data, output_len=length)


class Zlib:
    def __init__(self) -> None:
        import zlib

        self._zlib = zlib

    def shrink(self, data: bytes) -> bytes:
        return self._zlib.compress(data, 1)

    def restore(self, data: bytes, length: int) -> bytes:
        return self._zlib.decompressobj().decompress(data, length)


CANDIDATES: dict[str, tuple[str, Callable[[], Compressor]]] = {
    "zstandard -1": ("zstandard", lambda: Zstandard(-1)),
    "zstandard 1": ("zstandard", lambda: Zstandard(1)),
    "zstandard 3": ("zstandard", lambda: Zstandard(3)),
    "backports.zstd 1": ("backports.zstd", lambda: BackportsZstd(1)),
    "backports.zstd 3": ("backports.zstd", lambda: BackportsZstd(3)),
    "lz4 block": ("lz4.block", Lz4Block),
    "lz4 frame": ("lz4.frame", Lz4Frame),
    "cramjam snappy": ("cramjam", CramjamSnappy),
    "cramjam lz4": ("cramjam", CramjamLz4),
    "zlib 1": ("zlib", Zlib),
}


# ------------------------------------------------------------------------ what is compressed


def _record_size(rng: random.Random) -> int:
    """Return a size with a uniform exponent: many small records, few large ones."""
    return int(RECORD_BYTES_MIN * (RECORD_BYTES_MAX / RECORD_BYTES_MIN) ** rng.random())


def _event(rng: random.Random, size: int) -> tuple[str, bytes]:
    region = rng.choice(("eu-west-1", "eu-north-1", "us-east-1", "ap-south-1"))
    event = {
        "id": f"{rng.getrandbits(128):032x}",
        "type": rng.choice(("order.created", "order.paid", "order.shipped", "cart.updated")),
        "time": f"2026-03-{rng.randint(1, 28):02d}T{rng.randint(0, 23):02d}:14:07Z",
        "customer": {"id": rng.randint(1, 2_000_000), "region": region},
    }
    items: list[dict[str, object]] = []
    while len(text := json.dumps(event | {"items": items})) < size:
        items.append(
            {
                "sku": f"SKU-{rng.randint(10_000, 99_999)}",
                "quantity": rng.randint(1, 9),
                "price": round(rng.uniform(1, 400), 2),
                "currency": "EUR",
            }
        )
    return f"orders.{region}.{rng.randint(1, 5000)}", text.encode()


def _setting(rng: random.Random, size: int) -> tuple[str, bytes]:
    lines = [f"service: billing-{rng.randint(1, 40)}", "version: 3"]
    length = 0
    while length < size:
        name = rng.choice(("timeout", "retries", "endpoint", "feature", "limit", "pool"))
        value = rng.choice(("true", "false", str(rng.randint(1, 9999)), "https://api.internal/v2"))
        lines.append(f"  {name}_{rng.randint(1, 60)}: {value}")
        length += len(lines[-1]) + 1
    return f"$KV.config.billing.{rng.randint(1, 800)}", "\n".join(lines).encode()


def _sample(rng: random.Random, size: int) -> tuple[str, bytes]:
    """Return tagged fields as in a protocol buffer: small numbers, floats, times, few strings."""
    body = bytearray()
    ts = 1_770_000_000_000_000_000 + rng.getrandbits(44)
    while len(body) < size:
        ts += rng.getrandbits(20)
        body += b"\x09" + struct.pack("<Q", ts) + b"\x10" + bytes([rng.randint(0, 127)])
        body += b"\x19" + struct.pack("<d", rng.gauss(20.0, 4.0))
        body += b"\x20" + bytes([rng.randint(128, 255), rng.randint(0, 20)])
        if rng.random() < 0.2:
            body += b"\x2a\x07sensor" + bytes([rng.randint(48, 57)])
    return f"telemetry.{rng.randint(1, 300)}.samples", bytes(body)


def _noise(rng: random.Random, size: int) -> tuple[str, bytes]:
    return f"uploads.{rng.randint(1, 300)}", rng.randbytes(size)


KINDS = {"json": _event, "kv": _setting, "binary": _sample, "noise": _noise}


def corpora(block_bytes: int = BLOCK_BYTES) -> dict[str, bytes]:
    """Return a block image per kind of payload, the same on every run."""
    return {kind: _image(kind, block_bytes) for kind in KINDS}


def _image(kind: str, block_bytes: int) -> bytes:
    rng, keys, out, seq = random.Random(kind), RecordKeys(1, 1), bytearray(), 0
    ts_ns = 1_770_000_000_000_000_000
    while len(out) < block_bytes:
        seq += 1
        ts_ns += rng.randint(1_000, 2_000_000)
        subject, payload = KINDS[kind](rng, _record_size(rng))
        out += encode_message(keys, seq, ts_ns, subject.encode(), b"", payload)
    return bytes(out[:block_bytes])


# ------------------------------------------------------------------------ measuring


@dataclass(frozen=True)
class Figure:
    ratio: float
    shrink_mb_s: float
    restore_mb_s: float


def _chunks(image: bytes, chunk_bytes: int) -> list[bytes]:
    return [image[at : at + chunk_bytes] for at in range(0, len(image), chunk_bytes)]


def _seconds(work: Callable[[], object]) -> float:
    """Return CPU seconds of this thread, best of a few runs, because the machine is shared."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time()
        work()
        best = min(best, time.thread_time() - begun)
    return best


def measure(compressor: Compressor, image: bytes, chunk_bytes: int) -> Figure:
    chunks = _chunks(image, chunk_bytes)
    small = [compressor.shrink(chunk) for chunk in chunks]
    pairs = [(data, len(chunk)) for data, chunk in zip(small, chunks, strict=True)]
    for (data, length), chunk in zip(pairs, chunks, strict=True):
        assert bytes(compressor.restore(data, length)) == chunk  # type: ignore[call-overload]
    shrinking = _seconds(lambda: [compressor.shrink(chunk) for chunk in chunks])
    restoring = _seconds(lambda: [compressor.restore(data, length) for data, length in pairs])
    # A chunk that does not shrink is stored uncompressed.
    stored = sum(min(len(data), length) for data, length in pairs)
    return Figure(len(image) / stored, len(image) / MB / shrinking, len(image) / MB / restoring)


def releases_the_gil(compressor: Compressor, data: bytes) -> bool:
    """Return True if Python code runs while a single call compresses."""
    states: list[str] = []

    def compress() -> None:
        states.append("begun")
        compressor.shrink(data)
        states.append("done")

    usual = sys.getswitchinterval()
    # The switch interval never expires: the other thread runs only if the call releases the GIL.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        worker = threading.Thread(target=compress)
        worker.start()
        turns = 0
        while "done" not in states:
            turns += "begun" in states
            time.sleep(0)
        worker.join()
    finally:
        sys.setswitchinterval(usual)
    return turns > TURNS_MIN


PROBE = """
import resource, sys, time
def kib(): return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize() // 1024
before, begun = kib(), time.perf_counter()
import {module}
print(round((time.perf_counter() - begun) * 1000, 1), kib() - before)
"""


def import_cost(module: str) -> tuple[float, float]:
    """Return milliseconds and KiB of resident memory, in a fresh interpreter, median of five."""
    runs = []
    for _ in range(5):
        command = [sys.executable, "-c", PROBE.format(module=module)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        runs.append((float(out[0]), float(out[1])))
    return statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)


# ------------------------------------------------------------------------ the table


def _installed() -> Iterator[tuple[str, str, Callable[[], Compressor]]]:
    for name, (module, make) in CANDIDATES.items():
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is not None:
            yield name, module, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block-mib", type=int, default=BLOCK_BYTES >> 20)
    parser.add_argument("--quick", action="store_true", help="chunks of 64 KiB only")
    options = parser.parse_args()
    images = corpora(options.block_mib << 20)
    sizes = CHUNK_SIZES[1:2] if options.quick else CHUNK_SIZES
    print("ratio, compress MB/s, decompress MB/s of one thread's CPU time")
    for chunk_bytes in sizes:
        print(f"\n{chunk_bytes >> 10} KiB chunks".ljust(20) + "".join(k.ljust(22) for k in images))
        for name, _, make in _installed():
            figures = [measure(make(), image, chunk_bytes) for image in images.values()]
            cells = [f"{f.ratio:5.2f} {f.shrink_mb_s:6.0f} {f.restore_mb_s:6.0f}" for f in figures]
            print(name.ljust(19) + "".join(cell.ljust(22) for cell in cells))
    print("\nimport ms, KiB; whether a call lets other threads run")
    for name, module, make in _installed():
        ms, kib = import_cost(module)
        free = releases_the_gil(make(), images["json"] * 4)
        print(f"{name.ljust(19)}{ms:6.1f} {kib:7.0f}  {'yes' if free else 'no'}")


if __name__ == "__main__":
    main()
