"""The target as the driver found it when it planned a write; every task and the commit compare.

A message that was in the stream before cannot come from an attempt at this write, and a stream that
was created again in the meantime has lost the rows that earlier tasks stored in it.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.spark.write.worker_publisher import SinkError, outlet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.spark.write.sink_options import PublishOptions
    from penstock.spark.write.sink_report import Written
    from penstock.spark.write.worker_publisher import WorkerPublisher

LOGGER: Final = logging.getLogger("penstock.spark.sink")
TOKEN_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class WriteStart:
    """`last_seq` and `created` of the stream; `token` names this write among others that have no
    name; `time_s` is the driver's clock, in seconds since 1970."""

    last_seq: int
    created: str
    token: str
    time_s: float

    def check(self, out: WorkerPublisher) -> None:
        """Raise if the stream is not the one that was found."""
        check_created(out, self.created)


def begin(
    options: PublishOptions, stream: str, check: Callable[[dict[str, Any]], None]
) -> WriteStart:
    """Return the state of the target; `check` may reject its configuration."""
    with outlet(options, stream, check) as out:
        return WriteStart(out.last_seq, out.created, secrets.token_hex(TOKEN_BYTES), time.time())


def check_created(out: WorkerPublisher, created: str) -> None:
    if out.created != created:
        raise SinkError(
            f"stream {out.config['name']} was deleted and created again while rows were written, "
            "and rows that it stored before were deleted with it. Repeat this write; a streaming "
            "query repeats its batch when it is started again"
        )


def warn_of_window(out: WorkerPublisher, written: Sequence[Written]) -> None:
    """Log if a task was repeated after the stream had forgotten ids of this write."""
    window_s = int(out.config.get("duplicate_window", 0)) / SECOND_NS
    retried = [one for one in written if one.task.attempt and one.rows]
    took_s = time.time() - min((one.began_s for one in retried), default=time.time())
    if retried and took_s > window_s:
        LOGGER.warning(
            "stream %s: %d tasks were repeated in a write of %.0f s, and the stream remembers ids "
            "for %.0f s: rows of their earlier attempts may be stored twice. Set its "
            "duplicate_window to more than a write takes, or use delivery strict",
            out.config["name"],
            len(retried),
            took_s,
            window_s,
        )
