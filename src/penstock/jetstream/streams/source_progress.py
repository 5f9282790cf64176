"""Copying from other streams, without the copying: where each one stands, and what may come next.

A mirror has the sequences of its origin, a stream with sources gives its own and notes in
`Nats-Stream-Source` where each message came from. Both read their origin through a consumer, whose
ack subjects tell the sequence there and the delivery here: a delivery that is missing means that
the consumer must be made anew, a sequence that is missing only that the origin lost it. The notes
in the stored messages are all that is needed to go on after a restart. No IO: who asks origins and
makes consumers is told what a message means.
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
"""Stands between the filters, and between the destinations, of a source with several."""
_FIELDS_SHORT: Final = 2
_FIELDS_MIN: Final = 4
_IDENTITY_AT: Final = 5
_DIGITS_MAX: Final = 20


class SourceRef(NamedTuple):
    """Where a copied message came from."""

    stream: str
    index_name: str
    """Which source of the configuration; empty in notes of old servers."""
    seq: int
    identity: str


def index_name(source: StreamSource) -> str:
    """What tells one source of a stream from the others: origin, filters and destinations."""
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
    """The note in a copied message; the subject is the one it had at its origin."""
    name, filters, targets = index.split(" ", 2)
    note = f"{name} {seq} {filters} {targets} {subject}"
    return (f"{note} {identity}" if identity else note).encode("utf-8", "surrogateescape")


def parse_note(value: bytes) -> SourceRef | None:
    """What a note says; None if it says nothing."""
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
    """What tells a stream from others that had its name before, or will have."""
    return short_hash(format_time(created_ns))


def mirrored_header(header: bytes) -> bytes:
    """The header of a mirrored message: nothing in it is expected or batched."""
    if publish_headers.SPECIAL_PREFIX not in header:
        return header
    header = headers.without_prefix(header, publish_headers.EXPECTED_PREFIX)
    return headers.without_prefix(header, publish_headers.BATCH_PREFIX)


def copied_header(header: bytes, note: bytes) -> bytes:
    """The header of a copy: nothing in it is expected, batched, or noted by another stream."""
    if header:
        header = mirrored_header(headers.without(header, publish_headers.STREAM_SOURCE))
    return headers.added(header, publish_headers.STREAM_SOURCE, note)


class SourceStep(enum.Enum):
    """What to do with a message of an upstream consumer."""

    STORE = enum.auto()
    IGNORE = enum.auto()
    """It is known, or of a consumer that is no longer ours."""
    RESTART = enum.auto()
    """Something is missing: make the consumer anew, behind `Progress.seq`."""


class Progress:
    """How far one upstream has been read."""

    def __init__(self, source: StreamSource, *, is_mirror: bool = False, seq: int = 0) -> None:
        self.source: Final = source
        self.index_name: Final = index_name(source)
        self.place: Final = SourceCursor()
        """Where it is; a compiled lane moves it, too."""
        self.place.seq = seq
        self.identity = ""
        """Tells a stream from another of the same name; empty if the origin does not say."""
        self._is_mirror = is_mirror
        self._consumer = ""
        self._transforms = tuple(
            shared_transform(each.src, each.dest) for each in source.subject_transforms if each.dest
        )

    @property
    def seq(self) -> int:
        """The last sequence taken from the origin."""
        return self.place.seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self.place.seq = seq

    @property
    def lag(self) -> int:
        """How many messages the origin had beyond it, as it last said."""
        return self.place.lag

    @property
    def is_unchanged(self) -> bool:
        """Whether every message keeps its subject."""
        return not self._transforms

    def started(self, consumer: str) -> None:
        """A consumer was made; an empty name takes over the one that delivers first."""
        self._consumer = consumer
        self.place.consumer_seq = 0

    def take(self, ref: AckRef) -> SourceStep:
        """A message was delivered. After STORE it counts as taken: `undo` if it was refused."""
        if ref.delivered > 1 or (self._consumer and ref.consumer != self._consumer):
            return SourceStep.IGNORE
        place = self.place
        is_next = ref.consumer_seq == place.consumer_seq + 1
        if ref.stream_seq <= place.seq:
            place.consumer_seq += is_next
            return SourceStep.IGNORE
        # A mirror that gets the very next sequence misses nothing, whatever the count says.
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
        """The last delivery taken, and its sequence at the origin."""
        return self.place.consumer_seq, self.place.seq

    def restart(self) -> None:
        """The origin is another one of the same name: nothing of it is here."""
        self.seq = 0
        self.identity = ""

    def undo(self, seq: int) -> None:
        """The message was not stored: the origin is to be read again behind this sequence."""
        self.seq = seq

    def heartbeat(self, last_consumer_seq: int) -> SourceStep:
        """The origin is idle and says how many messages it has delivered."""
        missed = last_consumer_seq > 0 and last_consumer_seq != self.place.consumer_seq
        return SourceStep.RESTART if missed else SourceStep.IGNORE

    def subject(self, subject: str) -> str:
        """The subject of a copy: the first transform that matches decides."""
        for transform in self._transforms:
            changed = transform.match(subject)
            if changed is not None:
                return changed
        return subject

    @property
    def ref(self) -> SourceRef:
        """What the note of the last message taken says."""
        name = self.index_name.split(" ", 1)[0]
        return SourceRef(name, self.index_name, self.place.seq, self.identity)

    def note_parts(self) -> tuple[bytes, bytes, bytes]:
        """The note as a header's last line: what is before the sequence, between it and the
        subject, and behind that."""
        name, targets = self.index_name.split(" ", 1)
        identity = f" {self.identity}" if self.identity else ""
        return (
            b"%b: %b " % (publish_headers.STREAM_SOURCE, name.encode()),
            b" %b " % targets.encode("utf-8", "surrogateescape"),
            b"%b\r\n\r\n" % identity.encode("utf-8", "surrogateescape"),
        )

    def note(self, seq: int, subject: str) -> bytes:
        """The note for a copy of the origin's message of this sequence and subject."""
        return source_note(self.index_name, seq, subject, self.identity)
