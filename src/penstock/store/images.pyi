from typing import NamedTuple

from penstock.store.recordlog import RecordLog

class BlockHeader(NamedTuple):
    length: int
    incarnation: int
    number: int
    first_seq: int
    created_ns: int
    previous_hash: int
    meta: bytes

class Unwritten(NamedTuple):
    number: int
    offset: int
    data: bytes

class Replayed(NamedTuple):
    records: int
    used: int
    torn: int
    damaged: list[tuple[int, int]]
    events: list[tuple[int, int, int]]
    deadlines: list[tuple[int, int]]

def read_block_header(data: bytes) -> BlockHeader | None: ...
def has_unwritten(log: RecordLog) -> bool: ...
def take_unwritten(log: RecordLog) -> list[Unwritten]: ...
def image_part(log: RecordLog, number: int, offset: int, length: int) -> bytes: ...
def warm_blocks(log: RecordLog) -> list[tuple[int, int]]: ...
def drop_image(log: RecordLog, number: int) -> None: ...
def put_image(log: RecordLog, number: int, data: bytes) -> None: ...
def replay(log: RecordLog, data: bytes, header: BlockHeader, *, last: bool) -> Replayed: ...
