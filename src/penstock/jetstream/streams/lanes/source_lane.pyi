from penstock.broker.router import Lane, LaneListener
from penstock.jetstream.streams.lanes.publish_lane import StreamLane

class SourceCursor:
    seq: int
    consumer_seq: int
    lag: int

class CopyLane(Lane):
    is_open: bool
    taken: int
    heard_ns: int
    def __init__(
        self,
        *,
        stream: StreamLane,
        place: SourceCursor,
        host: object,
        listener: LaneListener,
    ) -> None: ...
    def begin(self, consumer: str, note: tuple[bytes, bytes, bytes] | None) -> None: ...
    def take_results(self) -> int: ...
