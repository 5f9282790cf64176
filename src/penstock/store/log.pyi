from penstock.store.recordlog import (
    BLOCK_MAGIC,
    Cold,
    DamagedRecord,
    MessageRecord,
    RecordLog,
    block_header,
)

__all__ = [
    "BLOCK_MAGIC",
    "Cold",
    "DamagedRecord",
    "MessageLog",
    "MessageRecord",
    "block_header",
]

class MessageLog(RecordLog):
    def last_of(self, subject: str) -> int: ...
    def subject_state(self, subject: str) -> tuple[int, int, int] | None: ...
    def subject_states(self, pattern: str) -> dict[str, tuple[int, int, int]]: ...
    def next_seq(self, filters: tuple[str, ...], start: int) -> int: ...
    def num_pending(
        self, start: int, filters: tuple[str, ...], *, last: int, last_per_subject: bool = False
    ) -> int: ...
    def count_from(self, start: int) -> int: ...
    def seq_at_time(self, ts_ns: int) -> int: ...
    def deleted_ranges(self) -> list[tuple[int, int]]: ...
    def last_match(self, pattern: str, before_or_at: int) -> int: ...
