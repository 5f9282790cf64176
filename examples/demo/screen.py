"""How the story looks: a line for each step, a table of the copies, and a chart of both."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.demo.feed import REGIONS, STATES
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from examples.demo.story import Story
    from rich.console import Console

CHART_INCHES = (11, 5)
DIGEST_SHOWN = 12


@dataclass
class Step:
    """Something that took a while."""

    name: str
    began: float
    ended: float = 0.0
    detail: str = ""


class Steps:
    """What has happened so far; each is printed when it is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.perf_counter()
        self.done: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Something that goes on meanwhile; it may say more of itself."""
        step = Step(name, time.perf_counter() - self._began)
        yield step
        step.ended = time.perf_counter() - self._began
        self.done.append(step)
        self._console.print(
            f"[cyan]{step.ended:6.1f} s[/]  {name}" + (f": {step.detail}" if step.detail else "")
        )


def show(console: Console, story: Story) -> None:
    """What was published beside what every copy holds."""
    table = Table(title="Copies of the bucket")
    for column in ("copy", "parcels", "revision", "digest"):
        table.add_column(column, justify="left" if column in ("copy", "digest") else "right")
    table.add_row("what was published", f"{len(story.expected):,}", f"{len(story.feed):,}", "")
    for copy in story.copies:
        digest = copy.digest[:DIGEST_SHOWN]
        table.add_row(copy.name, f"{len(copy.values):,}", f"{copy.cursor:,}", digest)
    console.print(table)


def draw(path: Path, story: Story) -> None:
    """The steps on a line of time, and where the parcels are by the copy at the edge."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, (times, parcels) = pyplot.subplots(1, 2, figsize=CHART_INCHES, layout="constrained")
    steps = story.steps.done[::-1]
    times.barh(
        [f"{step.name}  {len(steps) - at}" for at, step in enumerate(steps)],
        [step.ended - step.began for step in steps],
        left=[step.began for step in steps],
    )
    times.set_xlabel("seconds")
    times.grid(axis="x", alpha=0.3)
    counted: Counter[tuple[str, str]] = Counter()
    for key, value in story.copies[1].values.items():
        counted[key.split(".")[1], json.loads(value)["state"]] += 1
    below = [0] * len(REGIONS)
    for state in STATES:
        height = [counted[region, state] for region in REGIONS]
        parcels.bar(REGIONS, height, bottom=below, label=state)
        below = [one + more for one, more in zip(below, height, strict=True)]
    parcels.set_title("parcels as the edge sees them")
    figure.legend(loc="outside right upper")
    figure.savefig(path)
    pyplot.close(figure)
