"""A process that exports, publishes, fetches and imports until it is killed: run as a program, it
makes such processes.

As in `fold_victim`: every line on standard input (a `Task` in JSON) makes one victim, and which
update has which revision is decided by the revision alone. Standard output says `pid N`, then a
line before every call that makes something durable or visible, so that one can be killed at each of
them, `published CURSOR` once the pointer names it, and `gone` when the victim is dead.

A `mutant` swaps the pointer before it uploads what the pointer names.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from faults.fold_victim import BATCH_MAX, update_of
from penstock.fold import (
    AppendLogSnapshot,
    ArtifactTransport,
    Published,
    PublishedArtifact,
    SqliteSnapshot,
    bootstrap,
    transport_for,
)
from penstock.kv.kv_types import WatchCursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.fold import PublishOutcome, SnapshotStore

KEY = "edge/fold"
#: Longer than any upload or fetch takes: what another is about to publish or fetch is left alone.
SHARED_GRACE_SECONDS = 3600.0
STORES: tuple[type[SnapshotStore], ...] = (AppendLogSnapshot, SqliteSnapshot)
#: Calls after which something is durable, or visible under its name.
STEPS = ("fsync", "rename", "link", "unlink")


class PointerFirst(ArtifactTransport):
    """Publishes what it has not uploaded yet."""

    async def upload(self, key: str, artifact: Path | str, **options: Any) -> PublishOutcome:
        pointer = (Path(artifact) / "MANIFEST.json").read_bytes()
        at = int.from_bytes(bytes.fromhex(json.loads(pointer)["cursor_hex"]), "big")
        await self._publish(key, pointer, WatchCursor.of(at))
        say("swapped")
        return await super().upload(key, artifact, **options)


@dataclass(frozen=True)
class Task:
    """One life: where it works, where it publishes, and whether it is a mutant."""

    path: str
    url: str
    life: int
    options: dict[str, Any] = field(default_factory=dict)
    mutant: bool = False
    shared: bool = False
    """Whether another publishes in the same place at the same time."""

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def transport(self) -> ArtifactTransport:
        made = transport_for(self.url, **self.options)
        return PointerFirst(made._objects) if self.mutant else made

    def source(self) -> PublishedArtifact:
        return PublishedArtifact(self.transport(), KEY)


def say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


def say_progress(done: int, total: int) -> None:
    say(f"{done} of {total}")


def said_before(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def said(*args: Any, **options: Any) -> Any:
        say(name)
        return call(*args, **options)

    return said


def discard(path: Path) -> None:
    """Hide it in one step, then delete it: what is visible is whole."""
    hidden = path.with_name(f".{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()


async def ship_until_killed(task: Task) -> None:
    chance = Random(task.life)
    directory = Path(task.path)
    store = AppendLogSnapshot.open(directory / "fold")
    at = store.cursor.rank
    while True:
        size = chance.randrange(1, BATCH_MAX)
        batch = [update_of(revision) for revision in range(at + 1, at + 1 + size)]
        at += size
        store.apply(batch, WatchCursor.of(at))
        artifact, copy = directory / f"artifact-{at}", directory / f"copy-{at}"
        store.export_to(artifact)
        if await task.transport().upload(KEY, artifact, progress=say_progress) == Published():
            say(f"published {at}")
        discard(artifact)
        await task.transport().prune(KEY, grace=SHARED_GRACE_SECONDS if task.shared else 0)
        (await bootstrap(task.source(), copy, chance.choice(STORES))).close()
        discard(copy)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            say(f"pid {os.getpid()}")
            for name in STEPS:
                setattr(os, name, said_before(name, getattr(os, name)))
            asyncio.run(ship_until_killed(Task(**json.loads(line))))
            os._exit(1)
        os.waitpid(pid, 0)
        say("gone")


if __name__ == "__main__":
    main()
