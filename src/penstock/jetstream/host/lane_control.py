"""Opens and closes the publish lane of a stream as its host's state allows.

The lane takes plain messages in C without a call into the host. It must be closed while messages
wait in order, while nothing can be stored, and while entries are applied later than they are
planned. Invariant: without a lane every call here has no effect. `StreamHost` is the only caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jetstream.streams.lanes.lane_policy import configure_lane

if TYPE_CHECKING:
    from penstock.jetstream.streams.lanes.publish_lane import StreamLane
    from penstock.jetstream.streams.stream import Stream


class LaneControl:
    """The publish lane of one stream, or none."""

    __slots__ = ("_is_watched", "_stream", "lane")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.lane: StreamLane | None = None
        self._is_watched = False  # the account must know the stream's size after every message

    def limit(self, room: int, *, is_watched: bool) -> None:
        """Set the bytes that may still be stored, and whether the account counts every message."""
        self._is_watched = is_watched
        self.set_room(room)

    def set_room(self, room: int) -> None:
        """Set the bytes that may still be stored."""
        if self.lane is not None:
            self.lane.room = room

    def configure(self, *, is_free: bool, is_alone: bool) -> None:
        """Let the lane take what the configuration allows, nothing unless `is_free`."""
        if self.lane is not None:
            configure_lane(self.lane, self._stream.cfg, is_free=is_free)
            self.tend(self._stream.next_deadline_ns(), is_alone=is_alone)

    def tend(self, due_ns: int | None, *, is_alone: bool) -> None:
        """Let the lane run without Python if the stream `is_alone` (no consumer or source needs
        its messages at once), no limit does, and none of the messages expires before the deadline
        that is already set."""
        if self.lane is not None:
            age_ns, last_ns = self._stream.cfg.max_age, self._stream.last_ts_ns
            is_timed = not age_ns or (due_ns is not None and due_ns <= last_ns + age_ns)
            self.lane.set_unattended(is_alone and is_timed and not self._is_watched)
