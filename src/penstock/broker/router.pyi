class Router:
    def __init__(self, *, seed: int = 1) -> None: ...
    def take_lanes(self) -> list[Lane]: ...

class Lane:
    call: object
    owner: object
