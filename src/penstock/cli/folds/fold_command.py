"""`penstock fold`: create, follow, read, ship and compare local replicas of buckets.

This module declares the commands and their arguments. The implementations are in `fold_live`, which
needs a server, and in `fold_files` and `fold_copies`, which do not. `status` and `verify` contact a
server only if a bucket is named.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.cli.argument_values import pair, positive, positive_duration
from penstock.cli.command_session import hold
from penstock.cli.command_spec import (
    TIMEOUT,
    Argument,
    Command,
    Noun,
    argument,
    connection_arguments,
)
from penstock.cli.folds.fold_copies import compact, convert, export, import_, verified
from penstock.cli.folds.fold_files import described, dump, facts, get, ls, scan, sql
from penstock.cli.folds.fold_http import address
from penstock.cli.folds.fold_live import compared, fleet, lag, open_, run, watch
from penstock.cli.folds.fold_repair import repair
from penstock.cli.output import Facts, show_count

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable

    from penstock.cli.command_session import CommandSession
    from penstock.cli.output import Screen
    from penstock.fold import SnapshotReader

BACKENDS: Final = ("append-log", "sqlite", "lmdb", "rocksdb")
ROUND_SECONDS: Final = 300

PATH: Final = argument("path", help="file or directory of the fold")
BUCKET: Final = argument("bucket", help="name of the bucket")
STORAGE: Final = argument(
    "--storage-option",
    type=pair,
    action="append",
    metavar="NAME=VALUE",
    help="setting of the object store, as obstore calls it; client.NAME for its HTTP client",
)


# -- implementations


def _status(screen: Screen, options: Namespace) -> None:
    from penstock.fold.artifact.store_detect import open_reader

    with open_reader(options.path) as fold:
        document = described(fold, Path(options.path))
        if options.bucket:
            document["lag"] = _asked(screen, options, lag, fold)
    screen.answer(document, facts(document))


def _verify(screen: Screen, options: Namespace) -> None:
    from penstock.fold.artifact.store_detect import open_reader

    document = verified(screen, options)
    if options.bucket:
        with open_reader(options.path) as fold:
            document |= _asked(screen, options, compared, fold)
    rows = [
        ("revision", show_count(document["cursor"])),
        ("entries", show_count(document["entries"]) if "entries" in document else ""),
        ("digest", document["digest"]),
        ("compared", "the same" if document.get("agree") else ""),
    ]
    screen.answer(document, Facts(f"{options.path} was read to its end", rows))


def _asked(
    screen: Screen,
    options: Namespace,
    question: Callable[[CommandSession, str, SnapshotReader], Awaitable[Any]],
    fold: SnapshotReader,
) -> Any:
    """Return the result of a query that needs a server."""
    answers = []

    async def ask(session: CommandSession, options: Namespace) -> None:
        answers.append(await question(session, options.bucket, fold))

    asyncio.run(hold(ask, screen, options, streams=False))
    return answers[0]


# -- arguments


def _backend(text: str) -> Argument:
    return argument("--backend", choices=BACKENDS, help=text)


def _open_arguments() -> tuple[Argument, ...]:
    return (
        BUCKET,
        PATH,
        argument(
            "--prefix",
            action="append",
            metavar="PREFIX",
            help="only keys that begin so, up to a dot; may be repeated",
        ),
        _backend("kind of store of a new fold (default: sqlite)"),
        argument(
            "--bootstrap",
            default="",
            metavar="PLACE",
            help="begin with an artifact, of a directory or a URL; also used for repairs",
        ),
        argument(
            "--repair",
            choices=("auto", "mirror", "none"),
            default="auto",
            help="when the bucket has forgotten what the fold did not read: auto never loses a "
            "value, mirror drops what the bucket does not list, none keeps everything",
        ),
        argument(
            "--keys-only", action="store_true", help="store keys and versions, without values"
        ),
        argument("--digest", action="store_true", help="keep a digest, to compare copies by"),
        STORAGE,
    )


def _run_arguments() -> tuple[Argument, ...]:
    return (
        *_open_arguments(),
        argument("--all", action="store_true", help="also the changes of the first reading"),
        argument("--node", default="", metavar="NAME", help="who we are (default: host name)"),
        argument(
            "--status-bucket",
            default="",
            metavar="BUCKET",
            help="publish the state of the fold to this bucket",
        ),
        argument("--ship", default="", metavar="URL", help="publish artifacts there, in rounds"),
        argument(
            "--every",
            type=positive_duration,
            default=ROUND_SECONDS * SECOND_NS,
            metavar="DURATION",
            help="how long a round is (default: 5m)",
        ),
        argument(
            "--leases", default="", metavar="BUCKET", help="bucket that says who ships a round"
        ),
        argument(
            "--http",
            type=address,
            metavar="[HOST:]PORT",
            help="serve /healthz and /metrics there (default host: 127.0.0.1)",
        ),
        argument(
            "--max-lag", type=positive, metavar="N", help="healthy up to so many revisions behind"
        ),
        argument(
            "--max-age",
            type=positive_duration,
            metavar="DURATION",
            help="healthy if a message of the server came within this time (default: 15s)",
        ),
        _form(),
    )


def _range_arguments() -> tuple[Argument, ...]:
    return (
        PATH,
        argument("prefix", nargs="?", default="", help="only keys that begin so"),
        argument("--after", metavar="KEY", help="only keys behind this one"),
        argument("--limit", type=positive, metavar="N", help="at most so many"),
    )


def _get_arguments() -> tuple[Argument, ...]:
    return (
        PATH,
        argument("key", help="the key"),
        argument("--raw", action="store_true", help="print the value only, as it is"),
    )


def _form() -> Argument:
    return argument(
        "--form",
        choices=BACKENDS,
        help="append-log is what every kind of store can be made from (default: the fold's own)",
    )


def _export_arguments() -> tuple[Argument, ...]:
    return (PATH, argument("dest", help="a new directory, or a URL"), _form(), STORAGE)


def _import_arguments() -> tuple[Argument, ...]:
    return (
        argument("source", help="an artifact, a directory of some, or a URL"),
        PATH,
        _backend("kind of store (default: the artifact's)"),
        STORAGE,
    )


def _convert_arguments() -> tuple[Argument, ...]:
    return (
        PATH,
        argument("dest", help="where the other one is made"),
        argument("--backend", choices=BACKENDS, required=True, help="kind of the other one"),
    )


def _asking() -> tuple[Argument, ...]:
    return (
        argument("--bucket", default="", metavar="NAME", help="compare with this bucket"),
        TIMEOUT,
        *connection_arguments(),
    )


def _verify_arguments() -> tuple[Argument, ...]:
    return (
        argument("path", help="the fold, or an artifact, or a URL of one"),
        argument("--artifact", default="", metavar="PLACE", help="compare with this artifact"),
        STORAGE,
        *_asking(),
    )


def _fleet_arguments() -> tuple[Argument, ...]:
    return (
        argument("bucket", help="the bucket to which the nodes publish their state"),
        argument("--of", default="", metavar="BUCKET", help="only those that fold this bucket"),
    )


def _sql_arguments() -> tuple[Argument, ...]:
    return (
        PATH,
        argument(
            "statement", help="of entries(key, value, text, json, revision, created); reads only"
        ),
    )


NOUN: Final = Noun(
    "fold",
    "local copies of buckets that keep themselves up to date",
    (
        Command("open", "make a fold or bring it up to date", _open_arguments, online=open_),
        Command("run", "keep a fold up to date", _run_arguments, online=run, streams=True),
        Command("watch", "the same, and show changes", _run_arguments, online=watch, streams=True),
        Command("status", "show what a fold is", lambda: (PATH, *_asking()), local=_status),
        Command("get", "show the value of a key", _get_arguments, local=get),
        Command("ls", "list keys in order", _range_arguments, local=ls),
        Command("scan", "list keys and values in order", _range_arguments, local=scan),
        Command("sql", "ask a fold in SQLite", _sql_arguments, local=sql),
        Command("export", "make an artifact, or publish one", _export_arguments, local=export),
        Command("import", "make a fold of an artifact", _import_arguments, local=import_),
        Command(
            "convert", "make the same fold in another store", _convert_arguments, local=convert
        ),
        Command("verify", "read everything, and compare", _verify_arguments, local=_verify),
        Command(
            "repair",
            "make a fold what its bucket is, and keep what it removes aside",
            lambda: (BUCKET, PATH),
            online=repair,
        ),
        Command("compact", "give back disk space", lambda: (PATH,), local=compact),
        Command("dump", "show the records of an append log", lambda: (PATH,), local=dump),
        Command("fleet", "show the nodes that fold buckets", _fleet_arguments, online=fleet),
    ),
)
