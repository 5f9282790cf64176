"""`penstock consumer`: the consumers of a stream, their state, and their messages.

`next` fetches a few messages from a pull consumer; `sub` continues until it is stopped, for pull
and push consumers. Messages are acknowledged by default, each after it was shown, so that a message
that was not shown is delivered again. An edit sends back the server's configuration with the
changes applied.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Final

from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import checked_name
from penstock.cli.argument_values import duration, positive
from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.command_spec import FORCE, Argument, Command, Noun, argument, confirm
from penstock.cli.commands.message_commands import subscribed
from penstock.cli.message_format import message_text, stored_document
from penstock.cli.output import (
    Facts,
    TableListing,
    show_age,
    show_count,
    show_duration,
    show_limit,
    show_time,
    show_yes,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncGenerator

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.api.api_client import Document
    from penstock.cli.command_session import CommandSession

#: Messages requested at a time; small, because other clients wait for delivered messages.
BATCH: Final = 20
EXPIRES_NS: Final = 30 * SECOND_NS
HEARTBEAT_NS: Final = 5 * SECOND_NS
SILENCE_SECONDS: Final = 2 * HEARTBEAT_NS / SECOND_NS
ACKS: Final = {"ack": b"+ACK", "nak": b"-NAK", "term": b"+TERM", "none": b""}

_HEARTBEAT: Final = "100"
#: Statuses with which a pull request ends normally.
_ENDED: Final = frozenset({"404", "408"})
_BATCH_DONE: Final = "Batch Completed"


# -- reading


async def _ls(session: CommandSession, options: Namespace) -> None:
    stream = checked_name(options.stream, "stream")
    pages = session.api.pages(f"CONSUMER.LIST.{stream}", "consumers")
    found = [one async for one in pages]
    if options.names:
        names = [one["name"] for one in found]
        session.screen.answer(names, *names)
        return
    headings = ("name", "mode", "filter", ">not acked", ">redelivered", ">pending", "last delivery")
    rows = [_row(one) for one in found]
    session.screen.answer(found, TableListing(f"Consumers of {stream}", headings, rows))


def _row(info: Document) -> tuple[str, ...]:
    config = info["config"]
    return (
        info["name"],
        "push" if config.get("deliver_subject") else "pull",
        _filters(config),
        show_count(info["num_ack_pending"]),
        show_count(info["num_redelivered"]),
        show_count(info["num_pending"]),
        show_time(info["delivered"].get("last_active")),
    )


def _filters(config: Document) -> str:
    return ", ".join(config.get("filter_subjects") or [config.get("filter_subject", "")])


async def _info(session: CommandSession, options: Namespace) -> None:
    info = await session.api.call(f"CONSUMER.INFO.{_path(options)}")
    session.screen.answer(info, *shown(info))


def _path(options: Namespace) -> str:
    return f"{checked_name(options.stream, 'stream')}.{checked_name(options.name, 'consumer')}"


def shown(info: Document) -> list[Facts]:
    """Return a consumer as blocks for display."""
    title = f"Consumer {info['name']} of {info['stream_name']}"
    return [Facts(title, _config_rows(info)), Facts("State", _state_rows(info))]


def _config_rows(info: Document) -> list[tuple[str, str]]:
    config, cluster = info["config"], info.get("cluster") or {}
    pull = not config.get("deliver_subject")
    limit, unused = show_limit(config.get("max_deliver", 0)), config.get("inactive_threshold", 0)
    return [
        ("description", config.get("description", "")),
        ("durable", show_yes(config.get("durable_name"))),
        ("mode", "pull" if pull else f"push to {config['deliver_subject']}"),
        ("group", config.get("deliver_group", "")),
        ("starts at", config["deliver_policy"]),
        ("filter", _filters(config)),
        ("acks", config["ack_policy"]),
        ("ack wait", show_age(config.get("ack_wait", 0))),
        ("backoff", ", ".join(map(show_duration, config.get("backoff") or ()))),
        ("replay", config["replay_policy"]),
        ("deliveries", limit),
        ("max not acked", show_limit(config.get("max_ack_pending", 0))),
        ("max waiting", show_limit(config.get("max_waiting", 0)) if pull else ""),
        ("flow control", show_yes(config.get("flow_control"))),
        ("headers only", show_yes(config.get("headers_only"))),
        ("priority", ", ".join(config.get("priority_groups") or ())),
        ("removed after", show_duration(unused) if unused else ""),
        ("leader", cluster.get("leader", "")),
        ("created", show_time(info["created"])),
    ]


def _state_rows(info: Document) -> list[tuple[str, str]]:
    paused = info.get("paused")
    return [
        ("delivered", _position(info["delivered"])),
        ("ack floor", _position(info["ack_floor"])),
        ("not acked", show_count(info["num_ack_pending"])),
        ("redelivered", show_count(info["num_redelivered"])),
        ("pending", show_count(info["num_pending"])),
        ("waiting pulls", show_count(info["num_waiting"])),
        ("listens", show_yes(info.get("push_bound"))),
        ("paused for", show_duration(info.get("pause_remaining", 0)) if paused else ""),
    ]


def _position(sequences: Document) -> str:
    place = f"{sequences['stream_seq']:,} (delivery {sequences['consumer_seq']:,})"
    active = sequences.get("last_active")
    return f"{place} at {show_time(active)}" if active else place


# -- changing


async def _add(session: CommandSession, options: Namespace) -> None:
    from penstock.cli.config_flags import config_given

    config = config_given(options)
    options.name = options.name or config.get("durable_name") or config.get("name", "")
    path = _path(options)
    config |= {"name": options.name}
    if not options.ephemeral:
        config |= {"durable_name": options.name}
    # The expected default of a user; the API's own default requires no acks.
    config.setdefault("ack_policy", "explicit")
    body = {"stream_name": options.stream, "config": config, "action": "create"}
    info = await session.api.call(f"CONSUMER.CREATE.{path}", body)
    session.screen.answer(info, f"Consumer {options.name} is made", *shown(info))


async def _edit(session: CommandSession, options: Namespace) -> None:
    from penstock.cli.config_flags import config_given, differences, merged, sendable

    path, changes = _path(options), config_given(options)
    if not changes:
        raise Misuse("nothing to change was given")
    old = sendable((await session.api.call(f"CONSUMER.INFO.{path}"))["config"])
    new = merged(old, changes)
    listing = TableListing(
        f"Changes of {options.name}", ("field", "before", "after"), differences(old, new), "none"
    )
    if options.dry_run:
        session.screen.answer({"before": old, "after": new}, listing)
        return
    body = {"stream_name": options.stream, "config": new, "action": "update"}
    info = await session.api.call(f"CONSUMER.CREATE.{path}", body)
    session.screen.answer(info, listing)


async def _rm(session: CommandSession, options: Namespace) -> None:
    path = _path(options)
    confirm(f"Remove consumer {options.name} of {options.stream}?", options)
    answer = await session.api.call(f"CONSUMER.DELETE.{path}")
    session.screen.answer(answer, f"Consumer {options.name} was deleted")


async def _pause(session: CommandSession, options: Namespace) -> None:
    from penstock.api.timestamps import format_time

    until = format_time(time.time_ns() + options.duration)
    answer = await session.api.call(f"CONSUMER.PAUSE.{_path(options)}", {"pause_until": until})
    text = f"Consumer {options.name} pauses until {show_time(answer.get('pause_until'))}"
    session.screen.answer(answer, text)


async def _resume(session: CommandSession, options: Namespace) -> None:
    answer = await session.api.call(f"CONSUMER.PAUSE.{_path(options)}")
    session.screen.answer(answer, f"Consumer {options.name} delivers again")


# -- messages


async def _next(session: CommandSession, options: Namespace) -> None:
    path = _path(options)
    request = {"batch": options.count, "expires": options.timeout}
    number = 0
    async with subscribed(session, session.client.new_inbox()) as inbox:
        await _pull(session, path, inbox.subject, request)
        deadline = time.monotonic() + options.timeout / SECOND_NS + session.api.seconds
        while number < options.count:
            message = await _arrived(inbox, deadline - time.monotonic())
            if message is None or _is_end(message):
                break
            number += 1
            await _take(session, options, number, message)
    if not number:
        raise Failure(f"no message came within {show_duration(options.timeout)}")


async def _pull(session: CommandSession, path: str, inbox: str, request: Document) -> None:
    subject = f"{session.api.prefix}.CONSUMER.MSG.NEXT.{path}"
    await session.client.publish(subject, json.dumps(request).encode(), reply=inbox)


async def _arrived(inbox: Subscription, seconds: float) -> Msg | None:
    from nats.errors import TimeoutError

    try:
        return await inbox.next_msg(max(seconds, 0.001))
    except TimeoutError:
        return None


def _status(message: Msg) -> str:
    """Return the status of a message without other content; empty for other messages."""
    if message.data or message.reply.startswith("$JS.ACK."):
        return ""
    return str((message.headers or {}).get("Status", ""))


def _is_end(message: Msg) -> bool:
    """Return whether a pull request has ended; raise Failure if it ended with an error."""
    status = _status(message)
    if not status:
        return False
    description = (message.headers or {}).get("Description", "") or status
    if status not in _ENDED and description != _BATCH_DONE:
        raise Failure(_reason(status, description))
    return True


def _reason(status: str, description: str) -> str:
    if status == "503":
        return "there is no such consumer, or it does not take pull requests"
    return f"{description} (code {status})"


async def _sub(session: CommandSession, options: Namespace) -> None:
    path = _path(options)
    config = (await session.api.call(f"CONSUMER.INFO.{path}"))["config"]
    is_push = bool(config.get("deliver_subject"))
    source = _pushed(session, config) if is_push else _pulled(session, path, options.count)
    number = 0
    async with contextlib.aclosing(source):
        async for message in source:
            number += 1
            await _take(session, options, number, message)
            if number == options.count:
                return


async def _pushed(session: CommandSession, config: Document) -> AsyncGenerator[Msg, None]:
    subject, group = config["deliver_subject"], config.get("deliver_group", "")
    async with subscribed(session, subject, group) as inbox:
        async for message in inbox.messages:
            if not _status(message):
                yield message
                continue
            # A status is a heartbeat or a flow control request: then it has a reply, or names it.
            asked = message.reply or (message.headers or {}).get("Nats-Consumer-Stalled", "")
            if asked:
                await session.client.publish(asked)


async def _pulled(
    session: CommandSession, path: str, count: int | None
) -> AsyncGenerator[Msg, None]:
    left = count or BATCH
    async with subscribed(session, session.client.new_inbox()) as inbox:
        try:
            while True:
                wanted = BATCH if count is None else min(left, BATCH)
                request = {"batch": wanted, "expires": EXPIRES_NS, "idle_heartbeat": HEARTBEAT_NS}
                await _pull(session, path, inbox.subject, request)
                async for message in _batch(inbox, wanted):
                    left -= 1
                    yield message
        finally:
            await _hand_back(session, inbox)


async def _batch(inbox: Subscription, wanted: int) -> AsyncGenerator[Msg, None]:
    """Yield the messages of one request; a status or a missing heartbeat ends it."""
    while wanted:
        message = await _arrived(inbox, SILENCE_SECONDS)
        if message is None:
            return  # a lost connection also loses the request: the caller sends another
        if _status(message) == _HEARTBEAT:
            continue
        if _is_end(message):
            return
        wanted -= 1
        yield message


async def _hand_back(session: CommandSession, inbox: Subscription) -> None:
    """NAK messages that were delivered and not shown, so that others get them at once."""
    while inbox.pending_msgs and not session.client.is_closed:
        message = await _arrived(inbox, 0)
        if message is not None and not _status(message):
            await session.client.publish(message.reply, ACKS["nak"])


async def _take(session: CommandSession, options: Namespace, number: int, message: Msg) -> None:
    """Show a message, then acknowledge it as requested."""
    from penstock.cli.stream_reader import ReadMessage, stored

    delivery = ReadMessage.of(message.reply)
    kept = stored(message, delivery)
    if options.raw:
        session.screen.raw(message.data + b"\n")
    else:
        again = f", delivery {delivery.delivered}" if delivery.delivered > 1 else ""
        title = (
            f"[#{number}] {message.subject}, sequence {delivery.stream_seq:,}{again}, "
            f"{delivery.pending:,} pending"
        )
        counts = {"deliveries": delivery.delivered, "pending": delivery.pending}
        text = message_text(title, message.headers, message.data)
        session.screen.item({**stored_document(kept), **counts}, text)
    answer = ACKS[options.ack]
    if answer:
        await session.client.publish(message.reply, answer)


# -- arguments

STREAM: Final = argument("stream", help="name of the stream")
NAME: Final = argument("name", help="name of the consumer")
TAKING: Final = (
    STREAM,
    NAME,
    argument("--ack", choices=[*ACKS], default="ack", help="how to answer (default: ack)"),
    argument("--raw", action="store_true", help="print payloads only, as they are"),
)


def _ls_arguments() -> tuple[Argument, ...]:
    return (STREAM, argument("--names", action="store_true", help="names only"))


def _add_arguments() -> tuple[Argument, ...]:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.cli.config_flags import config_arguments

    name = argument("name", nargs="?", default="", help="its name, unless --config has it")
    is_ephemeral = argument("--ephemeral", action="store_true", help="delete it when it is unused")
    return (STREAM, name, is_ephemeral, *config_arguments(ConsumerConfig))


def _edit_arguments() -> tuple[Argument, ...]:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.cli.config_flags import config_arguments

    dry = argument("--dry-run", action="store_true", help="show the changes, make none")
    return (STREAM, NAME, dry, *config_arguments(ConsumerConfig, editing=True))


def _next_arguments() -> tuple[Argument, ...]:
    count = argument("--count", type=positive, default=1, metavar="N", help="so many at most")
    return (*TAKING, count)


def _pause_arguments() -> tuple[Argument, ...]:
    return (STREAM, NAME, argument("duration", type=duration, help="for how long"))


NOUN: Final = Noun(
    "consumer",
    "consumers of a stream and what they deliver",
    (
        Command("ls", "list consumers", _ls_arguments, online=_ls),
        Command("info", "show one consumer", lambda: (STREAM, NAME), online=_info),
        Command("add", "make a consumer", _add_arguments, online=_add),
        Command("edit", "change a consumer", _edit_arguments, online=_edit),
        Command("rm", "remove a consumer", lambda: (STREAM, NAME, FORCE), online=_rm),
        Command("next", "take messages of a pull consumer", _next_arguments, online=_next),
        Command("sub", "take messages as they come", lambda: TAKING, online=_sub, streams=True),
        Command("pause", "let it deliver nothing for a while", _pause_arguments, online=_pause),
        Command("resume", "let it deliver again", lambda: (STREAM, NAME), online=_resume),
    ),
)
