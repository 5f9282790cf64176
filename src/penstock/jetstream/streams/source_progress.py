"""Progress of a mirror or source: its position in the origin, and which message may come next.

A mirror keeps the sequences of its origin. A stream with sources assigns its own sequences and
records the origin of each message in the `Nats-Stream-Source` header. Both read the origin through
a consumer whose ack subjects carry the stream sequence and the consumer sequence: a missing
consumer sequence means that the consumer must be created again; a missing stream sequence only
means that the origin no longer has the message. The headers of the stored messages are enough to
resume after a restart. No IO: `sources.source_reader` sends the requests and stores the messages.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api.timestamps import format_time
from penstock.base.sequences import SEQ_MAX
from penstock.base.short_hash import short_hash
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.lanes.source_lane import SourceCursor
from penstock.subjects.transform import shared_transform
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.ack_protocol import AckRef
    from penstock.api.stream_config import StreamSource

EVERYTHING: Final = ">"
_JOINT: Final = "\f"
"""Separates the filters, and the destinations, of a source with several transforms."""
_FIELDS_SHORT: Final = 2
_FIELDS_MIN: Final = 4
_IDENTITY_AT: Final = 5
_DIGITS_MAX: Final = 20


class SourceRef(NamedTuple):
    """Where a sourced message came from."""

    stream: str
    index_name: str
    """The source in the configuration; empty in headers that old servers wrote."""
    seq: int
    identity: str


def index_name(source: StreamSource) -> str:
    """Return the key of a source within its stream: origin, filters and destinations."""
    name = source.name
    if source.external is not None:
        name = f"{name}:{short_hash(source.external.api)}"
    if source.consumer is not None:
        name = f"{name}:C={short_hash(source.consumer.name)}"
    if not source.subject_transforms:
        return f"{name} {source.filter_subject or EVERYTHING} {EVERYTHING}"
    filters = _JOINT.join(each.src or EVERYTHING for each in source.subject_transforms)
    targets = _JOINT.join(each.dest or EVERYTHING for each in source.subject_transforms)
    return f"{name} {filters} {targets}"


def source_note(index: str, seq: int, subject: str, identity: str = "") -> bytes:
    """Return the source header of a sourced message; `subject` is its subject at the origin."""
    name, filters, targets = index.split(" ", 2)
    note = f"{name} {seq} {filters} {targets} {subject}"
    return (f"{note} {identity}" if identity else note).encode("utf-8", "surrogateescape")


def parse_note(value: bytes) -> SourceRef | None:
    """Parse a source header; None if it is invalid."""
    fields = value.decode("utf-8", "surrogateescape").split(" ")
    if len(fields) != _FIELDS_SHORT and len(fields) < _FIELDS_MIN:
        return None
    digits = fields[1]
    if len(digits) > _DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
        return None
    index = "" if len(fields) == _FIELDS_SHORT else " ".join((fields[0], fields[2], fields[3]))
    identity = fields[_IDENTITY_AT] if len(fields) > _IDENTITY_AT else ""
    seq = int(digits)
    return SourceRef(fields[0], index, seq, identity) if seq <= SEQ_MAX else None


def identity_of(created_ns: int) -> str:
    """Return the identity that distinguishes a stream from others of the same name."""
    return short_hash(format_time(created_ns))


def mirrored_header(header: bytes) -> bytes:
    """Return the header of a mirrored message, without expectation and batch keys."""
    if publish_headers.SPECIAL_PREFIX not in header:
        return header
    header = headers.without_prefix(header, publish_headers.EXPECTED_PREFIX)
    return headers.without_prefix(header, publish_headers.BATCH_PREFIX)


def copied_header(header: bytes, note: bytes) -> bytes:
    """Return the header of a sourced message: without expectation and batch keys, and with this
    source header instead of any other stream's."""
    if header:
        header = mirrored_header(headers.without(header, publish_headers.STREAM_SOURCE))
    return headers.added(header, publish_headers.STREAM_SOURCE, note)


class SourceStep(enum.Enum):
    """What to do with a message of the origin's consumer."""

    STORE = enum.auto()
    IGNORE = enum.auto()
    """It is already known, or comes from a consumer that is no longer ours."""
    RESTART = enum.auto()
    """A message is missing: create the consumer again, starting after `Progress.seq`."""


class Progress:
    """How far one origin has been read."""

    def __init__(self, source: StreamSource, *, is_mirror: bool = False, seq: int = 0) -> None:
        self.source: Final = source
        self.index_name: Final = index_name(source)
        self.place: Final = SourceCursor()
        """The position; the compiled lane also advances it."""
        self.place.seq = seq
        self.identity = ""
        """Distinguishes the origin from other streams of the same name; empty if not reported."""
        self._is_mirror = is_mirror
        self._consumer = ""
        self._transforms = tuple(
            shared_transform(each.src, each.dest) for each in source.subject_transforms if each.dest
        )

    @property
    def seq(self) -> int:
        """Return the last sequence taken from the origin."""
        return self.place.seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self.place.seq = seq

    @property
    def lag(self) -> int:
        """Return how many messages the origin had after this position, as last reported."""
        return self.place.lag

    @property
    def is_unchanged(self) -> bool:
        """Return whether every message keeps its subject."""
        return not self._transforms

    def started(self, consumer: str) -> None:
        """Record that a consumer was created; with an empty name the first consumer that delivers
        is adopted."""
        self._consumer = consumer
        self.place.consumer_seq = 0

    def take(self, ref: AckRef) -> SourceStep:
        """Decide what to do with a delivery. STORE advances the position: call `undo` if storing
        fails."""
        if ref.delivered > 1 or (self._consumer and ref.consumer != self._consumer):
            return SourceStep.IGNORE
        place = self.place
        is_next = ref.consumer_seq == place.consumer_seq + 1
        if ref.stream_seq <= place.seq:
            place.consumer_seq += is_next
            return SourceStep.IGNORE
        # A mirror that receives the next stream sequence misses nothing, whatever the consumer
        # sequence is.
        is_adjacent = self._is_mirror and ref.stream_seq == place.seq + 1
        if not (is_next or is_adjacent or not self._consumer):
            missed = self._is_mirror or ref.consumer_seq > place.consumer_seq
            return SourceStep.RESTART if missed else SourceStep.IGNORE
        self._consumer = ref.consumer
        place.consumer_seq = ref.consumer_seq
        place.seq = ref.stream_seq
        place.lag = max(ref.pending - 1, 0)
        return SourceStep.STORE

    @property
    def position(self) -> tuple[int, int]:
        """Return the consumer sequence and the stream sequence of the last delivery taken."""
        return self.place.consumer_seq, self.place.seq

    def restart(self) -> None:
        """Reset the position: the origin is a new stream of the same name."""
        self.seq = 0
        self.identity = ""

    def undo(self, seq: int) -> None:
        """Move the position back to `seq`: the message after it was not stored."""
        self.seq = seq

    def heartbeat(self, last_consumer_seq: int) -> SourceStep:
        """Handle a heartbeat: the origin is idle and reports its last consumer sequence."""
        missed = last_consumer_seq > 0 and last_consumer_seq != self.place.consumer_seq
        return SourceStep.RESTART if missed else SourceStep.IGNORE

    def subject(self, subject: str) -> str:
        """Return the subject of a sourced message: the first transform that matches applies."""
        for transform in self._transforms:
            changed = transform.match(subject)
            if changed is not None:
                return changed
        return subject

    @property
    def ref(self) -> SourceRef:
        """Return the reference that the header of the last message taken contains."""
        name = self.index_name.split(" ", 1)[0]
        return SourceRef(name, self.index_name, self.place.seq, self.identity)

    def note_parts(self) -> tuple[bytes, bytes, bytes]:
        """Return the source header as a block's last line, in three parts: before the sequence,
        between the sequence and the subject, and after the subject."""
        name, targets = self.index_name.split(" ", 1)
        identity = f" {self.identity}" if self.identity else ""
        return (
            b"%b: %b " % (publish_headers.STREAM_SOURCE, name.encode()),
            b" %b " % targets.encode("utf-8", "surrogateescape"),
            b"%b\r\n\r\n" % identity.encode("utf-8", "surrogateescape"),
        )

    def note(self, seq: int, subject: str) -> bytes:
        """Return the source header for the origin's message of this sequence and subject."""
        return source_note(self.index_name, seq, subject, self.identity)
