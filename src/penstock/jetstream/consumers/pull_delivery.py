"""Pull side of a consumer: queues pull requests and chooses the request that gets each message.

Sends every status a request can get: errors, timeouts, heartbeats, the end of a batch. Applies the
priority policies: pinned client, overflow, prioritized. The order of the checks matches the
reference, because it decides which status a client gets.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

from penstock.api.consumer_config import CONSUMER_SHORTCUTS, PriorityPolicy
from penstock.api.pull_request import bad_request, parse_pull, refuse_pull
from penstock.api.shortcuts import Shortcut
from penstock.base.effects import Send
from penstock.jetstream.consumers import status_lines
from penstock.jetstream.consumers.pinned_client import Pin
from penstock.jetstream.consumers.pull_queue import Waiting, WaitingQueue

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.api.pull_request import PullRequest
    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.consumer_advisories import Events
    from penstock.jetstream.consumers.consumer_context import ConsumerContext
    from penstock.jetstream.consumers.delivery_pump import DeliveryRun

SWEEP_PAUSE_NS: Final = 1_000_000_000
"""Minimum time between two searches of a full queue for expired requests."""


class PullDecision(enum.Enum):
    """What to do with the request at the head of the queue."""

    SERVE = enum.auto()
    SKIP = enum.auto()
    DROP = enum.auto()


class Closing(enum.Enum):
    """Why all waiting requests end; the value is the status, unless it shows what is left."""

    DELETED = status_lines.CONSUMER_DELETED
    STEP_DOWN = status_lines.LEADERSHIP_CHANGE
    SHUTDOWN = b""


class Supply(Protocol):
    """The counts that requests are checked against."""

    def num_undelivered(self) -> int:
        """Return the number of undelivered messages."""

    def num_ack_pending(self) -> int:
        """Return the number of ack-pending messages."""

    def position(self) -> tuple[int, int]:
        """Return the consumer and stream sequences of the last delivery."""


class PullSide:
    """The requests of one pull consumer."""

    __slots__ = (
        "_around",
        "_cfg",
        "_in_order",
        "_supply",
        "_swept_ns",
        "last_active_ns",
        "pin",
        "queue",
    )

    def __init__(
        self,
        cfg: ConsumerConfig,
        around: ConsumerContext,
        supply: Supply,
        events: Events,
        now_ns: int,
    ) -> None:
        self._cfg = cfg
        self._around = around
        self._supply = supply
        self._swept_ns = 0
        self.last_active_ns = now_ns
        self.pin = Pin(events, around.nuid)
        self.queue = WaitingQueue(0, prioritized=False)
        self.configure(cfg)

    def configure(self, cfg: ConsumerConfig) -> None:
        """Apply a new configuration; waiting requests stay."""
        self._cfg = cfg
        kept = list(self.queue)
        prioritized = cfg.priority_policy is PriorityPolicy.PRIORITIZED
        self.queue = WaitingQueue(cfg.max_waiting, prioritized=prioritized)
        self.queue.keep_only(kept)
        self._in_order = CONSUMER_SHORTCUTS.allow(cfg, Shortcut.REQUEST)
        if cfg.priority_policy is not PriorityPolicy.PINNED_CLIENT:
            self.pin.release()

    # -- requests

    def submit(
        self, reply: str, body: bytes, queued_again: int, now_ns: int, out: list[Effect]
    ) -> bool:
        """Queue a request, or send its error; return whether it waits. `queued_again`: redeliveries
        due."""
        request = parse_pull(body)
        if isinstance(request, str):
            out.append(Send(reply, header=status_lines.line(bad_request(request))))
            return False
        refused = refuse_pull(request, self._cfg)
        if refused is not None:
            out.append(Send(reply, header=status_lines.line(refused)))
            return False
        status = self._refusal(request, queued_again, now_ns, out)
        if status is not None:
            if status:
                out.append(Send(reply, header=status))
            return False
        self.last_active_ns = now_ns
        self.queue.add(Waiting(reply, request, now_ns))
        return True

    def _refusal(
        self, request: PullRequest, queued_again: int, now_ns: int, out: list[Effect]
    ) -> bytes | None:
        """Return the status that rejects a valid request now; empty: reject it without a reply."""
        if self._grouped(request) and self.pin.id:
            if request.id == self.pin.id:
                self.pin.prolong(self._cfg.priority_timeout, now_ns)
            elif request.id:
                return status_lines.PIN_ID_MISMATCH
        if self.queue.is_full and now_ns - self._swept_ns > SWEEP_PAUSE_NS:
            self.sweep(now_ns, out)
        if request.no_wait:
            status = self._refuse_no_wait(request, queued_again, now_ns, out)
            if status is not None:
                return status
        if self.queue.is_full:
            # A client with heartbeats detects this itself; a reply would make it send a new request
            # at once.
            return b"" if request.idle_heartbeat else status_lines.EXCEEDED_MAX_WAITING
        return None

    def _grouped(self, request: PullRequest) -> bool:
        return request.formal and self._cfg.priority_policy is not PriorityPolicy.NONE

    def _refuse_no_wait(
        self, request: PullRequest, queued_again: int, now_ns: int, out: list[Effect]
    ) -> bytes | None:
        available = self._supply.num_undelivered() + queued_again
        if not available and not request.expires:
            self.last_active_ns = now_ns
            return status_lines.NO_MESSAGES
        if available and available < self.sweep(now_ns, out):
            self.last_active_ns = now_ns
            return status_lines.REQUESTS_PENDING
        return None

    # -- messages

    def take(self, size: int, now_ns: int, out: list[Effect]) -> Waiting | None:
        """Return the request that gets a message of this size; None if no request may get it."""
        waiting = self.queue.head()
        if waiting is not None and self._in_order and waiting.is_ready(now_ns):
            self.queue.serve(waiting)
            self.last_active_ns = now_ns
            return waiting
        # Computed once: if the request that got the pin cannot be served, the next one gets a new
        # pin.
        need_pin = not self.pin.id and self._cfg.priority_policy is PriorityPolicy.PINNED_CLIENT
        cycled = 0
        while (waiting := self.queue.head()) is not None:
            match self._decide(waiting, size, need_pin=need_pin, now_ns=now_ns, out=out):
                case PullDecision.SERVE:
                    self.queue.serve(waiting)
                    self.last_active_ns = now_ns
                    if waiting.heartbeat_ns:
                        waiting.next_heartbeat_ns = now_ns + waiting.heartbeat_ns
                    return waiting
                case PullDecision.DROP:
                    self.queue.drop_head()
                case PullDecision.SKIP:
                    self.queue.cycle()
                    cycled += 1
                    if cycled >= len(self.queue):
                        return None
        return None

    def is_ready(self, now_ns: int) -> bool:
        """Return whether the next request takes any message without further checks."""
        waiting = self.queue.head() if self._in_order else None
        return waiting is not None and self._is_simple(waiting, now_ns)

    def ready(self, now_ns: int, at_most: int) -> list[Waiting]:
        """Return the requests from the head on that need no further checks. The caller checked the
        first."""
        found: list[Waiting] = []
        for waiting in self.queue:
            if len(found) >= at_most or not self._is_simple(waiting, now_ns):
                break
            found.append(waiting)
        return found

    def _is_simple(self, waiting: Waiting, now_ns: int) -> bool:
        return not waiting.is_over(now_ns) and self._listens(waiting, now_ns)

    def ran(self, served: list[Waiting], run: DeliveryRun, now_ns: int, out: list[Effect]) -> None:
        """Record what a run gave to each request; remove completed requests."""
        self.last_active_ns = now_ns
        for waiting, got, bytes_left in zip(served, run.given, run.bytes_left, strict=True):
            if got and waiting.heartbeat_ns:
                waiting.next_heartbeat_ns = now_ns + waiting.heartbeat_ns
            waiting.bytes_left = bytes_left
        if max(run.given) <= 1:
            for waiting in served[: run.sent]:
                self.queue.serve(waiting)
        else:
            for waiting, got in zip(served, run.given, strict=True):
                waiting.given += got
                waiting.left -= got
            in_order = served[run.next_taker :] + served[: run.next_taker]
            self.queue.keep_only([waiting for waiting in in_order if waiting.left > 0])
        for waiting, got in zip(served, run.given, strict=True):
            if got:
                self.served(waiting, out)

    def _decide(
        self, waiting: Waiting, size: int, *, need_pin: bool, now_ns: int, out: list[Effect]
    ) -> PullDecision:
        if waiting.is_over(now_ns):
            self._time_out(waiting, out)
            return PullDecision.DROP
        if need_pin or self.pin.id:
            verdict = self._decide_pin(waiting, need_pin=need_pin, now_ns=now_ns, out=out)
            if verdict is not PullDecision.SERVE:
                return verdict
        if self._cfg.priority_policy is PriorityPolicy.OVERFLOW and self._must_wait(waiting):
            return PullDecision.SKIP
        if waiting.bytes_left > 0 and not _fits(waiting, size):
            self._end(waiting, status_lines.MAX_BYTES_EXCEEDED, out)
            if need_pin:
                self.pin.release()
            return PullDecision.DROP
        if self._listens(waiting, now_ns):
            return PullDecision.SERVE
        if need_pin:
            # The reference leaves the pin with the client that stopped listening, and all requests
            # wait until the pin times out.
            self.pin.release()
        return PullDecision.DROP

    def _decide_pin(
        self, waiting: Waiting, *, need_pin: bool, now_ns: int, out: list[Effect]
    ) -> PullDecision:
        if need_pin and not waiting.pin_id:
            group = waiting.request.group
            if waiting.request.formal and group:
                waiting.pin_id = self.pin.assign(group, self._cfg.priority_timeout, now_ns, out)
            return PullDecision.SERVE
        if waiting.pin_id == self.pin.id:
            return PullDecision.SERVE
        if not waiting.pin_id:
            return PullDecision.SKIP
        self._end(waiting, status_lines.WRONG_PIN_ID, out)
        return PullDecision.DROP

    def _must_wait(self, waiting: Waiting) -> bool:
        """Return whether an overflow request must wait: neither of its thresholds is reached."""
        request = waiting.request
        if request.min_pending <= 0 and request.min_ack_pending <= 0:
            return False
        if 0 < request.min_pending <= self._supply.num_undelivered():
            return False
        return not 0 < request.min_ack_pending <= self._supply.num_ack_pending()

    def _listens(self, waiting: Waiting, now_ns: int) -> bool:
        if waiting.listened_ns == now_ns:
            return True
        if not self._around.has_interest(waiting.reply, None):
            return False
        waiting.listened_ns = now_ns
        return True

    def served(self, waiting: Waiting, out: list[Effect]) -> None:
        """Send the final status if that was the last message of a request with bytes left."""
        if waiting.left <= 0 and waiting.bytes_left > 0:
            self._end(waiting, status_lines.BATCH_COMPLETED, out)

    # -- time

    def sweep(self, now_ns: int, out: list[Effect], *, at_end: bool = False) -> int:
        """Remove expired requests and send heartbeats; return how many messages the remaining
        requests want.

        `at_end`: there is nothing to deliver now, so no-wait requests end with a status.
        """
        self._swept_ns = now_ns
        kept = [w for w in self.queue if self._stays(w, now_ns, out, at_end=at_end)]
        self.queue.keep_only(kept)
        return sum(waiting.left for waiting in kept)

    def _stays(self, waiting: Waiting, now_ns: int, out: list[Effect], *, at_end: bool) -> bool:
        if waiting.is_over(now_ns):
            self._time_out(waiting, out)
            return False
        if at_end and waiting.no_wait and (not waiting.expires_ns or waiting.given > 0):
            out.append(Send(waiting.reply, header=status_lines.NO_MESSAGES))
            self.last_active_ns = now_ns
            return False
        if not self._listens(waiting, now_ns):
            return False
        if waiting.next_heartbeat_ns and now_ns >= waiting.next_heartbeat_ns:
            out.append(Send(waiting.reply, header=status_lines.heartbeat(*self._supply.position())))
            waiting.next_heartbeat_ns = now_ns + waiting.heartbeat_ns
        return True

    def must_sweep(self, now_ns: int, *, at_end: bool) -> bool:
        """Return whether a sweep would send anything."""
        due_ns = self.queue.next_event_ns
        return (at_end and self.queue.no_waits > 0) or (due_ns is not None and due_ns <= now_ns)

    def count_waiting(self, now_ns: int) -> int:
        """Return how many requests are still valid."""
        return sum(1 for w in self.queue if not w.is_over(now_ns) and self._listens(w, now_ns))

    def close(self, why: Closing, out: list[Effect]) -> None:
        """End every request."""
        for waiting in self.queue:
            if why is Closing.SHUTDOWN:
                self._end(waiting, status_lines.SERVER_SHUTDOWN, out)
            else:
                out.append(Send(waiting.reply, header=why.value))
        self.queue.keep_only([])

    def _time_out(self, waiting: Waiting, out: list[Effect]) -> None:
        self._end(waiting, status_lines.REQUEST_TIMEOUT, out)
        # A request that waited until its expiry kept the consumer in use until then.
        self.last_active_ns = max(self.last_active_ns, waiting.expires_ns)

    def _end(self, waiting: Waiting, text: str, out: list[Effect]) -> None:
        status = status_lines.line_with_rest(text, waiting.left, waiting.bytes_left)
        out.append(Send(waiting.reply, header=status))


def _fits(waiting: Waiting, size: int) -> bool:
    """Subtract a message's size from the request's remaining bytes; False if it is too large."""
    if size > waiting.bytes_left:
        return False
    waiting.bytes_left -= size
    if not waiting.bytes_left:
        waiting.left = 1  # this message is its last
    return True
