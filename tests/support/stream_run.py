"""A stream in memory with a clock of its own, driven the way a server drives it.

`Run` plans and applies at once, keeps what was said to publishers, and can be opened again over
the same store, as after a restart. Time moves only when a test moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.stream_config import Discard, Retention, Storage, StreamConfig
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.streams.entries import Answer, Applied, NotLoaded
from penstock.jetstream.streams.retention import limits_of
from penstock.jetstream.streams.stream import Stream
from penstock.store.memstore import MemStore
from support.messages import stored_in

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.effects import Effect
    from penstock.jetstream.streams.entries import Entry
    from penstock.store.contract import MessageRecord

SECOND = 1_000_000_000
#: 2026-01-01T00:00:00Z
NEW_YEAR = 1_767_225_600 * SECOND
DEFAULTS: dict[str, Any] = {
    "name": "S",
    "subjects": ("s.>",),
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "num_replicas": 1,
    "storage": Storage.MEMORY,
    "duplicate_window": 120 * SECOND,
}
NEW = {"discard": Discard.NEW}
INTEREST = {"retention": Retention.INTEREST}


def config(**fields: Any) -> StreamConfig:
    """A complete configuration."""
    return StreamConfig(**{**DEFAULTS, **fields})


def block(fields: dict[str, str] | bytes | None) -> bytes:
    """A header block."""
    if isinstance(fields, bytes):
        return fields
    lines = "".join(f"{key}: {value}\r\n" for key, value in (fields or {}).items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""


class Run:
    """One stream and what came of it."""

    def __init__(self, options: dict[str, Any] | None = None, **fields: Any) -> None:
        self.cfg = config(**fields)
        self.options = options or {}
        self.store = MemStore(limits_of(self.cfg), first_seq=self.cfg.first_seq or 1)
        self.now_ns = NEW_YEAR
        self.wanted: set[str] = set()
        self.entries: list[Entry] = []
        self.applied: list[Applied] = []
        self.effects: list[Effect] = []
        self.open()

    def open(self) -> None:
        """The stream, opened again over the same store."""
        self.stream = Stream(
            self.cfg,
            self.store,
            created_ns=1,
            has_interest=self.wanted.__contains__,
            **self.options,
        )
        assert self.stream.recover(self.now_ns) is None

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        header: dict[str, str] | bytes | None = None,
        *,
        reply: str = "r",
    ) -> list[bytes]:
        """What the publisher hears."""
        planned = self.stream.plan(Inbound(subject, reply, block(header), payload), self.now_ns)
        assert not isinstance(planned, NotLoaded)
        if isinstance(planned, Answer):
            self.effects += planned.effects
            return [each.payload for each in planned.effects if isinstance(each, Send)]
        return [each.payload for each in self.apply(planned).effects if each.subject == reply]

    def refusal(
        self, subject: str, payload: bytes = b"", header: dict[str, str] | None = None
    ) -> ApiError:
        """Why a message is refused."""
        planned = self.stream.plan(Inbound(subject, "", block(header), payload), self.now_ns)
        assert isinstance(planned, Answer), planned
        assert planned.refusal is not None
        return planned.refusal

    def apply(self, entry: Entry) -> Applied:
        """Carries out an entry."""
        self.entries.append(entry)
        self.applied.append(self.stream.apply(entry))
        self.effects += self.applied[-1].effects
        return self.applied[-1]

    def tick(self, seconds: float = 0) -> list[Applied]:
        """Lets time pass; what is due is applied."""
        self.now_ns += round(seconds * SECOND)
        due = self.stream.tick(self.now_ns)
        self.effects += due.effects
        return [self.apply(entry) for entry in due.entries]

    def messages(self) -> dict[int, MessageRecord]:
        """Everything that is stored, by sequence."""
        return stored_in(self.store)

    def seqs(self) -> list[int]:
        """The sequences that are stored."""
        return list(self.messages())


def ack(seq: int, extra: str = "") -> list[bytes]:
    """The acknowledgement of stream S."""
    return [f'{{"stream":"S","seq":{seq}{extra}}}'.encode()]


def refused(code: int, err_code: int, description: str) -> list[bytes]:
    """What a refused publisher hears of stream S."""
    error = f'{{"code":{code},"err_code":{err_code},"description":"{description}"}}'
    return [f'{{"error":{error},"stream":"S","seq":0}}'.encode()]
