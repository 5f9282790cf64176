from penstock.broker.router import Lane, LaneListener, Router
from penstock.jetstream.streams.batches.staged_batches import StagedBatches
from penstock.jetstream.streams.dedupe import DuplicateWindow
from penstock.store.append_commit import Appender
from penstock.store.index.record_log import RecordLog
from penstock.subjects.trie import SubList

class StreamLane(Lane):
    room: int
    taken: int
    def __init__(
        self,
        *,
        log: RecordLog,
        router: Router,
        interest: SubList,
        listener: LaneListener,
        deadlines: dict[int, int],
        exempt: set[int],
        prefix: bytes,
        name: bytes,
        ids: DuplicateWindow,
        batches: StagedBatches,
        appender: Appender | None,
    ) -> None: ...
    def configure(
        self,
        *,
        is_open: bool,
        packs: bool,
        acks_wanted: bool,
        discard_new: bool,
        msgs_max: int,
        bytes_max: int,
        per_subject_max: int,
        payload_max: int,
    ) -> None: ...
    def close(self) -> None: ...
    def take_results(self) -> tuple[int, list[int]]: ...
    @property
    def waiting(self) -> int: ...
    def commit(self) -> int: ...
    def release(self) -> None: ...
    def forget(self) -> None: ...
    def set_unattended(self, is_alone: bool) -> None: ...
    def send_acks(self) -> int: ...
