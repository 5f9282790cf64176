"""/connz: the connections, open or closed; sorted, filtered, a page at a time.

Everybody is looked at to filter and sort, which is cheap; only the rows of the page that is asked
for are made. `page_of` chooses, `rows_of` makes rows one by one, so that whoever serves a large
page can let others run in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from penstock.server.accounts import GLOBAL_ACCOUNT
from penstock.server.auth.values import Claimed
from penstock.server.clients import ClientRecord, record_of
from penstock.server.monitor.query import BadQuery
from penstock.server.monitor.sorting import CLOSED_ONLY, SORTS
from penstock.server.monitor.subs import SubDetail, detail_of
from penstock.server.monitor.values import clean, round_trip, timestamp, uptime
from penstock.server.session import Session
from penstock.subjects.match import collides
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.clients import Now, SubscriptionFacts
    from penstock.server.monitor.query import Query
    from penstock.server.service import Service

LIMIT_DEFAULT: Final = 1024
OPEN, CLOSED, ALL = 0, 1, 2
STATES: Final = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}
TYPES: Final = {"WEBSOCKET": "websocket"}

Client = Session | ClientRecord


class ConnzOptions(Struct, frozen=True, kw_only=True):
    """What is asked, over HTTP or in a system request."""

    sort: str = "cid"
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    @classmethod
    def from_query(cls, query: Query) -> ConnzOptions:
        state = query.text("state")
        if state.lower() not in STATES:
            raise BadQuery(f"Error decoding state for {state}")
        detail = query.text("subs") == "detail"
        return cls(
            sort=query.text("sort"),
            auth=query.flag("auth"),
            subscriptions=not detail and query.flag("subs"),
            subscriptions_detail=detail,
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            cid=query.unsigned("cid"),
            mqtt_client=query.text("mqtt_client"),
            state=STATES[state.lower()],
            user=query.text("user"),
            acc=query.text("acc"),
            filter_subject=query.text("filter_subject"),
        )


class PeerCert(Struct, frozen=True):
    subject: str
    spki_sha256: str
    cert_sha256: str


class ConnInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cid: int
    kind: str
    type: str
    ip: str
    port: int
    start: str
    last_activity: str
    stop: str = ""
    reason: str = ""
    rtt: str
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int = 0
    subscriptions: int
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher_suite: str = ""
    tls_peer_certs: tuple[PeerCert, ...] = ()
    authorized_user: str = ""
    account: str = ""
    subscriptions_list: tuple[str, ...] = ()
    subscriptions_list_detail: tuple[SubDetail, ...] = ()
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()


class Connz(Struct, frozen=True, kw_only=True):
    """All but the rows, which come last."""

    server_id: str
    now: str
    num_connections: int
    total: int
    offset: int
    limit: int


class Page(Struct, frozen=True, kw_only=True):
    """The clients of the page, and what is said about the whole."""

    clients: list[Client]
    total: int
    offset: int
    limit: int
    known_account: bool = True


def page_of(service: Service, options: ConnzOptions, now: Now) -> Page:
    """Chooses who is on the page. Raises BadQuery."""
    sort = options.sort or "cid"
    if sort not in SORTS:
        raise BadQuery(f"invalid sorting option: {sort}")
    if sort in CLOSED_ONLY and options.state != CLOSED:
        raise BadQuery(f"sort by {sort} only valid on closed connections")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else LIMIT_DEFAULT
    if options.cid:
        offset, limit = 0, 1
    if options.acc and options.acc not in service.accounts.by_name:
        return Page(clients=[], total=0, offset=offset, limit=limit, known_account=False)
    everybody = _candidates(service, options)
    wanted = everybody
    if options.cid or options.mqtt_client or options.user or options.filter_subject:
        wanted = [client for client in everybody if _wanted(client, options)]
    chosen = SORTS[sort].apply(wanted, now)
    page = chosen[offset : offset + limit]
    return Page(clients=page, total=len(everybody), offset=offset, limit=limit)


def connz(service: Service, options: ConnzOptions, now: Now) -> dict[str, Any]:
    """The page as a whole."""
    page = page_of(service, options, now)
    rows = list(rows_of(page, options, now)) if page.known_account else None
    return {**asdict(frame_of(service, page, now)), "connections": rows}


def frame_of(service: Service, page: Page, now: Now) -> Connz:
    return Connz(
        server_id=service.server_id if page.known_account else "",
        now=timestamp(now.wall_ns),
        num_connections=len(page.clients),
        total=page.total,
        offset=page.offset,
        limit=page.limit,
    )


def rows_of(page: Page, options: ConnzOptions, now: Now) -> Iterator[ConnInfo]:
    for client in page.clients:
        yield _row(client, options, now)


# -- choosing


def _candidates(service: Service, options: ConnzOptions) -> list[Client]:
    """Those that `total` counts: by state and account, whatever else is asked."""
    everybody: list[Client] = []
    if options.state != CLOSED:
        everybody += service.sessions.values()
    if options.state != OPEN:
        everybody += service.closed
    if not options.acc:
        return everybody
    return [client for client in everybody if _account_of(client) == options.acc]


def _wanted(client: Client, options: ConnzOptions) -> bool:
    if options.cid and client.cid != options.cid:
        return False
    if options.mqtt_client:  # nobody speaks MQTT here
        return False
    if options.user and client.user != options.user:
        return False
    if not options.acc:  # subjects are those of an account: a filter alone chooses nobody
        return True
    return not options.filter_subject or _listens(client, options.filter_subject)


def _listens(client: Client, subject: str) -> bool:
    if not is_valid_subject(subject):
        return False
    return any(collides(facts[1], subject) for facts in _subscriptions_of(client))


def _account_of(client: Client) -> str:
    return client.account if isinstance(client, ClientRecord) else client.account.name


def _subscriptions_of(client: Client) -> tuple[SubscriptionFacts, ...]:
    if isinstance(client, ClientRecord):
        return client.subscriptions
    return tuple(client.link.subscription_details())


# -- rows


def _row(client: Client, options: ConnzOptions, now: Now) -> ConnInfo:
    record = client if isinstance(client, ClientRecord) else record_of(client, now)
    until_ns = record.stop_ns or now.wall_ns
    subscriptions = _subscriptions_of(client) if _lists_subscriptions(options) else ()
    shown_account = "" if record.account == GLOBAL_ACCOUNT else record.account
    closed = record.stop_ns != 0
    auth = options.auth
    claimed = (record.claimed if auth else None) or Claimed()
    shown_tag = "" if closed and record.account == GLOBAL_ACCOUNT else record.name_tag
    return ConnInfo(
        cid=record.cid,
        kind="Client",
        type=TYPES.get(record.kind, "nats"),
        ip=record.ip,
        port=record.port,
        start=timestamp(record.start_ns),
        last_activity=timestamp(record.last_activity_ns),
        stop=timestamp(record.stop_ns) if closed else "",
        reason=record.reason,
        rtt=round_trip(record.rtt_ns),
        uptime=uptime(until_ns - record.start_ns),
        idle=uptime(until_ns - record.last_activity_ns),
        pending_bytes=record.pending_bytes,
        in_msgs=record.in_msgs,
        out_msgs=record.out_msgs,
        in_bytes=record.in_bytes,
        out_bytes=record.out_bytes,
        stalls=record.stalls,
        subscriptions=record.num_subscriptions,
        name=clean(record.name),
        lang=clean(record.lang),
        version=clean(record.version),
        tls_version=record.tls_version,
        tls_cipher_suite=record.tls_cipher_suite,
        tls_peer_certs=_peer_certs(client) if auth else (),
        authorized_user=clean(record.user) if auth else "",
        account=shown_account if auth else "",
        subscriptions_list=_subjects(subscriptions) if options.subscriptions else (),
        subscriptions_list_detail=_details(record, subscriptions)
        if options.subscriptions_detail
        else (),
        jwt=claimed.token,
        issuer_key=claimed.issuer,
        name_tag=shown_tag if auth else "",
        tags=claimed.tags,
    )


def _lists_subscriptions(options: ConnzOptions) -> bool:
    return options.subscriptions or options.subscriptions_detail


def _subjects(subscriptions: tuple[SubscriptionFacts, ...]) -> tuple[str, ...]:
    return tuple(clean(subject) for _, subject, _, _, _ in subscriptions)


def _details(
    record: ClientRecord, subscriptions: tuple[SubscriptionFacts, ...]
) -> tuple[SubDetail, ...]:
    account = record.account if record.stop_ns else ""
    return tuple(detail_of(facts, record.cid, account) for facts in subscriptions)


def _peer_certs(client: Client) -> tuple[PeerCert, ...]:
    """The client's certificate; not kept once it has gone, as with the reference."""
    if isinstance(client, ClientRecord):
        return ()
    from penstock.server.codecs.facts import tls_of

    tls = tls_of(client.link.codec)
    if tls is None or tls.peer_der is None:
        return ()
    from penstock.server.codecs.certificates import summarise_certificate

    summary = summarise_certificate(tls.peer_der)
    return (PeerCert(summary.subject, summary.spki_sha256, summary.cert_sha256),)
