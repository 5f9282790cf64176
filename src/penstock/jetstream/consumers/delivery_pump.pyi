from array import array
from typing import NamedTuple

from penstock.broker.router import Router
from penstock.store.index.message_log import MessageLog
from penstock.subjects.trie import SubList

TAKERS_MAX: int

class DeliveryRun(NamedTuple):
    sent: int
    size: int
    flow: int
    last_flow: int
    last_seq: int
    num_undelivered: int
    counted_to: int
    at_end: bool
    spans: list[tuple[int, int]]
    given: list[int]
    next_taker: int
    bytes_left: list[int]

class Pump:
    def __init__(
        self, *, log: MessageLog, router: Router, interest: SubList, ack_prefix: str
    ) -> None: ...
    def set_filters(self, filters: tuple[str, ...]) -> None: ...
    def set_headers_only(self, headers_only: bool) -> None: ...
    def run(
        self,
        takers: list[tuple[bytes, int, int]],
        *,
        start: int,
        consumer_seq: int,
        num_undelivered: int,
        counted_to: int,
        msgs_max: int,
        size_max: int,
        flow_max: int,
        in_turns: bool,
        spans_kept: bool,
        row: array[int] | None = None,
        row_at: int = 0,
    ) -> DeliveryRun: ...
    def has_next(self, start: int) -> bool: ...
