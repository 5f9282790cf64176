from penstock.bulk.record_batch import Batch

MESSAGE: int
PING: int
PONG: int
INFO: int
ERROR: int
FULL: int
CAUGHT_UP: int
PAST_END: int
GAP: int
UNKNOWN_POSITION: int
OK: int

class WireError(Exception): ...

class ServerItem:
    kind: int
    sid: int
    subject: str
    reply: str
    header: bytes
    payload: bytes

class WireReader:
    gap_at: int
    last_seq: int
    delivered_bytes: int
    def __init__(self, *, frame_bytes_max: int, records_max: int, bytes_max: int) -> None: ...
    def follow(self, sid: int, *, stop_seq: int = 0, mark_caught_up: bool = False) -> None: ...
    @property
    def gathered(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def space(self) -> memoryview: ...
    def filled(self, count: int) -> None: ...
    def next(self) -> ServerItem | None: ...
    def take(self) -> Batch: ...
