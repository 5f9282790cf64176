"""One of many makes an artifact and publishes it: the round that a fleet of folds repeats.

Whoever wins the lease exports, uploads, and tidies up; what it exported is gone from its disk at
the end of every path, since an artifact may pin the space of files the store has long replaced. A
round that fails gives its lease back. One that was overtaken is done: a newer artifact is there.
`repeat_rounds` is for every member of the fleet alike; they need not know of each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from msgspec import Struct

from penstock.fold.artifact.atomic_dir import staged_beside, sweep_stages
from penstock.fold.errors import FoldError, FoldStoreError
from penstock.fold.ship.object_store import unheard
from penstock.fold.ship.pointer import Published

if TYPE_CHECKING:
    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.ship.artifact_transport import ArtifactTransport
    from penstock.fold.ship.lease import ExportLease
    from penstock.fold.ship.object_store import Progress
    from penstock.fold.ship.pointer import PublishOutcome

GRACE_ROUNDS = 4
"""For how many rounds a payload stays that is no longer the newest: somebody may be fetching it."""
ASKED_PER_ROUND = 4
"""How often everyone asks for the lease while it runs, so that the next round begins soon."""

log = logging.getLogger(__name__)


class Exporter(Protocol):
    """What exports: a running fold, between two of its batches."""

    async def export_to(self, dest: Path, *, form: str | None = None) -> Manifest: ...


class ExportRound(Struct, frozen=True):
    """What came of a round."""

    manifest: Manifest
    outcome: PublishOutcome
    pruned: int


async def export_round(
    lease: ExportLease,
    ttl: float,
    exports: Exporter,
    transport: ArtifactTransport,
    key: str,
    scratch: Path | str,
    *,
    form: str | None = None,
    progress: Progress = unheard,
) -> ExportRound | None:
    """Export and publish, if nobody else does so within these `ttl` seconds; None if one does.

    `scratch` is a directory on the file system of the fold, so that files can be linked.
    """
    guard = await lease.try_acquire(ttl)
    if guard is None:
        return None
    try:
        await asyncio.to_thread(sweep_stages, Path(scratch))
        with staged_beside(Path(scratch) / "round") as stage:
            manifest = await exports.export_to(stage / "artifact", form=form)
            outcome = await transport.upload(key, stage / "artifact", progress=progress)
    except BaseException:
        # Also when cancelled: then the last that is done is to let others begin.
        await asyncio.shield(guard.abandon())
        raise
    await guard.complete(manifest.cursor)
    if not isinstance(outcome, Published):
        return ExportRound(manifest, outcome, 0)
    return ExportRound(manifest, outcome, await _tidied(transport, key, GRACE_ROUNDS * ttl))


async def repeat_rounds(
    lease: ExportLease,
    ttl: float,
    exports: Exporter,
    transport: ArtifactTransport,
    key: str,
    scratch: Path | str,
    *,
    form: str | None = None,
) -> NoReturn:
    """Have a round about every `ttl` seconds, whoever makes it, until cancelled.

    A round that fails is logged, and there is another.
    """
    while True:
        try:
            done = await export_round(lease, ttl, exports, transport, key, scratch, form=form)
        except FoldError as error:
            log.warning("export round failed key=%s: %s", key, error)
        else:
            if done is not None:
                log.info("artifact key=%s rank=%d %r", key, done.manifest.cursor.rank, done.outcome)
        # Never all at the same moment: they may have been started together.
        await asyncio.sleep(ttl / ASKED_PER_ROUND * random.uniform(0.5, 1.5))


async def _tidied(transport: ArtifactTransport, key: str, grace: float) -> int:
    try:
        return await transport.prune(key, grace=grace)
    except FoldStoreError as error:  # the next round comes
        log.warning("old payloads remain key=%s: %s", key, error)
        return 0
