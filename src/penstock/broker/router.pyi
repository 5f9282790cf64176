from typing import Protocol

class LaneOwner(Protocol):
    """Looks after what a lane took."""

    def mark(self) -> None: ...

class Router:
    def __init__(self, *, seed: int = 1) -> None: ...
    def take_lanes(self) -> list[Lane]: ...

class Lane:
    call: object
    owner: LaneOwner
