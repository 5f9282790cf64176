"""Output of commands: tables for people, JSON for programs, progress bars.

A command passes its result once, as a document and as blocks (`Facts`, `TableListing`, text). The
screen prints one or the other, so `--json` works everywhere. Documents go to standard output, bars
and remarks to standard error. Text from a server is made safe before it reaches a terminal. This
module makes no decisions.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PLAIN_COLUMNS: Final = 160
"""Width of tables if the width of a line is unknown."""
SLOW: Final = 10
"""A rate below this has one decimal."""
NOTHING: Final = "–"

_MILLISECOND_NS: Final = 1_000_000
_KIB: Final = 1024
_STEPS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values of one object, one per line; empty values are omitted."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TableListing:
    """A table with one row per object; columns whose heading starts with `>` hold numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str = "nothing"


Block = Facts | TableListing | str


class Screen:
    """The output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def answer(self, document: object, *blocks: Block) -> None:
        """Print the whole result of a command, in the requested format."""
        if self.as_json:
            print(json.dumps(document, indent=2, ensure_ascii=False))
            return
        for number, block in enumerate(blocks):
            if number and not isinstance(block, str):
                print()
            self._show(block)

    def item(self, document: object, text: str) -> None:
        """Print one of many results as it arrives: a line of JSON, or text."""
        line = json.dumps(document, ensure_ascii=False) if self.as_json else text
        print(line, flush=True)

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def remark(self, text: str) -> None:
        """Print a remark on standard error; standard output is for results."""
        print(printable(text), file=sys.stderr, flush=True)

    def _show(self, block: Block) -> None:
        if isinstance(block, str):
            print(printable(block))
        elif isinstance(block, TableListing) and not block.rows:
            print(printable(f"{block.title}: {block.empty}"))
        else:
            self._draw(block)

    @staticmethod
    def _draw(block: Facts | TableListing) -> None:
        from rich.console import Console
        from rich.text import Text

        width = None if sys.stdout.isatty() else PLAIN_COLUMNS
        console = Console(highlight=False, width=width)
        # Above the table, not in it, where it would be wrapped to the table's width.
        console.print(Text(printable(block.title), style="bold"), soft_wrap=True)
        console.print(_table(block))

    @contextmanager
    def progress(
        self, title: str, total: int | None, *, as_bytes: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """Show a bar while the body runs, on a terminal only; call it with each increment."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        amount = DownloadColumn(binary_units=True) if as_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(printable(title), total=total)
            yield lambda done: bar.advance(task, done)

    @contextmanager
    def steps(self, title: str, unit: str = "") -> Iterator[Callable[[int, int], None] | None]:
        """Show a bar with rate and remaining time; yield None without a terminal.

        The caller calls it with the completed and total amounts whenever they change. `unit` names
        what is counted.
        """
        if self.as_json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(printable(title), total=None, rate="")

            def show(done: int, total: int) -> None:
                elapsed = bar.tasks[task].elapsed or 0.0
                rate = show_rate(done / elapsed, unit) if elapsed > 0 else ""
                bar.update(task, completed=done, total=total, rate=rate)

            yield show


def _table(block: Facts | TableListing) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Facts):
        table = Table(box=box.SIMPLE, show_header=False, show_edge=False)
        table.add_column(justify="right", style="bold")
        table.add_column(overflow="fold")
        rows: Sequence[Sequence[str]] = [row for row in block.rows if row[1] != ""]
    else:
        table = Table()
        for heading in block.headings:
            right = heading.startswith(">")
            table.add_column(
                heading.removeprefix(">"), justify="right" if right else "left", overflow="fold"
            )
        rows = block.rows
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


# -- formatting of values


def printable(text: str) -> str:
    """Escape characters that could control a terminal; keep line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def show_bytes(count: int) -> str:
    """Format a size in a suitable unit."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= _KIB and len(units) > 1:
        size /= _KIB
        units.pop(0)
    return f"{size:,.0f} {units[0]}" if units[0] == "B" else f"{size:,.1f} {units[0]}"


def show_count(count: int) -> str:
    """Format a number with grouped digits."""
    return f"{count:,}"


def show_rate(rate: float, unit: str = "") -> str:
    """Format an amount per second; a slow rate has one decimal."""
    amount = f"{rate:.1f}" if rate < SLOW else show_count(int(rate))
    return f"{amount} {unit}/s" if unit else f"{amount}/s"


def show_limit(count: int, show: Callable[[int], str] = show_count) -> str:
    """Format a limit; 0 or less means none."""
    return "unlimited" if count <= 0 else show(count)


def show_duration(ns: int) -> str:
    """Format a duration for reading: `2d 3h`, `1.5s`, `250ms`."""
    if ns < 0:
        return NOTHING
    if ns < _MILLISECOND_NS:
        return f"{round(ns / 1000, 1):g}µs" if ns else "0s"
    if ns < SECOND_NS:
        return f"{round(ns / _MILLISECOND_NS, 2):g}ms"
    if ns < 60 * SECOND_NS:
        return f"{round(ns / SECOND_NS, 2):g}s"
    left, parts = ns // SECOND_NS, []
    for unit, seconds in _STEPS:
        amount, left = divmod(left, seconds)
        parts += [f"{amount}{unit}"] if amount else []
    return " ".join(parts[:2])


def show_age(ns: int) -> str:
    """Format an age limit; 0 means none."""
    return show_duration(ns) if ns else "unlimited"


def show_time(text: str | None) -> str:
    """Format RFC 3339 text for reading; the zero time means never."""
    if not text or text.startswith("0001-"):
        return "never"
    head, _, tail = text.partition("T")
    return f"{head} {tail[:8]} UTC" if text.endswith("Z") else text


def show_yes(value: object) -> str:
    """Return "yes" or ""."""
    return "yes" if value else ""
