"""Convert batches to Arrow without copying values.

pyarrow is imported on first use; the caller installs it. A record without headers has an empty
header block, not a null. Subjects are text; a subject that is not valid UTF-8 raises an error.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.bulk.record_batch import Batch

COLUMNS: Final = ("subject", "seq", "time", "headers", "payload")


def record_batch(batch: Batch) -> Any:
    """Return a `pyarrow.RecordBatch` with `COLUMNS`; `time` is in nanoseconds since 1970, UTC."""
    arrow = import_module("pyarrow")

    def numbers(kind: Any, data: bytes) -> Any:
        return arrow.Array.from_buffers(kind, batch.count, [None, arrow.py_buffer(data)])

    def runs(kind: Any, offsets: bytes, data: bytes) -> Any:
        buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(data)]
        return arrow.Array.from_buffers(kind, batch.count, buffers)

    subjects = runs(arrow.string(), batch.subject_offsets, batch.subjects)
    subjects.validate(full=True)
    arrays = [
        subjects,
        numbers(arrow.int64(), batch.seqs),
        numbers(arrow.timestamp("ns", tz="UTC"), batch.times),
        runs(arrow.binary(), batch.header_offsets, batch.headers),
        runs(arrow.binary(), batch.payload_offsets, batch.payloads),
    ]
    return arrow.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
