VERB_NAMES: dict[int, str]

def parse(
    data: bytes,
    *,
    max_control_line: int = 4096,
    max_payload: int = 1048576,
    headers: bool = True,
) -> tuple[list[tuple[object, ...]], bytes, str | None]: ...
