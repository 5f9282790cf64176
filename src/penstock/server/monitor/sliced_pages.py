"""Long pages in slices: JSON written piece by piece, between the turns of clients.

Steps build a page: a generator that pauses with `yield` and returns a value in which `JsonRows`
stands for long lists. `pieces_of` writes that value as JSON, piece by piece. The caller that
consumes the pieces (HTTP, a system request) lets clients run after each SLICE_NS. A page therefore
shows each row as it was when the row was written, not all rows at one moment. HTTP sends the pieces
as they are written, so a long page is never in memory as a whole; the reply to a system request is.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.server.monitor.page_values import INDENT, compact, pretty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterable, Iterator

Made = TypeVar("Made")

SLICE_NS: Final = 2_000_000
"""Time spent on a page before clients are served again."""
ROWS_PER_PIECE: Final = 64
PIECE_BYTES: Final = 65_536
"""Bytes sent at once."""
PAGES_AT_ONCE: Final = 4
PAGES_WAITING_MAX: Final = 256


class JsonRows:
    """A list that is written while it is built; a None row is a pause."""

    __slots__ = ("rows",)

    def __init__(self, rows: Iterable[object | None]) -> None:
        self.rows = rows


def pieces_of(
    steps: Generator[None, None, object],
    *,
    indent: int = INDENT,
    around: dict[str, Any] | None = None,
) -> Iterator[bytes]:
    """Encode the result of the steps; with `around`, as the field `data` after those fields."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value = end.value if around is None else {**around, "data": end.value}
            break
        yield b""
    yield from _written(value, indent, 0)


def _written(value: object, indent: int, depth: int) -> Iterator[bytes]:
    if isinstance(value, JsonRows):
        yield from _rows(value, indent, depth)
    elif isinstance(value, dict) and _has_rows(value):
        yield from _fields(value, indent, depth)
    else:
        yield _plain(value, indent, depth)


def _has_rows(value: dict[str, object]) -> bool:
    return any(
        isinstance(one, JsonRows) or (isinstance(one, dict) and _has_rows(one))
        for one in value.values()
    )


def _plain(value: object, indent: int, depth: int) -> bytes:
    if not indent:
        return compact(value)
    return pretty(value).replace(b"\n", _break(indent, depth))


def _break(indent: int, depth: int) -> bytes:
    return b"\n" + b" " * (indent * depth) if indent else b""


def _fields(fields: dict[str, object], indent: int, depth: int) -> Iterator[bytes]:
    opening = b"{"
    for name, value in fields.items():
        yield opening + _break(indent, depth + 1) + compact(name) + (b": " if indent else b":")
        yield from _written(value, indent, depth + 1)
        opening = b","
    yield _break(indent, depth) + b"}"


def _rows(rows: JsonRows, indent: int, depth: int) -> Iterator[bytes]:
    opening = b"["
    batch: list[object] = []
    for row in rows.rows:
        if row is None:
            yield b""
            continue
        nested = isinstance(row, dict) and _has_rows(row)
        if not nested:
            batch.append(row)
        if batch and (nested or len(batch) == ROWS_PER_PIECE):
            yield opening + _batch(batch, indent, depth)
            opening = b","
            batch = []
        if nested:
            yield opening + _break(indent, depth + 1)
            yield from _written(row, indent, depth + 1)
            opening = b","
    if batch:
        yield opening + _batch(batch, indent, depth)
    elif opening == b"[":
        yield b"[]"
        return
    yield _break(indent, depth) + b"]"


def _batch(batch: list[object], indent: int, depth: int) -> bytes:
    """Encode rows without the brackets of the list."""
    inner = _plain(batch, indent, depth)
    return inner[1 : len(inner) - 1 - len(_break(indent, depth))]


def is_done_soon(pieces: Iterator[bytes], made: list[bytes]) -> bool:
    """Write one slice; return whether that was all."""
    until_ns = time.monotonic_ns() + SLICE_NS
    for piece in pieces:
        if piece:
            made.append(piece)
        if time.monotonic_ns() >= until_ns:
            return False
    return True


async def paced(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, joined to PIECE_BYTES; the event loop runs after each slice."""
    made: list[bytes] = []
    done = False
    while not done:
        await asyncio.sleep(0)
        done = is_done_soon(pieces, made)
        if made and (done or sum(map(len, made)) >= PIECE_BYTES):
            yield b"".join(made)
            made.clear()


class PageRoom:
    """Limits how many long pages are built at once; others wait, up to PAGES_WAITING_MAX."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PAGES_AT_ONCE)
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        return self._waiting >= PAGES_WAITING_MAX

    async def __aenter__(self) -> None:
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
