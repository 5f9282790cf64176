"""Direct get: replies with stored messages as plain messages, one or many, not as API JSON.

The server replies in pieces. Each `Reading` holds the effects to perform now and, unless it is the
last, the call that produces the next piece. If the effects contain a Fetch, the caller continues
when that block is in memory, otherwise at once. A piece is bounded, so a large batch does not
delay other clients. Messages removed between two pieces are skipped. Pure; reads only messages that
the store makes visible to readers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api.api_levels import REQUIRED_LEVEL_HEADER, demands_too_much
from penstock.api.asset_names import byte_length
from penstock.api.json_codec import decode_one
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import MsgGetRequest
from penstock.api.timestamps import format_time
from penstock.base.effects import Effect, Fetch, Send
from penstock.jetstream.account.message_get import (
    choose,
    is_contradiction,
    names_a_message,
    start_of,
)
from penstock.store.contract import Cold, MessageRecord
from penstock.wire import headers

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from penstock.base.message import Inbound
    from penstock.store.contract import Store

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest batch if the request sets no limit: the default of a client's pending bytes."""
PIECE_BYTES_MAX: Final = 1024 * 1024
"""A piece ends with the message that reaches this size."""
SUBJECTS_MAX: Final = 1024
"""Most subjects whose last messages one request can get."""

LEVEL_STATUS: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
EMPTY_STATUS: Final = b"NATS/1.0 408 Empty Request\r\n\r\n"
MALFORMED_STATUS: Final = b"NATS/1.0 408 Malformed Request\r\n\r\n"
BAD_STATUS: Final = b"NATS/1.0 408 Bad Request\r\n\r\n"
MISSING_STATUS: Final = b"NATS/1.0 404 Message Not Found\r\n\r\n"
NO_RESULTS_STATUS: Final = b"NATS/1.0 404 No Results\r\n\r\n"
TOO_MANY_STATUS: Final = b"NATS/1.0 413 Too Many Results\r\n\r\n"

_NAME_TOKENS: Final = 5
"""The tokens of `$JS.API.DIRECT.GET.<stream>`; the rest is a subject."""
_LEVEL: Final = REQUIRED_LEVEL_HEADER.encode()


class Reading(NamedTuple):
    """One piece of a reply, and the call for the next piece; None if this is the last."""

    effects: list[Effect]
    again: Callable[[], Reading] | None = None


class GetTarget(NamedTuple):
    """The store to read, and the subject to reply to."""

    store: Store
    stream: str
    reply: str
    bytes_max: int


def direct_get(
    store: Store, stream: str, msg: Inbound, *, bytes_max: int = BATCH_BYTES_MAX
) -> Reading:
    """Return the first piece of the reply to `$JS.API.DIRECT.GET.<stream>[.<subject>]`.

    `stream` is the name of the stream that replies; a mirror may reply for its origin.
    """
    if not msg.reply:
        return Reading([])
    tokens = msg.subject.split(".", _NAME_TOKENS)
    subject = tokens[_NAME_TOKENS] if len(tokens) > _NAME_TOKENS else None
    request = _read(msg, subject)
    target = GetTarget(store, stream, msg.reply, bytes_max)
    if isinstance(request, bytes):
        return _status(target, request)
    if request.multi_last:
        return _last_of_many(target, request)
    if request.batch:
        return _Range(target, request).go_on()
    return _one(target, request)


def _read(msg: Inbound, subject: str | None) -> MsgGetRequest | bytes:
    """Return the parsed request, or the status that refuses it."""
    if msg.header:
        level = headers.get(msg.header, _LEVEL)
        if level and demands_too_much(level.decode(errors="replace")):
            return LEVEL_STATUS
    if not msg.payload:
        return EMPTY_STATUS if subject is None else MsgGetRequest(last_by_subj=subject)
    try:
        request = decode_one(MsgGetRequest, msg.payload)
    except ApiError:
        return MALFORMED_STATUS
    if subject is not None:
        return _by_subject(request, subject)
    if not names_a_message(request) and not request.multi_last:
        return EMPTY_STATUS
    is_last = bool(request.last_by_subj)
    if (
        is_contradiction(request)
        or (is_last and (request.batch > 0 or bool(request.multi_last)))
        or (request.next_by_subj and request.multi_last)
        or (request.up_to_seq > 0 and request.up_to_time is not None)
    ):
        return BAD_STATUS
    return request


def _by_subject(request: MsgGetRequest, subject: str) -> MsgGetRequest | bytes:
    """Return the request for a subject; refuse a body that selects messages, too."""
    chooses = (
        names_a_message(request)
        or request.multi_last
        or request.batch
        or request.up_to_seq
        or request.up_to_time is not None
    )
    if chooses or not subject:
        return BAD_STATUS
    return MsgGetRequest(last_by_subj=subject, no_hdr=request.no_hdr)


def _one(target: GetTarget, request: MsgGetRequest) -> Reading:
    found = choose(target.store, request)
    if found is None:
        return _status(target, MISSING_STATUS)
    if isinstance(found, Cold):
        return Reading([Fetch(found)], lambda: _one(target, request))
    header = b"" if request.no_hdr else _header(target.stream, found)
    return Reading([Send(target.reply, found.payload, header)])


def _status(target: GetTarget, status: bytes) -> Reading:
    return Reading([Send(target.reply, b"", status)])


def _header(stream: str, record: MessageRecord, more: str = "") -> bytes:
    """Return the message's own header lines, followed by its origin."""
    own = record.header[:-2] if len(record.header) > 2 else b"NATS/1.0\r\n"
    origin = (
        f"Nats-Stream: {stream}\r\nNats-Subject: {record.subject}\r\n"
        f"Nats-Sequence: {record.seq}\r\nNats-Time-Stamp: {format_time(record.ts_ns)}\r\n{more}\r\n"
    )
    return own + origin.encode("utf-8", "surrogateescape")


class _Pieces:
    """Sends messages until a limit is reached, then a status that ends the batch."""

    def __init__(self, target: GetTarget, request: MsgGetRequest, at_most: int) -> None:
        self._target = target
        self._no_hdr = request.no_hdr
        self._left = at_most
        self._bytes_left = request.max_bytes or target.bytes_max
        self._last_seq = 0

    def go_on(self) -> Reading:
        """Return the next piece."""
        effects: list[Effect] = []
        piece_bytes = 0
        while self._left > 0:
            if piece_bytes >= PIECE_BYTES_MAX:
                return Reading(effects, self.go_on)
            found = self._take()
            if isinstance(found, Cold):
                return Reading([*effects, Fetch(found)], self.go_on)
            if found is None:
                break
            effects.append(self._message(found))
            size = byte_length(found.subject) + len(found.header) + len(found.payload)
            piece_bytes += size
            self._bytes_left -= size
            self._left = self._left - 1 if self._bytes_left > 0 else 0
        return Reading([*effects, Send(self._target.reply, b"", self._end())])

    def _message(self, record: MessageRecord) -> Send:
        header = b""
        if not self._no_hdr:
            counts = _counts(self._count_down(), self._last_seq)
            header = _header(self._target.stream, record, counts)
        self._last_seq = record.seq
        return Send(self._target.reply, record.payload, header)

    def _take(self) -> MessageRecord | Cold | None:
        """Return the next message, if there is one."""
        raise NotImplementedError

    def _count_down(self) -> int:
        """Count one message as sent; return how many are left."""
        raise NotImplementedError

    def _end(self) -> bytes:
        """Return the status that ends the reply."""
        raise NotImplementedError


def _counts(pending: int, last_seq: int) -> str:
    return f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n"


class _Range(_Pieces):
    """The messages that match a filter, from a sequence or time on."""

    def __init__(self, target: GetTarget, request: MsgGetRequest) -> None:
        super().__init__(target, request, request.batch)
        self._filters = (request.next_by_subj,) if request.next_by_subj else ()
        self._next = max(start_of(target.store, request), 1)
        self._pending = target.store.num_pending(self._next, self._filters)
        self._counted_to = target.store.visible_seq

    def _take(self) -> MessageRecord | Cold | None:
        found = self._target.store.next_match(self._filters, self._next)
        if isinstance(found, MessageRecord):
            self._next = found.seq + 1
        return found

    def _count_down(self) -> int:
        # Only messages sent with headers are counted, as in the reference.
        self._pending = max(self._pending - 1, 0)
        return self._pending

    def _end(self) -> bytes:
        store = self._target.store
        if self._last_seq == 0 and self._left > 0:
            return MISSING_STATUS
        if store.visible_seq > self._counted_to:
            self._pending = store.num_pending(self._next, self._filters)
        return f"NATS/1.0 204 EOB\r\n{_counts(self._pending, self._last_seq)}\r\n".encode()


def _last_of_many(target: GetTarget, request: MsgGetRequest) -> Reading:
    """Return the last message of each subject that matches a filter, as of a sequence or time."""
    store = target.store
    visible = store.visible_seq
    up_to = request.up_to_seq or visible
    if request.up_to_time is not None:
        after = store.seq_at_time(request.up_to_time)
        if after <= store.state().first_seq:
            return _status(target, NO_RESULTS_STATUS)
        up_to = after - 1
    # Counting is cheaper than listing, but always counts the present state.
    if up_to >= visible:
        subjects = store.num_pending(1, request.multi_last, last_per_subject=True)
        if subjects > SUBJECTS_MAX:
            return _status(target, TOO_MANY_STATUS)
    seqs = store.last_of_each(request.multi_last, at_or_before=up_to)
    if len(seqs) > SUBJECTS_MAX:
        return _status(target, TOO_MANY_STATUS)
    if not seqs:
        return _status(target, NO_RESULTS_STATUS)
    return _Lasts(target, request, up_to, seqs).go_on()


class _Lasts(_Pieces):
    """The last message of each of several subjects, in sequence order."""

    def __init__(
        self, target: GetTarget, request: MsgGetRequest, up_to: int, seqs: array[int]
    ) -> None:
        super().__init__(target, request, request.batch if request.batch > 0 else SUBJECTS_MAX)
        self._no_hdr = False  # the reference ignores the request's no_hdr here
        self._up_to = up_to
        self._seqs = seqs
        self._at = bisect_left(seqs, request.seq)

    def _take(self) -> MessageRecord | Cold | None:
        while self._at < len(self._seqs):
            found = self._target.store.load(self._seqs[self._at])
            if isinstance(found, Cold):
                return found
            self._at += 1
            if isinstance(found, MessageRecord):
                return found
        return None

    def _count_down(self) -> int:
        return len(self._seqs) - self._at

    def _end(self) -> bytes:
        counts = _counts(len(self._seqs) - self._at, self._last_seq)
        up_to = f"Nats-UpTo-Sequence: {self._up_to}\r\n"
        return f"NATS/1.0 204 EOB\r\n{counts}{up_to}\r\n".encode()
