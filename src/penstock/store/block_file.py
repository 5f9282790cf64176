"""Block files: how an image and its index lie in a file, plain, in frames, or as a sealed body.

    plain   header | records | [index | trailer]           appended to as it is
    frames  header | frames                                 an open block under encryption
    sealed  header | sealed body of records and index | trailer

Header and trailer are never encrypted; they contain only counts, sequences and times of messages.
The trailer makes opening cheap and is optional: without it, or if its checksum fails, recovery
scans the records. docs/formats/block.md specifies the bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.sequences import SEQ_MAX
from penstock.records.record_codec import checksum
from penstock.store.errors import StoreError
from penstock.store.format.block_frames import (
    BODY_BYTES_MAX,
    BadFrame,
    Binding,
    FrameReader,
    assemble,
)
from penstock.store.format.block_header import (
    NUMBER_MAX,
    BlockHeader,
    block_header,
    read_block_header,
)
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import WrongKey
from penstock.store.format.sealed_body import (
    PRELUDE_BYTES,
    BadSeal,
    header_bytes_needed,
    read_header,
    seal_body,
    unseal_body,
)
from penstock.store.index.block_images import survey
from penstock.store.index.block_index import make_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.store.format.encryption import DataKey
    from penstock.store.format.sealed_body import SealedHeader
    from penstock.store.io.disk import Disk, File

BLOCK_SUFFIX: Final = ".blk"
TORN_SUFFIX: Final = ".torn"
NEW_SUFFIX: Final = ".new"
"""Suffix of a block being rewritten, until it replaces the old file."""
ERASED_SUFFIX: Final = ".erased"
"""The same for a rewrite that a sync runs at once: both may be in progress for one block."""
SEAL_MAGIC: Final = b"PENSEAL\x01"
TRAILER_MAGIC: Final = b"PENFOOT\x01"
ALIGNMENT: Final = 8
HEAD_BYTES: Final = 4096
"""Bytes read first from a block file to find its header."""
HEADER_BYTES_MIN: Final = 72
DEAD_BYTES_MAX: Final = 1 << 40
"""Maximum bytes of removed records in one block; a trailer with a higher count is damaged."""
CIPHER_PLACE: Final = 33
"""Offset in the prelude of a sealed body: the byte that names its cipher."""
REWRITTEN: Final = 1
"""Header flag: the block was rewritten, so its records do not reproduce its lineage."""

_TRAILER: Final = struct.Struct("<8sQQQqQIIQQQQQII")
_SUM: Final = struct.Struct("<Q")
_BINDING: Final = struct.Struct("<QQ")
TRAILER_BYTES: Final = _TRAILER.size + _SUM.size


class Form(IntEnum):
    """How a file stores its image; headers contain these numbers."""

    PLAIN = 0
    FRAMES = 1
    SEALED = 2


class Trailer(NamedTuple):
    """The end of a sealed block's file. `used`: where records end in the image."""

    used: int
    first_seq: int
    last_seq: int
    last_ts_ns: int
    dead_bytes: int
    records: int
    index_bytes: int
    index_hash: int
    lineage: int
    previous: int
    mark_place: int
    mark_block: int
    head: int
    form: int


def block_name(number: int) -> str:
    return f"{number}{BLOCK_SUFFIX}"


def number_of(name: str) -> int | None:
    """Return the number of a block file; None if the name is not a block name."""
    stem = name.removesuffix(BLOCK_SUFFIX)
    if stem == name or not (stem.isdecimal() and stem.isascii()):
        return None
    number = int(stem)
    return number if number <= NUMBER_MAX else None


def is_litter(name: str) -> bool:
    """Return whether a file is an unfinished rewrite of a block."""
    stem, dot, suffix = name.rpartition(".")
    return dot + suffix in (NEW_SUFFIX, ERASED_SUFFIX) and number_of(stem) is not None


def seed_of(binding: Binding) -> int:
    return checksum(_BINDING.pack(*binding))


def pack_trailer(trailer: Trailer, binding: Binding) -> bytes:
    body = _TRAILER.pack(TRAILER_MAGIC, *trailer)
    return body + _SUM.pack(checksum(body, seed_of(binding)))


def unpack_trailer(data: bytes, binding: Binding, file_bytes: int) -> Trailer | None:
    """Return the trailer if the bytes are a valid trailer of this block with possible values."""
    if len(data) != TRAILER_BYTES or not data.startswith(TRAILER_MAGIC):
        return None
    (expected,) = _SUM.unpack_from(data, _TRAILER.size)
    if checksum(data[: _TRAILER.size], seed_of(binding)) != expected:
        return None
    trailer = Trailer(*_TRAILER.unpack_from(data)[1:])
    if not HEADER_BYTES_MIN <= trailer.head <= min(trailer.used, file_bytes):
        return None
    if trailer.form not in tuple(Form) or trailer.used > _image_bytes_max(trailer, file_bytes):
        return None
    if trailer.mark_block > NUMBER_MAX or trailer.dead_bytes > DEAD_BYTES_MAX:
        return None
    is_possible = 0 < trailer.first_seq <= trailer.last_seq + 1 and trailer.last_seq <= SEQ_MAX
    return trailer if is_possible else None


def _image_bytes_max(trailer: Trailer, file_bytes: int) -> int:
    """Return the maximum image length for a file of this size."""
    if trailer.form == Form.PLAIN:
        return file_bytes
    return trailer.head + BODY_BYTES_MAX


def padded(n: int) -> int:
    return n + -n % ALIGNMENT


@dataclass(slots=True)
class Sealing:
    """How a store writes sealed blocks, and the keys it reads them with."""

    compression: BlockCompression = BlockCompression.NONE
    key: DataKey | None = None
    keys: Mapping[int, DataKey] = field(default_factory=dict)

    @property
    def open_form(self) -> Form:
        return Form.FRAMES if self.key else Form.PLAIN

    @property
    def sealed_form(self) -> Form:
        return Form.SEALED if self.key or self.compression else Form.PLAIN

    @property
    def mark(self) -> tuple[int, int]:
        """What distinguishes a block stored this way: compression and key number."""
        return int(self.compression), self.key.number if self.key else 0


@dataclass(slots=True)
class BlockFile:
    """A block file as found on disk. `header` is reconstructed if the real one is damaged."""

    name: str
    number: int
    header: BlockHeader
    size: int
    ending: Trailer | None = None
    """The trailer, if it is valid."""
    trailer: Trailer | None = None
    """The same trailer, if its index is valid too."""
    index: bytes = field(default=b"", repr=False)
    stored: tuple[int, int] = (0, 0)
    """Compression and key number of a sealed body."""
    header_damaged: bool = False


def file_of(
    image: bytes, index: bytes, trailer: Trailer, sealing: Sealing, salt: int, binding: Binding
) -> bytes:
    """Return a whole file in the configured sealed form."""
    tail = pack_trailer(trailer, binding)
    if sealing.sealed_form is Form.PLAIN:
        return b"".join([image, index.ljust(padded(len(index)), b"\0"), tail])
    body = seal_body(
        image[trailer.head :] + index,
        binding,
        salt,
        compression=sealing.compression,
        key=sealing.key,
    )
    return b"".join([image[: trailer.head], body, tail])


def footer_of(index: bytes, trailer: Trailer, binding: Binding) -> bytes:
    """Return the footer that is appended to a full plain block."""
    return index.ljust(padded(len(index)), b"\0") + pack_trailer(trailer, binding)


def index_of(
    image: bytes | memoryview, head: int, first_seq: int, live: bytes, binding: Binding
) -> bytes | None:
    return make_index(image, head, *binding, first_seq, live)


def renewed_header(old: BlockHeader, binding: Binding, form: Form) -> bytes:
    """Return the header of a rewritten block."""
    return block_header(
        *binding, old.first_seq, old.created_ns, old.previous, old.meta,
        form=form, flags=old.flags | REWRITTEN,
    )  # fmt: skip


# ------------------------------------------------------------------------ reading


def find_header(disk: Disk, file: File, size: int) -> BlockHeader | None:
    start = disk.pread(file, min(size, HEAD_BYTES), 0)
    header = read_block_header(start)
    if header is None and len(start) >= HEADER_BYTES_MIN:
        length = int.from_bytes(start[8:12], "little")  # a header with long meta bytes
        if HEAD_BYTES < length <= size:
            header = read_block_header(disk.pread(file, length, 0))
    return header


def is_encrypted(disk: Disk, file: File) -> bool:
    """Return whether a block file was written under a key, according to its header."""
    header = find_header(disk, file, disk.size(file))
    if header is None or header.form != Form.SEALED:
        return header is not None and header.form == Form.FRAMES
    prelude = disk.pread(file, PRELUDE_BYTES, header.length)
    return len(prelude) == PRELUDE_BYTES and prelude[CIPHER_PLACE] != 0


def salvaged_header(raw: bytes, trailer: Trailer | None, binding: Binding) -> BlockHeader | None:
    """Return a header for a file with a damaged one, from the bytes after it; None if that fails.

    Number and incarnation come from the file's location: valid records prove them.
    """
    if trailer is not None:
        return header_at(trailer.head, Form(trailer.form), binding, trailer.first_seq)
    found = survey(raw, HEADER_BYTES_MIN, *binding)
    if found.end > HEADER_BYTES_MIN:
        return header_at(HEADER_BYTES_MIN, Form.PLAIN, binding, found.first_seq)
    at = raw.find(SEAL_MAGIC)
    if at >= 0:
        return header_at(at, Form.SEALED, binding, 0)
    try:
        frames = FrameReader(binding, {}).scan(raw, HEADER_BYTES_MIN).frames
    except WrongKey:  # there are frames; their contents do not matter here
        return header_at(HEADER_BYTES_MIN, Form.FRAMES, binding, 0)
    return header_at(frames[0].offset, Form.FRAMES, binding, 0) if frames else None


def header_at(head: int, form: Form, binding: Binding, first_seq: int = 0) -> BlockHeader:
    """Return a header for a block whose own header is not available."""
    return BlockHeader(head, form, *binding, first_seq, 0, 0, REWRITTEN, b"")


def read_footer(
    disk: Disk, file: File, found: BlockFile, binding: Binding, keys: Mapping[int, DataKey]
) -> None:
    """Set trailer and index of `found`, if the file ends with valid ones."""
    end = found.size - TRAILER_BYTES
    trailer = found.ending or read_trailer(disk, file, found.size, binding)
    found.ending = trailer
    if trailer is None:
        return
    if found.header.form == Form.SEALED:
        index = _sealed_index(disk, file, found, trailer, binding, keys)
    else:
        at = end - padded(trailer.index_bytes)
        index = disk.pread(file, trailer.index_bytes, at) if at >= trailer.head else b""
    if len(index) == trailer.index_bytes and index_hash(index, binding) == trailer.index_hash:
        found.trailer, found.index = trailer, index


def read_trailer(disk: Disk, file: File, size: int, binding: Binding) -> Trailer | None:
    end = size - TRAILER_BYTES
    if end < HEADER_BYTES_MIN:
        return None
    return unpack_trailer(disk.pread(file, TRAILER_BYTES, end), binding, size)


def _sealed_index(
    disk: Disk,
    file: File,
    found: BlockFile,
    trailer: Trailer,
    binding: Binding,
    keys: Mapping[int, DataKey],
) -> bytes:
    """Return the index at the end of a sealed body without reading the records; b"" if invalid."""
    head = trailer.head
    try:
        prelude = disk.pread(file, PRELUDE_BYTES, head)
        needed = header_bytes_needed(prelude)
        body = read_header(disk.pread(file, needed, head), binding)
    except BadSeal:
        return b""
    found.stored = (prelude[32], int.from_bytes(prelude[34:36], "little"))
    start = trailer.used - head
    if start < 0 or start + trailer.index_bytes != body.plain_bytes:
        return b""
    reader = FrameReader(binding, body.keys_of(keys))
    chunks = body.chunks(start, body.plain_bytes)
    try:
        plain = b"".join([_chunk(disk, file, body, chunk, head, reader) for chunk in chunks])
    except BadFrame:
        return b""
    return plain[len(plain) - trailer.index_bytes :] if trailer.index_bytes else b""


def _chunk(
    disk: Disk, file: File, body: SealedHeader, chunk: int, head: int, reader: FrameReader
) -> bytes:
    position, end = body.span(chunk)
    return bytes(body.open_chunk(reader, chunk, disk.pread(file, end - position, head + position)))


def index_hash(index: bytes, binding: Binding) -> int:
    return checksum(index, seed_of(binding))


class Image(NamedTuple):
    """An image read from its file, with zeros where the file is damaged.

    `damaged`: some of it could not be restored. For frames also where the next frame goes: its
    position in the file and its number; and `torn_bytes`, the count of torn bytes after that.
    """

    data: bytes
    damaged: bool = False
    position: int = 0
    frames: int = 0
    torn_bytes: int = 0


def read_image(
    disk: Disk, name: str, header: BlockHeader, binding: Binding, keys: Mapping[int, DataKey]
) -> Image:
    """Return the image of a block in any form. Raises StoreError if its key is missing."""
    file = disk.open(name, writable=False)
    try:
        raw = disk.pread(file, disk.size(file), 0)
    finally:
        disk.close_file(file)
    return image_of(raw, header, binding, keys, f"{disk.path}/{name}")


def image_of(
    raw: bytes, header: BlockHeader, binding: Binding, keys: Mapping[int, DataKey], path: str
) -> Image:
    head = header.length
    if header.form == Form.PLAIN:
        return Image(raw)
    try:
        if header.form == Form.FRAMES:
            scan = FrameReader(binding, keys).scan(raw, head)
            end = max((f.offset + len(f.plain) for f in scan.frames), default=head)
            plain, missing = assemble(scan.frames, end)
            # Frames start after the header, at the offset they have in the image.
            lost = any(stop > head for _, stop in missing)
            data = raw[:head] + bytes(plain[head:])
            frames = scan.frames[-1].number + 1 if scan.frames else 0
            return Image(data, lost, scan.end, frames, scan.torn_bytes)
        end = len(raw) - TRAILER_BYTES
        unsealed = unseal_body(memoryview(raw)[head : max(end, head)], binding, keys)
    except WrongKey as wrong:
        raise StoreError(path, "read", 0, str(wrong)) from None
    return Image(raw[:head] + bytes(unsealed.plain), not unsealed.whole)
