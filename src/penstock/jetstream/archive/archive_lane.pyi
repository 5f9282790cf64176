from typing_extensions import Buffer

from penstock.store.index.message_log import MessageLog

def copy_out(log: MessageLog, start: int, last: int, bytes_max: int) -> tuple[bytes, int]: ...

class ArchiveIntake:
    def __init__(
        self,
        log: MessageLog,
        *,
        message_bytes_max: int,
        takes_headers: bool,
        msgs_max: int,
        bytes_max: int,
        per_subject_max: int,
    ) -> None: ...
    @property
    def taken_bytes(self) -> int: ...
    def copy_in(self, data: Buffer, start: int, bytes_max: int) -> int: ...
