from typing import NamedTuple

class Rewritten(NamedTuple):
    image: bytes
    places: bytes
    records: int

def rewrite_image(
    image: bytes,
    head: int,
    header: bytes,
    *,
    incarnation: int,
    number: int,
    first_seq: int,
    last_seq: int,
    last_ts_ns: int,
    oldest_seq: int,
    loss_floor: int,
    losses: int,
    live: bytes,
) -> Rewritten | None: ...
