"""/subsz: the subscription tables, summed over accounts, and the subscriptions in them.

Subscriptions are listed client by client. Those before the page are counted, not built. The page is
built in steps (see `sliced_pages`): a few hundred thousand subscriptions are scanned and written
between the turns of clients, so subscriptions that are added or removed meanwhile may be missing or
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from penstock.server.monitor.page_values import number, timestamp
from penstock.server.monitor.query_string import BadQuery
from penstock.server.monitor.sliced_pages import JsonRows
from penstock.server.monitor.subscription_view import SubDetail, detail_of
from penstock.subjects.match import match_literal
from penstock.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from penstock.server.monitor.query_string import Query
    from penstock.server.net.client_record import Now, SubscriptionFacts
    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState
    from penstock.subjects.trie import SubListStats

    Steps = Generator[None, None, dict[str, Any]]
    Pages = Iterator[list[SubDetail]]

LIMIT_DEFAULT: Final = 1024
SUBSCRIPTIONS_PER_STEP: Final = 256
SERVER_CID: Final = 1  # ids of clients start above


class SubszOptions(Struct, frozen=True, kw_only=True):
    """Parameters of an HTTP or system request."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def from_query(cls, query: Query) -> SubszOptions:
        return cls(
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            subscriptions=query.flag("subs"),
            account=query.text("acc"),
            test=query.text("test"),
        )


class SublistStats(Struct, frozen=True, kw_only=True):
    num_subscriptions: int = 0
    num_cache: int = 0
    num_inserts: int = 0
    num_removes: int = 0
    num_matches: int = 0
    cache_hit_rate: float = 0
    max_fanout: int = 0
    avg_fanout: float = 0


class Subsz(Struct, frozen=True, kw_only=True):
    """All fields but the subscriptions, which come last if there are any."""

    server_id: str
    now: str
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float
    max_fanout: int
    avg_fanout: float
    total: int
    offset: int
    limit: int


def check(options: SubszOptions) -> None:
    """Raise BadQuery for invalid parameters."""
    if options.test and not is_valid_literal(options.test):
        raise BadQuery(f"invalid test subject, must be valid publish subject: {options.test}")


def subsz_steps(service: ServerState, options: SubszOptions, now: Now) -> Steps:
    """Build the page in steps; raise BadQuery at once."""
    check(options)
    return _steps(service, options, now)


def _steps(service: ServerState, options: SubszOptions, now: Now) -> Steps:
    parts = []
    for account in list(service.accounts):
        if options.account in ("", account.name):
            parts.append(account.interest.stats())
            yield
    start = max(options.offset, 0)
    stop = start + _limit(options)
    total, found = 0, JsonRows(())
    if options.subscriptions and options.test:
        total, shown = yield from _tested(service, options, start, stop)
        found = JsonRows(shown)
    elif options.subscriptions:
        total = sum(count for count, _ in _owners(service, options))
        found = JsonRows(_listed(service, options, start, stop))
    fields = asdict(frame_of(service, options, sum_stats(parts), total, now))
    return {**fields, "subscriptions_list": found} if start < total else fields


def frame_of(
    service: ServerState, options: SubszOptions, stats: SublistStats, total: int, now: Now
) -> Subsz:
    return Subsz(
        server_id=service.server_id,
        now=timestamp(now.wall_ns),
        num_subscriptions=stats.num_subscriptions,
        num_cache=stats.num_cache,
        num_inserts=stats.num_inserts,
        num_removes=stats.num_removes,
        num_matches=stats.num_matches,
        cache_hit_rate=stats.cache_hit_rate,
        max_fanout=stats.max_fanout,
        avg_fanout=stats.avg_fanout,
        total=total,
        offset=max(options.offset, 0),
        limit=_limit(options),
    )


def sum_stats(parts: Iterable[SubListStats]) -> SublistStats:
    """Sum the counters; weight each rate by its base count."""
    every = list(parts)
    cached = sum(part.num_cache for part in every)
    matches = sum(part.num_matches for part in every)
    hits = sum(part.cache_hit_rate * part.num_matches for part in every)
    fanout = sum(part.avg_fanout * part.num_cache for part in every)
    return SublistStats(
        num_subscriptions=sum(part.num_subscriptions for part in every),
        num_cache=cached,
        num_inserts=sum(part.num_inserts for part in every),
        num_removes=sum(part.num_removes for part in every),
        num_matches=matches,
        cache_hit_rate=number(hits / matches if matches else 0.0),
        max_fanout=max((part.max_fanout for part in every), default=0),
        avg_fanout=number(fanout / cached if cached else 0.0),
    )


def _owners(service: ServerState, options: SubszOptions) -> Iterator[tuple[int, Pages]]:
    """Yield each owner's count and pages of subscriptions: first the server, then the clients."""
    for account in list(service.accounts):
        if options.account in ("", account.name):
            own = _own_subscriptions(service, account.name)
            yield len(own), iter([[detail_of(facts, SERVER_CID, account.name) for facts in own]])
    for session in list(service.sessions.values()):
        if options.account in ("", session.account.name):
            yield session.link.subscriptions, _pages_of(session)


def _pages_of(session: ClientSession) -> Pages:
    slot, account = 0, session.account.name
    while True:
        found, slot = session.link.subscription_page(slot, SUBSCRIPTIONS_PER_STEP)
        yield [detail_of(facts, session.cid, account) for facts in found]
        if not slot:
            return


def _listed(
    service: ServerState, options: SubszOptions, start: int, stop: int
) -> Iterator[SubDetail | None]:
    """Yield the rows from `start` to `stop`."""
    passed = 0
    for count, pages in _owners(service, options):
        if passed >= stop:
            return
        if passed + count <= start:
            passed += count
            continue
        for page in pages:
            yield from page[max(0, start - passed) : max(0, stop - passed)]
            yield None
            passed += len(page)


def _tested(
    service: ServerState, options: SubszOptions, start: int, stop: int
) -> Generator[None, None, tuple[int, list[SubDetail]]]:
    """Return how many subscriptions match the test subject, and those on the page."""
    total, shown = 0, []
    for _, pages in _owners(service, options):
        for page in pages:
            for detail in page:
                if match_literal(options.test, detail.subject):
                    if start <= total < stop:
                        shown.append(detail)
                    total += 1
            yield
    return total, shown


def _own_subscriptions(service: ServerState, account: str) -> list[SubscriptionFacts]:
    if service.system is None:
        return []
    subjects = service.system.subjects_of(account)
    return [(str(sid), subject, None, 0, 0) for sid, subject in enumerate(subjects, start=1)]


def _limit(options: SubszOptions) -> int:
    return options.limit if options.limit > 0 else LIMIT_DEFAULT
