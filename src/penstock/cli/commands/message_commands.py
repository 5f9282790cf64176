"""`penstock pub`, `sub`, `req` and `reply`: messages without streams.

When a publish command ends, its messages have arrived at the server, and with `--ack` in a stream.
A permission violation is reported as an error. With `reply --command` a separate process produces
each reply; it gets the request on standard input and runs without a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.cli.argument_values import duration, header, positive, whole
from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.command_spec import Argument, Command, argument
from penstock.cli.message_format import message_document, message_text
from penstock.cli.server_target import flush_twice

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.cli.command_session import CommandSession

FLUSH_EVERY: Final = 1000
WAITING_MAX: Final = 1000
COMMAND_SECONDS: Final = 60
SUBJECT_VARIABLE: Final = "NATS_REQUEST_SUBJECT"

HEADER: Final = argument(
    "-H",
    "--header",
    action="append",
    type=header,
    default=[],
    metavar="NAME:VALUE",
    help="a header; may be repeated",
)
RAW: Final = argument("--raw", action="store_true", help="print payloads only, as they are")
TEMPLATES: Final = argument(
    "--templates",
    action="store_true",
    help="fill in {{Count}}, {{Time}}, {{Unix}} and {{UnixNano}}",
)
BODY: Final = (
    argument("body", nargs="?", default="", help="the payload; - reads standard input"),
    argument("--file", type=Path, metavar="FILE", help="take the payload from a file"),
)


def payload_of(options: Namespace) -> bytes:
    """Return the payload that the command line specifies."""
    if options.file is not None:
        if options.body:
            raise Misuse("give a body or --file, not both")
        return bytes(options.file.read_bytes())
    if options.body == "-":
        return sys.stdin.buffer.read()
    return str(options.body).encode(errors="surrogateescape")


def filled(template: bytes, number: int) -> bytes:
    """Return the payload with its templates filled in."""
    now_ns = time.time_ns()
    seconds, rest = divmod(now_ns, SECOND_NS)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09}Z"
    values = {"Count": str(number), "Time": moment, "Unix": str(seconds), "UnixNano": str(now_ns)}
    for name, value in values.items():
        template = template.replace(b"{{%s}}" % name.encode(), value.encode())
    return template


@dataclass(slots=True)
class StoredAck:
    """Summary of a stream's publish acknowledgements."""

    stream: str = ""
    first_seq: int = 0
    last_seq: int = 0
    duplicates: int = 0

    def add(self, ack: dict[str, Any]) -> None:
        self.stream = ack["stream"]
        self.last_seq = ack["seq"]
        self.first_seq = self.first_seq or ack["seq"]
        self.duplicates += bool(ack.get("duplicate"))

    def summary(self) -> str:
        span = f"{self.first_seq:,}"
        span += f" to {self.last_seq:,}" if self.last_seq > self.first_seq else ""
        again = f", {self.duplicates:,} of them duplicates" if self.duplicates else ""
        return f"Stored in stream {self.stream} as {span}{again}"


async def _publish(session: CommandSession, options: Namespace) -> None:
    body, headers = payload_of(options), dict(options.header) or None
    stored = StoredAck()
    with session.screen.progress(f"Publishing to {options.subject}", options.count) as done:
        for number in range(1, options.count + 1):
            payload = filled(body, number) if options.templates else body
            if options.ack:
                stored.add(await session.api.publish(options.subject, payload, headers))
            else:
                await session.client.publish(
                    options.subject, payload, reply=options.reply, headers=headers
                )
            done(1)
            await _paused(session, options, number)
    await flush_twice(session.client)
    session.watch.raise_if_failed()
    document = {"subject": options.subject, "published": options.count, "bytes": len(body)}
    if not options.ack:
        text = f"Published {options.count:,} × {len(body):,} bytes to {options.subject}"
        session.screen.answer(document, text)
        return
    session.screen.answer({**document, **asdict(stored)}, stored.summary())


async def _paused(session: CommandSession, options: Namespace, number: int) -> None:
    if number % FLUSH_EVERY == 0:
        await flush_twice(session.client)  # bounds the unconfirmed messages and detects refusals
        session.watch.raise_if_failed()
    if options.sleep and number < options.count:
        await asyncio.sleep(options.sleep / SECOND_NS)


@contextlib.asynccontextmanager
async def subscribed(
    session: CommandSession, subject: str, queue: str = ""
) -> AsyncIterator[Subscription]:
    """Subscribe and wait until the server has accepted the subscription."""
    subscription = await session.client.subscribe(subject, queue)
    await flush_twice(session.client)
    session.watch.raise_if_failed()
    try:
        yield subscription
    finally:
        if not session.client.is_closed:
            await subscription.unsubscribe()


async def _subscribe(session: CommandSession, options: Namespace) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue(WAITING_MAX)
    async with contextlib.AsyncExitStack() as stack:
        pumps = []
        for subject in options.subject:
            subscription = await stack.enter_async_context(
                subscribed(session, subject, options.queue)
            )
            pumps.append(asyncio.ensure_future(_pump(subscription, arrived)))
        stack.callback(lambda: [pump.cancel() for pump in pumps])
        session.screen.remark(f"Listening on {', '.join(options.subject)}")
        number = 0
        while options.count is None or number < options.count:
            number += 1
            _show(session, options, number, await arrived.get())


async def _pump(subscription: Subscription, arrived: asyncio.Queue[Msg]) -> None:
    async for message in subscription.messages:
        await arrived.put(message)


def _show(session: CommandSession, options: Namespace, number: int, message: Msg) -> None:
    if options.raw:
        session.screen.raw(message.data + b"\n")
        return
    reply = f", answers to {message.reply}" if message.reply else ""
    title = f"[#{number}] {message.subject}{reply}"
    text = message_text(title, message.headers, message.data)
    session.screen.item(message_document(message), text)


async def _request(session: CommandSession, options: Namespace) -> None:
    from nats.errors import TimeoutError

    body, headers = payload_of(options), dict(options.header) or None
    inbox = session.client.new_inbox()
    deadline = time.monotonic() + options.timeout / SECOND_NS
    number = 0
    async with subscribed(session, inbox) as subscription:
        await session.client.publish(options.subject, body, reply=inbox, headers=headers)
        while options.replies == 0 or number < options.replies:
            left = deadline - time.monotonic()
            try:
                message = await subscription.next_msg(max(left, 0.001))
            except TimeoutError:
                break
            if not message.data and (message.headers or {}).get("Status") == "503":
                raise Failure(f"no responders on {options.subject}")
            number += 1
            _show(session, options, number, message)
    session.watch.raise_if_failed()
    if number < max(options.replies, 1):
        raise Failure(f"{number} of {options.replies or 'any'} answers came in time")


async def _reply(session: CommandSession, options: Namespace) -> None:
    if sum((bool(options.body or options.file), options.echo, bool(options.command))) != 1:
        raise Misuse("answer with a body, with --echo or with --command: one of them")
    body = payload_of(options)
    async with subscribed(session, options.subject, options.queue) as subscription:
        session.screen.remark(f"Answering on {options.subject}")
        number = 0
        async for message in subscription.messages:
            if not message.reply:
                continue
            number += 1
            _show(session, options, number, message)
            answer = filled(body, number) if options.templates else body
            await _answer(session, options, message, answer)
            if number == options.count:
                return


async def _answer(session: CommandSession, options: Namespace, message: Msg, body: bytes) -> None:
    headers = dict(options.header) or None
    if options.command:
        body = await _output_of(options.command, message)
    elif options.echo:
        body, headers = message.data, {**(message.headers or {}), **(headers or {})} or None
    await session.client.publish(message.reply, body, headers=headers)


async def _output_of(command: str, message: Msg) -> bytes:
    import os
    import shlex

    words = shlex.split(command)
    if not words:
        raise Misuse("--command is empty")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, env={**os.environ, SUBJECT_VARIABLE: message.subject}
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, _ = await process.communicate(message.data)
    except TimeoutError:
        raise Failure(f"{words[0]} took longer than {COMMAND_SECONDS} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output


def _pub_arguments() -> tuple[Argument, ...]:
    return (
        argument("subject", help="where to"),
        *BODY,
        HEADER,
        argument("--reply", default="", metavar="SUBJECT", help="where answers should go"),
        argument("--ack", action="store_true", help="wait until a stream has stored each"),
        argument("--count", type=positive, default=1, metavar="N", help="send it so many times"),
        argument("--sleep", type=duration, default=0, metavar="DURATION", help="pause in between"),
        TEMPLATES,
    )


def _sub_arguments() -> tuple[Argument, ...]:
    return (
        argument("subject", nargs="+", help="subjects, with wildcards if wanted"),
        argument("--queue", default="", metavar="NAME", help="share messages with this group"),
        RAW,
    )


def _req_arguments() -> tuple[Argument, ...]:
    return (
        argument("subject", help="whom to ask"),
        *BODY,
        HEADER,
        argument(
            "--replies",
            type=whole,
            default=1,
            metavar="N",
            help="answers to wait for (default: 1); 0 takes all that come in time",
        ),
        RAW,
    )


def _reply_arguments() -> tuple[Argument, ...]:
    return (
        argument("subject", help="what to answer, with wildcards if wanted"),
        *BODY,
        HEADER,
        TEMPLATES,
        argument("--echo", action="store_true", help="answer with the request itself"),
        argument("--command", default="", metavar="COMMAND", help="answer with what this prints"),
        argument("--queue", default="", metavar="NAME", help="share requests with this group"),
        RAW,
    )


PUB: Final = Command("pub", "publish a message", _pub_arguments, online=_publish)
SUB: Final = Command(
    "sub", "show messages as they come", _sub_arguments, online=_subscribe, streams=True
)
REQ: Final = Command("req", "ask, and show the answer", _req_arguments, online=_request)
REPLY: Final = Command("reply", "answer requests", _reply_arguments, online=_reply, streams=True)
