"""One mirror or source: requests a consumer from its origin and stores what it delivers.

A reader is in one of three states: it waits until `due_ns` to send a request; it has sent a request
and listens for the reply; it receives deliveries. It subscribes to the delivery subject before it
sends the request, and queues deliveries that arrive before the reply: other subscribers may listen
on that subject, so the origin may start before this reader is ready. Every failure leads back to
the first state, with a pause that grows while the origin refuses. The start position always comes
from what is stored here, so an aborted attempt costs only time. Invariant: replies to flow control
wait until the messages they cover are durable, because the origin may delete messages after the
reply. `streams.source_progress` decides which messages are stored, and in which form.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.api.ack_protocol import UNREADABLE, AckRef, parse_ack_subject
from penstock.api.refusals import ApiError
from penstock.api.stream_config import StreamSourceInfo
from penstock.base.effects import Fetch, Send
from penstock.base.sequences import SEQ_MAX, number_in
from penstock.base.units import SECOND_NS
from penstock.jetstream.sources.source_requests import (
    SILENCE_NS_MAX,
    ConsumerCreated,
    Copier,
    SourceStart,
    read_answer,
)
from penstock.jetstream.streams.entries import Answer, NotApplied, NotLoaded, Skip
from penstock.jetstream.streams.lanes.source_lane import CopyLane
from penstock.jetstream.streams.source_progress import Progress, SourceStep
from penstock.store.errors import StoreError
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.stream_config import StreamSource
    from penstock.base.message import Inbound
    from penstock.broker.router import LaneListener
    from penstock.jetstream.environment import Environment
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Planned

ANSWER_NS_MAX: Final = 30 * SECOND_NS
RESET_NS_MAX: Final = 5 * SECOND_NS
"""The origin replies to a reset of an existing consumer faster than to a creation."""
ASK_EVERY_NS: Final = 2 * SECOND_NS
"""Minimum time between two requests to an origin."""
BACKOFF_NS: Final = 10 * SECOND_NS
"""Added to the pause for each consecutive failure."""
BACKOFF_NS_MAX: Final = 120 * SECOND_NS
JITTER_NS: Final = 100_000_000
"""Spreads the retries of readers that lost the same origin."""
CAUGHT_UP: Final = 10
"""A mirror with fewer pending messages may serve reads for its origin."""
ARRIVED_MAX: Final = 100_000
"""Messages that may wait for a block of this stream to be read."""
TIME_NS_MAX: Final = 2**63 - 1
"""The latest timestamp that a stored message can have."""
_CONTROL: Final = b"NATS/1.0 100 "
NOWHERE: Final = ""


class Listen(NamedTuple):
    """A request to the runtime: pass messages on this subject to `take`, or (None) unsubscribe."""

    subject: str
    feed: SourceReader
    take: Callable[[Inbound, int], None] | None


class SourceReader:
    """One mirror or source of a stream. Its effects go to the host's lists and to `wires`."""

    def __init__(
        self,
        host: StreamHost,
        source: StreamSource,
        environment: Environment,
        wires: list[Listen],
        *,
        is_mirror: bool,
    ) -> None:
        self._host = host
        self._environment = environment
        self._wires = wires
        self._is_mirror = is_mirror
        self.source = source
        self.progress = Progress(source, is_mirror=is_mirror)
        self.due_ns: int | None = None
        """When to call `tick`; None before `start`."""
        self.error: ApiError | None = None
        self.is_caught_up = False
        """Whether the mirror has at some time had nearly all messages of its origin."""
        self.listening = NOWHERE
        """The inbox of the reply it waits for, or the subject the origin delivers to."""
        self._delivery = NOWHERE
        """The delivery subject it requested; subscribed from then on."""
        self.has_siblings = False
        """Whether the stream has other sources with the same origin."""
        self._is_feeding = False
        self._consumer = ""
        self._asked_ns: int | None = None
        self._heard_ns: int | None = None
        self._fails = 0
        self._is_recreated = False
        self._lane: CopyLane | None = None
        self._may_copy = False
        self._stuck: tuple[Inbound, AckRef] | None = None
        self._arrived: deque[Inbound] = deque()

    @property
    def is_waiting(self) -> bool:
        """Return whether the reader waits to send a request: no reply expected, no deliveries."""
        return not self.listening

    def hears(self, subject: str) -> bool:
        return subject in (self.listening, self._delivery)

    # -- requests

    def start(self, now_ns: int) -> None:
        """Start at the position that the stored messages give."""
        ref = None if self._is_mirror else self._host.stream.source_ref(self.progress.index_name)
        if ref is not None:
            self.progress.seq, self.progress.identity = ref.seq, ref.identity
        self.due_ns = now_ns

    def hurry(self, now_ns: int) -> None:
        """Retry at once, if the reader waits to send a request."""
        if self.is_waiting and self.due_ns is not None:
            self._fails, self.due_ns = 0, now_ns

    def lost(self, now_ns: int) -> None:
        """The origin was deleted; schedule a new request."""
        if self._is_feeding:
            self._consumer = ""
            self._again(now_ns)

    def tick(self, now_ns: int) -> None:
        """Do what is due: send a request, or give up waiting for a reply or a heartbeat."""
        if self.due_ns is None or now_ns < self.due_ns:
            return
        self._host.collect_lane_results()
        if self.is_waiting:
            self._ask(now_ns)
        elif not self._is_feeding:
            self._again(now_ns, failed=True)
        elif self._heard_ns is not None and now_ns < self._heard_ns + SILENCE_NS_MAX:
            self.due_ns = self._heard_ns + SILENCE_NS_MAX
        else:
            self._again(now_ns)

    def _ask(self, now_ns: int) -> None:
        host, copier = self._host, self._copier()
        host.collect_lane_results()
        if self._is_mirror:
            self.progress.seq = host.stream.planned_seq
        self._asked_ns = now_ns
        self.error = None
        inbox = copier.answer_inbox()
        if self.source.consumer is None:
            self._delivery = copier.deliver_subject()
            self._wires.append(Listen(self._delivery, self, self.arrived))
        self._listen(inbox, self.answered)
        self.due_ns = now_ns + (ANSWER_NS_MAX if self.source.consumer is None else RESET_NS_MAX)
        progress = self.progress
        request = copier.request(
            progress.index_name, self._begin(), progress.identity, inbox, self._delivery
        )
        host.send((request,))

    def _copier(self) -> Copier:
        cfg = self._host.stream.cfg
        return Copier(
            cfg.name,
            self.source,
            self._environment,
            is_mirror=self._is_mirror,
            has_siblings=self.has_siblings,
        )

    def _begin(self) -> SourceStart:
        """Return where to start: after what is stored here; if nothing is, as configured."""
        source = self.source
        if self.progress.seq > 0:
            return SourceStart(seq=min(self.progress.seq + 1, SEQ_MAX))
        if source.opt_start_seq:
            return SourceStart(seq=source.opt_start_seq)
        start_ns = source.opt_start_time or 0
        state = self._host.stream.store.state()
        if self._is_mirror or not state.last_ts_ns:
            return SourceStart(ts_ns=start_ns)
        # Earlier messages of this source may have been stored and removed. Then copy only newer
        # messages.
        had_more = state.first_seq > 1 and not self._is_recreated
        if start_ns or had_more:
            return SourceStart(ts_ns=max(start_ns, state.last_ts_ns))
        return SourceStart()

    def _again(self, now_ns: int, *, failed: bool = False) -> None:
        """Disconnect from the origin and schedule the next request."""
        self._let_go()
        self._fails += failed
        pause_ns = min(self._fails * BACKOFF_NS, BACKOFF_NS_MAX)
        jitter_ns = JITTER_NS * self._environment.noise(1)[0] // 255
        earliest_ns = max(now_ns, (self._asked_ns or 0) + ASK_EVERY_NS)
        self.due_ns = earliest_ns + pause_ns + jitter_ns

    def _let_go(self) -> None:
        self._host.collect_lane_results()
        self.collect_results()  # covers a reader that the host no longer lists
        self._listen(NOWHERE)
        self._drop_delivery()
        self._is_feeding = False
        self._stuck = None
        self._arrived.clear()
        self.tend_lane()
        self._lane = None

    def _listen(self, subject: str, take: Callable[[Inbound, int], None] | None = None) -> None:
        if self.listening:
            self._wires.append(Listen(self.listening, self, None))
        self.listening = subject
        if subject:
            self._wires.append(Listen(subject, self, take))

    def _drop_delivery(self) -> None:
        if self._delivery:
            self._wires.append(Listen(self._delivery, self, None))
        self._delivery = NOWHERE

    def close(self) -> None:
        """Stop reading and delete the consumer that this reader created."""
        if self._consumer and self.source.consumer is None:
            self._host.send((self._copier().deletion(self._consumer),))
        self._let_go()
        self.due_ns = None

    # -- the reply

    def answered(self, msg: Inbound, now_ns: int) -> None:
        """Handle the origin's reply to the request."""
        answer = read_answer(msg.header, msg.payload)
        if isinstance(answer, str):
            answer = self._failed(answer)
        if (
            isinstance(answer, ConsumerCreated)
            and self.source.consumer is not None
            and not answer.acks_by_flow
        ):
            answer = _MIRROR_BY_FLOW if self._is_mirror else _SOURCE_BY_FLOW
        if isinstance(answer, ApiError):
            self._refused(answer, now_ns)
            return
        self._fails = 0
        try:
            self._connect(answer, now_ns)
        except StoreError as error:
            self._host.broken(error)
            self._again(now_ns, failed=True)

    def _failed(self, why: str) -> ApiError:
        made = refusals.MIRROR_CONSUMER_SETUP_FAILED if self._is_mirror else _SOURCE_FAILED
        return made(err=why)

    def _refused(self, answer: ApiError, now_ns: int) -> None:
        if answer.err_code == refusals.CONSUMER_STREAM_IDENTITY_MISMATCH.err_code:
            # The origin was deleted and created again: nothing of the new stream is stored here.
            self.progress.restart()
            self._is_recreated = True
            self._again(now_ns)
            return
        self.error = answer
        self._again(now_ns, failed=True)

    def _connect(self, made: ConsumerCreated, now_ns: int) -> None:
        progress = self.progress
        self._host.collect_lane_results()
        if self._is_mirror:
            self._skip_to(made.delivered_seq)
            progress.seq = max(made.delivered_seq, self._host.stream.planned_seq)
        else:
            if progress.identity and made.identity not in ("", progress.identity):
                progress.restart()
            progress.identity = made.identity
            progress.seq = max(made.delivered_seq, progress.seq)
            self._is_recreated = False
        progress.started(made.consumer)
        self._consumer = made.consumer
        self._is_feeding = True
        self._heard_ns = now_ns
        self.due_ns = now_ns + SILENCE_NS_MAX
        self._note_lag(made.pending)
        given = self.source.consumer
        subject = given.deliver_subject if given else made.deliver_subject
        if subject == self._delivery:
            self._listen(NOWHERE)
            self.listening = subject
            self._begin_lane()
            self.resume(now_ns)
        else:
            self._drop_delivery()
            self._listen(subject, self.arrived)

    def _skip_to(self, seq: int) -> None:
        """Skip the sequences that the origin no longer has."""
        stream = self._host.stream
        if seq > stream.planned_seq:
            self._host.propose(Skip(stream.last_ts_ns, (stream.planned_seq + 1, seq)))

    def _note_lag(self, pending: int) -> None:
        if pending < CAUGHT_UP:
            self.is_caught_up = True

    # -- messages

    def arrived(self, msg: Inbound, now_ns: int) -> None:
        """Handle a delivery, a heartbeat or a flow control request of the origin's consumer."""
        self._heard_ns = now_ns
        if self._stuck is None and self._is_feeding:
            self._take(msg, now_ns)
        elif len(self._arrived) < ARRIVED_MAX:
            self._arrived.append(msg)
        else:
            self._again(now_ns)
        self.tend_lane()

    def resume(self, now_ns: int) -> None:
        """Continue after a block was read that a message may have waited for."""
        if self._stuck is not None:
            stuck, self._stuck = self._stuck, None
            self._store(*stuck, now_ns)
        while self._arrived and self._stuck is None and self._is_feeding:
            self._take(self._arrived.popleft(), now_ns)
        self.tend_lane()

    # -- the compiled lane

    def make_lane(self, subject: str, listener: LaneListener) -> CopyLane | None:
        """Return a lane for the messages on this subject, which leaves to the listener what it
        does not take; None if a lane cannot take them."""
        stream = self._host.lane
        is_delivery = subject == (self.listening if self._is_feeding else self._delivery)
        if stream is None or not is_delivery or not self.progress.is_unchanged:
            return None
        self._lane = CopyLane(
            stream=stream, place=self.progress.place, host=self._host, listener=listener
        )
        self._begin_lane()
        self.tend_lane()
        return self._lane

    def _begin_lane(self) -> None:
        """Pass the consumer to the lane once the origin has replied."""
        if self._lane is not None and self._is_feeding:
            note = None if self._is_mirror else self.progress.note_parts()
            self._lane.begin(self._consumer, note)

    def configured(self, *, may_copy: bool) -> None:
        """Apply the stream's configuration: whether a plain message needs only an append."""
        self._may_copy = may_copy
        self.tend_lane()

    def tend_lane(self) -> None:
        """Open the lane if the reader receives deliveries, no message waits for a block, and plain
        messages need only an append."""
        if self._lane is not None:
            is_free = self._is_feeding and self._stuck is None
            self._lane.is_open = is_free and self._may_copy

    def collect_results(self) -> None:
        """Record what the lane has stored."""
        if self._lane is not None and self._lane.take_results():
            self._heard_ns = self._lane.heard_ns
            self._note_lag(self.progress.lag + 1)
            if not self._is_mirror:
                self._host.stream.copied(self.progress.ref)

    def _take(self, msg: Inbound, now_ns: int) -> None:
        if not msg.payload and msg.header.startswith(_CONTROL):
            self._control(msg, now_ns)
            return
        ref = parse_ack_subject(msg.reply)
        if ref is not None and ref.stream_seq > SEQ_MAX:
            if ref.stream_seq != UNREADABLE:
                self._refused(self._failed(f"its sequences are larger than {SEQ_MAX}"), now_ns)
            return
        if ref is None or ref.ts_ns > TIME_NS_MAX:
            return
        step = self.progress.take(ref)
        if step is SourceStep.IGNORE:
            return
        if step is SourceStep.RESTART:
            self._again(now_ns)
            return
        self._note_lag(ref.pending)
        self._store(msg, ref, now_ns)

    def _store(self, msg: Inbound, ref: AckRef, now_ns: int) -> None:
        host = self._host
        host.collect_lane_results()
        if host.cannot_store:
            self.progress.undo(ref.stream_seq - 1)
            self._again(now_ns, failed=True)
            return
        try:
            planned = self._plan(msg, ref, now_ns)
            if isinstance(planned, NotLoaded):
                self._stuck = (msg, ref)
                host.send((Fetch(planned.cold),))
            elif isinstance(planned, NotApplied):
                self._stuck = (msg, ref)
            elif not isinstance(planned, Answer):
                host.propose(planned)
            elif not planned.is_duplicate:
                self.progress.undo(ref.stream_seq - 1)
                self._again(now_ns)
        except StoreError as error:
            host.broken(error)
            self.progress.undo(ref.stream_seq - 1)
            self._again(now_ns, failed=True)

    def _plan(self, msg: Inbound, ref: AckRef, now_ns: int) -> Planned:
        stream, progress = self._host.stream, self.progress
        if self._is_mirror:
            return stream.plan_mirrored(msg, ref.stream_seq, ref.ts_ns, progress)
        return stream.plan_copy(msg, ref.stream_seq, progress, now_ns)

    def _control(self, msg: Inbound, now_ns: int) -> None:
        """Handle a flow control request, or a heartbeat, which may repeat a flow control request
        that got no reply."""
        asked = msg.reply
        if not asked:
            last = number_in(headers.get(msg.header, b"Nats-Last-Consumer"))
            if self.progress.heartbeat(last) is SourceStep.RESTART:
                self._again(now_ns)
                return
            stalled = headers.get(msg.header, b"Nats-Consumer-Stalled")
            asked = stalled.decode(errors="replace") if stalled else ""
        if asked:
            where = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
            answer = Send(asked, header=where % self.progress.position)
            self._host.promise((answer,))

    # -- info

    def info(self, now_ns: int) -> StreamSourceInfo:
        """Return the state for the API."""
        source, progress = self.source, self.progress
        heard_ns = self._heard_ns
        ref = None if self._is_mirror else self._host.stream.source_ref(progress.index_name)
        is_same = ref is not None and ref.identity in ("", progress.identity)
        return StreamSourceInfo(
            name=source.name,
            external=source.external,
            lag=progress.lag,
            seq=ref.seq if ref is not None and is_same and not self._is_recreated else 0,
            active=-1 if heard_ns is None else max(now_ns - heard_ns, 0),
            error=self.error,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
        )


_SOURCE_FAILED: Final = refusals.SOURCE_CONSUMER_SETUP_FAILED
_MIRROR_BY_FLOW: Final = refusals.MIRROR_CONSUMER_REQUIRES_ACK_FC
_SOURCE_BY_FLOW: Final = refusals.SOURCE_CONSUMER_REQUIRES_ACK_FC
