from typing import NamedTuple

from penstock.store.index.block_list import BlockList
from penstock.store.index.subject_index import SubjectIndex

class MessageRecord(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    header: bytes
    payload: bytes

class Cold(NamedTuple):
    block: int
    seq: int = 0

class DamagedRecord(Exception): ...

class RecordLog(BlockList):
    mark_block: int
    mark_place: int
    subjects: SubjectIndex
    msgs: int
    total_size: int
    first_seq: int
    visible_max: int
    loss_floor: int
    losses: int
    records_removals: bool
    losses_said: int
    losses_kept: int
    is_requested: bool
    is_loss_unsaid: bool
    loose: dict[tuple[int, int], tuple[int, bytes]]
    def __init__(
        self,
        *,
        incarnation: int = 0,
        meta: bytes = b"",
        block_bytes: int = 8388608,
        durable: bool = False,
        seed: int = 0,
        first_seq: int = 1,
        form: int = 0,
    ) -> None: ...
    def append(
        self,
        subject: str,
        header: bytes,
        payload: bytes,
        ts_ns: int,
        *,
        seq: int = 0,
        deadline_ns: int = 0,
    ) -> int: ...
    def append_batch(self, messages: list[tuple[bytes, bytes, bytes]], ts_ns: int) -> int: ...
    def skip(self, last: int, ts_ns: int) -> None: ...
    def load(self, seq: int) -> MessageRecord | Cold | None: ...
    def place_of(self, seq: int) -> tuple[int, int] | None: ...
    def ts_of(self, seq: int) -> int: ...
    def size_at(self, seq: int) -> int: ...
    def message_size(self, subject: str, header: bytes, payload: bytes) -> int: ...
    @property
    def has_remains(self) -> bool: ...
    def shed(self, at_most: int = ...) -> bool: ...
    def truncate(self, seq: int) -> list[int]: ...
    def note_range(self, kind: int, first: int, last: int, ts_ns: int) -> None: ...
    def note_loss(self) -> int: ...
    def note_mark(self, number: int, place: int, durable_seq: int) -> None: ...
    def restart_at(self, seq: int) -> None: ...
    def drop_dead_blocks(self) -> list[int]: ...
