"""S2 blocks the slow way, straight from the description of the format."""

from __future__ import annotations

REPEAT_BASES = {5: 4, 6: 1 << 8, 7: 1 << 16}


def decode_block(block: bytes) -> bytes | None:
    """What a block holds; None if it is none."""
    try:
        return _decode(block)
    except (IndexError, StopIteration):
        return None


def _decode(block: bytes) -> bytes | None:
    at = 1 + next(at for at in range(len(block)) if block[at] < 128)
    if at > 5:
        return None
    size = sum((block[i] & 127) << 7 * i for i in range(at))
    out = bytearray()
    offset = 0
    while at < len(block):
        tag = block[at]
        length, at = tag >> 2, at + 1
        if tag & 3 == 0:
            if length >= 60:
                extra = length - 59
                length, at = number(block, at, extra), at + extra
            length += 1
            if at + length > len(block) or len(out) + length > size:
                return None
            out += block[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            near, at = (tag >> 5 << 8) | block[at], at + 1
            length &= 7
            if near:
                offset = near
            elif length > 4:
                extra = length - 4
                length, at = REPEAT_BASES[length] + number(block, at, extra), at + extra
            length += 4
        else:
            extra = 2 if tag & 3 == 2 else 4
            offset, at = number(block, at, extra), at + extra
            length += 1
        if not 0 < offset <= len(out) or len(out) + length > size:
            return None
        for _ in range(length):
            out.append(out[-offset])
    return bytes(out) if len(out) == size else None


def number(block: bytes, at: int, count: int) -> int:
    """A little-endian number that must be all there."""
    if at + count > len(block):
        raise IndexError
    return int.from_bytes(block[at : at + count], "little")


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
