from array import array

def exchange(
    requests: list[tuple[int, bytearray]],
    responder_fd: int,
    token_at: int,
    samples: array[int],
    deadline_ns: int,
) -> tuple[int, int]: ...
