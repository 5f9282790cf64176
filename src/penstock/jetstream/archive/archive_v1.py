"""Reads archives of reference servers up to 2.14: a tar of their files, turned into the same items.

    meta.inf                 JSON: when the stream was created, and its configuration
    msgs/<n>.blk             records of messages, in order
    msgs/index.db            which of them still exist
    obs/<consumer>/meta.inf  JSON: when the consumer was created, and its configuration
    obs/<consumer>/o.dat     the consumer's state

A record is u32 length (its top bit: has headers), u64 sequence, i64 time, u16 length of the
subject, subject, [u32 length of the header, header], payload, 8 bytes of hash. The top bits of the
sequence mark an erased record, or a record that removes the earlier message of that sequence. The
reader does not check the hashes: the S2 frames have checksums.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.json_codec import decode
from penstock.api.refusals import ApiError
from penstock.api.timestamps import parse_time
from penstock.base.json_depth import check_nesting
from penstock.base.units import SECOND_NS
from penstock.jetstream.archive.block_index_v1 import read_index
from penstock.jetstream.archive.stream_archive import (
    Created,
    InvalidArchive,
    Item,
    RemovedRange,
    SavedConsumer,
    SavedMessage,
    rebuilt_state,
)
from penstock.jetstream.archive.tar_reader import TarFeed, TarMember
from penstock.records.varint import Varints

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from penstock.jetstream.consumers.state.consumer_state import ConsumerState

SMALL_BYTES_MAX: Final = 64 << 20
"""Largest file that holds no messages."""
RECORD_BYTES_MAX: Final = 32 << 20

_HEAD: Final = struct.Struct("<IQqH")
_HASH_BYTES: Final = 8
_HAS_HEADER: Final = 1 << 31
_ERASED: Final = 1 << 63
_REMOVES: Final = 1 << 62
_STATE_MAGIC: Final = 22


class _Meta(msgspec.Struct):
    Created: str = ""
    name: str = ""


class _Record(NamedTuple):
    seq: int
    ts_ns: int
    subject: bytes
    has_header: bool
    body_bytes: int


class ArchiveReaderV1:
    """Reads an old archive from its uncompressed bytes."""

    def __init__(self) -> None:
        self._tar = TarFeed()
        self._steps: Iterator[Item | None] = self._items()
        self._consumers: dict[str, tuple[_Meta, bytes]] = {}
        self._has_meta = False

    def feed(self, data: bytes) -> None:
        """Append bytes of the archive."""
        self._tar.feed(data)

    @property
    def is_whole(self) -> bool:
        """Whether the end of the archive was read, and a complete stream before it."""
        return self._tar.is_whole and self._has_meta and not self._consumers

    def next(self) -> Item | None:
        """Return the next item; None if it is incomplete or there is none. Raises
        InvalidArchive."""
        try:
            return next(self._steps, None)
        except InvalidArchive:
            raise
        except (ValueError, msgspec.MsgspecError, ApiError, OSError) as error:
            raise InvalidArchive(str(error)) from error

    def _items(self) -> Iterator[Item | None]:
        while True:
            member = self._tar.member()
            if member is None:
                yield None
            elif member.name.startswith("msgs/") and member.name.endswith(".blk"):
                yield from self._block()
            else:
                yield from self._small(member)

    def _take(self, n: int) -> Generator[None, None, bytes]:
        while (data := self._tar.take(n)) is None:
            yield None
        return data

    # -- messages

    def _block(self) -> Iterator[Item | None]:
        while self._tar.left:
            record = yield from self._record()
            body = yield from self._take(record.body_bytes)
            if record.seq & _REMOVES:
                yield RemovedRange((record.seq & ~_REMOVES,), record.ts_ns)
            elif record.seq and not record.seq & _ERASED:
                yield _message(record, body)

    def _record(self) -> Generator[None, None, _Record]:
        head = yield from self._take(_HEAD.size)
        length, seq, ts_ns, subject_bytes = _HEAD.unpack(head)
        has_header = bool(length & _HAS_HEADER)
        length &= ~_HAS_HEADER
        body_bytes = length - _HEAD.size - subject_bytes
        if length > RECORD_BYTES_MAX or body_bytes < _HASH_BYTES + 4 * has_header:
            raise InvalidArchive("a message that has no sizes")
        subject = yield from self._take(subject_bytes)
        return _Record(seq, ts_ns, subject, has_header, body_bytes)

    # -- everything else

    def _small(self, member: TarMember) -> Iterator[Item | None]:
        if member.size > SMALL_BYTES_MAX:
            raise InvalidArchive(f"{member.name} is too long")
        data = yield from self._take(member.size)
        match member.name.split("/"):
            case ["meta.inf"]:
                yield self._stream(data)
            case ["msgs", "index.db"]:
                yield from read_index(data)
            case ["obs", consumer, "meta.inf"]:
                meta = _read_meta(data)
                self._consumers[consumer] = (meta, data)
            case ["obs", consumer, "o.dat"]:
                yield self._consumer(consumer, data)
            case ["errors.txt"]:
                raise InvalidArchive(f"made with an error: {data.decode(errors='replace')}")
            case _:
                return  # checksums of the other files

    def _stream(self, data: bytes) -> Created:
        meta = _read_meta(data)
        self._has_meta = True
        return Created(meta.name, _created_ns(meta))

    def _consumer(self, name: str, data: bytes) -> SavedConsumer:
        found = self._consumers.pop(name, None)
        if found is None:
            raise InvalidArchive(f'consumer "{name}" is missing config')
        meta, raw = found
        config = decode(ConsumerConfig, raw, strict=False)
        return SavedConsumer(name, config, read_state(data), _created_ns(meta))


def _read_meta(data: bytes) -> _Meta:
    check_nesting(data)
    return msgspec.json.decode(data, type=_Meta)


def _message(record: _Record, body: bytes) -> SavedMessage:
    payload = body[:-_HASH_BYTES]
    header = b""
    if record.has_header:
        stop = 4 + int.from_bytes(payload[:4], "little")
        if stop > len(payload):
            raise InvalidArchive("a header that is longer than its message")
        header, payload = payload[4:stop], payload[stop:]
    subject = record.subject.decode("utf-8", "surrogateescape")
    return SavedMessage(record.seq, record.ts_ns, subject, header, payload)


def _created_ns(meta: _Meta) -> int:
    return parse_time(meta.Created) if meta.Created else 0


def read_state(data: bytes) -> ConsumerState:
    """Parse the file `o.dat`. Raises ValueError if it is malformed."""
    if data[:1] != bytes((_STATE_MAGIC,)) or data[1:2] not in (b"\1", b"\2"):
        raise ValueError("not the state of a consumer")
    reading = Varints(data, 2)
    is_first_version = data[1] == 1
    floor = (reading.unsigned(), reading.unsigned())
    delivered = (reading.unsigned(), reading.unsigned())
    if is_first_version:
        delivered = (
            delivered[0] + max(floor[0] - 1, 0),
            delivered[1] + max(floor[1] - 1, 0),
        )
    pending: dict[int, tuple[int, int]] = {}
    count = reading.unsigned()
    base = reading.signed() if count else 0
    for _ in range(count):
        seq = reading.unsigned() + floor[1]
        number = 0 if is_first_version else reading.unsigned() + floor[0]
        seconds = reading.signed()
        seconds = base + seconds if is_first_version else base - seconds
        pending[seq] = (number, seconds * SECOND_NS)
    redelivered = {}
    for _ in range(reading.unsigned()):
        seq = reading.unsigned() + floor[1]
        redelivered[seq] = reading.unsigned()
    return rebuilt_state(delivered, floor, pending, redelivered)
