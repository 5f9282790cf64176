"""The push side of a consumer: whether somebody listens, how much may be on the way, heartbeats.

With flow control the bytes on the way are bounded by a window that starts small and doubles with
every answer. When more than half of it is used the subscriber is asked to answer, and only the
answer to the question asked last counts. An answer that never comes is waited for; heartbeats then
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
    """Delivery to one subject. `flow_prefix` is the subject of answers but for their id."""

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
        """The subject on which an answer is expected; empty if none is."""
        self.heartbeat_at_ns: int | None = None
        self.active = False
        """Whether somebody listens on the deliver subject."""
        self.look(now_ns)

    def configure(self, cfg: ConsumerConfig) -> None:
        """From now on this configuration, perhaps with another deliver subject; then `look`."""
        self._cfg = cfg

    def look(self, now_ns: int) -> bool:
        """See whether somebody listens; whether that changed."""
        before, cfg = self.active, self._cfg
        self.active = self._around.has_interest(cfg.deliver_subject, cfg.deliver_group or None)
        if self.active and self.heartbeat_at_ns is None and cfg.idle_heartbeat:
            self.heartbeat_at_ns = now_ns + cfg.idle_heartbeat
        if not self.active:
            self.heartbeat_at_ns = None
        return self.active is not before

    @property
    def ready(self) -> bool:
        """Whether a message may go now."""
        return self.active and not (self._window and self._on_the_way > self._window)

    @property
    def room(self) -> int:
        """Bytes that may be on the way before a message must be told of by `sent`."""
        if not self._window:
            return NO_LIMIT
        look_at = self._window if self.asked else self._window // 2 + 1
        return max(look_at - self._on_the_way, 1)

    def sent_run(
        self, size: int, last: int, *, at_ack_limit: bool, now_ns: int, out: list[Effect]
    ) -> None:
        """Messages are on the way; all but the last are within `room`."""
        if self._window:
            self._on_the_way += size - last
        self.sent(last, at_ack_limit=at_ack_limit, now_ns=now_ns, out=out)

    def sent(self, size: int, *, at_ack_limit: bool, now_ns: int, out: list[Effect]) -> None:
        """A message is on the way; ask for an answer if it is time."""
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
        """An answer came; whether it was the one expected."""
        if not self.asked or subject != self.asked:
            return False
        self._window = min(self._window * 2, WINDOW_BYTES_MAX)
        self._on_the_way = max(self._on_the_way - self._asked_bytes, 0)
        self.asked, self._asked_bytes = "", 0
        return True

    def beat(
        self, position: tuple[int, int], *, outstanding: int, now_ns: int, out: list[Effect]
    ) -> None:
        """Send a heartbeat if one is due."""
        if self.heartbeat_at_ns is None or now_ns < self.heartbeat_at_ns:
            return
        said = status_lines.heartbeat(*position, stalled_on=self.asked)
        out.append(Send(self._cfg.deliver_subject, header=said))
        if outstanding and self._acks_by_flow and not self.asked:
            self._ask(out)  # at the end of the stream nothing else would make it acknowledge
        self.heartbeat_at_ns = now_ns + self._cfg.idle_heartbeat
