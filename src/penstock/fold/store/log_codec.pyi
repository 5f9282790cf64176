from collections.abc import Iterable

from penstock.bulk.record_batch import Batch
from penstock.kv.kv_types import KvUpdate

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
