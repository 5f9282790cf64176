from mmap import mmap

NO_RECORD: int
TOO_COSTLY: int
END: int
FULL: int
TORN: int
DAMAGED: int
BAD_TYPE: int
BAD_ZEROS: int
BAD_VERSION: int
BAD_CURSOR: int
BAD_MEMO: int

def read_records(
    view: bytes | mmap, start: int, count_max: int
) -> tuple[list[tuple[int, str, bytes, bytes, bool]], int, int]: ...
def replay_records(
    view: bytes | mmap, start: int, records: dict[str, bytes]
) -> tuple[int, int, bytes, bool, bool, int]: ...
def find_record(view: bytes | mmap, start: int, work_bytes_max: int) -> int: ...
