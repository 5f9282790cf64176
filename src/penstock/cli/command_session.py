"""The server connection of one command: opened before it starts, closed however it ends.

A streaming command ends successfully when its time is up or when it gets SIGINT or SIGTERM: its
task is cancelled and closes what it opened. Other commands are interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import Api
from penstock.cli.cli_errors import Failure, describe_error
from penstock.cli.command_spec import ANSWER_SECONDS
from penstock.cli.output import Screen, show_duration
from penstock.cli.server_target import (
    ConnectionWatch,
    ServerTarget,
    close_client,
    open_client,
    resolve,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Iterator

    from nats.aio.client import Client

    from penstock.cli.command_spec import Online


@dataclass(frozen=True, slots=True)
class CommandSession:
    """A connected client, its API, and where to print."""

    client: Client
    api: Api
    screen: Screen
    watch: ConnectionWatch
    target: ServerTarget


async def hold(online: Online, screen: Screen, options: Namespace, *, streams: bool) -> None:
    """Run the command with a connection."""
    async with _connected(screen, options, lasting=streams) as session:
        if not streams:
            await online(session, options)
            session.watch.raise_if_failed()
            return
        task = asyncio.ensure_future(online(session, options))
        with _stopped_by_signals(task):
            await _within_bounds(task, options)


@contextlib.asynccontextmanager
async def _connected(
    screen: Screen, options: Namespace, *, lasting: bool
) -> AsyncIterator[CommandSession]:
    target, watch = resolve(options, os.environ), ConnectionWatch(screen.remark)
    client = await open_client(target, watch, lasting=lasting)
    from nats.errors import ConnectionClosedError

    timeout_ns = ANSWER_SECONDS * SECOND_NS if lasting else options.timeout
    prefix = f"$JS.{target.domain}.API" if target.domain else "$JS.API"
    api = Api(client, prefix, timeout_ns / SECOND_NS)
    try:
        yield CommandSession(client, api, screen, watch, target)
    except ConnectionClosedError:
        reason = describe_error(client.last_error or watch.last or ConnectionClosedError())
        raise Failure(f"the server closed the connection: {reason}") from None
    finally:
        await close_client(client, watch)


async def _within_bounds(task: asyncio.Future[None], options: Namespace) -> None:
    seconds = None if options.timeout is None else options.timeout / SECOND_NS
    done, _ = await asyncio.wait({task}, timeout=seconds)
    late = not done
    if late:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    if late and options.count is not None:
        passed = show_duration(options.timeout)
        raise Failure(f"fewer than {options.count} came within {passed}")


@contextlib.contextmanager
def _stopped_by_signals(task: asyncio.Future[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
