from typing import NamedTuple

from typing_extensions import Buffer

from penstock.records.record_codec import RecordKeys

class RecordColumns(NamedTuple):
    place: int
    rows: int
    seqs: bytes
    times: bytes
    subjects: bytes
    subject_offsets: bytes
    headers: bytes
    header_offsets: bytes
    payloads: bytes
    payload_offsets: bytes

def block_columns(
    keys: RecordKeys,
    image: Buffer,
    start: int,
    end: int,
    wanted: Buffer,
    first_seq: int,
    *,
    rows_max: int,
    bytes_max: int,
) -> RecordColumns: ...
def entry_columns(
    data: Buffer, start: int, *, rows_max: int, bytes_max: int, entry_bytes_max: int
) -> tuple[RecordColumns, bool]: ...
