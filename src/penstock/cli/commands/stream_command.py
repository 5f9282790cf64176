"""`penstock stream`: list, show and change streams and their messages.

An edit sends back the server's configuration with the changes applied, so that fields unknown to
this version are not lost. Actions that lose messages ask first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.cli.api_calls import checked_name
from penstock.cli.argument_values import moment, positive, whole
from penstock.cli.cli_errors import Misuse
from penstock.cli.command_spec import FORCE, Argument, Command, Noun, argument, confirm
from penstock.cli.commands import stream_backup
from penstock.cli.message_format import stored_document, stored_text
from penstock.cli.output import (
    Block,
    Facts,
    TableListing,
    show_age,
    show_bytes,
    show_count,
    show_duration,
    show_limit,
    show_time,
    show_yes,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from penstock.api.api_client import Document
    from penstock.cli.api_calls import FetchedMessage
    from penstock.cli.command_session import CommandSession
    from penstock.cli.stream_reader import ReadStart

SUBJECTS_SHOWN: Final = 100
PURGE_SECONDS: Final = 60
#: Boolean options of a configuration, shown when they are on.
SWITCHES: Final = (
    "no_ack",
    "sealed",
    "deny_delete",
    "deny_purge",
    "allow_rollup_hdrs",
    "allow_direct",
    "mirror_direct",
    "discard_new_per_subject",
    "allow_msg_ttl",
    "allow_msg_counter",
    "allow_atomic",
    "allow_msg_schedules",
    "allow_batched",
)


# -- reading


async def _ls(session: CommandSession, options: Namespace) -> None:
    body = {"subject": options.subject} if options.subject else None
    found = [one async for one in session.api.pages("STREAM.LIST", "streams", body)]
    if options.names:
        names = [one["config"]["name"] for one in found]
        session.screen.answer(names, *names)
        return
    rows = [_row(one) for one in found]
    headings = ("name", "subjects", "storage", ">messages", ">bytes", ">consumers", "last message")
    session.screen.answer(found, TableListing("Streams", headings, rows))


def _row(info: Document) -> tuple[str, ...]:
    config, state = info["config"], info["state"]
    return (
        config["name"],
        ", ".join(config.get("subjects") or _origins(config)),
        config["storage"],
        show_count(state["messages"]),
        show_bytes(state["bytes"]),
        show_count(state["consumer_count"]),
        show_time(state["last_ts"]),
    )


def _origins(config: Document) -> list[str]:
    mirror = config.get("mirror")
    if mirror:
        return [f"mirror of {mirror['name']}"]
    return [f"from {source['name']}" for source in config.get("sources") or ()]


async def _info(session: CommandSession, options: Namespace) -> None:
    name = checked_name(options.name, "stream")
    body = {"subjects_filter": options.subjects} if options.subjects else None
    info = await session.api.call(f"STREAM.INFO.{name}", body)
    session.screen.answer(info, *shown(info))


def shown(info: Document) -> list[Block]:
    """Return a stream as blocks for display."""
    config, state = info["config"], info["state"]
    blocks: list[Block] = [
        Facts(f"Stream {config['name']}", _config_rows(info)),
        Facts("Limits", _limit_rows(config)),
        Facts("State", _state_rows(state)),
    ]
    copies = [*([info["mirror"]] if info.get("mirror") else []), *(info.get("sources") or [])]
    if copies:
        rows = [
            (one["name"], show_count(one["lag"]), show_duration(one["active"]), _error(one))
            for one in copies
        ]
        blocks.append(TableListing("Copies from", ("stream", ">lag", ">heard of", "error"), rows))
    if state.get("subjects"):
        most = sorted(state["subjects"].items(), key=lambda item: (-item[1], item[0]))
        title = f"Subjects, {min(len(most), SUBJECTS_SHOWN)} of {len(most):,}"
        counts = [(subject, show_count(count)) for subject, count in most[:SUBJECTS_SHOWN]]
        blocks.append(TableListing(title, ("subject", ">messages"), counts))
    return blocks


def _error(source: Document) -> str:
    return str((source.get("error") or {}).get("description", ""))


def _config_rows(info: Document) -> list[tuple[str, str]]:
    config, cluster = info["config"], info.get("cluster") or {}
    republish = config.get("republish") or {}
    own = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if not key.startswith("_nats.")
    }
    return [
        ("description", config.get("description", "")),
        ("subjects", ", ".join(config.get("subjects") or ())),
        ("copies", ", ".join(_origins(config))),
        ("storage", config["storage"]),
        ("compression", config.get("compression", "none").replace("none", "")),
        ("retention", config["retention"]),
        ("discard", config["discard"]),
        ("replicas", str(config["num_replicas"])),
        ("leader", cluster.get("leader", "")),
        ("duplicate window", show_duration(config.get("duplicate_window", 0))),
        ("republishes to", republish.get("dest", "")),
        ("allows", ", ".join(name for name in SWITCHES if config.get(name))),
        ("metadata", ", ".join(f"{key}={value}" for key, value in own.items())),
        ("created", show_time(info["created"])),
    ]


def _limit_rows(config: Document) -> list[tuple[str, str]]:
    return [
        ("messages", show_limit(config["max_msgs"])),
        ("per subject", show_limit(config["max_msgs_per_subject"])),
        ("bytes", show_limit(config["max_bytes"], show_bytes)),
        ("age", show_age(config["max_age"])),
        ("message size", show_limit(config.get("max_msg_size", 0), show_bytes)),
        ("consumers", show_limit(config["max_consumers"])),
    ]


def _state_rows(state: Document) -> list[tuple[str, str]]:
    return [
        ("messages", show_count(state["messages"])),
        ("bytes", show_bytes(state["bytes"])),
        ("first", _place(state["first_seq"], state["first_ts"])),
        ("last", _place(state["last_seq"], state["last_ts"])),
        ("subjects", show_count(state.get("num_subjects", 0))),
        ("deleted", show_count(state["num_deleted"]) if state.get("num_deleted") else ""),
        ("lost", show_yes(state.get("lost"))),
        ("consumers", show_count(state["consumer_count"])),
    ]


def _place(seq: int, moment_text: str) -> str:
    return f"{seq:,} at {show_time(moment_text)}" if seq else "none yet"


# -- changing


async def _add(session: CommandSession, options: Namespace) -> None:
    from penstock.cli.config_flags import config_given

    config = config_given(options)
    name = checked_name(options.name or config.get("name", ""), "stream")
    info = await session.api.call(f"STREAM.CREATE.{name}", {**config, "name": name})
    session.screen.answer(info, f"Stream {name} is made", *shown(info))


async def _edit(session: CommandSession, options: Namespace) -> None:
    from penstock.cli.config_flags import config_given, differences, merged, sendable

    name, changes = checked_name(options.name, "stream"), config_given(options)
    if not changes:
        raise Misuse("nothing to change was given")
    old = sendable((await session.api.call(f"STREAM.INFO.{name}"))["config"])
    new = merged(old, {**changes, "name": name})
    listing = TableListing(
        f"Changes of {name}", ("field", "before", "after"), differences(old, new), "none"
    )
    if options.dry_run:
        session.screen.answer({"before": old, "after": new}, listing)
        return
    info = await session.api.call(f"STREAM.UPDATE.{name}", new)
    session.screen.answer(info, listing)


async def _rm(session: CommandSession, options: Namespace) -> None:
    name = checked_name(options.name, "stream")
    confirm(f"Remove stream {name} with all its messages?", options)
    answer = await session.api.call(f"STREAM.DELETE.{name}")
    session.screen.answer(answer, f"Stream {name} was deleted")


async def _purge(session: CommandSession, options: Namespace) -> None:
    name = checked_name(options.name, "stream")
    wanted = {"filter": options.subject, "seq": options.seq, "keep": options.keep}
    body = {key: value for key, value in wanted.items() if value}
    what = f"messages of {options.subject}" if options.subject else "messages"
    confirm(f"Remove {what} from stream {name}?", options)
    with session.screen.progress(f"Purging {name}", None):
        answer = await session.api.call(f"STREAM.PURGE.{name}", body, seconds=PURGE_SECONDS)
    session.screen.answer(answer, f"{answer['purged']:,} messages were purged from {name}")


# -- messages


async def _get(session: CommandSession, options: Namespace) -> None:
    name = checked_name(options.name, "stream")
    given = [bool(options.seq), bool(options.last), bool(options.next)]
    if sum(given) != 1 and not (options.seq and options.next and not options.last):
        raise Misuse("say which: a sequence, --last SUBJECT, or --next SUBJECT")
    wanted = {"seq": options.seq, "last_by_subj": options.last, "next_by_subj": options.next}
    query = {key: value for key, value in wanted.items() if value}
    found = await session.api.message(name, query)
    _print(session, options, found)


async def _view(session: CommandSession, options: Namespace) -> None:
    from penstock.cli.stream_reader import StreamReader

    name = checked_name(options.name, "stream")
    start = await _start(session, name, options)
    number = 0
    async with StreamReader(session.api, name, start, follow=options.follow) as reader:
        async for message in reader:
            _print(session, options, message, streaming=True)
            number += 1
            if number == options.count:
                return
    if not number:
        session.screen.remark("No such messages")


async def _start(session: CommandSession, name: str, options: Namespace) -> ReadStart:
    from penstock.cli.stream_reader import ReadStart

    if sum(map(bool, (options.seq, options.since, options.last, options.new))) > 1:
        raise Misuse("say one of --seq, --since, --last and --new")
    subjects = options.subject or []
    if options.seq:
        return ReadStart(subjects, "by_start_sequence", options.seq)
    if options.since:
        return ReadStart(subjects, "by_start_time", time=options.since)
    if options.new:
        return ReadStart(subjects, "new")
    if options.last:
        state = (await session.api.call(f"STREAM.INFO.{name}"))["state"]
        seq = max(1, state["first_seq"], state["last_seq"] - options.last + 1)
        return ReadStart(subjects, "by_start_sequence", seq)
    return ReadStart(subjects)


def _print(
    session: CommandSession, options: Namespace, message: FetchedMessage, *, streaming: bool = False
) -> None:
    if options.raw:
        session.screen.raw(message.data + (b"\n" if streaming else b""))
    elif streaming:
        session.screen.item(stored_document(message), stored_text(message))
    else:
        session.screen.answer(stored_document(message), stored_text(message))


# -- arguments

NAME: Final = argument("name", help="name of the stream")
RAW: Final = argument("--raw", action="store_true", help="print payloads only, as they are")


def _ls_arguments() -> tuple[Argument, ...]:
    return (
        argument("--subject", default="", help="only those that take such subjects"),
        argument("--names", action="store_true", help="names only"),
    )


def _info_arguments() -> tuple[Argument, ...]:
    return (NAME, argument("--subjects", default="", metavar="FILTER", help="count these, too"))


def _add_arguments() -> tuple[Argument, ...]:
    from penstock.api.stream_config import StreamConfig
    from penstock.cli.config_flags import config_arguments

    name = argument("name", nargs="?", default="", help="its name, unless --config has it")
    return (name, *config_arguments(StreamConfig))


def _edit_arguments() -> tuple[Argument, ...]:
    from penstock.api.stream_config import StreamConfig
    from penstock.cli.config_flags import config_arguments

    dry = argument("--dry-run", action="store_true", help="show the changes, make none")
    return (NAME, dry, *config_arguments(StreamConfig, editing=True))


def _purge_arguments() -> tuple[Argument, ...]:
    return (
        NAME,
        argument("--subject", default="", metavar="FILTER", help="only messages with it"),
        argument("--seq", type=positive, metavar="N", help="only messages before this one"),
        argument("--keep", type=positive, metavar="N", help="keep so many of the newest"),
        FORCE,
    )


def _get_arguments() -> tuple[Argument, ...]:
    return (
        NAME,
        argument("seq", nargs="?", type=whole, help="its sequence"),
        argument("--last", default="", metavar="SUBJECT", help="the last of a subject"),
        argument("--next", default="", metavar="SUBJECT", help="the first from seq on"),
        RAW,
    )


def _view_arguments() -> tuple[Argument, ...]:
    return (
        NAME,
        argument("--subject", action="append", metavar="FILTER", help="only messages with it"),
        argument("--seq", type=positive, metavar="N", help="from this sequence on"),
        argument("--since", type=moment, metavar="TIME", help="from a time, or so long ago, on"),
        argument("--last", type=positive, metavar="N", help="only the last so many sequences"),
        argument("--new", action="store_true", help="only what comes from now on"),
        argument("--follow", action="store_true", help="go on when there are no more"),
        RAW,
    )


NOUN: Final = Noun(
    "stream",
    "streams and their messages",
    (
        Command("ls", "list streams", _ls_arguments, online=_ls),
        Command("info", "show one stream", _info_arguments, online=_info),
        Command("add", "make a stream", _add_arguments, online=_add),
        Command("edit", "change a stream", _edit_arguments, online=_edit),
        Command("rm", "remove a stream", lambda: (NAME, FORCE), online=_rm),
        Command("purge", "remove messages of a stream", _purge_arguments, online=_purge),
        Command("get", "show one message", _get_arguments, online=_get),
        Command("view", "show messages in order", _view_arguments, online=_view, streams=True),
        stream_backup.BACKUP,
        stream_backup.RESTORE,
    ),
)
