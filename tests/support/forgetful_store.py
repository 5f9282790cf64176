"""Stores to read messages from, and what a whole answer to a direct get is.

`ForgetfulStore` has every message on a block of its own that is never in memory when asked for
first, so its readers must be able to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.effects import Fetch, Send
from penstock.base.message import Inbound
from penstock.jetstream.account.direct_get import direct_get
from penstock.store.contract import Cold, MessageRecord
from penstock.store.memstore import MemStore

if TYPE_CHECKING:
    from penstock.store.contract import Missing

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
STEPS_MAX = 10_000


def filled(*subjects: str, store: Any = None, payload: bytes = b"m%d") -> Any:
    """A store with a message for each subject, one millisecond apart; "" is a deleted one."""
    made = store if store is not None else MemStore()
    for number, subject in enumerate(subjects, 1):
        body = payload % number if b"%" in payload else payload
        made.append(subject or "gone", b"", body, START_NS + number * STEP_NS)
        if not subject:
            made.remove(number)
    return made


class ForgetfulStore:
    """Answers `Cold` until the block was fetched, and has forgotten it after one answer."""

    def __init__(self) -> None:
        self._store = MemStore()
        self._warm: set[int] = set()
        self.fetches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def warm(self, cold: object) -> None:
        assert isinstance(cold, Cold)
        self.fetches += 1
        self._warm.add(cold.block)

    def load(self, seq: int) -> MessageRecord | Missing | Cold:
        return self._chilled(self._store.load(seq))

    def load_last(
        self, subject: str, *, at_or_before: int | None = None
    ) -> MessageRecord | Missing | Cold:
        return self._chilled(self._store.load_last(subject, at_or_before=at_or_before))

    def next_match(self, filters: tuple[str, ...], start: int) -> MessageRecord | Cold | None:
        return self._chilled(self._store.next_match(filters, start))

    def _chilled(self, found: Any) -> Any:
        if isinstance(found, MessageRecord) and found.seq not in self._warm:
            return Cold(found.seq)
        self._warm.clear()
        return found


def answers(
    store: Any,
    body: bytes = b"",
    *,
    subject: str = "",
    header: bytes = b"",
    stream: str = "S",
    bytes_max: int = 1 << 26,
) -> list[Send]:
    """Everything a direct get sends, blocks fetched and pieces joined."""
    asked = f"$JS.API.DIRECT.GET.{stream}{subject and '.' + subject}"
    reading = direct_get(store, stream, Inbound(asked, "reply", header, body), bytes_max=bytes_max)
    sent: list[Send] = []
    for _ in range(STEPS_MAX):
        for effect in reading.effects:
            if isinstance(effect, Fetch):
                assert isinstance(store, ForgetfulStore)
                store.warm(effect.cold)
            else:
                assert isinstance(effect, Send)
                sent.append(effect)
        if reading.again is None:
            return sent
        reading = reading.again()
    raise AssertionError("it goes on for ever")
