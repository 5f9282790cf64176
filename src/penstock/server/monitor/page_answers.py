"""Responses of the monitoring server, before they become HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from penstock.server.monitor.page_values import compact, pretty
from penstock.server.monitor.sliced_pages import is_done_soon, pieces_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

Headers = tuple[tuple[str, str], ...]

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
HTML_TYPE: Final = "text/html; charset=utf-8"
#: Pages of any origin may read monitoring data, as in the reference.
ANY_ORIGIN: Final[Headers] = (("Access-Control-Allow-Origin", "*"),)
NO_SNIFFING: Final[Headers] = (("X-Content-Type-Options", "nosniff"),)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Status, body and headers of a response."""

    status: int
    content_type: str
    body: bytes
    headers: Headers = ()
    rest: Iterator[bytes] | None = None
    """What follows the body, if it is built while it is sent."""


def json_answer(value: object, *, status: int = 200) -> PageAnswer:
    return PageAnswer(status, JSON_TYPE, pretty(value), ANY_ORIGIN)


def sliced_answer(steps: Generator[None, None, object]) -> PageAnswer:
    """Return a page that is built in steps; a short one is complete at once."""
    pieces = pieces_of(steps)
    made: list[bytes] = []
    rest = None if is_done_soon(pieces, made) else pieces
    return PageAnswer(200, JSON_TYPE, b"".join(made), ANY_ORIGIN, rest)


def one_line_json(value: object, *, status: int = 200) -> PageAnswer:
    return PageAnswer(status, JSON_TYPE, compact(value), ANY_ORIGIN)


def text_answer(status: int, text: str, headers: Headers = ()) -> PageAnswer:
    return PageAnswer(status, TEXT_TYPE, text.encode("utf-8", "replace"), headers)


def redirect(path: str, raw_query: str) -> PageAnswer:
    """Redirect within this server; `path` is decoded and begins with exactly one slash."""
    location = quote(path) + (f"?{raw_query}" if raw_query else "")
    body = f'<a href="{escape(location)}">Temporary Redirect</a>.\n\n'
    return PageAnswer(307, HTML_TYPE, body.encode(), (("Location", location),))


NOT_FOUND: Final = text_answer(404, "404 page not found\n", NO_SNIFFING)
NOT_ALLOWED: Final = text_answer(405, "405 method not allowed\n", (("Allow", "GET, HEAD"),))
OUR_FAULT: Final = text_answer(500, "500 internal server error\n")
