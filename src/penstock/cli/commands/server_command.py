"""`penstock account` and `penstock server`: what an account uses, and whether a server is healthy.

`server check` is for scripts: it reports every check, and the exit code is 1 if one fails. Pinging
all servers (`ping --all`) needs a user of the system account.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final

from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import checked_name
from penstock.cli.argument_values import positive, positive_duration, whole
from penstock.cli.cli_errors import Failure
from penstock.cli.command_spec import Argument, Command, Noun, argument
from penstock.cli.commands.message_commands import subscribed
from penstock.cli.output import (
    Facts,
    TableListing,
    show_bytes,
    show_count,
    show_duration,
    show_limit,
)
from penstock.cli.server_target import without_secrets

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from penstock.api.api_client import Document
    from penstock.cli.command_session import CommandSession

PERCENT_MAX: Final = 90
RTT_NS_MAX: Final = SECOND_NS
PING_SUBJECT: Final = "$SYS.REQ.SERVER.PING"
#: After this long without another reply, all servers have replied.
QUIET_SECONDS: Final = 0.5


# -- account


async def _account(session: CommandSession, options: Namespace) -> None:
    info = await session.api.call("INFO")
    limits, api = info["limits"], info["api"]
    used = [
        ("domain", info.get("domain", "")),
        ("memory", _share(info["memory"], limits["max_memory"], show_bytes)),
        ("storage", _share(info["storage"], limits["max_storage"], show_bytes)),
        ("streams", _share(info["streams"], limits["max_streams"], show_count)),
        ("consumers", _share(info["consumers"], limits["max_consumers"], show_count)),
        ("max not acked", show_limit(limits.get("max_ack_pending", 0))),
        ("requests", f"{api['total']:,}, {api['errors']:,} of them refused"),
        ("API level", str(api.get("level", 0))),
    ]
    session.screen.answer(info, Facts("Account", used))


def _share(used: int, limit: int, show: Callable[[int], str]) -> str:
    return f"{show(used)} of {show(limit)}" if limit > 0 else f"{show(used)}, no limit"


# -- server


async def _round_trip(session: CommandSession) -> int:
    """Return the round-trip time in nanoseconds."""
    return round(await session.client.rtt() * SECOND_NS)


async def _ping(session: CommandSession, options: Namespace) -> None:
    if options.all:
        await _ping_all(session, options)
        return
    trips = []
    for number in range(options.count):
        trips.append(await _round_trip(session))
        if number + 1 < options.count:
            await asyncio.sleep(options.interval / SECOND_NS)
    server = _server(session)
    document = {
        **server,
        "rtt_ns": trips,
        "rtt_min_ns": min(trips),
        "rtt_mean_ns": sum(trips) // len(trips),
        "rtt_max_ns": max(trips),
    }
    facts = [
        *((name, str(value)) for name, value in server.items()),
        ("round trips", show_count(len(trips))),
        ("fastest", show_duration(min(trips))),
        ("mean", show_duration(sum(trips) // len(trips))),
        ("slowest", show_duration(max(trips))),
    ]
    session.screen.answer(document, Facts("Server", facts))


def _server(session: CommandSession) -> Document:
    info, url = session.client._server_info, session.client.connected_url
    return {
        "url": without_secrets(url.geturl()) if url else "",
        "name": info.get("server_name", ""),
        "id": info.get("server_id", ""),
        "version": info.get("version", ""),
        "cluster": info.get("cluster", ""),
        "jetstream": bool(info.get("jetstream", False)),
    }


async def _ping_all(session: CommandSession, options: Namespace) -> None:
    answers = await _all_answers(session, options.timeout / SECOND_NS)
    if not answers:
        raise Failure("no server answers: this needs a user of the system account")
    found = [
        {
            "name": one["server"]["name"],
            "id": one["server"]["id"],
            "version": one["server"].get("ver", ""),
            "cluster": one["server"].get("cluster", ""),
            "host": one["server"].get("host", ""),
            "jetstream": bool(one["server"].get("jetstream", False)),
            "connections": one.get("statsz", {}).get("connections", 0),
            "rtt_ns": one["rtt_ns"],
        }
        for one in answers
    ]
    rows = [
        (
            one["name"],
            one["version"],
            one["cluster"],
            "yes" if one["jetstream"] else "",
            show_count(one["connections"]),
            show_duration(one["rtt_ns"]),
        )
        for one in found
    ]
    headings = ("name", "version", "cluster", "jetstream", ">connections", ">round trip")
    session.screen.answer(found, TableListing("Servers", headings, rows))


async def _all_answers(session: CommandSession, seconds: float) -> list[Document]:
    """Return the reply of every server, each with its round-trip time."""
    from nats.errors import TimeoutError

    answers: list[Document] = []
    inbox = session.client.new_inbox()
    async with subscribed(session, inbox) as subscription:
        began = time.monotonic_ns()
        await session.client.publish(PING_SUBJECT, reply=inbox)
        wait = seconds
        while True:
            try:
                message = await subscription.next_msg(wait)
            except TimeoutError:
                return answers
            if not message.data:
                return answers
            wait = QUIET_SECONDS
            answers.append({**json.loads(message.data), "rtt_ns": time.monotonic_ns() - began})


# -- checks


class Checks:
    """The results of all checks."""

    def __init__(self) -> None:
        self.results: list[Document] = []

    def add(self, name: str, ok: bool, detail: str) -> None:
        self.results.append({"check": name, "ok": ok, "detail": detail})

    @property
    def failed(self) -> list[str]:
        return [one["check"] for one in self.results if not one["ok"]]


async def _check(session: CommandSession, options: Namespace) -> None:
    checks = Checks()
    server = _server(session)
    checks.add("connection", True, f"{server['name']}, version {server['version']}")
    trip = await _round_trip(session)
    checks.add("round trip", trip <= options.rtt_max, show_duration(trip))
    if options.jetstream or server["jetstream"]:
        await _check_account(session, checks, options.percent_max)
    for name in options.stream:
        await _check_stream(session, checks, checked_name(name, "stream"), options)
    for name in options.consumer:
        await _check_consumer(session, checks, name, options)
    rows = [
        (one["check"], "ok" if one["ok"] else "FAILED", one["detail"]) for one in checks.results
    ]
    document = {"ok": not checks.failed, "server": server, "checks": checks.results}
    session.screen.answer(document, TableListing("Checks", ("check", "result", "detail"), rows))
    if checks.failed:
        raise Failure(f"not well: {', '.join(checks.failed)}")


async def _check_account(session: CommandSession, checks: Checks, percent_max: int) -> None:
    try:
        info = await session.api.call("INFO")
    except Failure as failure:
        checks.add("jetstream", False, str(failure))
        return
    checks.add("jetstream", True, f"{info['streams']:,} streams, {info['consumers']:,} consumers")
    for name in ("memory", "storage", "streams", "consumers"):
        limit = info["limits"].get(f"max_{name}", -1)
        if limit > 0:
            percent = info[name] * 100 // limit
            checks.add(f"account {name}", percent <= percent_max, f"{percent} % of what is allowed")


async def _check_stream(
    session: CommandSession, checks: Checks, name: str, options: Namespace
) -> None:
    title = f"stream {name}"
    try:
        info = await session.api.call(f"STREAM.INFO.{name}")
    except Failure as failure:
        checks.add(title, False, str(failure))
        return
    messages = info["state"]["messages"]
    enough = messages >= options.messages_min
    checks.add(title, enough, f"{messages:,} messages")
    if info["state"].get("lost"):
        checks.add(f"{title}: damage", False, "messages were lost")
    copies = [*([info["mirror"]] if info.get("mirror") else []), *(info.get("sources") or [])]
    for one in copies:
        well = one["lag"] <= options.lag_max and not one.get("error")
        checks.add(f"{title}: copy of {one['name']}", well, f"{one['lag']:,} behind")
    for peer in (info.get("cluster") or {}).get("replicas") or ():
        well = peer["current"] and not peer.get("offline")
        checks.add(f"{title}: {peer['name']}", well, f"{peer.get('lag', 0):,} behind")


async def _check_consumer(
    session: CommandSession, checks: Checks, name: str, options: Namespace
) -> None:
    stream, _, consumer = name.partition("/")
    path = f"{checked_name(stream, 'stream')}.{checked_name(consumer, 'consumer')}"
    title = f"consumer {name}"
    try:
        info = await session.api.call(f"CONSUMER.INFO.{path}")
    except Failure as failure:
        checks.add(title, False, str(failure))
        return
    pending, out = info["num_pending"], info["num_ack_pending"]
    within = options.pending_max is None or pending <= options.pending_max
    checks.add(title, within, f"{pending:,} pending, {out:,} not acknowledged")


def _ping_arguments() -> tuple[Argument, ...]:
    return (
        argument("--count", type=positive, default=3, metavar="N", help="how often (default: 3)"),
        argument(
            "--interval",
            type=positive_duration,
            default=SECOND_NS // 10,
            metavar="DURATION",
            help="pause in between (default: 100ms)",
        ),
        argument("--all", action="store_true", help="ask every server, as the system account"),
    )


def _check_arguments() -> tuple[Argument, ...]:
    return (
        argument("--jetstream", action="store_true", help="fail if JetStream is not served"),
        argument(
            "--stream", action="append", default=[], metavar="NAME", help="look at a stream, too"
        ),
        argument(
            "--consumer",
            action="append",
            default=[],
            metavar="STREAM/NAME",
            help="look at a consumer, too",
        ),
        argument(
            "--rtt-max",
            type=positive_duration,
            default=RTT_NS_MAX,
            metavar="DURATION",
            help="longest round trip (default: 1s)",
        ),
        argument(
            "--percent-max",
            type=positive,
            default=PERCENT_MAX,
            metavar="N",
            help=f"most an account may use of a limit (default: {PERCENT_MAX})",
        ),
        argument(
            "--messages-min", type=whole, default=0, metavar="N", help="fewest in such a stream"
        ),
        argument("--lag-max", type=whole, default=0, metavar="N", help="most a copy may be behind"),
        argument("--pending-max", type=whole, metavar="N", help="most such a consumer may have"),
    )


ACCOUNT: Final = Noun(
    "account",
    "what your account may use, and does",
    (Command("info", "show limits and use", online=_account),),
)
SERVER: Final = Noun(
    "server",
    "servers and how they are",
    (
        Command("check", "report whether the server is healthy", _check_arguments, online=_check),
        Command("ping", "measure the way to a server", _ping_arguments, online=_ping),
    ),
)
