from typing import Protocol

class LaneOwner(Protocol):
    """Handles the messages that a lane took."""

    def mark(self) -> None: ...

class Router:
    def __init__(self, *, seed: int = 1) -> None: ...
    def take_lanes(self) -> list[Lane]: ...

class Lane:
    call: object
    owner: LaneOwner
