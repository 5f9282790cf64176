"""The pages of monitoring: which path is answered by what, and how often it was asked.

Answers are made from one moment's state. Only /connz, /subsz and /jsz can be long; they give way
to everybody else between their rows.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from msgspec.structs import asdict

from penstock.server.clients import Now
from penstock.server.monitor import absent, connz, subsz
from penstock.server.monitor.accountz import AccountzOptions, accountz, accstatz
from penstock.server.monitor.answers import (
    NOT_FOUND,
    Answer,
    json_answer,
    one_line_json,
    pretty_answer,
    redirect,
    text_answer,
)
from penstock.server.monitor.healthz import HealthOptions, healthz
from penstock.server.monitor.index import index
from penstock.server.monitor.process import ProcessorShare
from penstock.server.monitor.query import BadQuery, Query
from penstock.server.monitor.values import pretty_around, pretty_rows
from penstock.server.monitor.varz import varz

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from msgspec import Struct

    from penstock.server.service import Service

    Page = Callable[[Query], Answer | Awaitable[Answer]]

Made = TypeVar("Made")

ROWS_PER_TURN: Final = 128
#: Paths that share a counter with another.
SAME_COUNTER: Final = {"/subscriptionsz": "/subsz"}
#: Paths that the reference does not count.
UNCOUNTED: Final = frozenset(("/raftz", "/ipqueuesz", "/stacksz"))


def cleaned_path(path: str) -> str:
    """Without doubled slashes and dots, as one gets them by joining addresses."""
    kept: list[str] = []
    for step in path.split("/"):
        if step == "..":
            kept = kept[:-1]
        elif step not in ("", "."):
            kept.append(step)
    ends_open = bool(kept) and path.endswith("/")
    return "/" + "/".join(kept) + ("/" if ends_open else "")


class Pages:
    """Answers to requests, by path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._share = ProcessorShare()
        base = service.options.http_base_path.rstrip("/")
        self._by_path = {
            base + path if path != "/" else base or "/": (path, page)
            for path, page in self._table().items()
        }

    def _table(self) -> dict[str, Page]:
        return {
            "/": lambda _: index(self._service),
            "/varz": self._varz,
            "/connz": self._connz,
            "/subsz": self._subsz,
            "/subscriptionsz": self._subsz,
            "/healthz": self._healthz,
            "/accountz": self._accountz,
            "/accstatz": self._accstatz,
            "/routez": self._routez,
            "/gatewayz": self._gatewayz,
            "/leafz": self._leafz,
            "/jsz": self._jsz,
            "/raftz": lambda _: absent.NO_RAFT,
            "/ipqueuesz": lambda _: json_answer({}),
            "/stacksz": self._stacksz,
            "/metrics": self._metrics,
        }

    @property
    def paths(self) -> list[str]:
        """Every path that is answered."""
        return list(self._by_path)

    async def answer(self, path: str, raw_query: str) -> Answer:
        """What to say to a request; never raises for what a peer asked."""
        path = unquote(path)
        cleaned = cleaned_path(path)
        if cleaned != path:
            return redirect(cleaned, raw_query)
        found = self._by_path.get(path)
        if found is None:
            return NOT_FOUND
        name, page = found
        if name not in UNCOUNTED:
            self._service.http_requests[SAME_COUNTER.get(name, name)] += 1
        try:
            answer = page(Query(raw_query))
            return answer if isinstance(answer, Answer) else await answer
        except BadQuery as refusal:
            return text_answer(400, str(refusal))

    def _varz(self, query: Query) -> Answer:
        return json_answer(
            varz(self._service, self._share, self._service.http_requests, Now.read())
        )

    def _healthz(self, query: Query) -> Answer:
        status, health = healthz(self._service, HealthOptions.from_query(query))
        return one_line_json(health, status=status)

    async def _connz(self, query: Query) -> Answer:
        service, now = self._service, Now.read()
        options = connz.ConnzOptions.from_query(query)
        page = connz.page_of(service, options, now)
        if not page.known_account:
            return json_answer(connz.connz(service, options, now))
        pieces = await _in_turns(connz.rows_of(page, options, now))
        fields = asdict(connz.frame_of(service, page, now))
        return pretty_answer(pretty_around(fields, "connections", pieces))

    async def _subsz(self, query: Query) -> Answer:
        service, now = self._service, Now.read()
        options = subsz.SubszOptions.from_query(query)
        subsz.check(options)
        total, pieces = 0, []
        for passed, batch in enumerate(subsz.batches_of(service, options), start=1):
            total += batch.counted
            pieces += await _in_turns(batch.shown)
            if passed % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
        fields = asdict(subsz.frame_of(service, options, total, now))
        if not pieces:
            return json_answer(fields)
        return pretty_answer(pretty_around(fields, "subscriptions_list", pieces))

    def _accountz(self, query: Query) -> Answer:
        options = AccountzOptions(account=query.text("acc"))
        return json_answer(accountz(self._service, options, Now.read()))

    def _accstatz(self, query: Query) -> Answer:
        unused = query.flag("unused")
        return json_answer(accstatz(self._service, Now.read(), unused=unused))

    def _routez(self, query: Query) -> Answer:
        absent.check_subscriptions_flag(query)
        return json_answer(absent.routez(self._service, Now.read()))

    def _gatewayz(self, query: Query) -> Answer:
        query.flag("accs")
        return json_answer(absent.gatewayz(self._service, Now.read()))

    def _leafz(self, query: Query) -> Answer:
        query.flag("subs")
        return json_answer(absent.leafz(self._service, Now.read()))

    async def _jsz(self, query: Query) -> Answer:
        from penstock.server.monitor.jsz import JszOptions, jsz_steps

        options = JszOptions.from_query(query)
        if options.leader_only and self._service.jetstream is None:
            raise BadQuery("filtered response: not leader")
        steps = jsz_steps(self._service, options, Now.read())
        return json_answer(await _stepwise(steps))

    def _stacksz(self, query: Query) -> Answer:
        from penstock.server.monitor.stacksz import stacksz

        return stacksz()

    def _metrics(self, query: Query) -> Answer:
        from penstock.server.monitor.metrics import metrics

        return metrics(self._service)


async def _stepwise(steps: Generator[None, None, Made]) -> Made:
    """Runs work that comes in steps; the event loop turns in between."""
    while True:
        try:
            for _ in range(ROWS_PER_TURN):
                next(steps)
        except StopIteration as end:
            made: Made = end.value
            return made
        await asyncio.sleep(0)


async def _in_turns(rows: Iterable[Struct]) -> list[bytes]:
    """Makes and writes the rows of a long list; the event loop turns in between."""
    pieces: list[bytes] = []
    waiting = iter(rows)
    while batch := list(itertools.islice(waiting, ROWS_PER_TURN)):
        pieces.append(pretty_rows(batch))
        await asyncio.sleep(0)
    return pieces
