"""The target as the driver found it when it planned a write; every task and the commit compare.

A message that was in the stream before cannot come from an attempt at this write, and a stream that
was created again in the meantime has lost the rows that earlier tasks stored in it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.write.worker_publisher import SinkError, outlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.spark.write.sink_options import PublishOptions
    from penstock.spark.write.worker_publisher import WorkerPublisher

TOKEN_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class WriteStart:
    """`last_seq` and `created` of the stream; `token` names this write among others that have no
    name."""

    last_seq: int
    created: str
    token: str

    def check(self, out: WorkerPublisher) -> None:
        """Raise if the stream is not the one that was found."""
        check_created(out, self.created)


def begin(
    options: PublishOptions, stream: str, check: Callable[[dict[str, Any]], None]
) -> WriteStart:
    """Return the state of the target; `check` may reject its configuration."""
    with outlet(options, stream, check) as out:
        return WriteStart(out.last_seq, out.created, secrets.token_hex(TOKEN_BYTES))


def check_created(out: WorkerPublisher, created: str) -> None:
    if out.created != created:
        raise SinkError(
            f"stream {out.config['name']} was deleted and created again while rows were written, "
            "and rows that it stored before were deleted with it. Repeat this write; a streaming "
            "query repeats its batch when it is started again"
        )
