"""The header of a block file, as docs/formats/block.md specifies it."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.base.sequences import NEXT_SEQ_MAX
from penstock.records.record_codec import checksum

BLOCK_MAGIC: Final = b"PENBLK\x01\0"
HEADER_BYTES_MAX: Final = 16 * 1024 * 1024
ALIGNMENT: Final = 8
FORM_MAX: Final = 2
"""The largest number of a form; `block_file.Form` names them."""
NUMBER_MAX: Final = 2**63 - 1
"""The largest number of a block: the next number still fits in 64 bits."""
_HEADER: Final = struct.Struct("<8sIIQQQqQII")
_SUM: Final = struct.Struct("<Q")


class BlockHeader(NamedTuple):
    """The header of a block file. `form`: how the file stores its image."""

    length: int
    form: int
    incarnation: int
    number: int
    first_seq: int
    created_ns: int
    previous: int
    flags: int
    meta: bytes


def block_header(
    incarnation: int,
    number: int,
    first_seq: int,
    created_ns: int,
    previous: int,
    meta: bytes,
    *,
    form: int = 0,
    flags: int = 0,
) -> bytes:
    """Return the bytes at the start of a block file."""
    bare = _HEADER.size + len(meta) + _SUM.size
    length = bare + -bare % ALIGNMENT
    fixed = _HEADER.pack(
        BLOCK_MAGIC, length, form, incarnation, number, first_seq, created_ns, previous,
        len(meta), flags,
    )  # fmt: skip
    body = (fixed + meta).ljust(length - _SUM.size, b"\0")
    return body + _SUM.pack(checksum(body))


def read_block_header(data: bytes) -> BlockHeader | None:
    """Return the header, or None if the bytes do not start with a valid block header."""
    least = _HEADER.size + _SUM.size
    if len(data) < least:
        return None
    (magic, length, form, incarnation, number, first_seq, created_ns, previous, meta_len, flags) = (
        _HEADER.unpack_from(data)
    )
    if magic != BLOCK_MAGIC or not least + meta_len <= length <= min(len(data), HEADER_BYTES_MAX):
        return None
    body = data[: length - _SUM.size]
    if _SUM.unpack_from(data, len(body))[0] != checksum(body):
        return None
    if form > FORM_MAX or number > NUMBER_MAX or not 0 < first_seq <= NEXT_SEQ_MAX:
        return None
    meta = data[_HEADER.size : _HEADER.size + meta_len]
    return BlockHeader(
        length, form, incarnation, number, first_seq, created_ns, previous, flags, meta
    )
