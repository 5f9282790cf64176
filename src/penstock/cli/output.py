"""What commands print: tables for people, JSON for programs, bars for the impatient.

A command hands over its answer once, as a document and as blocks (`Facts`, `TableListing`, text); the
screen prints one or the other, so `--json` works everywhere. Documents go to standard output,
bars and remarks to standard error. What came from a server is made harmless before a terminal
sees it. Nothing is decided here.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PLAIN_COLUMNS: Final = 160
"""How wide tables are where nobody says how wide a line is."""
SLOW: Final = 10
"""A rate below this has a digit after the point."""
NOTHING: Final = "–"

_SECOND_NS: Final = 1_000_000_000
_MILLISECOND_NS: Final = 1_000_000
_KIB: Final = 1024
_STEPS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values of one thing, one to a line; empty values are left out."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TableListing:
    """A row for each of many; headings that start with `>` stand over numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str = "nothing"


Block = Facts | TableListing | str


class Screen:
    """Where one command prints."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def answer(self, document: object, *blocks: Block) -> None:
        """The whole answer of a command, in the form that was asked for."""
        if self.as_json:
            print(json.dumps(document, indent=2, ensure_ascii=False))
            return
        for number, block in enumerate(blocks):
            if number and not isinstance(block, str):
                print()
            self._show(block)

    def item(self, document: object, text: str) -> None:
        """One of many answers, told as it comes: a line of JSON, or text."""
        line = json.dumps(document, ensure_ascii=False) if self.as_json else text
        print(line, flush=True)

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def remark(self, text: str) -> None:
        """A word on the side: standard output is for answers."""
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
        # Above the table and not in it, where it would be folded to the table's width.
        console.print(Text(printable(block.title), style="bold"), soft_wrap=True)
        console.print(_table(block))

    @contextmanager
    def progress(
        self, title: str, total: int | None, *, as_bytes: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """A bar while the body runs, on a terminal only; call it with what was done since."""
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
        """A bar with rate and remaining time; call it with what is done and of how much, as often
        as that changes. None if there is no terminal. `unit` is what is counted."""
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


# -- how values are written


def printable(text: str) -> str:
    """The text without anything that could drive a terminal; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def show_bytes(count: int) -> str:
    """A size in the unit that fits."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= _KIB and len(units) > 1:
        size /= _KIB
        units.pop(0)
    return f"{size:,.0f} {units[0]}" if units[0] == "B" else f"{size:,.1f} {units[0]}"


def show_count(count: int) -> str:
    """A number with its digits grouped."""
    return f"{count:,}"


def show_rate(rate: float, unit: str = "") -> str:
    """How much in a second; a slow one with a digit after the point."""
    amount = f"{rate:.1f}" if rate < SLOW else show_count(int(rate))
    return f"{amount} {unit}/s" if unit else f"{amount}/s"


def show_limit(count: int, show: Callable[[int], str] = show_count) -> str:
    """A limit; nothing or less is none."""
    return "unlimited" if count <= 0 else show(count)


def show_duration(ns: int) -> str:
    """A duration as one reads it aloud: `2d 3h`, `1.5s`, `250ms`."""
    if ns < 0:
        return NOTHING
    if ns < _MILLISECOND_NS:
        return f"{round(ns / 1000, 1):g}µs" if ns else "0s"
    if ns < _SECOND_NS:
        return f"{round(ns / _MILLISECOND_NS, 2):g}ms"
    if ns < 60 * _SECOND_NS:
        return f"{round(ns / _SECOND_NS, 2):g}s"
    left, parts = ns // _SECOND_NS, []
    for unit, seconds in _STEPS:
        amount, left = divmod(left, seconds)
        parts += [f"{amount}{unit}"] if amount else []
    return " ".join(parts[:2])


def show_age(ns: int) -> str:
    """A limit of age; 0 is none."""
    return show_duration(ns) if ns else "unlimited"


def show_time(text: str | None) -> str:
    """RFC 3339 text as people read it; the zero time is none."""
    if not text or text.startswith("0001-"):
        return "never"
    head, _, tail = text.partition("T")
    return f"{head} {tail[:8]} UTC" if text.endswith("Z") else text


def show_yes(value: object) -> str:
    """Yes, or nothing."""
    return "yes" if value else ""
