from typing import NamedTuple, Protocol

from penstock.store.index.message_pack import Packer

BATCH_ID_BYTES_MAX: int

class Limits(Protocol):
    @property
    def msgs_max(self) -> int: ...
    @property
    def atomic_max(self) -> int: ...
    @property
    def atomic_total_max(self) -> int: ...
    @property
    def idle_ns_max(self) -> int: ...

class Staged(NamedTuple):
    subject: str
    header: bytes
    payload: bytes
    fields: dict[bytes, bytes]

class InFlight:
    atomic: int
    fast: int

class StagedBatch:
    id: bytes
    items: list[Staged]
    packer: Packer
    last: int
    deadline_ns: int
    def take_packed(self) -> bytes: ...

class StagedBatches:
    batches: dict[bytes, StagedBatch]
    in_flight: InFlight
    is_open: bool
    wake_ns: int
    def __init__(self, limits: Limits, in_flight: InFlight) -> None: ...
    def may_start(self, id_bytes: int) -> bool: ...
    def start(self, id: bytes, now_ns: int) -> StagedBatch: ...
    def add(self, subject: str, header: bytes, payload: bytes, now_ns: int) -> bool: ...
    def drop(self, id: bytes) -> None: ...
