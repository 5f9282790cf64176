"""The pages of monitoring: which path is answered by what, and how often it was asked.

Answers are made from one moment's state. Only /connz may be large; it gives way to others
between its rows.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from penstock.server.clients import Now
from penstock.server.monitor.answers import (
    NOT_FOUND,
    Answer,
    json_answer,
    one_line_json,
    text_answer,
)
from penstock.server.monitor.healthz import HealthOptions, healthz
from penstock.server.monitor.index import index
from penstock.server.monitor.process import ProcessorShare
from penstock.server.monitor.query import BadQuery, Query
from penstock.server.monitor.varz import varz

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.server.service import Service

    Page = Callable[[Query], Answer | Awaitable[Answer]]

#: Paths that share a counter with another.
SAME_COUNTER: Final = {"/subscriptionsz": "/subsz"}
#: Paths that the reference does not count.
UNCOUNTED: Final = frozenset(("/raftz", "/ipqueuesz"))


class Pages:
    """Answers to requests, by path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._share = ProcessorShare()
        self.requests: collections.Counter[str] = collections.Counter()
        base = service.options.http_base_path.rstrip("/")
        self._by_path = {
            base + path if path != "/" else base or "/": (path, page)
            for path, page in self._table().items()
        }

    def _table(self) -> dict[str, Page]:
        return {
            "/": lambda _: index(self._service),
            "/varz": self._varz,
            "/healthz": self._healthz,
        }

    async def answer(self, path: str, raw_query: str) -> Answer:
        """What to say to a request; never raises for what a peer asked."""
        found = self._by_path.get(path)
        if found is None:
            return NOT_FOUND
        name, page = found
        if name not in UNCOUNTED:
            self.requests[SAME_COUNTER.get(name, name)] += 1
        try:
            answer = page(Query(raw_query))
            return answer if isinstance(answer, Answer) else await answer
        except BadQuery as refusal:
            return text_answer(400, str(refusal))

    def _varz(self, query: Query) -> Answer:
        return json_answer(varz(self._service, self._share, self.requests, Now.read()))

    def _healthz(self, query: Query) -> Answer:
        status, health = healthz(self._service, HealthOptions.from_query(query))
        return one_line_json(health, status=status)
