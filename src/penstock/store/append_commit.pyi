from enum import IntEnum
from typing import Final

from penstock.store.format.block_frames import FrameWriter
from penstock.store.index.record_log import RecordLog
from penstock.store.io.disk import Disk, File

SMALL_WRITE_BYTES: Final[int]
PREALLOCATE_BYTES: Final[int]
RESERVE_MIN: Final[int]
RESERVE_MAX: Final[int]

class CommitPlan(IntEnum):
    NOTHING = 0
    APPEND = 1
    FULL = 2

def preallocate(disk: Disk, block: OpenBlock, end: int, block_bytes: int) -> None: ...

class OpenBlock:
    file: File
    written: int
    allocated: int
    frames: FrameWriter | None
    def __init__(
        self,
        file: File,
        written: int = 0,
        allocated: int = 0,
        frames: FrameWriter | None = None,
    ) -> None: ...

class Appender:
    durable_seq: int
    durable_block: int
    durable_place: int
    reserved: int
    is_direct: bool
    def __init__(self, *, log: RecordLog, disk: Disk, syncs: bool) -> None: ...
    @property
    def syncs(self) -> bool: ...
    @property
    def is_short(self) -> bool: ...
    @property
    def is_half_used(self) -> bool: ...
    def open(self, number: int, block: OpenBlock) -> None: ...
    def close(self) -> None: ...
    @property
    def plan(self) -> CommitPlan: ...
    @property
    def unwritten_bytes(self) -> int: ...
    @property
    def unsynced(self) -> set[int]: ...
    def set_durable(self, seq: int) -> None: ...
    def num_reserved(self) -> int: ...
    def commit(self) -> bool: ...
