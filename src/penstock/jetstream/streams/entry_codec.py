"""The bytes of entries: how an entry is stored, or sent to another server.

Invariant: bytes that any release wrote stay readable, with the same meaning. A tag is never reused,
fields are only added, at the end and with a default. The text of clients (subjects, replies, batch
ids) is binary here: it need not be UTF-8, which MessagePack demands of text. The layout is in
docs/formats/entry.md; tests/golden holds one example of each kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from penstock.jetstream.streams.entries import (
    BatchEntry,
    Expire,
    FastMark,
    Publish,
    Purge,
    Remove,
    Skip,
    Special,
    Trim,
    Update,
)

if TYPE_CHECKING:
    from penstock.jetstream.streams.entries import Entry


class InvalidEntry(ValueError):
    """The bytes are not an entry of a known kind."""


class _FastMark(msgspec.Struct, array_like=True):
    id: bytes
    seq: int
    commit: bool
    gap_ok: bool
    flow: int


class _Special(msgspec.Struct, omit_defaults=True):
    ttl_ns: int = 0
    msg_id: bytes = b""
    rollup: str = ""
    purged: bytes = b""
    skip: bool = False
    value: str = ""
    fast: _FastMark | None = None
    origin_seq: int = 0


class _Publish(msgspec.Struct, array_like=True, tag="pub"):
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes
    reply: bytes = b""
    special: _Special | None = None


class _Batch(msgspec.Struct, array_like=True, tag="batch"):
    ts_ns: int
    id: bytes
    items: tuple[_Publish, ...]
    count: int
    reply: bytes = b""
    packed: bytes = b""


class _Purge(msgspec.Struct, array_like=True, tag="purge"):
    ts_ns: int
    subject: bytes = b""
    before_seq: int = 0
    keep: int = 0
    bound: int = 0
    start: int = 0


_Stored: TypeAlias = _Publish | _Batch | _Purge | Remove | Expire | Trim | Skip | Update

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    match entry:
        case Publish():
            return _ENCODER.encode(_packed_publish(entry))
        case BatchEntry():
            items = tuple(_packed_publish(item) for item in entry.items)
            return _ENCODER.encode(
                _Batch(
                    entry.ts_ns,
                    _raw(entry.id),
                    items,
                    entry.count,
                    _raw(entry.reply),
                    entry.packed,
                )
            )
        case Purge():
            return _ENCODER.encode(
                _Purge(
                    entry.ts_ns,
                    _raw(entry.subject),
                    entry.before_seq,
                    entry.keep,
                    entry.bound,
                    entry.start,
                )
            )
        case _:
            return _ENCODER.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """Return the entry of these bytes. Raises InvalidEntry."""
    try:
        found: _Stored = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidEntry(str(error)) from error
    match found:
        case _Publish():
            return _publish(found)
        case _Batch():
            items = tuple(_publish(item) for item in found.items)
            return BatchEntry(
                found.ts_ns,
                _text(found.id),
                items,
                found.count,
                _text(found.reply),
                found.packed,
            )
        case _Purge():
            return Purge(
                found.ts_ns,
                _text(found.subject),
                found.before_seq,
                found.keep,
                found.bound,
                found.start,
            )
        case _:
            return found


def _packed_publish(entry: Publish) -> _Publish:
    special = None if entry.special is None else _packed_special(entry.special)
    return _Publish(
        entry.ts_ns, _raw(entry.subject), entry.header, entry.payload, _raw(entry.reply), special
    )


def _packed_special(special: Special) -> _Special:
    mark = special.fast
    return _Special(
        special.ttl_ns,
        special.msg_id,
        special.rollup,
        _raw(special.purged),
        special.skip,
        special.value,
        None
        if mark is None
        else _FastMark(_raw(mark.id), mark.seq, mark.commit, mark.gap_ok, mark.flow),
        special.origin_seq,
    )


def _publish(found: _Publish) -> Publish:
    special = None if found.special is None else _special(found.special)
    return Publish(
        found.ts_ns, _text(found.subject), found.header, found.payload, _text(found.reply), special
    )


def _special(found: _Special) -> Special:
    mark = found.fast
    return Special(
        found.ttl_ns,
        found.msg_id,
        found.rollup,
        _text(found.purged),
        found.skip,
        found.value,
        None
        if mark is None
        else FastMark(_text(mark.id), mark.seq, mark.commit, mark.gap_ok, mark.flow),
        found.origin_seq,
    )


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")
