"""/accountz and /accstatz: the accounts, one of them in detail, and their traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.base.units import SECOND_NS
from penstock.server.monitor.connection_totals import traffic_by_account
from penstock.server.monitor.page_values import timestamp
from penstock.server.monitor.query_string import BadQuery
from penstock.server.monitor.share_view import ShownDestination, ShownExport, ShownImport, shown
from penstock.server.monitor.sliced_pages import JsonRows
from penstock.server.monitor.subsz import SublistStats, sum_stats
from penstock.server.server_state import Traffic

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from penstock.server.net.client_record import Now
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account


class AccountzOptions(Struct, frozen=True, kw_only=True):
    account: str = ""


class AccountDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    account_name: str
    update_time: str
    is_system: bool = False
    expired: bool
    complete: bool
    jetstream_enabled: bool
    leafnode_connections: int
    client_connections: int
    subscriptions: int
    mappings: dict[str, list[ShownDestination]] = {}
    exports: list[ShownExport] = []
    imports: list[ShownImport] = []
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str
    tags: tuple[str, ...] = ()
    revoked_user: dict[str, str] = {}
    sublist_stats: SublistStats


class Accountz(Struct, frozen=True, kw_only=True, omit_defaults=True):
    server_id: str
    now: str
    system_account: str = ""
    accounts: list[str] = []
    account_detail: AccountDetail | None = None


class Flow(Struct, frozen=True):
    msgs: int = 0
    bytes: int = 0


class FlowByKind(Struct, frozen=True):
    """Messages and bytes, with the portions of other servers."""

    msgs: int = 0
    bytes: int = 0
    gateways: Flow = Flow()
    routes: Flow = Flow()
    leafs: Flow = Flow()


class AccountStat(Struct, frozen=True, kw_only=True):
    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: FlowByKind
    received: FlowByKind
    slow_consumers: int


def accountz(service: ServerState, options: AccountzOptions, now: Now) -> Accountz:
    """Return the page; raise BadQuery for an unknown account."""
    detail = None
    if options.account:
        if options.account not in service.accounts.by_name:
            raise BadQuery(f"Account {options.account} does not exist")
        detail = _detail(service, service.accounts[options.account])
    return Accountz(
        server_id=service.server_id,
        now=timestamp(now.wall_ns),
        system_account=service.system_account,
        accounts=[] if detail else [account.name for account in service.accounts],
        account_detail=detail,
    )


def accstatz_steps(
    service: ServerState, now: Now, *, unused: bool = False, names: Collection[str] = ()
) -> Generator[None, None, dict[str, Any]]:
    """Build the page in steps: accounts in use, with `unused` all, with `names` only those."""
    traffic = traffic_by_account(service)
    yield
    return {
        "server_id": service.server_id,
        "now": timestamp(now.wall_ns),
        "account_statz": JsonRows(
            account_stat(account, traffic.get(account.name, Traffic()))
            for account in list(service.accounts)
            if (account.connections or unused) and (not names or account.name in names)
        ),
    }


def account_stat(account: Account, traffic: Traffic) -> AccountStat:
    return AccountStat(
        acc=account.name,
        name=account.name_tag,
        conns=account.connections,
        leafnodes=0,
        total_conns=account.connections,
        num_subscriptions=len(account.interest),
        sent=FlowByKind(traffic.out_msgs, traffic.out_bytes),
        received=FlowByKind(traffic.in_msgs, traffic.in_bytes),
        slow_consumers=traffic.slow_consumers,
    )


def _detail(service: ServerState, account: Account) -> AccountDetail:
    sharing = shown(service.options, account.name)
    claims = _claims(service, account)
    return AccountDetail(
        account_name=account.name,
        update_time=timestamp(service.config_load_ns),
        is_system=account.name == service.system_account,
        expired=False,
        complete=True,
        jetstream_enabled=_has_jetstream(service, account),
        leafnode_connections=0,
        client_connections=account.connections,
        subscriptions=len(account.interest),
        mappings=sharing.mappings,
        exports=sharing.exports,
        imports=sharing.imports,
        name_tag=account.name_tag,
        sublist_stats=sum_stats([account.interest.stats()]),
        **claims,
    )


def _claims(service: ServerState, account: Account) -> dict[str, Any]:
    """Return the account's signed claims; {} for a configured account."""
    trust = service.operator_mode.trust
    known = None if trust is None else trust.accounts.get(account.name)
    if known is None:
        return {}
    revoked = known.claims.revocations.items()
    return {
        "jwt": known.token,
        "issuer_key": known.claims.about.issuer,
        "tags": known.claims.tags,
        "revoked_user": {key: timestamp(since_s * SECOND_NS) for key, since_s in revoked},
    }


def _has_jetstream(service: ServerState, account: Account) -> bool:
    runtime = None if service.jetstream is None else service.jetstream.accounts.get(account.name)
    return runtime is not None and runtime.assets.is_enabled
