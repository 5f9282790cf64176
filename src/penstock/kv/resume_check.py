"""Decides whether a log still holds everything after a cursor, before every resume.

The server does not report a gap: it starts a consumer at the first record it has, and a consumer
beyond its last record waits forever. So the watcher checks before it creates the consumer and again
after. All functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.api.timestamps import parse_time
from penstock.kv.errors import CursorExpired, LogReset
from penstock.kv.kv_types import REVISION_MAX, LogInfo, WatchCursor

if TYPE_CHECKING:
    from penstock.bulk.bulk_requests import StreamSummary

IDENTITY_MARK: Final = "@"
"""Separates the name of a log from its creation time."""
INCARNATION_MARK: Final = "+"
"""Separates the creation time of a log from its incarnation."""
#: The highest revision after which a consumer can start.
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
    """Return the identity of a log, as in `LogInfo`, from a STREAM.INFO reply."""
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
    """Return whether the log `now` is the log `held` that a cursor was taken from.

    A `held` identity without an incarnation, taken before the server reported any, is compared by
    name and creation time only. If only `held` has an incarnation, the log has moved to a server
    that reports none, and the result is False: nothing proves that it is the same log.
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
    """Raise if a read after `revision` would miss records.

    `losses` is the loss count the caller already reflects.
    """
    cursor = WatchCursor.of(revision)
    if identity is not None and not is_same_log(identity, info.identity):
        raise LogReset(
            "the bucket was recreated",
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
    """Return whether a reader that has everything up to a revision may resume after it.

    The first sequence of the log does not matter if the log never lost a newest value, because all
    removed records were overwritten. It does not matter either if the reader knows all losses that
    the log counts. In any other log, a loss at or before the revision may be a value the reader
    has. So the log must also begin no later than just after the revision; a purge beyond the
    revision moves that beginning.
    """
    if info.loss_floor is not None and info.loss_floor > revision:
        return False
    is_known = losses is not None and losses == info.losses
    return info.loss_floor == 0 or is_known or begins_in_time(info, revision)


def begins_in_time(info: LogInfo, revision: int) -> bool:
    """Return whether the log has dropped no record after the revision from its beginning."""
    return info.first_seq <= revision + 1


def where_lost(info: LogInfo) -> str:
    """Return the part of an error text that states where the log lost records."""
    if info.loss_floor is not None and info.loss_floor >= info.first_seq:
        return f"the bucket lost {info.loss_floor}"
    return f"the bucket begins at {info.first_seq}"


def resumable(cursor: WatchCursor) -> int:
    """Return the revision of a cursor; ValueError if it has none or no record can follow it."""
    revision = cursor.revision
    if revision is None:
        raise ValueError("the cursor is not a revision of a stream")
    if revision > RESUMABLE_MAX:
        raise ValueError(f"nothing can come behind revision {revision}")
    return revision
