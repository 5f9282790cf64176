from typing_extensions import Buffer

RECORD_BYTES_MIN: int
HEAD_BYTES: int
PAGE_BYTES: int
KIND_TURN: int
KIND_STATE: int
KIND_CUT: int
KIND_FLOOR: int
KIND_FORGET: int
KIND_ENTRY: int

class SegmentKeys:
    def __init__(self, incarnation: int, segment: int) -> None: ...

class TurnBuffer:
    data: bytearray
    place: int
    used: int
    capacity: int
    records: int
    def __init__(self, keys: SegmentKeys, place: int, capacity: int) -> None: ...
    def put(self, kind: int, group: int, index: int, term: int, payload: bytes) -> int: ...
    def close(self, turn: int, durable: int, stored: int, continues: bool) -> memoryview: ...

def record_bytes(payload_len: int) -> int: ...
def read_turn_head(
    keys: SegmentKeys, data: Buffer, at: int, place: int
) -> tuple[int, int, int, int, int, bool] | None: ...
def find_turn(keys: SegmentKeys, data: Buffer, at: int) -> int: ...
def scan_records(
    keys: SegmentKeys, data: Buffer, at: int, stop: int, base: int
) -> tuple[list[tuple[int, int, int, int, int, int, int]], int]: ...
def record_at(
    keys: SegmentKeys, data: Buffer, at: int, place: int
) -> tuple[int, int, int, int, int, int, int] | None: ...
def length_at(keys: SegmentKeys, data: Buffer, place: int) -> int: ...
