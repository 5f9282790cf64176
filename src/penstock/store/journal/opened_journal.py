"""Opening a journal: keys, anchor, recovery, and the syncs that make the result durable.

Nothing is written before the journal is known to be of this incarnation and key. What is read may
still be only in the page cache, so the segments with turns that no head calls durable are synced
before anybody is answered from them.
"""

from __future__ import annotations

import errno as codes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.store.errors import NotFound, StoreError
from penstock.store.format.data_keys import KEYS_FILE, open_keys
from penstock.store.format.encryption import WrongKey
from penstock.store.journal.journal_anchor import AnchorValue, JournalAnchor
from penstock.store.journal.journal_reader import files_seen
from penstock.store.journal.journal_recovery import RecoveredJournal, scan_journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.format.encryption import DataKey, ServerKey
    from penstock.store.io.disk import Disk


@dataclass(slots=True)
class OpenedJournal:
    """What `Journal` continues with."""

    disk: Disk
    incarnation: int
    now_ns: int
    noise: Callable[[int], bytes]
    key: DataKey | None
    data_keys: dict[int, DataKey]
    anchor: JournalAnchor
    recovered: RecoveredJournal


def open_journal(
    disk: Disk,
    incarnation: int,
    now_ns: int,
    noise: Callable[[int], bytes],
    key: ServerKey | None,
    former: tuple[ServerKey, ...],
    salt: bytes | None,
) -> OpenedJournal:
    """Open or create the journal of a directory."""
    _check_segments(disk, incarnation)
    data_keys = open_keys(disk, incarnation, key, former, salt, noise)
    anchor = JournalAnchor(disk, incarnation)
    try:
        recovered = scan_journal(disk, incarnation, anchor, data_keys)
    except WrongKey as reason:
        raise _refusal(disk, str(reason)) from None
    _make_durable(disk, recovered)
    if anchor.is_missing or anchor.is_damaged:
        tail = min(recovered.segments, default=recovered.number + 1)
        anchor.create(AnchorValue(tail, recovered.number, recovered.report.turn))
    newest_key = data_keys[max(data_keys)] if data_keys else None
    return OpenedJournal(disk, incarnation, now_ns, noise, newest_key, data_keys, anchor, recovered)


def _check_segments(disk: Disk, incarnation: int) -> None:
    """Refuse segments of another incarnation, and encrypted ones whose key file is missing."""
    is_encrypted = False
    for file, header in files_seen(disk):
        file.close(disk)
        if header is not None and header.incarnation != incarnation:
            raise _refusal(disk, f"{file.name} belongs to another incarnation")
        is_encrypted |= header is not None and header.is_encrypted
    if not is_encrypted:
        return
    try:
        disk.close_file(disk.open(KEYS_FILE, writable=False))
    except NotFound:
        reason = "segments are encrypted, and the file of their keys is missing"
        raise _refusal(disk, reason) from None


def _refusal(disk: Disk, reason: str) -> StoreError:
    return StoreError(disk.path, "open the journal", codes.EACCES, reason)


def _make_durable(disk: Disk, recovered: RecoveredJournal) -> None:
    if recovered.report.turn > recovered.durable_turn:
        for segment in recovered.segments.values():
            disk.fdatasync(segment.file.open(disk))
        disk.sync_dir()
