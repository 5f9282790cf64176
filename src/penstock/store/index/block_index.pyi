from typing import NamedTuple

from penstock.store.index.record_log import RecordLog

class IndexLoaded(NamedTuple):
    events: list[tuple[int, int, int, int]]
    deadlines: list[tuple[int, int]]

class BadIndex(Exception): ...

def make_index(
    image: bytes | bytearray | memoryview,
    head: int,
    incarnation: int,
    number: int,
    first_seq: int,
    live: bytes,
) -> bytes | None: ...
def load_index(
    log: RecordLog,
    index: bytes,
    *,
    number: int,
    first_seq: int,
    last_seq: int,
    head: int,
    used: int,
) -> IndexLoaded: ...
