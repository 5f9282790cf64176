"""Plan state: what the checks may read of a stream, and the draft of the message being checked.

`PlanState` holds configuration, store, recent ids, and the last sequence, id and time. The checks
only read it; `Stream.apply`, recovery and the reports of the lanes change it. A draft is one
message on its way to an entry: the checks fill in what they find, and may rewrite its header and
payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.stream_config import Storage
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.streams.publish_headers import STREAM_SOURCE
from penstock.jetstream.streams.stream_parts import build_parts
from penstock.subjects.tokens import has_wildcard

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.streams.dedupe import DuplicateWindow
    from penstock.jetstream.streams.source_progress import SourceRef
    from penstock.jetstream.streams.stream_parts import StreamParts
    from penstock.store.contract import Cold, MessageRecord, Missing, Refusal, Store

FILE_OVERHEAD: Final = 30
FILE_HEADER_OVERHEAD: Final = 4
MEMORY_OVERHEAD: Final = 16


class PlanState:
    """The state of a stream as the checks see it."""

    __slots__ = (
        "cfg",
        "dedupe",
        "has_interest",
        "last_seq",
        "last_ts_ns",
        "max_payload",
        "may_store",
        "parts",
        "recalled_seq",
        "sources",
        "store",
    )

    def __init__(
        self,
        cfg: StreamConfig,
        store: Store,
        dedupe: DuplicateWindow,
        has_interest: Callable[[str], bool],
        may_store: Callable[[int], ApiError | None] | None,
        max_payload: int,
    ) -> None:
        state = store.state()
        self.configure(cfg, build_parts(cfg))
        self.store = store
        self.dedupe = dedupe
        self.has_interest = has_interest
        self.may_store = may_store
        self.max_payload = max_payload
        self.last_seq = state.last_seq
        self.last_ts_ns = state.last_ts_ns
        self.sources: dict[str, SourceRef] = {}
        """The last copied position of each source, by index name."""
        self.recalled_seq = 0
        """Recovery restored `sources` for messages up to this sequence."""

    def configure(self, cfg: StreamConfig, parts: StreamParts) -> None:
        """Set a new configuration and the parts built from it."""
        self.cfg = cfg
        self.parts = parts

    def is_used_up(self, n: int) -> bool:
        """Return whether the stream has fewer than `n` sequences left."""
        return self.last_seq > SEQ_MAX - n

    def reread_end(self) -> None:
        """Reread sequence and time from the store after other code appended to it."""
        self.last_seq = self.store.last_seq
        self.last_ts_ns = self.store.last_ts_ns

    @property
    def last_msg_id(self) -> bytes:
        """The id of the last message; empty if it has none."""
        return self.dedupe.last_id

    @last_msg_id.setter
    def last_msg_id(self, msg_id: bytes) -> None:
        self.dedupe.last_id = msg_id

    @property
    def may_roll_up(self) -> bool:
        """Return whether a rollup may remove older messages."""
        return self.cfg.allow_rollup_hdrs and not self.cfg.deny_purge

    def require_applied(self) -> None:
        """Return if the state is that of the applied entries: here it always is."""

    def find_id(self, msg_id: bytes, now_ns: int) -> int:
        """Return the sequence of the message with this id within the window; 0 if there is none."""
        return self.dedupe.find(msg_id, now_ns)

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        """Return which limit of a stream with discard policy `new` refuses this message."""
        return self.store.refusal(subject, header, payload)

    def latest(self, subject: str) -> MessageRecord | Missing | Cold:
        """Return the newest message of a subject."""
        return self.store.load_last(subject, unsynced=True)

    def last_of(self, pattern: str) -> int:
        """Return the last sequence of the subjects that a pattern matches; 0 if there is none."""
        states = self.store.subject_states(pattern)
        if not has_wildcard(pattern):
            return states[pattern].last if pattern in states else 0
        return max((state.last for state in states.values()), default=0)

    def size_of(self, subject: str, header: bytes, payload: bytes) -> int:
        """Return the size of the message in the store's totals."""
        named = len(subject) if subject.isascii() else len(subject.encode("utf-8", "replace"))
        size = named + len(header) + len(payload)
        if self.cfg.storage is Storage.MEMORY:
            return size + MEMORY_OVERHEAD
        return size + FILE_OVERHEAD + (FILE_HEADER_OVERHEAD if header else 0)


class Draft:
    """One message being planned."""

    __slots__ = (
        "fields",
        "header",
        "is_internal",
        "msg_id",
        "now_ns",
        "payload",
        "purged",
        "reply",
        "rollup",
        "schedule",
        "subject",
        "ttl_ns",
        "value",
    )

    def __init__(
        self,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        fields: dict[bytes, bytes],
        now_ns: int,
        *,
        is_internal: bool = False,
    ) -> None:
        self.subject = subject
        self.reply = reply
        self.header = header
        self.payload = payload
        self.fields = fields
        """The parsed header; empty if it has no stream keys."""
        self.now_ns = now_ns
        self.is_internal = is_internal
        """Whether the server itself publishes it: a sourced or scheduled message, or a marker."""
        self.msg_id = b""
        self.ttl_ns = 0
        self.rollup = ""
        self.purged = ""
        self.value = ""
        self.schedule = False
        """Whether the message is a schedule."""

    @property
    def is_special(self) -> bool:
        """Return whether the applier must do more than store it; that includes reading a source
        header."""
        return bool(
            self.msg_id
            or self.ttl_ns
            or self.rollup
            or self.purged
            or self.value
            or self.schedule
            or STREAM_SOURCE in self.fields
        )
