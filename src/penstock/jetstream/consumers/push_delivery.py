"""Push side of a consumer: subscriber interest, the flow control window, heartbeats.

With flow control a window bounds the bytes in flight. It starts small and doubles with every reply.
When more than half of it is used, the consumer sends a flow control request; only the reply to the
latest request counts. The consumer waits for a missing reply without a timeout; heartbeats then
name the subject it is expected on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.consumer_config import AckPolicy
from penstock.base.effects import Send
from penstock.jetstream.consumers import status_lines
from penstock.jetstream.consumers.cursor import NO_LIMIT

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.consumer_context import ConsumerContext

WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
WINDOW_BYTES_MIN: Final = WINDOW_BYTES_MAX // 16
FLOW_ID_CHARS: Final = 4


class PushSide:
    """Delivery to one subject. `flow_prefix` is the subject of flow control replies without the
    id."""

    __slots__ = (
        "_around",
        "_asked_bytes",
        "_cfg",
        "_flow_prefix",
        "_on_the_way",
        "_window",
        "active",
        "asked",
        "heartbeat_at_ns",
    )

    def __init__(
        self, cfg: ConsumerConfig, around: ConsumerContext, flow_prefix: str, now_ns: int
    ) -> None:
        self._cfg = cfg
        self._around = around
        self._flow_prefix = flow_prefix
        self._window = WINDOW_BYTES_MIN if cfg.flow_control else 0
        self._on_the_way = 0
        self._asked_bytes = 0
        self.asked = ""
        """The subject on which a reply is expected; empty if none is."""
        self.heartbeat_at_ns: int | None = None
        self.active = False
        """Whether the deliver subject has a subscriber."""
        self.look(now_ns)

    def configure(self, cfg: ConsumerConfig) -> None:
        """Apply a new configuration. The caller then calls `look`: the deliver subject may
        differ."""
        self._cfg = cfg

    def look(self, now_ns: int) -> bool:
        """Check whether the deliver subject has a subscriber; return whether that changed."""
        before, cfg = self.active, self._cfg
        self.active = self._around.has_interest(cfg.deliver_subject, cfg.deliver_group or None)
        if self.active and self.heartbeat_at_ns is None and cfg.idle_heartbeat:
            self.heartbeat_at_ns = now_ns + cfg.idle_heartbeat
        if not self.active:
            self.heartbeat_at_ns = None
        return self.active is not before

    @property
    def ready(self) -> bool:
        """Return whether a message may be sent now."""
        return self.active and not (self._window and self._on_the_way > self._window)

    @property
    def room(self) -> int:
        """Bytes that may be sent before `sent` must be called for a message."""
        if not self._window:
            return NO_LIMIT
        look_at = self._window if self.asked else self._window // 2 + 1
        return max(look_at - self._on_the_way, 1)

    def sent_run(
        self, size: int, last: int, *, at_ack_limit: bool, now_ns: int, out: list[Effect]
    ) -> None:
        """Record sent messages; all but the last are within `room`."""
        if self._window:
            self._on_the_way += size - last
        self.sent(last, at_ack_limit=at_ack_limit, now_ns=now_ns, out=out)

    def sent(self, size: int, *, at_ack_limit: bool, now_ns: int, out: list[Effect]) -> None:
        """Record a sent message; send a flow control request if it is time."""
        if self.heartbeat_at_ns is not None:
            self.heartbeat_at_ns = now_ns + self._cfg.idle_heartbeat
        if not self._window:
            return
        self._on_the_way += size
        if self.asked:
            if self._on_the_way - self._asked_bytes >= self._window:
                self._asked_bytes += size
        elif self._on_the_way > self._window // 2 or (at_ack_limit and self._acks_by_flow):
            self._ask(out)

    @property
    def _acks_by_flow(self) -> bool:
        return self._cfg.ack_policy is AckPolicy.FLOW_CONTROL

    def _ask(self, out: list[Effect]) -> None:
        self.asked = self._flow_prefix + self._around.nuid()[-FLOW_ID_CHARS:]
        self._asked_bytes = self._on_the_way
        to = self._cfg.deliver_subject
        out.append(Send(to, header=status_lines.FLOW_CONTROL_REQUEST, reply=self.asked))

    def answered(self, subject: str) -> bool:
        """Handle a flow control reply; return whether it was the expected one."""
        if not self.asked or subject != self.asked:
            return False
        self._window = min(self._window * 2, WINDOW_BYTES_MAX)
        self._on_the_way = max(self._on_the_way - self._asked_bytes, 0)
        self.asked, self._asked_bytes = "", 0
        return True

    def send_heartbeat(
        self, position: tuple[int, int], *, outstanding: int, now_ns: int, out: list[Effect]
    ) -> None:
        """Send a heartbeat if one is due."""
        if self.heartbeat_at_ns is None or now_ns < self.heartbeat_at_ns:
            return
        line = status_lines.heartbeat(*position, stalled_on=self.asked)
        out.append(Send(self._cfg.deliver_subject, header=line))
        if outstanding and self._acks_by_flow and not self.asked:
            self._ask(out)  # at the end of the stream nothing else triggers an ack
        self.heartbeat_at_ns = now_ns + self._cfg.idle_heartbeat
