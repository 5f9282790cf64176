def read_stream(
    fd: int,
    opening: bytes,
    total: int,
    cycle: int,
    deadline_ns: int,
    *,
    request: bytes = b"",
    batch: int = 0,
    acks: bool = False,
) -> tuple[int, int]: ...
