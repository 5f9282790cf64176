"""Stream archives in the format the reference writes since 2.15: entries after `NATSARC1`.

    uvarint name length, varint timestamp, uvarint sequence, uvarint header length,
    uvarint payload length, name, header, payload

First `state.json`, then one entry `consumers/<name>` per consumer, then the messages in order,
named by their subjects, and last an empty entry. The whole archive is one S2 stream. The reader
turns bytes into items, one at a time, however the bytes are split, and buffers at most one
incomplete entry. docs/formats/archive.md specifies the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import ApiError
from penstock.api.stream_config import StreamState
from penstock.base.json_depth import check_nesting
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.consumers.state.consumer_deltas import ENTRIES_MAX
from penstock.jetstream.consumers.state.consumer_state import ConsumerState
from penstock.records.varint import unzigzag, zigzag
from penstock.records.varint_rows import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC: Final = b"NATSARC1"
STATE_NAME: Final = b"state.json"
CONSUMER_PREFIX: Final = b"consumers/"
NAME_BYTES_MAX: Final = 1 << 20
STATE_BYTES_MAX: Final = 64 << 20
CONSUMER_BYTES_MAX: Final = 128 << 20
"""Bounds the JSON of a consumer with the largest allowed number of ack-pending messages."""
END: Final = bytes(5)
"""The empty entry that ends an archive."""

_HEAD_NUMBERS: Final = 5
_HEAD_BYTES_MAX: Final = 10 * _HEAD_NUMBERS


class InvalidArchive(ValueError):
    """The bytes are not an archive, or not a complete one; the text gives the reason."""


class ArchiveExtent(NamedTuple):
    """The totals of a stream; no message exists before its first sequence."""

    state: StreamState


class SavedConsumer(NamedTuple):
    """A consumer with its state."""

    name: str
    config: ConsumerConfig
    state: ConsumerState
    created_ns: int = 0
    """0: unknown."""


class SavedMessage(NamedTuple):
    """A message with its original sequence."""

    seq: int
    ts_ns: int
    subject: str
    header: bytes
    payload: bytes


class RemovedRange(NamedTuple):
    """Removed messages, whether earlier in the archive or left out of it."""

    seqs: tuple[int, ...]
    ts_ns: int = 0
    """When they were stored; 0: unknown."""


class Created(NamedTuple):
    """The name of the stream, and when it was created."""

    name: str
    created_ns: int


Item: TypeAlias = ArchiveExtent | SavedConsumer | SavedMessage | RemovedRange | Created


# -- writing


def entry(name: bytes, ts_ns: int, seq: int, header: bytes, payload: bytes) -> bytes:
    """Return one encoded entry."""
    head = pack(len(name), zigzag(ts_ns), seq, len(header), len(payload))
    return b"".join((head, name, header, payload))


def message_entry(seq: int, ts_ns: int, subject: str, header: bytes, payload: bytes) -> bytes:
    """Return the entry of a message."""
    return entry(subject.encode("utf-8", "surrogateescape"), ts_ns, seq, header, payload)


def state_entry(state: StreamState, now_ns: int) -> bytes:
    """Return the entry of the archive's totals; `consumer_count` consumers follow."""
    return entry(STATE_NAME, now_ns, 0, b"", encode(state))


class _Pair(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Pending(msgspec.Struct):
    Sequence: int = 0
    Timestamp: int = 0


class _ArchiveState(msgspec.Struct, omit_defaults=True):
    delivered: _Pair
    ack_floor: _Pair
    pending: dict[str, _Pending] = {}
    redelivered: dict[str, int] = {}


class _Consumer(msgspec.Struct):
    config: msgspec.Raw
    state: _ArchiveState


def consumer_entry(
    name: str, cfg: ConsumerConfig, state: ConsumerState, last_seq: int, now_ns: int
) -> bytes:
    """Return the entry of a consumer, with its state limited to messages up to `last_seq`."""
    shown = _ArchiveState(
        delivered=_Pair(state.delivered_consumer, min(state.delivered_stream, last_seq)),
        ack_floor=_Pair(state.floor_consumer, min(state.floor_stream, last_seq)),
        pending={
            str(seq): _Pending(number, ts_ns)
            for seq, (number, ts_ns) in state.pending.items()
            if seq <= last_seq
        },
        redelivered={str(seq): n for seq, n in state.redelivered.items() if seq <= last_seq},
    )
    body = msgspec.json.encode(_Consumer(msgspec.Raw(encode(cfg)), shown))
    named = CONSUMER_PREFIX + name.encode("utf-8", "surrogateescape")
    return entry(named, now_ns, 0, b"", body)


# -- reading


class _Entry(NamedTuple):
    name: bytes
    ts_ns: int
    seq: int
    header: bytes
    payload: bytes


class StreamArchiveReader:
    """Reads an archive from its uncompressed bytes."""

    def __init__(self, *, message_bytes_max: int) -> None:
        """`message_bytes_max` limits header and payload of a message; larger ones are refused."""
        self._buffer = bytearray()
        self._message_bytes_max = message_bytes_max
        self._steps: Iterator[Item | None] = self._items()
        self.is_whole = False
        """Whether the end of the archive was read."""
        self._is_among_messages = False

    def feed(self, data: bytes) -> None:
        """Append bytes of the archive."""
        self._buffer += data

    def next(self) -> Item | None:
        """Return the next item; None if it is incomplete or there is none. Raises
        InvalidArchive."""
        return next(self._steps, None)

    def pass_messages(self, take: Callable[[bytearray], int]) -> int:
        """Let `take` read messages from the buffer; it returns how many bytes it consumed."""
        if not self._is_among_messages:
            return 0
        taken = take(self._buffer)
        del self._buffer[:taken]
        return taken

    def _items(self) -> Iterator[Item | None]:
        while len(self._buffer) < len(MAGIC):
            yield None
        if self._buffer[: len(MAGIC)] != MAGIC:
            raise InvalidArchive("not an archive")
        del self._buffer[: len(MAGIC)]
        while (first := self._entry()) is None:
            yield None
        extent = _read_extent(first)
        yield extent
        for _ in range(extent.state.consumer_count):
            while (document := self._entry()) is None:
                yield None
            yield _read_consumer(document)
        self._is_among_messages = True
        while True:
            found = self._entry()
            if found is None:
                yield None
            elif found.seq:
                yield _read_message(found)
            elif any(found):
                raise InvalidArchive("a message without sequence")
            else:
                self.is_whole = True
                self._is_among_messages = False
                return

    def _entry(self) -> _Entry | None:
        try:
            head = unpack(self._buffer[:_HEAD_BYTES_MAX], 0, _HEAD_NUMBERS)
        except ValueError as error:
            raise InvalidArchive("an entry begins with no numbers") from error
        if head is None:
            return None
        (name_bytes, time, seq, header_bytes, payload_bytes), at = head
        self._check_sizes(seq, name_bytes, header_bytes + payload_bytes)
        start = at + name_bytes
        stop = start + header_bytes + payload_bytes
        if len(self._buffer) < stop:
            return None
        raw = bytes(self._buffer[:stop])
        del self._buffer[:stop]
        return _Entry(
            raw[at:start],
            unzigzag(time),
            seq,
            raw[start : start + header_bytes],
            raw[start + header_bytes :],
        )

    def _check_sizes(self, seq: int, name_bytes: int, body_bytes: int) -> None:
        """Check sizes before anything is buffered for the entry."""
        if name_bytes > NAME_BYTES_MAX:
            raise InvalidArchive("an entry with too long a name")
        if seq and body_bytes > self._message_bytes_max:
            raise InvalidArchive(f"message sequence {seq} exceeds maximum payload size")
        if body_bytes > max(STATE_BYTES_MAX, CONSUMER_BYTES_MAX, self._message_bytes_max):
            raise InvalidArchive("an entry that is too long")


def _read_extent(found: _Entry) -> ArchiveExtent:
    if found.name != STATE_NAME:
        raise InvalidArchive("expected state.json first")
    try:
        state = decode(StreamState, found.payload, strict=False)
    except ApiError as error:
        raise InvalidArchive(f"error in state.json: {error.description}") from error
    check_extent(state)
    return ArchiveExtent(state)


def check_extent(state: StreamState) -> None:
    """Refuse totals that no stream can have."""
    first, last = state.first_seq, state.last_seq
    if state.consumer_count < 0:
        raise InvalidArchive("invalid stream state: negative consumer count")
    if first > last + 1 or (first == 0 and last > 0) or not 0 <= last <= SEQ_MAX:
        raise InvalidArchive("invalid stream state: inconsistent sequence range")
    if state.messages > (last - first + 1 if first else 0):
        raise InvalidArchive("invalid stream state: message count exceeds sequence range")


def _read_consumer(found: _Entry) -> SavedConsumer:
    name = found.name.decode("utf-8", "surrogateescape")
    if not found.name.startswith(CONSUMER_PREFIX) or found.seq:
        raise InvalidArchive(f'expected consumer, found "{name}"')
    name = name.removeprefix(CONSUMER_PREFIX.decode())
    try:
        check_nesting(found.payload)
        document = msgspec.json.decode(found.payload, type=_Consumer)
        config = decode(ConsumerConfig, bytes(document.config), strict=False)
        pending = {
            int(seq): (one.Sequence, one.Timestamp) for seq, one in document.state.pending.items()
        }
        redelivered = {int(seq): count for seq, count in document.state.redelivered.items()}
        state = rebuilt_state(
            (document.state.delivered.consumer_seq, document.state.delivered.stream_seq),
            (document.state.ack_floor.consumer_seq, document.state.ack_floor.stream_seq),
            pending,
            redelivered,
        )
    except (msgspec.MsgspecError, ApiError, ValueError) as error:
        raise InvalidArchive(f'failed to decode consumer "{name}": {error}') from error
    return SavedConsumer(name, config, state)


def _read_message(found: _Entry) -> SavedMessage:
    subject = found.name.decode("utf-8", "surrogateescape")
    return SavedMessage(found.seq, found.ts_ns, subject, found.header, found.payload)


_COUNT_MAX: Final = 2**31


def rebuilt_state(
    delivered: tuple[int, int],
    floor: tuple[int, int],
    pending: dict[int, tuple[int, int]],
    redelivered: dict[int, int],
) -> ConsumerState:
    """Return a consumer's state from its numbers, in pairs of consumer and stream sequence.

    Raises ValueError if a number is out of range. A message at or below the floor, or not yet
    delivered, is not ack-pending, whatever `pending` contains.
    """
    numbers = (*delivered, *floor, *pending, *redelivered)
    counts = redelivered.values()
    if not all(0 <= n <= SEQ_MAX for n in numbers) or not all(0 <= n < _COUNT_MAX for n in counts):
        raise ValueError("a number is out of range")
    if max(len(pending), len(redelivered)) > ENTRIES_MAX:
        raise ValueError("too many messages are outstanding")
    state = ConsumerState()
    for seq in sorted(pending):
        number, ts_ns = pending[seq]
        if not (0 <= number <= SEQ_MAX and -SEQ_MAX <= ts_ns <= SEQ_MAX):
            raise ValueError("a delivery is out of range")
        if floor[1] < seq <= delivered[1]:
            state.deliver(number, seq, ts_ns, 0)
    state.redelivered.update((seq, count) for seq, count in redelivered.items() if count)
    state.floor_consumer, state.floor_stream = floor
    state.delivered_consumer = max(delivered[0], floor[0])
    state.delivered_stream = max(delivered[1], floor[1])
    return state
