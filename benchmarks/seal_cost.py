"""Cost of sealing: whole blocks, one chunk, one flush, one key; size and CPU time.

    python benchmarks/seal_cost.py

Block images are those of benchmarks/compression.py. The figures are in docs/decisions/
0012-compression.md and 0013-encryption.md. CPU time of one thread, best of a few runs.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from compression import corpora
from penstock.store.format.block_frames import Binding, FrameReader, FrameWriter
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import (
    Cipher,
    DataKey,
    ServerKey,
    open_data_key,
    seal_data_key,
)
from penstock.store.format.sealed_body import read_header, seal_body, unseal_body

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Binding(incarnation=1, block=1)
ROUNDS = 3
MODES: dict[str, tuple[BlockCompression, Cipher]] = {
    "framed only": (BlockCompression.NONE, Cipher.NONE),
    "zstd": (BlockCompression.ZSTD, Cipher.NONE),
    "aes": (BlockCompression.NONE, Cipher.AES_256_GCM),
    "chacha": (BlockCompression.NONE, Cipher.CHACHA20_POLY1305),
    "zstd, aes": (BlockCompression.ZSTD, Cipher.AES_256_GCM),
    "zstd, chacha": (BlockCompression.ZSTD, Cipher.CHACHA20_POLY1305),
}


def seconds(work: Callable[[], object], times: int = 1) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(times):
            work()
        best = min(best, time.thread_time() - begun)
    return best / times


def key_of(cipher: Cipher) -> DataKey | None:
    return DataKey(os.urandom(32), cipher) if cipher else None


def whole_block(image: bytes, compression: BlockCompression, cipher: Cipher) -> str:
    key = key_of(cipher)
    keys = {key.number: key} if key else {}
    body = seal_body(image, HERE, 1, compression=compression, key=key)
    sealing = seconds(lambda: seal_body(image, HERE, 1, compression=compression, key=key))
    opening = seconds(lambda: unseal_body(body, HERE, keys))
    reader, header = FrameReader(HERE, keys), read_header(body, HERE)
    frame = body[slice(*header.span(5))]
    chunk = seconds(lambda: header.open_chunk(reader, 5, frame), 200)
    size = f"{len(body) / len(image):8.2%}"
    return f"{size}{sealing * 1e3:8.1f}{opening * 1e3:8.1f}{chunk * 1e6:8.1f}"


def flush(plain: bytes, cipher: Cipher) -> str:
    added = len(FrameWriter(HERE, 1, key=key_of(cipher)).frame(plain)) - len(plain)
    writer = FrameWriter(HERE, 1, key=key_of(cipher))
    cost = seconds(lambda: writer.frames(plain), 500)
    return f"{added:4}{cost * 1e6:8.1f}"


def keys() -> None:
    print("\nkeys")
    salt, nonce = os.urandom(16), os.urandom(12)
    server, data = ServerKey("a key"), DataKey(os.urandom(32))
    begun = time.perf_counter()
    record = seal_data_key(data, server, "$G/S", 1, salt=salt, nonce=nonce)
    print(f"first use of a server key  {(time.perf_counter() - begun) * 1e3:8.1f} ms")
    opening = seconds(lambda: open_data_key(record, [server], "$G/S", 1), 200)
    sealing = seconds(lambda: seal_data_key(data, server, "$G/S", 1, salt=salt, nonce=nonce), 200)
    print(f"open a key record          {opening * 1e6:8.1f} µs")
    print(f"seal it again              {sealing * 1e6:8.1f} µs")
    born = seconds(lambda: FrameWriter(HERE, 1, key=data), 200)
    print(f"writer of a block          {born * 1e6:8.1f} µs")


def main() -> None:
    print("whole blocks of 8 MiB: stored size in % of plain, seal ms, open ms; one chunk µs")
    for kind, image in corpora().items():
        for name, mode in MODES.items():
            print(f"{kind:8}{name:14}{whole_block(image, *mode)}")
    print("\none flush of an encrypted active block: bytes added, µs")
    for size in (200, 4096, 65536):
        for cipher in (Cipher.AES_256_GCM, Cipher.CHACHA20_POLY1305):
            print(f"{size:8}  {cipher.name:18}{flush(os.urandom(size), cipher)}")
    keys()


if __name__ == "__main__":
    main()
