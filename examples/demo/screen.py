"""The screen of the demo: a line for each step, and a table of the copies at the end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.demo.gauges import Gauges
    from examples.demo.story import Story
    from rich.console import Console

DIGEST_SHOWN = 12
REFRESHES_PER_SECOND = 8


@dataclass
class Step:
    """A part of the story, in seconds since its beginning."""

    name: str
    began: float
    ended: float = 0.0
    detail: str = ""


class Steps:
    """The steps so far. A running one is shown with its time and the counts of the copies."""

    def __init__(self, console: Console, gauges: Gauges) -> None:
        self._console = console
        self._gauges = gauges
        self.done: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Show a step while it runs; the caller may set its `detail`."""
        step = Step(name, self._gauges.now())
        counts = _Counts(self._gauges)
        columns = SpinnerColumn(), TextColumn(name), TimeElapsedColumn(), counts
        with Progress(
            *columns,
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
            disable=not self._console.is_terminal,
        ) as progress:
            progress.add_task(name, total=None)
            yield step
        step.ended = self._gauges.now()
        self.done.append(step)
        took = step.ended - step.began
        self._console.print(
            f"[cyan]{step.ended:6.1f} s[/]  {name}"
            + (f": {step.detail}" if step.detail else "")
            + f" [dim]({took:.1f} s)[/]"
        )


class _Counts(TextColumn):
    """The counts of the copies at the end of the line."""

    def __init__(self, gauges: Gauges) -> None:
        super().__init__("[dim]{task.fields[counts]}")
        self._gauges = gauges

    def render(self, task):  # type: ignore[no-untyped-def]
        task.fields["counts"] = self._gauges.latest()
        return super().render(task)


def show(console: Console, story: Story) -> None:
    """Print what was published beside what every copy holds."""
    table = Table(title="Copies of the bucket")
    for column in ("copy", "parcels", "revision", "digest"):
        table.add_column(column, justify="left" if column in ("copy", "digest") else "right")
    table.add_row("what was published", f"{len(story.expected):,}", f"{len(story.feed):,}", "")
    for copy in story.copies:
        digest = copy.digest[:DIGEST_SHOWN]
        table.add_row(copy.name, f"{len(copy.values):,}", f"{copy.cursor:,}", digest)
    console.print(table)
