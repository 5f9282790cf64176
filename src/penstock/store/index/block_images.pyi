from typing import NamedTuple

from penstock.store.block_file import Trailer
from penstock.store.format.block_header import BlockHeader
from penstock.store.index.record_log import RecordLog

class Unwritten(NamedTuple):
    number: int
    offset: int
    data: bytes

class Survey(NamedTuple):
    end: int
    first_seq: int
    mark: tuple[int, int, int] | None

class Replayed(NamedTuple):
    records: int
    used: int
    torn: int
    holes: list[tuple[int, int, int]]
    events: list[tuple[int, int, int, int]]
    deadlines: list[tuple[int, int]]

class BlockFacts(NamedTuple):
    number: int
    first_seq: int
    last_seq: int
    last_ts_ns: int
    span: int
    live: int
    live_bytes: int
    dead_bytes: int
    records: int
    head: int
    used: int
    lineage: int
    previous: int
    layout: int
    sealed: bool
    footed: bool
    damaged: bool
    warm: bool
    written: bool

def blocks_of(log: RecordLog) -> list[BlockFacts]: ...
def last_block(log: RecordLog) -> BlockFacts | None: ...
def block_facts(log: RecordLog, number: int) -> BlockFacts | None: ...
def has_unwritten(log: RecordLog) -> bool: ...
def take_unwritten(log: RecordLog) -> list[Unwritten]: ...
def unfooted(log: RecordLog) -> list[int]: ...
def set_footed(log: RecordLog, number: int, footed: bool) -> None: ...
def set_damaged(log: RecordLog, number: int) -> None: ...
def image_part(log: RecordLog, number: int, offset: int, length: int) -> bytes: ...
def live_map(log: RecordLog, number: int) -> bytes: ...
def warm_blocks(log: RecordLog) -> list[tuple[int, int]]: ...
def drop_image(log: RecordLog, number: int) -> None: ...
def put_image(log: RecordLog, number: int, data: bytes) -> None: ...
def move_records(
    log: RecordLog, number: int, places: bytes, image: bytes, head: int, records: int
) -> None: ...
def erase_image(log: RecordLog, number: int, place: int, seq: int, noise: bytes) -> None: ...
def survey(data: bytes, head: int, incarnation: int, number: int) -> Survey: ...
def replay(
    log: RecordLog, data: bytes, header: BlockHeader, *, end: int, last: bool
) -> Replayed: ...
def begin_block(log: RecordLog, first_seq: int) -> None: ...
def end_block(log: RecordLog, events: list[tuple[int, int, int, int]], facts: Trailer) -> None: ...
def reach_to(log: RecordLog, last: int) -> None: ...
