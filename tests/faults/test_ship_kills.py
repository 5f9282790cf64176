"""Processes are killed with SIGKILL while they export, publish, fetch and import.

Whatever is visible under its name is whole: artifacts, stores, and what the pointer names, which is
never older than what was said to be published. The same test must find the mutant.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from faults.fold_victim import update_of
from faults.makers import Victims, victims
from faults.ship_victim import KEY, STORES, Task
from penstock.fold import AppendLogSnapshot, ArtifactInvalid
from support.folds import contents, model
from support.s3 import S3, s3_server

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvEntry

LONG_ROUNDS = 10
VICTIM = Path(__file__).with_name("ship_victim.py")
LIVES = 12
LINES_MAX = 70
MUTANT_LIVES_MAX = 40
ARTIFACT = re.compile(r"artifact-\d+")
COPY = re.compile(r"copy-\d+")


def live_and_die(making: Victims, task: Task, lines: int) -> int:
    """One life, killed when it has said so many lines; the last cursor it published."""
    said = making.live_and_die(task.line(), lines)
    return max((int(line.split()[1]) for line in said if line.startswith("published")), default=0)


class Judge:
    """Knows what the fold was at each revision, and looks at what a victim left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._scratch = directory / "judge"
        self._model: dict[str, KvEntry] = {}
        self._at = 0

    async def wrong_with(self, task: Task, published: int) -> str:
        """What is wrong with what is visible; nothing may be."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        left = sorted(self._directory.iterdir())
        wrong = [self._wrong_with_artifact(path) for path in left if ARTIFACT.fullmatch(path.name)]
        wrong += [self._wrong_with_copy(path) for path in left if COPY.fullmatch(path.name)]
        wrong.append(await self._wrong_with_pointer(task, published))
        self._sweep(left)
        return "; ".join(filter(None, wrong))

    async def _wrong_with_pointer(self, task: Task, published: int) -> str:
        source = task.source()
        manifest = await source.latest()
        if manifest is None:
            return "the pointer is missing" if published else ""
        if manifest.cursor.rank < published:
            return f"the pointer is at {manifest.cursor.rank}, but {published} was published"
        try:
            await source.fetch(self._scratch / "fetched")
        except ArtifactInvalid as error:
            return f"what is published cannot be fetched: {error.reason}"
        return self._wrong_with_artifact(self._scratch / "fetched")

    def _wrong_with_artifact(self, artifact: Path) -> str:
        with AppendLogSnapshot.import_from(
            artifact, self._scratch / f"{artifact.name}.snap"
        ) as store:
            return self._wrong_with_store(store, artifact.name)

    def _wrong_with_copy(self, copy: Path) -> str:
        with STORES[is_sqlite(copy)].open(copy) as store:
            return self._wrong_with_store(store, copy.name)

    def _wrong_with_store(self, store: SnapshotStore, name: str) -> str:
        if contents(store) == self._state_at(store.cursor.rank):
            return ""
        return f"{name} is not what the fold was at {store.cursor.rank}"

    def _state_at(self, revision: int) -> dict[str, KvEntry]:
        """The fold at a revision; they come in about ascending order."""
        if revision < self._at:
            return model(map(update_of, range(1, revision + 1)))
        for one in range(self._at + 1, revision + 1):
            update = update_of(one)
            self._model.pop(update.key, None)
            self._model |= model([update])
        self._at = revision
        return self._model

    def _sweep(self, left: list[Path]) -> None:
        for path in left:
            if path.name in ("fold", "published"):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def is_sqlite(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"SQLite"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


def task_for(place: str, directory: Path, request: pytest.FixtureRequest) -> Task:
    if place == "directory":
        return Task(str(directory), str(directory / "published"), 0)
    server: S3 = request.getfixturevalue("s3")
    return Task(str(directory), f"s3://{server.new_bucket()}/p", 0, server.options())


@pytest.mark.parametrize("place", ["directory", "s3"])
async def test_killed_process_leaves_nothing_half_made(
    place: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    rounds: int,
    tried: Counter[str],
) -> None:
    chance = Random(place)
    first = task_for(place, tmp_path, request)
    judge = Judge(tmp_path)
    with victims(VICTIM) as making:
        for life in range(LIVES * rounds):
            task = Task(first.path, first.url, life, first.options)
            published = live_and_die(making, task, chance.randrange(1, LINES_MAX))
            assert await judge.wrong_with(task, published) == ""
            tried["shipping processes killed"] += 1


async def test_two_that_ship_to_one_place_leave_nothing_half_made(
    tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(2)
    places = [tmp_path / name for name in ("one", "other")]
    for place in places:
        place.mkdir()
    judges = [Judge(place) for place in places]
    with victims(VICTIM) as one, victims(VICTIM) as other:
        for life in range(LIVES // 2 * rounds):
            tasks = [
                Task(str(place), str(tmp_path / "published"), life + number, shared=True)
                for number, place in enumerate(places)
            ]
            lines = [chance.randrange(1, LINES_MAX) for _ in tasks]
            published = await asyncio.gather(
                asyncio.to_thread(live_and_die, one, tasks[0], lines[0]),
                asyncio.to_thread(live_and_die, other, tasks[1], lines[1]),
            )
            for judge, task in zip(judges, tasks, strict=True):
                assert await judge.wrong_with(task, max(published)) == ""
            tried["shipping processes killed"] += len(tasks)


async def test_one_that_publishes_before_it_uploads_is_found_out(tmp_path: Path) -> None:
    chance = Random(KEY)
    with victims(VICTIM) as making:
        for life in range(MUTANT_LIVES_MAX):
            directory = tmp_path / f"{life}"
            directory.mkdir()
            task = Task(str(directory), str(directory / "published"), life, mutant=True)
            published = live_and_die(making, task, chance.randrange(1, LINES_MAX))
            if "cannot be fetched" in await Judge(directory).wrong_with(task, published):
                return
    raise AssertionError("no kill found the mutant")
