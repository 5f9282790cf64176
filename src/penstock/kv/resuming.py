"""Whether a log still holds everything behind a cursor: the decision before every resume.

Pure. The server does not tell: it starts a consumer at the first record it has, and one beyond its
last waits for ever. So the question is put before the consumer is made, and again after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kv.errors import CursorExpired, LogReset
from penstock.kv.types import REVISION_MAX, LogInfo, WatchCursor

if TYPE_CHECKING:
    from penstock.bulk.asking import StreamState

#: The last revision a consumer can start behind.
RESUMABLE_MAX: Final = REVISION_MAX - 1


def log_info(state: StreamState) -> LogInfo:
    config = state.config
    is_limited = any(config.get(limit, -1) > 0 for limit in ("max_bytes", "max_msgs"))
    evicts = bool(
        config.get("max_age")
        or config.get("allow_msg_ttl")
        or (config.get("discard") == "old" and is_limited)
    )
    return LogInfo(
        identity=f"{state.name}@{state.created_ns}",
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        evicts_current=evicts,
    )


def check_resume(info: LogInfo, revision: int, *, identity: str | None, bucket: str) -> None:
    """Raise if reading on behind a revision would miss something."""
    cursor = WatchCursor.of(revision)
    if identity is not None and identity != info.identity:
        raise LogReset(
            "the bucket was made anew",
            old_identity=identity,
            new_identity=info.identity,
            bucket=bucket,
            cursor=cursor,
        )
    if revision > info.last_seq:
        raise LogReset(
            f"the bucket ends at {info.last_seq}, the cursor is {revision}",
            old_identity=identity or "",
            new_identity=info.identity,
            bucket=bucket,
            cursor=cursor,
        )
    if not is_window_intact(info, revision):
        raise CursorExpired(
            f"the bucket begins at {info.first_seq}, the cursor is {revision}",
            first_seq=info.first_seq,
            cursor=cursor,
            bucket=bucket,
        )


def is_window_intact(info: LogInfo, revision: int) -> bool:
    if info.loss_floor is not None:
        return info.loss_floor <= revision
    return info.first_seq <= revision + 1


def resumable(cursor: WatchCursor) -> int:
    """The revision of a cursor to resume behind; ValueError if it is none, or cannot be."""
    revision = cursor.revision
    if revision is None:
        raise ValueError("the cursor is not a revision of a stream")
    if revision > RESUMABLE_MAX:
        raise ValueError(f"nothing can come behind revision {revision}")
    return revision
