"""Export rounds of a fleet: one member at a time creates an artifact and publishes it.

The member that wins the lease exports, uploads and prunes. It always deletes its local artifact at
the end of the round, because an artifact may pin disk space of files the store has replaced. A
failed round releases its lease. A round that finds a newer published artifact counts as done. Every
member runs `repeat_rounds`; members need no knowledge of each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from msgspec import Struct

from penstock.fold.artifact.atomic_dir import staged_beside, sweep_stages
from penstock.fold.errors import FoldStoreError
from penstock.fold.ship.object_store import unheard
from penstock.fold.ship.pointer import Published
from penstock.kv.errors import KvError

if TYPE_CHECKING:
    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.ship.artifact_transport import ArtifactTransport
    from penstock.fold.ship.lease import ExportLease
    from penstock.fold.ship.object_store import Progress
    from penstock.fold.ship.pointer import PublishOutcome

GRACE_ROUNDS = 4
"""Number of rounds for which an outdated payload is kept, because a reader may be fetching it."""
ASKED_PER_ROUND = 4
"""Lease attempts of each member per round, so that the next round starts soon after it is due."""

log = logging.getLogger(__name__)


class Exporter(Protocol):
    """Creates artifacts: a running fold, between two batches."""

    async def export_to(self, dest: Path, *, form: str | None = None) -> Manifest: ...


class ExportRound(Struct, frozen=True):
    """The result of a round."""

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
    """Export and publish if this member wins the lease for `ttl` seconds; None if it does not.

    `scratch` is a directory on the file system of the fold, so that files can be hard-linked.
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
        # Also after a cancel: release the lease so that another member can start.
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
    """Take part in a round about every `ttl` seconds, until cancelled.

    A failed round is logged and retried.
    """
    while True:
        try:
            done = await export_round(lease, ttl, exports, transport, key, scratch, form=form)
        except KvError as error:
            log.warning("export round failed key=%s: %s", key, error)
        else:
            if done is not None:
                log.info("artifact key=%s rank=%d %r", key, done.manifest.cursor.rank, done.outcome)
        # Jitter, because the members may have been started together.
        await asyncio.sleep(ttl / ASKED_PER_ROUND * random.uniform(0.5, 1.5))


async def _tidied(transport: ArtifactTransport, key: str, grace: float) -> int:
    try:
        return await transport.prune(key, grace=grace)
    except FoldStoreError as error:  # the next round prunes again
        log.warning("old payloads remain key=%s: %s", key, error)
        return 0
