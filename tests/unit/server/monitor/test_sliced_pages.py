"""A page written in pieces is the page written at once; few long pages are made at a time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.monitor import sliced_pages
from penstock.server.monitor.page_values import compact, pretty
from penstock.server.monitor.sliced_pages import JsonRows, PageRoom, paced, pieces_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pytest

scalars = st.integers(-9, 9) | st.text(max_size=4) | st.none() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def streamed(value: Any) -> Any:
    """The same value with `JsonRows` for its lists, and pauses between their rows."""
    if isinstance(value, dict):
        return {name: streamed(one) for name, one in value.items()}
    if not isinstance(value, list) or None in value:
        return value
    return JsonRows(row for one in value for row in (streamed_row(one), None))


def streamed_row(value: Any) -> Any:
    return streamed(value) if isinstance(value, dict) else value


def steps_of(value: object) -> Generator[None, None, object]:
    yield
    yield
    return value


@given(page=st.dictionaries(st.text(max_size=3), values), several=st.integers(1, 3))
def test_pieces_are_page_written_at_once(page: dict[str, Any], several: int) -> None:
    before = sliced_pages.ROWS_PER_PIECE
    sliced_pages.ROWS_PER_PIECE = several  # type: ignore[misc]
    try:
        assert b"".join(pieces_of(steps_of(streamed(page)))) == pretty(page)
        assert b"".join(pieces_of(steps_of(streamed(page)), indent=0)) == compact(page)
        around = b"".join(pieces_of(steps_of(streamed(page)), indent=0, around={"server": 1}))
        assert json.loads(around) == {"server": 1, "data": page}
    finally:
        sliced_pages.ROWS_PER_PIECE = before  # type: ignore[misc]


async def test_others_run_between_slices_of_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_pages, "SLICE_NS", 1)
    order: list[str] = []

    def rows() -> Iterator[bytes]:
        for _ in range(3):
            order.append("row")
            yield b"x" * sliced_pages.PIECE_BYTES

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    pieces = [piece async for piece in paced(rows())]
    await running
    assert b"".join(pieces) == b"x" * 3 * sliced_pages.PIECE_BYTES
    assert order[:4] == ["other", "row", "other", "row"]


async def test_few_long_pages_are_made_at_once() -> None:
    room = PageRoom()
    inside = most = 0

    async def page() -> None:
        nonlocal inside, most
        async with room:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    pages = [asyncio.create_task(page()) for _ in range(sliced_pages.PAGES_WAITING_MAX + 10)]
    await asyncio.sleep(0)
    assert room.is_full
    await asyncio.gather(*pages)
    assert most == sliced_pages.PAGES_AT_ONCE
    assert not room.is_full
