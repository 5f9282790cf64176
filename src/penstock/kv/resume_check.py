"""Whether a log still holds everything behind a cursor: the decision before every resume.

Pure. The server does not tell: it starts a consumer at the first record it has, and one beyond its
last waits for ever. So the question is put before the consumer is made, and again after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.api.timestamps import parse_time
from penstock.kv.errors import CursorExpired, LogReset
from penstock.kv.kv_types import REVISION_MAX, LogInfo, WatchCursor

if TYPE_CHECKING:
    from penstock.bulk.bulk_requests import StreamSummary

IDENTITY_MARK: Final = "@"
"""What stands between the name of a log and the time it was made."""
INCARNATION_MARK: Final = "+"
"""What stands behind the time a log was made, before its incarnation."""
#: The last revision a consumer can start behind.
RESUMABLE_MAX: Final = REVISION_MAX - 1


def log_info(state: StreamSummary) -> LogInfo:
    config = state.config
    is_limited = any(config.get(limit, -1) > 0 for limit in ("max_bytes", "max_msgs"))
    evicts = bool(
        config.get("max_age")
        or config.get("allow_msg_ttl")
        or (config.get("discard") == "old" and is_limited)
    )
    _, loss_floor = _identity(state.penstock or {})
    losses = (state.penstock or {}).get("losses")
    return LogInfo(
        identity=_named(state.name, state.created_ns, state.penstock),
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        evicts_current=evicts,
        loss_floor=loss_floor,
        records=state.messages,
        losses=losses if isinstance(losses, int) else None,
        falls_back=bool(config.get("allow_msg_ttl")) and config.get("max_msgs_per_subject") != 1,
    )


def identity_of(stream: str, info: dict[str, Any]) -> str:
    """The identity of a log, as in `LogInfo`, out of a reply to STREAM.INFO."""
    return _named(stream, parse_time(info["created"]), info.get("penstock"))


def _named(stream: str, created_ns: int, penstock: dict[str, Any] | None) -> str:
    identity = f"{stream}{IDENTITY_MARK}{created_ns}"
    incarnation, _ = _identity(penstock or {})
    return f"{identity}{INCARNATION_MARK}{incarnation}" if incarnation else identity


def _identity(penstock: dict[str, Any]) -> tuple[str, int | None]:
    """Return incarnation and loss floor; ("", None) where the server reports neither."""
    incarnation, floor = penstock.get("incarnation"), penstock.get("loss_floor")
    if not isinstance(incarnation, str) or not isinstance(floor, int) or floor < 0:
        return "", None
    return incarnation, floor


def is_same_log(held: str, now: str) -> bool:
    """Whether a log is the one that a cursor was taken of.

    One taken before the server told incarnations goes by name and time alone. The other way round
    the log has moved to a server that does not: nothing says that it is the same.
    """
    before, mark, _ = now.rpartition(INCARNATION_MARK)
    return held == now or bool(mark and held == before and IDENTITY_MARK in held)


def check_resume(
    info: LogInfo,
    revision: int,
    *,
    identity: str | None,
    bucket: str,
    losses: int | None = None,
) -> None:
    """Raise if reading on after a revision would miss something; `losses` are those known."""
    cursor = WatchCursor.of(revision)
    if identity is not None and not is_same_log(identity, info.identity):
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
    if not is_window_intact(info, revision, losses=losses):
        raise CursorExpired(
            f"{where_lost(info)}, the cursor is {revision}",
            first_seq=info.first_seq,
            cursor=cursor,
            bucket=bucket,
        )


def is_window_intact(info: LogInfo, revision: int, *, losses: int | None = None) -> bool:
    """Whether a reader that has everything up to a revision may read on after it.

    A log that never lost anything may begin where it likes: what went was overwritten. So may one
    that counts its losses, if the reader knows all of them. Of others a loss at or before the
    revision may have been of a value that was known; so their beginning counts as well, which a
    purge beyond the revision moves.
    """
    if info.loss_floor is not None and info.loss_floor > revision:
        return False
    is_known = losses is not None and losses == info.losses
    return info.loss_floor == 0 or is_known or begins_in_time(info, revision)


def begins_in_time(info: LogInfo, revision: int) -> bool:
    """Whether nothing can have gone from the front of the log behind a revision."""
    return info.first_seq <= revision + 1


def where_lost(info: LogInfo) -> str:
    """What of a log says that something behind a revision is missing."""
    if info.loss_floor is not None and info.loss_floor >= info.first_seq:
        return f"the bucket lost {info.loss_floor}"
    return f"the bucket begins at {info.first_seq}"


def resumable(cursor: WatchCursor) -> int:
    """The revision of a cursor to resume behind; ValueError if it is none, or cannot be."""
    revision = cursor.revision
    if revision is None:
        raise ValueError("the cursor is not a revision of a stream")
    if revision > RESUMABLE_MAX:
        raise ValueError(f"nothing can come behind revision {revision}")
    return revision
