from typing import NamedTuple

from penstock.store.subjectindex import SubjectIndex

BLOCK_MAGIC: bytes

class MessageRecord(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    header: bytes
    payload: bytes

class Cold(NamedTuple):
    block: int

class DamagedRecord(Exception): ...

def block_header(
    incarnation: int, number: int, first_seq: int, created_ns: int, previous_hash: int, meta: bytes
) -> bytes: ...

class MessageLog:
    incarnation: int
    meta: bytes
    subjects: SubjectIndex
    msgs: int
    total_size: int
    first_seq: int
    last_seq: int
    last_ts_ns: int
    next_number: int
    def __init__(
        self,
        *,
        incarnation: int = 0,
        meta: bytes = b"",
        block_bytes: int = 8388608,
        durable: bool = False,
        seed: int = 0,
        first_seq: int = 1,
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
    def last_of(self, subject: str) -> int: ...
    def subject_state(self, subject: str) -> tuple[int, int, int] | None: ...
    def subject_states(self, pattern: str) -> dict[str, tuple[int, int, int]]: ...
    def next_seq(self, filters: tuple[str, ...], start: int) -> int: ...
    def next_match(self, filters: tuple[str, ...], start: int) -> MessageRecord | Cold | None: ...
    def num_pending(
        self, start: int, filters: tuple[str, ...], *, last_per_subject: bool = False
    ) -> int: ...
    def count_from(self, start: int) -> int: ...
    def seq_at_time(self, ts_ns: int) -> int: ...
    def first_ts_ns(self) -> int: ...
    def deleted_ranges(self) -> list[tuple[int, int]]: ...
    def remove(self, seq: int, ts_ns: int) -> int: ...
    def erase(self, seq: int, noise: bytes, ts_ns: int) -> tuple[int, int, int] | Cold | None: ...
    def drop_dead_blocks(self) -> list[int]: ...
