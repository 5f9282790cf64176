"""Appends compared with other embedded stores, in the same run: alternating rounds, medians,
ratios.

Every run fills a fresh directory, and the store is opened again afterwards to count its messages: a
run that lost or invented a message is a failure, not a figure. The engines take turns within a
round, in rotating order, so that drift of the machine affects all of them equally.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.storage.engines import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.storage.engines import Batch

PAYLOAD = b"x" * 128
SUBJECTS = 100


@dataclass(frozen=True)
class Shape:
    """What is measured: the number of messages per batch, and whether each batch is synced."""

    title: str
    durable: bool
    batch: int
    messages: int


SHAPES = (
    Shape("lazy, batches of 1,000 · 128 B", durable=False, batch=1000, messages=400_000),
    Shape("sync before ack, batches of 1,000 · 128 B", durable=True, batch=1000, messages=200_000),
    Shape("sync before ack, one by one · 128 B", durable=True, batch=1, messages=2_000),
)


@dataclass(frozen=True)
class Run:
    """One run that fills one engine."""

    messages_per_second: float
    cpu_seconds_per_million: float


def compare(
    shapes: tuple[Shape, ...],
    place: Path,
    rounds: int,
    share: float,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure the shapes with all engines; `share` is the fraction of the usual number of
    messages."""
    return [_shape(shape, place, rounds, share, tell) for shape in shapes]


def _shape(
    shape: Shape, place: Path, rounds: int, share: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {name: [] for name in ENGINES}
    settings: dict[str, str] = {}
    names = list(ENGINES)
    batches = _batches(shape, share)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            tell(f"{shape.title}: {name}, round {turn + 1} of {rounds}")
            run, settings[name] = _fill(name, shape, batches, place / f"{name}-{turn}")
            runs[name].append(run)
    return {
        "shape": asdict(shape),
        "engines": {name: _summary(settings[name], runs[name], runs["penstock"]) for name in names},
    }


def _batches(shape: Shape, share: float) -> list[Batch]:
    messages = max(shape.batch, int(shape.messages * share) // shape.batch * shape.batch)
    return [
        [(seq, f"orders.{seq % SUBJECTS}", PAYLOAD) for seq in range(at, at + shape.batch)]
        for at in range(1, messages + 1, shape.batch)
    ]


def _fill(name: str, shape: Shape, batches: list[Batch], place: Path) -> tuple[Run, str]:
    messages = sum(map(len, batches))
    engine = ENGINES[name](place, durable=shape.durable)
    begun, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        engine.append(batch)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    engine.close()
    again = ENGINES[name](place, durable=shape.durable)
    found = again.count()
    again.close()
    shutil.rmtree(place)
    if found != messages:
        raise SystemExit(f"{name} has {found} messages of {messages}")
    return Run(messages / seconds, cpu * 1e6 / messages), engine.settings


def _summary(settings: str, runs: list[Run], ours: list[Run]) -> dict[str, Any]:
    rates = [run.messages_per_second for run in runs]
    costs = [run.cpu_seconds_per_million for run in runs]
    return {
        "settings": settings,
        "rate": {"median": median(rates), "low": min(rates), "high": max(rates)},
        "cpu_per_million": {"median": median(costs), "low": min(costs), "high": max(costs)},
        "ours_times_faster": median(run.messages_per_second for run in ours) / median(rates),
        "ours_times_cheaper": median(costs) / median(run.cpu_seconds_per_million for run in ours),
    }
