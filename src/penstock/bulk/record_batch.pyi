class Batch:
    count: int
    pending: int
    seqs: bytes
    times: bytes
    subjects: bytes
    subject_offsets: bytes
    headers: bytes
    header_offsets: bytes
    payloads: bytes
    payload_offsets: bytes
    def __init__(
        self,
        count: int,
        pending: int,
        seqs: bytes,
        times: bytes,
        subjects: bytes,
        subject_offsets: bytes,
        headers: bytes,
        header_offsets: bytes,
        payloads: bytes,
        payload_offsets: bytes,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    def first_gap(self, frontier: int) -> int: ...
    def rows(self) -> list[tuple[str, int, int, bytes, bytes]]: ...
