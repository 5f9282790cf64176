from typing import Final

NOTABLE_NS: Final[int]
QUICK_NS: Final[int]
SMOOTHING: Final[int]

class CommitPace:
    running: int
    @property
    def is_quick(self) -> bool: ...
    def took(self, span_ns: int) -> None: ...

class TurnListener:
    pace: CommitPace
    write_pace: CommitPace
    def __init__(self, pace: CommitPace, write_pace: CommitPace) -> None: ...
    def calls_ended(self) -> None: ...
