from typing_extensions import Buffer

HEADER_SIZE: int
VERDICTS: dict[int, str]
KINDS: dict[int, str]

class RecordKeys:
    def __init__(self, incarnation: int, block: int) -> None: ...

def encode_message(
    keys: RecordKeys,
    seq: int,
    ts_ns: int,
    subject: bytes,
    header: bytes,
    payload: bytes,
    *,
    deadline_ns: int = 0,
) -> bytes: ...
def encode_range(keys: RecordKeys, kind: int, first: int, last: int, ts_ns: int) -> bytes: ...
def scan(
    keys: RecordKeys, data: Buffer, start: int = 0
) -> list[tuple[int, int, str, int, int, int, int, tuple[bytes, bytes, bytes, int] | None]]: ...
def checksum(data: Buffer, seed: int = 0) -> int: ...
