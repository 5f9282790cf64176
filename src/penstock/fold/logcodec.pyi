from collections.abc import Iterable
from mmap import mmap

from penstock.bulk.batch import Batch
from penstock.kv.types import KvUpdate

END: int
FULL: int
TORN: int
DAMAGED: int
BAD_TYPE: int
BAD_ZEROS: int
BAD_VERSION: int
BAD_CURSOR: int
BAD_MEMO: int

def encode_columns(batch: Batch, skipped: int, ops: bytes) -> bytes: ...
def fold_columns(
    records: dict[str, bytes],
    batch: Batch,
    skipped: int,
    ops: bytes,
    added: set[str],
    removed: set[str],
) -> int: ...
def encode_updates(batch: Iterable[KvUpdate]) -> bytes: ...
def encode_entries(records: dict[str, bytes], keys: list[str]) -> bytes: ...
def fold_updates(
    records: dict[str, bytes], batch: Iterable[KvUpdate], added: set[str], removed: set[str]
) -> int: ...
def read_records(
    view: bytes | mmap, start: int, count_max: int
) -> tuple[list[tuple[int, str, bytes, bytes, bool]], int, int]: ...
def replay_records(
    view: bytes | mmap, start: int, records: dict[str, bytes]
) -> tuple[int, int, bytes, bool, bool, int]: ...
