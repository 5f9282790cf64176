from typing import Final

from typing_extensions import Buffer

NESTING_MAX: Final = 128

class TooDeep(ValueError):
    offset: int
    def __init__(self, offset: int) -> None: ...

def check_nesting(raw: Buffer) -> None: ...
