from typing import NamedTuple

from penstock.store.log import MessageLog
from penstock.store.recordlog import RecordLog

class Taken(NamedTuple):
    msgs: int
    bytes: int
    ranges: list[tuple[int, int]]

def take_span(
    log: RecordLog, first: int, last: int, ts_ns: int, *, noted: bool = True
) -> Taken: ...
def take_older(log: RecordLog, start: int, cutoff_ns: int, at_most: int, ts_ns: int) -> Taken: ...
def take_front(log: RecordLog, msgs_max: int, bytes_max: int, ts_ns: int) -> Taken: ...
def take_matching(
    log: MessageLog, pattern: str, bound: int, ts_ns: int, *, spared: int = 0
) -> Taken: ...
