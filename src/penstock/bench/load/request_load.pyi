from array import array

def publish_acked(
    fd: int,
    frames: bytes,
    frame_bytes: int,
    token_at: int,
    window: int,
    first_seq: int,
    samples: array[int],
    deadline_ns: int,
    id_at: int = 0,
    streams: int = 1,
) -> tuple[int, int]: ...
def get_values(
    fd: int,
    frames: bytes,
    frame_bytes: int,
    token_at: int,
    window: int,
    value_bytes: int,
    samples: array[int],
    deadline_ns: int,
) -> tuple[int, int]: ...
