"""Message ids a stream has seen lately: a publish that repeats one is answered, not stored.

An id counts for the length of the window from the time of its message on. The window is a cache
of what the stored messages say: after a restart it is filled from them again. Time comes in.
"""

from __future__ import annotations

EXPIRE_PER_STORE = 2
"""Old ids forgotten whenever one is added: the window never waits for a timer to shrink."""


class DuplicateWindow:
    """Ids and their sequences, oldest first. A window of 0 remembers nothing."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._seen: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def window_ns(self) -> int:
        """How long an id counts; setting it judges what is remembered anew."""
        return self._window_ns

    @window_ns.setter
    def window_ns(self, window_ns: int) -> None:
        self._window_ns = window_ns
        if window_ns <= 0:
            self._seen.clear()

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence of the message that had this id within the window; 0 if none had."""
        seq, ts_ns = self._seen.get(msg_id, (0, 0))
        return seq if now_ns - ts_ns < self._window_ns else 0

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """A message with this id was stored. Times never fall from one call to the next."""
        if self._window_ns <= 0:
            return
        self._forget(ts_ns, EXPIRE_PER_STORE)
        self._seen.pop(msg_id, None)
        self._seen[msg_id] = (seq, ts_ns)

    def expire(self, now_ns: int) -> None:
        """Forgets all ids that no longer count."""
        self._forget(now_ns, len(self._seen))

    def next_deadline_ns(self) -> int | None:
        """When the oldest id stops counting."""
        for _, ts_ns in self._seen.values():
            return ts_ns + self._window_ns
        return None

    def _forget(self, now_ns: int, at_most: int) -> None:
        old: list[bytes] = []
        for msg_id, (_, ts_ns) in self._seen.items():
            if len(old) >= at_most or now_ns - ts_ns < self._window_ns:
                break
            old.append(msg_id)
        for msg_id in old:
            del self._seen[msg_id]
