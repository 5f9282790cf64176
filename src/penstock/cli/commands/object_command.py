"""`penstock object`: files of any size in buckets, stored as every NATS client stores them.

Bucket `B` is the stream `OBJ_B`: chunks under `$O.B.C.<id>`, one description per object under
`$O.B.M.<name>`. A new version gets a new id, and its description is written last, so that readers
see the old object or the new one. A download is checked against its digest, and a file appears
under its name only when it is complete.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.api.error_codes import NO_MESSAGE_FOUND
from penstock.cli.api_calls import checked_name
from penstock.cli.cli_errors import Failure, Misuse, RequestRefused
from penstock.cli.command_spec import FORCE, Argument, Command, Noun, argument, confirm
from penstock.cli.commands.bucket_streams import (
    BUCKET,
    bucket_arguments,
    bucket_config,
    bucket_info,
    bucket_status,
    named,
    remove_bucket,
)
from penstock.cli.commands.message_commands import subscribed
from penstock.cli.output import Facts, TableListing, show_age, show_bytes, show_count, show_time
from penstock.cli.stream_reader import ReadStart, StreamReader

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import BinaryIO

    from penstock.api.api_client import Document
    from penstock.cli.api_calls import FetchedMessage
    from penstock.cli.command_session import CommandSession

PREFIX: Final = "OBJ_"
CHUNK_BYTES: Final = 128 * 1024
#: Maximum number of unacknowledged chunks.
IN_FLIGHT_MAX: Final = 16
DIGEST: Final = "SHA-256="
ROLLUP: Final = {"Nats-Rollup": "sub"}


# -- names


def _stream(bucket: str) -> str:
    return f"{PREFIX}{checked_name(bucket, 'bucket')}"


def _meta(bucket: str, name: str) -> str:
    if not name:
        raise Misuse("an object needs a name")
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _chunks(bucket: str, nuid: str) -> str:
    return f"$O.{bucket}.C.{nuid}"


# -- descriptions


def _described(message: FetchedMessage) -> Document:
    """Return the description in a message; its time is when the server stored it."""
    try:
        info = json.loads(message.data)
    except ValueError:
        raise Failure(f"the description at sequence {message.seq} is not JSON") from None
    return {**info, "mtime": message.time}


async def _find(session: CommandSession, bucket: str, name: str) -> Document | None:
    """Return the description of an object; None if it does not exist or is deleted."""
    query = {"last_by_subj": _meta(bucket, name)}
    try:
        with named(bucket):
            found = _described(await session.api.message(_stream(bucket), query))
    except RequestRefused as refused:
        if refused.err_code == NO_MESSAGE_FOUND:
            return None
        raise
    return None if found.get("deleted") else found


async def _must_find(session: CommandSession, bucket: str, name: str) -> Document:
    found = await _find(session, bucket, name)
    if found is None:
        raise Failure(f"there is no object {name} in bucket {bucket}")
    return found


def _facts(info: Document) -> Facts:
    link = (info.get("options") or {}).get("link") or {}
    return Facts(
        f"Object {info['name']} of {info['bucket']}",
        [
            ("description", info.get("description", "")),
            ("link to", "/".join(filter(None, (link.get("bucket"), link.get("name"))))),
            ("size", show_bytes(info.get("size", 0))),
            ("chunks", show_count(info.get("chunks", 0))),
            ("digest", info.get("digest", "")),
            ("modified", show_time(info.get("mtime"))),
        ],
    )


async def _ls(session: CommandSession, options: Namespace) -> None:
    if not options.bucket:
        await _ls_buckets(session)
        return
    start = ReadStart([f"$O.{options.bucket}.M.>"], "last_per_subject")
    with named(options.bucket):
        async with StreamReader(session.api, _stream(options.bucket), start) as reader:
            found = [_described(message) async for message in reader]
    there = sorted((one for one in found if not one.get("deleted")), key=lambda one: one["name"])
    rows = [(one["name"], show_bytes(one.get("size", 0)), show_time(one["mtime"])) for one in there]
    title = f"Objects of {options.bucket}"
    session.screen.answer(there, TableListing(title, ("name", ">size", "modified"), rows))


async def _ls_buckets(session: CommandSession) -> None:
    pages = session.api.pages("STREAM.LIST", "streams", {"subject": "$O.*.M.>"})
    found = [_status(one) async for one in pages if one["config"]["name"].startswith(PREFIX)]
    rows = [
        (one["bucket"], one["description"], show_bytes(one["bytes"]), show_age(one["ttl"]))
        for one in found
    ]
    headings = ("bucket", "description", ">bytes", ">ttl")
    session.screen.answer(found, TableListing("Buckets", headings, rows))


async def _info(session: CommandSession, options: Namespace) -> None:
    if options.name:
        info = await _must_find(session, options.bucket, options.name)
        session.screen.answer(info, _facts(info))
        return
    _show_bucket(session, await bucket_info(session, options.bucket, _stream(options.bucket)))


async def _watch(session: CommandSession, options: Namespace) -> None:
    policy = "new" if options.updates else "last_per_subject"
    start = ReadStart([f"$O.{options.bucket}.M.>"], policy)
    number = 0
    with named(options.bucket):
        async with StreamReader(session.api, _stream(options.bucket), start, follow=True) as reader:
            session.screen.remark(f"Watching {options.bucket}")
            async for message in reader:
                info = _described(message)
                session.screen.item(info, _line(info))
                number += 1
                if number == options.count:
                    return


def _line(info: Document) -> str:
    when = show_time(info["mtime"])
    if info.get("deleted"):
        return f"[{when}] DEL {info['name']}"
    return f"[{when}] PUT {info['name']}, {show_bytes(info.get('size', 0))}"


# -- upload


async def _put(session: CommandSession, options: Namespace) -> None:
    from_input = options.file == "-"
    name = options.name or ("" if from_input else Path(options.file).name)
    _meta(options.bucket, name)
    if from_input:
        info = await _upload(session, options, name, sys.stdin.buffer, None)
    else:
        source, total = _opened(Path(options.file))
        with source:
            info = await _upload(session, options, name, source, total)
    session.screen.answer(info, _facts(info))


def _opened(path: Path) -> tuple[BinaryIO, int]:
    """Open a file for reading; return it and its size."""
    source = path.open("rb")
    return source, os.fstat(source.fileno()).st_size


async def _upload(
    session: CommandSession, options: Namespace, name: str, source: BinaryIO, total: int | None
) -> Document:
    bucket = options.bucket
    before = await _find(session, bucket, name)
    nuid = session.client.new_inbox().rpartition(".")[2]
    info: Document = {"name": name}
    info |= {"description": options.description} if options.description else {}
    info |= {"options": {"max_chunk_size": CHUNK_BYTES}, "bucket": bucket, "nuid": nuid}
    try:
        with session.screen.progress(f"Putting {name}", total, as_bytes=True) as done:
            info |= await _send_chunks(session, _chunks(bucket, nuid), source, done)
        info["mtime"] = _now()
        await session.api.publish(_meta(bucket, name), json.dumps(info).encode(), ROLLUP)
    except BaseException:
        await _forget(session, bucket, nuid)
        raise
    if before is not None and before.get("nuid"):
        await _forget(session, bucket, before["nuid"])
    return info


async def _send_chunks(
    session: CommandSession, subject: str, source: BinaryIO, done: Callable[[int], None]
) -> Document:
    """Send a file as chunks, with a bounded number in flight; return size, chunks and digest."""
    digest, size, chunks, acked = hashlib.sha256(), 0, 0, 0
    async with subscribed(session, session.client.new_inbox()) as acks:
        while chunk := await asyncio.to_thread(source.read, CHUNK_BYTES):
            digest.update(chunk)
            size, chunks = size + len(chunk), chunks + 1
            await session.client.publish(subject, chunk, reply=acks.subject)
            if chunks - acked == IN_FLIGHT_MAX:
                await session.api.ack_from(acks)
                acked += 1
            done(len(chunk))
        for _ in range(acked, chunks):
            await session.api.ack_from(acks)
    shown = base64.urlsafe_b64encode(digest.digest()).decode()
    return {"size": size, "chunks": chunks, "digest": DIGEST + shown}


async def _forget(session: CommandSession, bucket: str, nuid: str) -> None:
    await session.api.call(f"STREAM.PURGE.{_stream(bucket)}", {"filter": _chunks(bucket, nuid)})


def _now() -> str:
    from penstock.api.timestamps import format_time

    return format_time(time.time_ns())


# -- download


async def _get(session: CommandSession, options: Namespace) -> None:
    info = await _must_find(session, options.bucket, options.name)
    link = (info.get("options") or {}).get("link")
    if link:
        if not link.get("name"):
            raise Failure(f"{options.name} is a link to bucket {link.get('bucket')}, not an object")
        info = await _must_find(session, link["bucket"], link["name"])
    if options.output == "-":
        await _download(session, info, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = _free(Path(options.output or Path(options.name).name), replace=options.force)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as out:
            await _download(session, info, out)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    size = show_bytes(info["size"])
    session.screen.answer({**info, "file": str(path)}, f"{options.name} is in {path}, {size}")


def _free(path: Path, *, replace: bool) -> Path:
    """Return the path if it may be written to; raise Failure otherwise."""
    if not path.name or (path.exists() and not replace):
        raise Failure(f"{path} is there already; --force replaces it")
    return path


async def _download(session: CommandSession, info: Document, out: BinaryIO) -> None:
    digest, left = hashlib.sha256(), int(info.get("size", 0))
    bucket, subject = info["bucket"], _chunks(info["bucket"], info["nuid"])
    if left:
        start = ReadStart([subject])
        with session.screen.progress(f"Getting {info['name']}", left, as_bytes=True) as done:
            async with StreamReader(session.api, _stream(bucket), start) as reader:
                async for chunk in reader:
                    await asyncio.to_thread(out.write, chunk.data)
                    digest.update(chunk.data)
                    left -= len(chunk.data)
                    done(len(chunk.data))
    if left:
        raise Failure(f"{info['name']} is not complete: {left:,} bytes are missing")
    wanted = str(info.get("digest", ""))
    if wanted and base64.urlsafe_b64decode(wanted.partition("=")[2]) != digest.digest():
        raise Failure(f"{info['name']} is damaged: its digest does not match")


# -- removing, and buckets


async def _rm(session: CommandSession, options: Namespace) -> None:
    if not options.name:
        await remove_bucket(session, options, _stream(options.bucket))
        return
    info = await _must_find(session, options.bucket, options.name)
    confirm(f"Remove object {options.name} of bucket {options.bucket}?", options)
    deleted = {**info, "size": 0, "chunks": 0, "digest": "", "deleted": True, "mtime": _now()}
    subject = _meta(options.bucket, options.name)
    await session.api.publish(subject, json.dumps(deleted).encode(), ROLLUP)
    await _forget(session, options.bucket, info["nuid"])
    session.screen.answer(deleted, f"Object {options.name} was deleted")


async def _add(session: CommandSession, options: Namespace) -> None:
    stream = _stream(options.bucket)
    subjects = [f"$O.{options.bucket}.C.>", f"$O.{options.bucket}.M.>"]
    config = bucket_config(stream, subjects, options)
    _show_bucket(session, await session.api.call(f"STREAM.CREATE.{stream}", config))


def _status(info: Document) -> Document:
    return {**bucket_status(info, PREFIX), "sealed": info["config"].get("sealed", False)}


def _show_bucket(session: CommandSession, info: Document) -> None:
    status = _status(info)
    facts = [
        ("description", status["description"]),
        ("bytes", show_bytes(status["bytes"])),
        ("ttl", show_age(status["ttl"])),
        ("storage", status["storage"]),
        ("replicas", str(status["replicas"])),
        ("sealed", "yes" if status["sealed"] else ""),
        ("compressed", "yes" if status["compressed"] else ""),
        ("stream", status["stream"]),
    ]
    session.screen.answer(status, Facts(f"Bucket {status['bucket']}", facts))


# -- arguments

NAME: Final = argument("name", help="name of the object")


def _put_arguments() -> tuple[Argument, ...]:
    return (
        BUCKET,
        argument("file", help="the file; - reads standard input"),
        argument("--name", default="", help="what to call it (default: the file's name)"),
        argument("--description", default="", help="for people"),
    )


def _get_arguments() -> tuple[Argument, ...]:
    output = argument(
        "-o",
        "--output",
        default="",
        metavar="FILE",
        help="where to (default: its name, here); - writes to standard output",
    )
    return (BUCKET, NAME, output, FORCE)


def _optional_name(help: str) -> Argument:
    return argument("name", nargs="?", default="", help=help)


def _ls_arguments() -> tuple[Argument, ...]:
    return (argument("bucket", nargs="?", default="", help="list its objects; without: buckets"),)


def _watch_arguments() -> tuple[Argument, ...]:
    updates = argument("--updates", action="store_true", help="only what comes from now on")
    return (BUCKET, updates)


NOUN: Final = Noun(
    "object",
    "files of any size in buckets",
    (
        Command("ls", "list buckets, or the objects of one", _ls_arguments, online=_ls),
        Command("add", "make a bucket", bucket_arguments, online=_add),
        Command("put", "keep a file", _put_arguments, online=_put),
        Command("get", "bring a file back", _get_arguments, online=_get),
        Command(
            "rm",
            "remove an object, or a bucket",
            lambda: (BUCKET, _optional_name("name of the object; without: the bucket"), FORCE),
            online=_rm,
        ),
        Command(
            "info",
            "show an object, or a bucket",
            lambda: (BUCKET, _optional_name("name of the object; without: the bucket")),
            online=_info,
        ),
        Command(
            "watch", "show changes as they come", _watch_arguments, online=_watch, streams=True
        ),
    ),
)
