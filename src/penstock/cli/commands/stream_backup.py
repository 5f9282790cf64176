"""`penstock stream backup` and `restore`: save a stream as two files, and restore it.

The directory holds `backup.json`, the configuration and state with which a restore starts, and the
archive as the server sent it. Other NATS tools write and read the same layout. A backup is complete
or absent: the archive gets its name only when every byte is on disk, and `backup.json` is written
last. Chunks are acknowledged as they arrive, so that a slow disk slows down the server.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.api_calls import checked_name, read_answer
from penstock.cli.argument_values import document
from penstock.cli.cli_errors import Failure
from penstock.cli.command_spec import Argument, Command, argument
from penstock.cli.commands.message_commands import subscribed
from penstock.cli.output import show_bytes

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import BinaryIO

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.api.api_client import Document
    from penstock.cli.command_session import CommandSession

DESCRIPTION: Final = "backup.json"
ARCHIVE: Final = "stream.tar.s2"
#: File names under which other tools store archives.
ARCHIVES: Final = (ARCHIVE, "stream.arc.s2")
CHUNK_BYTES: Final = 128 * 1024
SILENCE_SECONDS: Final = 15
FINISH_SECONDS: Final = 120
COMPLETE: Final = ("", "204")


async def _backup(session: CommandSession, options: Namespace) -> None:
    name = checked_name(options.name, "stream")
    directory = _empty_directory(options.directory)
    inbox = session.client.new_inbox()
    request = {
        "deliver_subject": inbox,
        "chunk_size": CHUNK_BYTES,
        "no_consumers": options.no_consumers,
        "jsck": options.check,
    }
    partial = directory / f"{ARCHIVE}.partial"
    try:
        async with subscribed(session, inbox) as chunks:
            answer = await session.api.call(f"STREAM.SNAPSHOT.{name}", request)
            title, total = f"Backing up {name}", answer["state"]["bytes"]
            with session.screen.progress(title, total, as_bytes=True) as done:
                size = await _receive(session, chunks, partial, done)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(directory / ARCHIVE)
    _write_description(directory / DESCRIPTION, answer)
    state = answer["state"]
    result = {
        "stream": name,
        "directory": str(directory),
        "messages": state["messages"],
        "bytes": state["bytes"],
        "archive_bytes": size,
    }
    text = (
        f"{state['messages']:,} messages ({show_bytes(state['bytes'])}) of {name} are kept in "
        f"{directory}, {show_bytes(size)}"
    )
    session.screen.answer(result, text)


def _empty_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if any((path / name).exists() for name in (DESCRIPTION, *ARCHIVES)):
        raise Failure(f"{path} holds a backup; choose another directory")
    return path


def _write_description(path: Path, answer: Document) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as out:
        json.dump({"config": answer["config"], "state": answer["state"]}, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)


async def _receive(
    session: CommandSession, chunks: Subscription, path: Path, done: Callable[[int], None]
) -> int:
    """Write all chunks to a file; return its size."""
    size = 0
    with path.open("wb") as out:
        while True:
            chunk = await _next(chunks)
            if not chunk.data:
                _check_end(chunk)
                break
            out.write(chunk.data)
            size += len(chunk.data)
            done(len(chunk.data))
            if chunk.reply:
                await session.client.publish(chunk.reply)
        out.flush()
        os.fsync(out.fileno())
    return size


async def _next(chunks: Subscription) -> Msg:
    from nats.errors import TimeoutError

    try:
        return await chunks.next_msg(SILENCE_SECONDS)
    except TimeoutError:
        raise Failure(f"the server fell silent for {SILENCE_SECONDS} s") from None


def _check_end(message: Msg) -> None:
    headers = message.headers or {}
    if headers.get("Status", "") not in COMPLETE:
        reason = headers.get("Description", "") or headers["Status"]
        raise Failure(f"the server gave up: {reason}")


# -- restore


async def _restore(session: CommandSession, options: Namespace) -> None:
    described, archive = _backup_in(options.directory)
    config = {**described["config"], **options.config}
    name = checked_name(config.get("name", ""), "stream")
    body = {"config": config, "state": described["state"]}
    answer = await session.api.call(f"STREAM.RESTORE.{name}", body)
    title, total = f"Restoring {name}", archive.stat().st_size
    with (
        session.screen.progress(title, total, as_bytes=True) as done,
        archive.open("rb") as source,
    ):
        info = await _send(session, answer["deliver_subject"], source, done)
    state = info["state"]
    text = f"Stream {name} is back: {state['messages']:,} messages, {show_bytes(state['bytes'])}"
    session.screen.answer(info, text)


def _backup_in(directory: Path) -> tuple[Document, Path]:
    path = directory / DESCRIPTION
    try:
        described = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise Failure(f"{directory} holds no backup: {DESCRIPTION} is missing") from None
    except ValueError:
        raise Failure(f"{path}: not a description of a backup") from None
    if not isinstance(described, dict) or not {"config", "state"} <= described.keys():
        raise Failure(f"{path}: not a description of a backup")
    for name in ARCHIVES:
        if (directory / name).exists():
            return described, directory / name
    raise Failure(f"{directory} holds no backup: {ARCHIVE} is missing")


async def _send(
    session: CommandSession, subject: str, source: BinaryIO, done: Callable[[int], None]
) -> Document:
    """Send all chunks, each after the previous one was accepted; return the final reply."""
    while chunk := source.read(CHUNK_BYTES):
        answer = await session.client.request(subject, chunk, timeout=SILENCE_SECONDS)
        if answer.data:
            return read_answer(answer.data)
        done(len(chunk))
    answer = await session.client.request(subject, b"", timeout=FINISH_SECONDS)
    return read_answer(answer.data)


def _backup_arguments() -> tuple[Argument, ...]:
    return (
        argument("name", help="name of the stream"),
        argument("directory", type=Path, help="where to; it is made if need be"),
        argument("--no-consumers", action="store_true", help="leave its consumers out"),
        argument("--check", action="store_true", help="let the server verify its files first"),
    )


def _restore_arguments() -> tuple[Argument, ...]:
    return (
        argument("directory", type=Path, help="where the backup is"),
        argument(
            "--config",
            type=document,
            default={},
            metavar="FILE",
            help="JSON whose fields replace those of the stream's configuration",
        ),
    )


BACKUP: Final = Command("backup", "keep a stream in a directory", _backup_arguments, online=_backup)
RESTORE: Final = Command(
    "restore", "bring a stream back from a directory", _restore_arguments, online=_restore
)
