"""The pages of monitoring: maps paths to pages and counts the requests.

/connz, /subsz, /jsz, /accstatz and /metrics can be long: they are built and sent in slices between
the turns of clients (`sliced_pages`), each row from the state at its moment. The other pages show
the state of one moment; sums over clients are computed in C (`IoLoop.traffic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from penstock.server.monitor import absent_pages, connz, subsz
from penstock.server.monitor.accountz import AccountzOptions, accountz, accstatz_steps
from penstock.server.monitor.healthz import HealthOptions, healthz
from penstock.server.monitor.index_page import index
from penstock.server.monitor.page_answers import (
    NOT_FOUND,
    PageAnswer,
    json_answer,
    one_line_json,
    redirect,
    sliced_answer,
    text_answer,
)
from penstock.server.monitor.process_usage import ProcessorShare
from penstock.server.monitor.query_string import BadQuery, Query
from penstock.server.monitor.varz import varz
from penstock.server.net.client_record import Now

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.server_state import ServerState

    Page = Callable[[Query], PageAnswer]

#: Paths that share another path's counter.
SAME_COUNTER: Final = {"/subscriptionsz": "/subsz"}
#: Paths that the reference does not count.
UNCOUNTED: Final = frozenset(("/raftz", "/ipqueuesz", "/stacksz"))


def cleaned_path(path: str) -> str:
    """Remove empty and dot segments, which joining addresses produces."""
    kept: list[str] = []
    for step in path.split("/"):
        if step == "..":
            kept = kept[:-1]
        elif step not in ("", "."):
            kept.append(step)
    ends_open = bool(kept) and path.endswith("/")
    return "/" + "/".join(kept) + ("/" if ends_open else "")


class Pages:
    """Serves requests by path."""

    def __init__(self, service: ServerState) -> None:
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
            "/raftz": lambda _: absent_pages.NO_RAFT,
            "/ipqueuesz": lambda _: json_answer({}),
            "/stacksz": self._stacksz,
            "/metrics": self._metrics,
        }

    @property
    def paths(self) -> list[str]:
        """Return every path that is served."""
        return list(self._by_path)

    def answer(self, path: str, raw_query: str) -> PageAnswer:
        """Return the response to a request; never raises because of a peer's input."""
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
            return page(Query(raw_query))
        except BadQuery as refusal:
            return text_answer(400, str(refusal))

    def _varz(self, query: Query) -> PageAnswer:
        return json_answer(
            varz(self._service, self._share, self._service.http_requests, Now.read())
        )

    def _healthz(self, query: Query) -> PageAnswer:
        status, health = healthz(self._service, HealthOptions.from_query(query))
        return one_line_json(health, status=status)

    def _connz(self, query: Query) -> PageAnswer:
        options = connz.ConnzOptions.from_query(query)
        return sliced_answer(connz.connz_steps(self._service, options, Now.read()))

    def _subsz(self, query: Query) -> PageAnswer:
        options = subsz.SubszOptions.from_query(query)
        return sliced_answer(subsz.subsz_steps(self._service, options, Now.read()))

    def _accountz(self, query: Query) -> PageAnswer:
        options = AccountzOptions(account=query.text("acc"))
        return json_answer(accountz(self._service, options, Now.read()))

    def _accstatz(self, query: Query) -> PageAnswer:
        unused = query.flag("unused")
        return sliced_answer(accstatz_steps(self._service, Now.read(), unused=unused))

    def _routez(self, query: Query) -> PageAnswer:
        absent_pages.check_subscriptions_flag(query)
        return json_answer(absent_pages.routez(self._service, Now.read()))

    def _gatewayz(self, query: Query) -> PageAnswer:
        query.flag("accs")
        return json_answer(absent_pages.gatewayz(self._service, Now.read()))

    def _leafz(self, query: Query) -> PageAnswer:
        query.flag("subs")
        return json_answer(absent_pages.leafz(self._service, Now.read()))

    def _jsz(self, query: Query) -> PageAnswer:
        from penstock.server.monitor.jsz import JszOptions, jsz_steps

        options = JszOptions.from_query(query)
        if options.leader_only and self._service.jetstream is None:
            raise BadQuery("filtered response: not leader")
        return sliced_answer(jsz_steps(self._service, options, Now.read()))

    def _stacksz(self, query: Query) -> PageAnswer:
        from penstock.server.monitor.stacksz import stacksz

        return stacksz()

    def _metrics(self, query: Query) -> PageAnswer:
        from penstock.server.monitor.server_metrics import metrics

        return metrics(self._service)
