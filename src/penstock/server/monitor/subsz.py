"""/subsz: the routing tables, summed over accounts, and the subscriptions in them.

Subscriptions are listed client by client. Those before the page are counted, not made, and
`batches_of` hands the rest out per client, so that a long list can be served in turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from penstock.server.monitor.query import BadQuery
from penstock.server.monitor.subs import SubDetail, detail_of
from penstock.server.monitor.values import number, timestamp
from penstock.subjects.match import match_literal
from penstock.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.server.clients import Now, SubscriptionFacts
    from penstock.server.monitor.query import Query
    from penstock.server.service import Service
    from penstock.server.session import Session
    from penstock.subjects.trie import SubListStats

LIMIT_DEFAULT: Final = 1024
SERVER_CID: Final = 1  # clients' ids start above


class SubszOptions(Struct, frozen=True, kw_only=True):
    """What is asked, over HTTP or in a system request."""

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
    """All but the subscriptions, which come last, if there are any."""

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


class Batch(Struct, frozen=True):
    """The subscriptions of one client: how many count, and those that are on the page."""

    counted: int
    shown: list[SubDetail]


def check(options: SubszOptions) -> None:
    """Raises BadQuery for what cannot be asked."""
    if options.test and not is_valid_literal(options.test):
        raise BadQuery(f"invalid test subject, must be valid publish subject: {options.test}")


def subsz(service: Service, options: SubszOptions, now: Now) -> dict[str, Any]:
    """The page as a whole."""
    check(options)
    total = 0
    shown: list[SubDetail] = []
    for batch in batches_of(service, options):
        total += batch.counted
        shown += batch.shown
    fields = asdict(frame_of(service, options, total, now))
    return {**fields, "subscriptions_list": shown} if shown else fields


def frame_of(service: Service, options: SubszOptions, total: int, now: Now) -> Subsz:
    accounts = [account for account in service.accounts if options.account in ("", account.name)]
    stats = sum_stats(account.interest.stats() for account in accounts)
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
    """Counters add up; rates are weighed by what they are rates of."""
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


def batches_of(service: Service, options: SubszOptions) -> Iterator[Batch]:
    """The server's own, then client by client in the order they came."""
    if not options.subscriptions:
        return
    start = max(options.offset, 0)
    stop = start + _limit(options)
    passed = 0
    for account in service.accounts:
        if options.account in ("", account.name):
            own = _own_subscriptions(service, account.name)
            batch = _cut(own, SERVER_CID, account.name, options.test, start - passed, stop - passed)
            passed += batch.counted
            yield batch
    for session in list(service.sessions.values()):
        if options.account in ("", session.account.name):
            batch = _batch(session, options.test, start - passed, stop - passed)
            passed += batch.counted
            yield batch


def _batch(session: Session, test: str, start: int, stop: int) -> Batch:
    """`start` and `stop` say where the page lies, counted from this client's first."""
    count = session.link.subscriptions
    if not test and (count <= start or stop <= 0):
        return Batch(count, [])
    found = session.link.subscription_details()
    return _cut(found, session.cid, session.account.name, test, start, stop)


def _cut(
    found: list[SubscriptionFacts], cid: int, account: str, test: str, start: int, stop: int
) -> Batch:
    if test:
        found = [facts for facts in found if match_literal(test, facts[1])]
    shown = found[max(start, 0) : max(stop, 0)]
    return Batch(len(found), [detail_of(facts, cid, account) for facts in shown])


def _own_subscriptions(service: Service, account: str) -> list[SubscriptionFacts]:
    if service.system is None:
        return []
    subjects = service.system.subjects_of(account)
    return [(str(sid), subject, None, 0, 0) for sid, subject in enumerate(subjects, start=1)]


def _limit(options: SubszOptions) -> int:
    return options.limit if options.limit > 0 else LIMIT_DEFAULT
