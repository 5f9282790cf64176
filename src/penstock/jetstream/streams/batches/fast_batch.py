"""Fast batches: sequences of messages that are acknowledged periodically instead of one by one.

The reply subject of each message contains the batch id, the message's number and the operation:
start, append, commit, commit without a message, or ping. Every message is stored on arrival. The
publisher gets `ack` after every n messages, `gap` when numbers are missing, `err` when a message is
rejected, and the publish ack at the end. A batch that does not allow gaps ends at the first one.
The ack interval adapts to the number of batches that share the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.base.effects import Send
from penstock.base.version import REFERENCE_API_LEVEL
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.batches.batch_checks import StagedPlanState, check_batched
from penstock.jetstream.streams.batches.staged_batches import BATCH_ID_BYTES_MAX
from penstock.jetstream.streams.entries import Answer, FastMark, NotLoaded, Planned
from penstock.jetstream.streams.pubacks import error_json
from penstock.jetstream.streams.publish_checks import USED_UP, Duplicate, expected_last_msg_id
from penstock.store.contract import Cold
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
    from penstock.jetstream.streams.batches.staged_batches import InFlight
    from penstock.jetstream.streams.planner import Planner
    from penstock.jetstream.streams.pubacks import PubAcks
    from penstock.jetstream.streams.stream_state import Draft, PlanState

SUFFIX: Final = ".$FI"
FLOW_DEFAULT: Final = 10
FLOW_MAX: Final = 65_535
ACK_EVERY_MAX: Final = 500
"""Maximum messages between two acks, shared among the batches of a stream."""

_START, _APPEND, _COMMIT, _COMMIT_WITHOUT, _PING = range(5)
_TOKENS: Final = 5
_NUMBER_DIGITS_MAX: Final = 19


class FastRequest(NamedTuple):
    """A parsed reply subject."""

    id: str
    flow: int
    gap_ok: bool
    seq: int
    op: int

    @property
    def commits(self) -> bool:
        """Return whether the batch ends here."""
        return self.op in (_COMMIT, _COMMIT_WITHOUT)


def parse_reply(reply: str) -> FastRequest | None:
    """Parse `<prefix>.<id>.<flow>.<gap mode>.<number>.<op>.$FI`; None if it is invalid."""
    parts = reply.removesuffix(SUFFIX).rsplit(".", _TOKENS)
    if len(parts) != _TOKENS + 1:
        return None
    _, batch_id, flow, gap, number, operation = parts
    seq, op = _number(number), _number(operation)
    if op > _PING or op < 0 or seq < 1 or gap not in ("ok", "fail"):
        return None
    if (seq == 1 and op in (_APPEND, _COMMIT_WITHOUT)) or (seq > 1 and op == _START):
        return None
    wanted = _number(flow)
    every = FLOW_DEFAULT if wanted <= 0 else min(wanted, FLOW_MAX)
    return FastRequest(batch_id, every, gap == "ok", seq, op)


def _number(text: str) -> int:
    """Parse a number; -1 if it is invalid."""
    if len(text) > _NUMBER_DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return -1
    return int(text)


class _Running:
    """A batch in flight."""

    __slots__ = (
        "ack_every",
        "ack_every_max",
        "deadline_ns",
        "gap_ok",
        "held",
        "is_ending",
        "last",
        "last_flow",
        "stored_seq",
    )

    def __init__(self, request: FastRequest) -> None:
        self.gap_ok = request.gap_ok
        self.ack_every_max = request.flow
        self.ack_every = min(ACK_EVERY_MAX, request.flow)
        self.is_ending = False
        """Whether its commit is planned; the batch ends when the commit is applied."""
        self.last = 0
        """Number of the last message taken or, if gaps are allowed, skipped."""
        self.last_flow = 0
        """Number that the last `ack` reported."""
        self.stored_seq = 0
        """Stream sequence of the last stored message."""
        self.deadline_ns = 0
        self.held: dict[int, list[Send]] = {}
        """Replies to send before all others once a planned message is stored, by its number."""


class FastBatches:
    """The fast batches of one stream."""

    def __init__(
        self,
        plan_state: PlanState,
        planner: Planner,
        acks: PubAcks,
        limits: BatchLimits,
        in_flight: InFlight,
    ) -> None:
        self._plan_state = plan_state
        self._planner = planner
        self._acks = acks
        self._limits = limits
        self._in_flight = in_flight
        self._running: dict[str, _Running] = {}
        self._num_ending = 0  # batches whose commit is planned
        self._wake_ns = 0  # not later than the earliest deadline; 0 if there is no batch

    def __len__(self) -> int:
        return len(self._running)

    def plan(self, msg: Inbound, now_ns: int) -> Planned:
        """Plan one message of a batch."""
        request = parse_reply(msg.reply)
        fault = self._fault(request, msg)
        if fault is not None or request is None:
            return self._planner.answer(fault, msg.reply)
        batch = self._running.get(request.id)
        if self._num_ending and (batch is None or batch.is_ending):
            self._plan_state.require_applied()
        if batch is None or batch.deadline_ns <= now_ns:
            self.expire(now_ns)
            fault = self._start_fault(request)
            if fault is not None:
                return self._planner.answer(fault, msg.reply)
            batch = self._start(request, now_ns + self._limits.idle_ns_max)
        level = headers.get(msg.header, publish_headers.REQUIRED_API_LEVEL)
        if level:
            if not level.isdigit() or int(level[:9]) > REFERENCE_API_LEVEL:
                self._drop(request.id)
                return self._planner.answer(refusals.REQUIRED_API_LEVEL, msg.reply)
            msg = msg._replace(
                header=headers.without(msg.header, publish_headers.REQUIRED_API_LEVEL)
            )
        batch.deadline_ns = now_ns + self._limits.idle_ns_max
        if request.op == _PING:
            self._plan_state.require_applied()
            return self._ping(request, batch, msg.reply)
        return self._take(request, batch, msg, now_ns)

    def _fault(self, request: FastRequest | None, msg: Inbound) -> ApiError | None:
        """Return the error of the message itself, before its batch is examined."""
        plan_state, cfg = self._plan_state, self._plan_state.cfg
        if cfg.sealed:
            return refusals.STREAM_SEALED
        subject = self._planner.stored_subject(msg.subject)
        refused = plan_state.may_store and plan_state.may_store(
            plan_state.size_of(subject, *msg[2:])
        )
        if refused:
            return refused
        if 0 < cfg.max_msg_size < len(msg.header) + len(msg.payload):
            return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        if not cfg.allow_batched:
            return refusals.BATCH_PUBLISH_DISABLED
        if request is None:
            return refusals.BATCH_PUBLISH_INVALID_PATTERN
        if len(request.id.encode("utf-8", "surrogateescape")) > BATCH_ID_BYTES_MAX:
            return refusals.BATCH_PUBLISH_INVALID_BATCH_ID
        return None

    def _start_fault(self, request: FastRequest) -> ApiError | None:
        if request.seq != 1 or request.op == _PING:
            return refusals.BATCH_PUBLISH_UNKNOWN_BATCH_ID
        is_crowded = len(self._running) >= self._limits.fast_max
        if is_crowded or self._in_flight.fast >= self._limits.fast_total_max:
            return refusals.BATCH_PUBLISH_TOO_MANY_INFLIGHT
        return None

    def _start(self, request: FastRequest, deadline_ns: int) -> _Running:
        batch = self._running[request.id] = _Running(request)
        self._in_flight.fast += 1
        self._wake_ns = self._wake_ns or deadline_ns
        if len(self._running) > 1:
            batch.ack_every = 1
        return batch

    def _ping(self, request: FastRequest, batch: _Running, reply: str) -> Answer:
        """Report the progress of the batch again."""
        if request.seq <= batch.last:
            return Answer((_flow(reply, batch),))
        replies = [_gap(reply, batch.last + 1, request.seq + 1)]
        if not batch.gap_ok:
            return Answer((*replies, self._finish(request.id, batch, reply)))
        batch.last = request.seq
        due = self._due_ack(batch, reply)
        return Answer((*replies, due or _flow(reply, batch)))

    def _take(self, request: FastRequest, batch: _Running, msg: Inbound, now_ns: int) -> Planned:
        expected = batch.last + 1
        held: list[Send] = []
        if request.seq != expected:
            held.append(_gap(msg.reply, expected, request.seq))
            if not batch.gap_ok or request.seq < expected:
                self._plan_state.require_applied()
                return Answer((*held, self._finish(request.id, batch, msg.reply)))
        if request.op == _COMMIT_WITHOUT:
            self._plan_state.require_applied()
            batch.last = request.seq - 1
            return Answer((*held, self._finish(request.id, batch, msg.reply)))
        draft = self._planner.draft(*msg, now_ns)
        rejection = check_batched(StagedPlanState(self._plan_state), draft)
        if rejection is None:
            rejection = expected_last_msg_id(self._plan_state, draft)
        if isinstance(rejection, Cold):
            return NotLoaded(rejection)
        if rejection is None and self._plan_state.is_used_up(1):
            rejection = USED_UP
        skip = rejection is None and self._planner.is_unwanted(draft.subject)
        if rejection is not None:
            self._plan_state.require_applied()  # the reply contains what the batch has stored
        batch.last = request.seq
        if request.seq == 1 and not request.commits and not self._plan_state.cfg.no_ack:
            held.append(_flow(msg.reply, batch))
        if rejection is None:
            mark = FastMark(request.id, request.seq, request.commits, request.gap_ok, request.flow)
            batch.held[request.seq] = held
            if request.commits:
                batch.is_ending = True
                self._num_ending += 1
            return self._planner.publish(draft, skip=skip, fast=mark)
        if isinstance(rejection, Duplicate):
            return self._duplicate(request, batch, draft, rejection.seq, held)
        return self._refused(request, batch, msg.reply, rejection, held)

    def _duplicate(
        self, request: FastRequest, batch: _Running, draft: Draft, seq: int, held: list[Send]
    ) -> Answer:
        """Count the duplicate as taken; nothing is stored."""
        due = self._due_ack(batch, draft.reply)
        replies = (*held, due) if due else tuple(held)
        if not request.commits:
            return Answer(replies, is_duplicate=True)
        if request.seq == 1 and not request.gap_ok:
            self._drop(request.id)
            ack = self._acks.duplicate_batch(seq, request.id, request.seq)
            return Answer((*replies, Send(draft.reply, ack)), is_duplicate=True)
        return Answer((*replies, self._finish(request.id, batch, draft.reply)), is_duplicate=True)

    def _refused(
        self, request: FastRequest, batch: _Running, reply: str, fault: ApiError, held: list[Send]
    ) -> Answer:
        if request.seq == 1 and not request.gap_ok:
            self._drop(request.id)
            return Answer((*held, Send(reply, self._acks.refused(fault))), fault)
        error = b'{"type":"err","seq":%d,"error":%b}' % (request.seq, error_json(fault))
        replies = (*held, Send(reply, error))
        if request.gap_ok and not request.commits:
            return Answer(replies, fault)
        batch.last -= 1
        return Answer((*replies, self._finish(request.id, batch, reply)), fault)

    def stored(self, mark: FastMark, reply: str, seq: int) -> tuple[Send, ...]:
        """Record the sequence of a stored message; return the replies to its publisher."""
        batch = self._running.get(mark.id)
        if batch is None:
            return ()
        replies = tuple(batch.held.pop(mark.seq, ()))
        batch.stored_seq = seq
        if mark.commit:
            return (*replies, self._finish(mark.id, batch, reply))
        due = self._due_ack(batch, reply, mark.seq)
        return (*replies, due) if due else replies

    def skipped(self, mark: FastMark) -> tuple[Send, ...]:
        """Count a message as taken that is not stored; a commit ends the batch without a reply."""
        batch = self._running.get(mark.id)
        if batch is None:
            return ()
        if mark.commit:
            self._drop(mark.id)
            return ()
        return tuple(batch.held.pop(mark.seq, ()))

    def _finish(self, batch_id: str, batch: _Running, reply: str) -> Send:
        """End the batch with what was stored of it."""
        self._drop(batch_id)
        return Send(reply, self._acks.committed(batch.stored_seq, batch_id, batch.last))

    def _due_ack(self, batch: _Running, reply: str, number: int = 0) -> Send | None:
        """Return the ack that is due after message `number` (default: the last one taken), if any,
        and adapt the ack interval."""
        every, last = batch.ack_every, number or batch.last
        if last < batch.last_flow + every:
            return None
        batch.last_flow += (last - batch.last_flow) // every * every
        fair = min(max(ACK_EVERY_MAX // len(self._running), 1), batch.ack_every_max)
        if every < fair:
            batch.ack_every = min(every * 2, fair)
        elif every > fair:
            batch.ack_every = max(every // 2, fair)
        return _flow(reply, batch)

    def _drop(self, batch_id: str) -> None:
        self._num_ending -= self._running.pop(batch_id).is_ending
        self._in_flight.fast -= 1
        if not self._running:
            self._wake_ns = 0

    # -- time

    def next_deadline_ns(self) -> int | None:
        """Return a time not later than the next expiry; messages move the deadlines of batches."""
        return self._wake_ns or None

    def expire(self, now_ns: int) -> None:
        """Drop the batches that were idle too long. Their stored messages stay."""
        silent = [
            batch_id for batch_id, batch in self._running.items() if batch.deadline_ns <= now_ns
        ]
        for batch_id in silent:
            self._drop(batch_id)
        self._wake_ns = min((batch.deadline_ns for batch in self._running.values()), default=0)

    def clear(self) -> None:
        """Drop all batches."""
        for batch_id in list(self._running):
            self._drop(batch_id)


def _flow(reply: str, batch: _Running) -> Send:
    ack = b'{"type":"ack","seq":%d,"msgs":%d}' % (batch.last_flow, batch.ack_every)
    return Send(reply, ack)


def _gap(reply: str, expected: int, got: int) -> Send:
    return Send(reply, b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, got))
