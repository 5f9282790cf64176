"""`penstock kv`: key-value buckets, stored in streams as every NATS client stores them.

Bucket `B` is the stream `KV_B`, a key is a subject below `$KV.B.`, a delete is a message with a
header. The server refuses `create` and `update` if the key is not as expected, so two concurrent
writers cannot both succeed.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.api.error_codes import NO_MESSAGE_FOUND, WRONG_LAST_SEQUENCE
from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import checked_name
from penstock.cli.argument_values import positive, positive_duration, size, whole
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
from penstock.cli.message_format import payload_document, payload_text
from penstock.cli.output import (
    Facts,
    TableListing,
    printable,
    show_age,
    show_bytes,
    show_count,
    show_limit,
    show_time,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from penstock.api.api_client import Document
    from penstock.cli.api_calls import FetchedMessage
    from penstock.cli.command_session import CommandSession
    from penstock.cli.stream_reader import StreamReader

PREFIX: Final = "KV_"
HISTORY_MAX: Final = 64
DUPLICATES_NS: Final = 120 * SECOND_NS
OPERATION: Final = "KV-Operation"
MARKER: Final = "Nats-Marker-Reason"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
MARKERS: Final = {"MaxAge": "PURGE", "Purge": "PURGE", "Remove": "DEL"}
PUT: Final = "PUT"
KEY: Final = re.compile(r"[-/_=.a-zA-Z0-9]+")
PATTERN: Final = re.compile(r"[-/_=.a-zA-Z0-9*>]+")


# -- names


def _stream(bucket: str) -> str:
    return f"{PREFIX}{checked_name(bucket, 'bucket')}"


def _subject(options: Namespace) -> str:
    key = options.key
    if not KEY.fullmatch(key) or key.startswith(".") or key.endswith("."):
        raise Misuse(f"{key!r} is not a key: letters, digits and - / _ = . may be in it")
    return f"$KV.{options.bucket}.{key}"


def _key(subject: str) -> str:
    return subject.split(".", 2)[2]


# -- entries


def _operation(message: FetchedMessage) -> str:
    reason = MARKERS.get(message.headers.get(MARKER, ""), PUT)
    return message.headers.get(OPERATION, reason)


def _document(bucket: str, message: FetchedMessage) -> Document:
    return {
        "bucket": bucket,
        "key": _key(message.subject),
        "revision": message.seq,
        "operation": _operation(message),
        "created": message.time,
        **payload_document(message.data),
    }


def _line(message: FetchedMessage) -> str:
    operation = _operation(message)
    value = f": {payload_text(message.data)}" if operation == PUT else ""
    when = show_time(message.time)
    return printable(f"[{when}] {operation} {_key(message.subject)} @ {message.seq}{value}")


async def _last(session: CommandSession, options: Namespace) -> FetchedMessage | None:
    """Return the last message of a key, of any operation; None if there is none."""
    stream, subject = _stream(options.bucket), _subject(options)
    revision = getattr(options, "revision", None)
    query: dict[str, Any] = {"seq": revision} if revision else {"last_by_subj": subject}
    try:
        with named(options.bucket):
            found = await session.api.message(stream, query)
    except RequestRefused as refused:
        if refused.err_code == NO_MESSAGE_FOUND:
            return None
        raise
    return found if found.subject == subject else None


async def _get(session: CommandSession, options: Namespace) -> None:
    found = await _last(session, options)
    if found is None or _operation(found) != PUT:
        raise Failure(f"there is no key {options.key} in bucket {options.bucket}")
    if options.raw:
        session.screen.raw(found.data)
        return
    session.screen.answer(_document(options.bucket, found), _line(found))


def _value(options: Namespace) -> bytes:
    if options.value == "-":
        return sys.stdin.buffer.read()
    return str(options.value).encode(errors="surrogateescape")


async def _store(
    session: CommandSession, options: Namespace, value: bytes, headers: dict[str, str]
) -> int:
    # A publish to a missing bucket has no responder; look up the bucket to report it.
    subject = _subject(options)
    try:
        ack = await session.api.publish(subject, value, headers)
    except RequestRefused as refused:
        if refused.err_code in WRONG_LAST_SEQUENCE:
            text = f"key {options.key} is not as expected: {refused}"
            raise Failure(text) from None
        raise
    except Failure:
        await bucket_info(session, options.bucket, _stream(options.bucket))
        raise
    return int(ack["seq"])


def _show_revision(
    session: CommandSession, options: Namespace, revision: int, operation: str
) -> None:
    document = {
        "bucket": options.bucket,
        "key": options.key,
        "revision": revision,
        "operation": operation,
    }
    session.screen.answer(document, f"{operation} {options.key} @ {revision}")


async def _put(session: CommandSession, options: Namespace) -> None:
    revision = await _store(session, options, _value(options), {})
    _show_revision(session, options, revision, PUT)


async def _create(session: CommandSession, options: Namespace) -> None:
    value = _value(options)
    ttl = {"Nats-TTL": f"{_seconds(options.ttl)}s"} if options.ttl else {}
    found = await _last(session, options)
    if found is not None and _operation(found) == PUT:
        raise Failure(f"key {options.key} is there already, revision {found.seq}")
    expected = {EXPECTED: str(found.seq if found else 0)}
    revision = await _store(session, options, value, {**expected, **ttl})
    _show_revision(session, options, revision, PUT)


def _seconds(ttl_ns: int) -> int:
    seconds, rest = divmod(ttl_ns, SECOND_NS)
    if rest:
        raise Misuse("--ttl goes by whole seconds")
    return seconds


async def _update(session: CommandSession, options: Namespace) -> None:
    headers = {EXPECTED: str(options.revision)}
    revision = await _store(session, options, _value(options), headers)
    _show_revision(session, options, revision, PUT)


async def _delete(session: CommandSession, options: Namespace) -> None:
    confirm(f"Delete key {options.key} of bucket {options.bucket}?", options)
    revision = await _store(session, options, b"", {OPERATION: "DEL"})
    _show_revision(session, options, revision, "DEL")


async def _purge(session: CommandSession, options: Namespace) -> None:
    confirm(f"Delete key {options.key} of {options.bucket} with its history?", options)
    headers = {OPERATION: "PURGE", "Nats-Rollup": "sub"}
    revision = await _store(session, options, b"", headers)
    _show_revision(session, options, revision, "PURGE")


# -- many entries


def _reader(
    session: CommandSession, bucket: str, pattern: str, policy: str, **choices: bool
) -> StreamReader:
    from penstock.cli.stream_reader import ReadStart, StreamReader

    if not PATTERN.fullmatch(pattern):
        raise Misuse(f"{pattern!r} is not a pattern of keys")
    subjects = [f"$KV.{bucket}.{pattern}"]
    start = ReadStart(subjects, policy, headers_only=choices.get("headers_only", False))
    return StreamReader(session.api, _stream(bucket), start, follow=choices.get("follow", False))


async def _ls(session: CommandSession, options: Namespace) -> None:
    if not options.bucket:
        await _ls_buckets(session)
        return
    keys = []
    reader = _reader(
        session, options.bucket, options.pattern, "last_per_subject", headers_only=True
    )
    with named(options.bucket):
        async with reader:
            async for message in reader:
                keys += [_key(message.subject)] if _operation(message) == PUT else []
    keys.sort()
    session.screen.answer(keys, *keys)


async def _ls_buckets(session: CommandSession) -> None:
    pages = session.api.pages("STREAM.LIST", "streams", {"subject": "$KV.*.>"})
    found = [_status(one) async for one in pages if one["config"]["name"].startswith(PREFIX)]
    rows = [
        (
            one["bucket"],
            one["description"],
            show_count(one["values"]),
            show_bytes(one["bytes"]),
            str(one["history"]),
            show_age(one["ttl"]),
        )
        for one in found
    ]
    headings = ("bucket", "description", ">values", ">bytes", ">history", ">ttl")
    session.screen.answer(found, TableListing("Buckets", headings, rows))


async def _watch(session: CommandSession, options: Namespace) -> None:
    policy = "new" if options.updates else "all" if options.history else "last_per_subject"
    reader = _reader(session, options.bucket, options.pattern, policy, follow=True)
    number = 0
    with named(options.bucket):
        async with reader:
            session.screen.remark(f"Watching {options.bucket}")
            async for message in reader:
                session.screen.item(_document(options.bucket, message), _line(message))
                number += 1
                if number == options.count:
                    return


async def _history(session: CommandSession, options: Namespace) -> None:
    _subject(options)
    with named(options.bucket):
        async with _reader(session, options.bucket, options.key, "all") as reader:
            found = [message async for message in reader]
    if not found:
        raise Failure(f"there is no key {options.key} in bucket {options.bucket}")
    rows = [
        (str(one.seq), _operation(one), show_time(one.time), payload_text(one.data))
        for one in found
    ]
    title = f"History of {options.key}"
    listing = TableListing(title, (">revision", "operation", "created", "value"), rows)
    session.screen.answer([_document(options.bucket, one) for one in found], listing)


# -- buckets


def _status(info: Document) -> Document:
    config = info["config"]
    return {
        **bucket_status(info, PREFIX),
        "values": info["state"]["messages"],
        "history": config["max_msgs_per_subject"],
        "max_value_size": config.get("max_msg_size", -1),
    }


async def _show_status(session: CommandSession, options: Namespace) -> None:
    _show_bucket(session, await bucket_info(session, options.bucket, _stream(options.bucket)))


def _show_bucket(session: CommandSession, info: Document) -> None:
    status = _status(info)
    facts = [
        ("description", status["description"]),
        ("values", show_count(status["values"])),
        ("bytes", show_bytes(status["bytes"])),
        ("history", str(status["history"])),
        ("ttl", show_age(status["ttl"])),
        ("max bytes", show_limit(status["max_bytes"], show_bytes)),
        ("max value", show_limit(status["max_value_size"], show_bytes)),
        ("storage", status["storage"]),
        ("replicas", str(status["replicas"])),
        ("compressed", "yes" if status["compressed"] else ""),
        ("stream", status["stream"]),
    ]
    session.screen.answer(status, Facts(f"Bucket {status['bucket']}", facts))


async def _add(session: CommandSession, options: Namespace) -> None:
    if options.history > HISTORY_MAX:
        raise Misuse(f"--history goes up to {HISTORY_MAX}")
    stream = _stream(options.bucket)
    config = {
        **bucket_config(stream, [f"$KV.{options.bucket}.>"], options),
        "max_msgs_per_subject": options.history,
        "max_msg_size": options.max_value_size,
        "duplicate_window": min(options.ttl or DUPLICATES_NS, DUPLICATES_NS),
        "deny_delete": True,
    }
    if options.marker_ttl:
        config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": options.marker_ttl}
    _show_bucket(session, await session.api.call(f"STREAM.CREATE.{stream}", config))


async def _rm(session: CommandSession, options: Namespace) -> None:
    await remove_bucket(session, options, _stream(options.bucket))


# -- arguments

ENTRY: Final = (BUCKET, argument("key", help="the key"))
VALUE: Final = argument("value", help="the value; - reads standard input")


def _add_arguments() -> tuple[Argument, ...]:
    return (
        *bucket_arguments(),
        argument(
            "--history", type=positive, default=1, metavar="N", help="values kept of each key"
        ),
        argument(
            "--max-value-size", type=size, default=-1, metavar="SIZE", help="bytes of one value"
        ),
        argument(
            "--marker-ttl",
            type=positive_duration,
            default=0,
            metavar="DURATION",
            help="keys may say how long they live, and leave a marker for so long",
        ),
    )


def _ls_arguments() -> tuple[Argument, ...]:
    return (
        argument("bucket", nargs="?", default="", help="list its keys; without: buckets"),
        argument("pattern", nargs="?", default=">", help="only such keys"),
    )


def _get_arguments() -> tuple[Argument, ...]:
    return (
        *ENTRY,
        argument("--revision", type=positive, metavar="N", help="the value of that revision"),
        argument("--raw", action="store_true", help="print the value only, as it is"),
    )


def _create_arguments() -> tuple[Argument, ...]:
    ttl = argument(
        "--ttl", type=positive_duration, metavar="DURATION", help="how long it lives, in seconds"
    )
    return (*ENTRY, VALUE, ttl)


def _update_arguments() -> tuple[Argument, ...]:
    return (*ENTRY, VALUE, argument("revision", type=whole, help="the revision it must be at"))


def _watch_arguments() -> tuple[Argument, ...]:
    return (
        BUCKET,
        argument("pattern", nargs="?", default=">", help="only such keys"),
        argument("--history", action="store_true", help="show earlier values, too"),
        argument("--updates", action="store_true", help="show only what comes from now on"),
    )


NOUN: Final = Noun(
    "kv",
    "buckets of keys and values",
    (
        Command("ls", "list buckets, or the keys of one", _ls_arguments, online=_ls),
        Command("add", "make a bucket", _add_arguments, online=_add),
        Command("rm", "remove a bucket", lambda: (BUCKET, FORCE), online=_rm),
        Command("status", "show a bucket", lambda: (BUCKET,), online=_show_status),
        Command("get", "show the value of a key", _get_arguments, online=_get),
        Command("put", "set a key", lambda: (*ENTRY, VALUE), online=_put),
        Command("create", "set a key that is not there", _create_arguments, online=_create),
        Command("update", "set a key whose revision is known", _update_arguments, online=_update),
        Command("del", "delete a key, keep its history", lambda: (*ENTRY, FORCE), online=_delete),
        Command("purge", "delete a key and its history", lambda: (*ENTRY, FORCE), online=_purge),
        Command(
            "watch", "show changes as they come", _watch_arguments, online=_watch, streams=True
        ),
        Command("history", "show the values of a key", lambda: ENTRY, online=_history),
    ),
)
