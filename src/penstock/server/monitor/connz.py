"""/connz: the connections, open or closed; sorted, filtered and paged.

Filtering and sorting looks at all clients, which is cheap; only the rows of the requested page are
built. `connz_steps` returns a generator: the caller that serves a large page lets clients run
between its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from penstock.server.auth.login_values import Claimed
from penstock.server.monitor.connz_order import CLOSED_ONLY, SORTS
from penstock.server.monitor.page_values import clean, round_trip, timestamp, uptime
from penstock.server.monitor.query_string import BadQuery
from penstock.server.monitor.sliced_pages import JsonRows
from penstock.server.monitor.subscription_view import SubDetail, detail_of
from penstock.server.net.client_record import ClientRecord, record_of
from penstock.server.net.client_session import ClientSession
from penstock.server.system.server_accounts import GLOBAL_ACCOUNT
from penstock.subjects.match import collides
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from penstock.server.monitor.query_string import Query
    from penstock.server.net.client_record import Now, SubscriptionFacts
    from penstock.server.server_state import ServerState

    Steps = Generator[None, None, dict[str, Any]]

LIMIT_DEFAULT: Final = 1024
SUBSCRIPTIONS_PER_STEP: Final = 256
#: Fields that the reference writes after the subscription lists.
AFTER_SUBSCRIPTIONS: Final = ("jwt", "issuer_key", "name_tag", "tags")
OPEN, CLOSED, ALL = 0, 1, 2
STATES: Final = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}
TYPES: Final = {"WEBSOCKET": "websocket"}

Client = ClientSession | ClientRecord


class ConnzOptions(Struct, frozen=True, kw_only=True):
    """Parameters of an HTTP or system request."""

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
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()


class Connz(Struct, frozen=True, kw_only=True):
    """All fields but the rows, which come last."""

    server_id: str
    now: str
    num_connections: int
    total: int
    offset: int
    limit: int


class ConnzPage(Struct, frozen=True, kw_only=True):
    """The clients of a page, and the totals."""

    clients: list[Client]
    total: int
    offset: int
    limit: int
    known_account: bool = True


def connz_steps(service: ServerState, options: ConnzOptions, now: Now) -> Steps:
    """Build the page in steps; raise BadQuery at once."""
    sort = options.sort or "cid"
    if sort not in SORTS:
        raise BadQuery(f"invalid sorting option: {sort}")
    if sort in CLOSED_ONLY and options.state != CLOSED:
        raise BadQuery(f"sort by {sort} only valid on closed connections")
    return _steps(service, options, now)


def _steps(service: ServerState, options: ConnzOptions, now: Now) -> Steps:
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else LIMIT_DEFAULT
    if options.cid:
        offset, limit = 0, 1
    if options.acc and options.acc not in service.accounts.by_name:
        no_clients = ConnzPage(clients=[], total=0, offset=offset, limit=limit, known_account=False)
        return {**asdict(frame_of(service, no_clients, now)), "connections": None}
    everybody = wanted = _candidates(service, options)
    if options.cid or options.mqtt_client or options.user or options.filter_subject:
        wanted = []
        for client in everybody:
            if (yield from _wanted(client, options)):
                wanted.append(client)
    clients = yield from SORTS[options.sort or "cid"].steps(wanted, now, offset, offset + limit)
    page = ConnzPage(clients=clients, total=len(everybody), offset=offset, limit=limit)
    rows = JsonRows(_row(client, options, now) for client in clients)
    return {**asdict(frame_of(service, page, now)), "connections": rows}


def frame_of(service: ServerState, page: ConnzPage, now: Now) -> Connz:
    return Connz(
        server_id=service.server_id if page.known_account else "",
        now=timestamp(now.wall_ns),
        num_connections=len(page.clients),
        total=page.total,
        offset=page.offset,
        limit=page.limit,
    )


# -- selection


def _candidates(service: ServerState, options: ConnzOptions) -> list[Client]:
    """Return the clients that `total` counts: selected by state and account only."""
    everybody: list[Client] = []
    if options.state != CLOSED:
        everybody += service.sessions.values()
    if options.state != OPEN:
        everybody += service.closed
    if not options.acc:
        return everybody
    return [client for client in everybody if _account_of(client) == options.acc]


def _wanted(client: Client, options: ConnzOptions) -> Generator[None, None, bool]:
    yield
    if options.cid and client.cid != options.cid:
        return False
    if options.mqtt_client:  # this server does not support MQTT
        return False
    if options.user and client.user != options.user:
        return False
    if not options.acc:  # subjects belong to an account: without `acc` the filter is ignored
        return True
    if not options.filter_subject:
        return True
    if not is_valid_subject(options.filter_subject):
        return False
    for found in _subscription_pages(client):
        if any(collides(facts[1], options.filter_subject) for facts in found):
            return True
        yield
    return False


def _account_of(client: Client) -> str:
    return client.account if isinstance(client, ClientRecord) else client.account.name


def _subscription_pages(client: Client) -> Iterator[Sequence[SubscriptionFacts]]:
    if isinstance(client, ClientRecord):
        yield client.subscriptions
        return
    slot = 0
    while True:
        found, slot = client.link.subscription_page(slot, SUBSCRIPTIONS_PER_STEP)
        yield found
        if not slot:
            return


# -- rows


def _row(client: Client, options: ConnzOptions, now: Now) -> ConnInfo | dict[str, object]:
    record = client if isinstance(client, ClientRecord) else record_of(client, now)
    row = _info(client, record, options, now)
    lists = options.subscriptions or options.subscriptions_detail
    if not lists or not (record.num_subscriptions or record.subscriptions):
        return row
    fields: dict[str, object] = to_builtins(row)
    after: dict[str, object] = {
        name: fields.pop(name) for name in AFTER_SUBSCRIPTIONS if name in fields
    }
    if options.subscriptions:
        fields["subscriptions_list"] = JsonRows(_subjects(client))
    if options.subscriptions_detail:
        fields["subscriptions_list_detail"] = JsonRows(_details(client, record))
    return {**fields, **after}


def _info(client: Client, record: ClientRecord, options: ConnzOptions, now: Now) -> ConnInfo:
    until_ns = record.stop_ns or now.wall_ns
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
        jwt=claimed.token,
        issuer_key=claimed.issuer,
        name_tag=shown_tag if auth else "",
        tags=claimed.tags,
    )


def _subjects(client: Client) -> Iterator[str | None]:
    for found in _subscription_pages(client):
        yield from (clean(subject) for _, subject, _, _, _ in found)
        yield None


def _details(client: Client, record: ClientRecord) -> Iterator[SubDetail | None]:
    account = record.account if record.stop_ns else ""
    for found in _subscription_pages(client):
        yield from (detail_of(facts, record.cid, account) for facts in found)
        yield None


def _peer_certs(client: Client) -> tuple[PeerCert, ...]:
    """Return the client's certificate; it is not kept after the close, as in the reference."""
    if isinstance(client, ClientRecord):
        return ()
    from penstock.server.net.codecs.transport_facts import tls_of

    tls = tls_of(client.link.codec)
    if tls is None or tls.peer_der is None:
        return ()
    from penstock.server.net.codecs.peer_certificate import summarise_certificate

    summary = summarise_certificate(tls.peer_der)
    return (PeerCert(summary.subject, summary.spki_sha256, summary.cert_sha256),)
