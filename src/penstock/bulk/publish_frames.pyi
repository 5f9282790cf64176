from typing import Any

from penstock.bulk.publish_acks import Window

class RowError(ValueError):
    row: int
    def __init__(self, row: int, reason: str) -> None: ...

class Values:
    count: int
    def __init__(self, count: int, offsets: Any, data: Any, first: int = 0) -> None: ...
    @staticmethod
    def one(value: bytes, count: int) -> Values: ...

class Frames:
    data: bytes
    first: int
    count: int
    @property
    def stop(self) -> int: ...
    def unanswered(self, window: Window) -> bytes: ...
    def frame(self, number: int) -> bytes: ...

def encode(
    subjects: Values,
    payloads: Values,
    *,
    ids: Values | None = None,
    lines: Values | None = None,
    start: int = 0,
    first: int = 0,
    inbox: bytes = b"",
    bytes_max: int = ...,
    payload_bytes_max: int = ...,
    rows_max: int = ...,
    batch: bytes = b"",
    common: bytes = b"",
) -> Frames: ...
