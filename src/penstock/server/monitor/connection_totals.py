"""Sums over all connections, open and closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.server.server_state import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages and bytes since the server started; in is from clients, out is to clients."""

    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int


def totals_of(service: ServerState) -> Totals:
    io_loop = service.io_loop
    sums = [io_loop.in_msgs_closed, io_loop.in_bytes_closed]
    sums += [io_loop.out_msgs_closed, io_loop.out_bytes_closed]
    for _, *flow in io_loop.traffic():
        sums = [before + more for before, more in zip(sums, flow, strict=True)]
    return Totals(*sums)


def traffic_by_account(service: ServerState) -> dict[str, Traffic]:
    """Return sums by account name; accounts without traffic are missing."""
    sums = {
        name: Traffic(
            closed.in_msgs,
            closed.in_bytes,
            closed.out_msgs,
            closed.out_bytes,
            closed.slow_consumers,
        )
        for name, closed in service.traffic_closed.items()
    }
    for link, in_msgs, in_bytes, out_msgs, out_bytes in service.io_loop.traffic():
        account = cast("ClientSession", link.handler).account
        traffic = sums.setdefault(account.name, Traffic())
        traffic.in_msgs += in_msgs
        traffic.in_bytes += in_bytes
        traffic.out_msgs += out_msgs
        traffic.out_bytes += out_bytes
    return sums


def sum_of(traffic: Iterable[Traffic]) -> Totals:
    """Return the same as `totals_of` from sums by account."""
    every = list(traffic)
    return Totals(
        sum(one.in_msgs for one in every),
        sum(one.in_bytes for one in every),
        sum(one.out_msgs for one in every),
        sum(one.out_bytes for one in every),
    )


def subscriptions_of(service: ServerState) -> int:
    return sum(len(account.interest) for account in service.accounts)
