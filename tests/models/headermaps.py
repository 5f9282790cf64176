"""Header blocks the plain way: the spec of `penstock.bulk.header_columns`."""

from __future__ import annotations


def parse_headers(block: bytes) -> list[tuple[bytes, list[bytes]]]:
    """The lines of a block by name, in the order names first appear."""
    found: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name, []).append(value.strip(b" \t"))
    return list(found.items())
