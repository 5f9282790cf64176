"""`penstock pipeline`: jobs on Spark over streams, archives and folds.

The jobs are functions of `penstock.spark.jobs`; here they get a session, a connection and a screen.
What Spark wraps into pages of a Java trace becomes the one line that says what is wrong. `verify`
ends with exit code 1 if anything differs.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.command import Argument, Command, Noun, argument, connection_arguments
from penstock.cli.failures import Failure, Misuse
from penstock.cli.output import Facts, Listing, show_bytes, show_count
from penstock.cli.values import positive

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock.cli.output import Screen
    from penstock.fold.shards import Shard
    from penstock.spark.jobs import Origin

#: The line of a Python traceback, inside Spark's, that says what went wrong.
SAID: Final = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|[a-z]): (.+)$", re.MULTILINE)
SHARDS: Final = 4


# -- what every job needs


@contextmanager
def _session(screen: Screen, options: Namespace, *, bars: bool = True) -> Iterator[SparkSession]:
    """A session that ends with the job, unless it was there; its failures become `Failure`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from penstock.spark import session

    shows = bars and not screen.as_json and sys.stderr.isatty()
    settings: dict[str, Any] = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": shows,
    }
    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = session("penstock pipeline", options.master, **settings)
        try:
            yield spark
        finally:
            if is_ours:
                spark.stop()
    except PySparkException as error:
        raise Failure(_said(str(error))) from error
    except Exception as error:
        if isinstance(error, Failure) or not type(error).__module__.startswith("penstock."):
            raise
        raise Failure(str(error)) from error


def _said(text: str) -> str:
    found = SAID.findall(text)
    return str(found[-1] if found else text.strip().splitlines()[0])


def connection_of(options: Namespace) -> dict[str, str]:
    """Connection options of the formats, from the command line, contexts and the environment."""
    from penstock.cli.connect import resolve

    target = resolve(options, os.environ)
    named = {
        "url": ",".join(target.urls),
        "user": target.user,
        "password": target.password,
        "token": target.token,
        "credsFile": target.creds,
        "nkeySeedFile": target.nkey,
        "tlsCa": target.tlsca,
        "tlsCert": target.tlscert,
        "tlsKey": target.tlskey,
        "tlsFirst": "true" if target.tlsfirst else "",
        "domain": target.domain,
        "inboxPrefix": target.inbox_prefix,
    }
    return {name: value for name, value in named.items() if value}


def _origin(spark: SparkSession, options: Namespace, stream: str) -> Origin:
    from penstock.spark.jobs import ServerOrigin, StoreOrigin

    if options.store is not None:
        return StoreOrigin(spark, str(options.store), stream)
    return ServerOrigin(spark, stream, connection_of(options))


def _shards(options: Namespace) -> tuple[Shard, ...]:
    from penstock.fold.shards import by_hash, by_prefix

    return by_prefix(options.prefix) if options.prefix else by_hash(options.shards)


def _storage(options: Namespace) -> dict[str, str]:
    pairs = [given.partition("=") for given in options.storage_option]
    if not all(equals for _, equals, _ in pairs):
        raise Misuse("--storage-option takes NAME=VALUE")
    return {name: value for name, _, value in pairs}


# -- the jobs


def _archive(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import archive

    with (
        _session(screen, options, bars=False) as spark,
        screen.progress(f"Archiving {options.stream}", None) as advance,
    ):
        done = 0

        def progress(now: int, total: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        told = archive(
            spark,
            _origin(spark, options, options.stream),
            options.dest,
            form=options.form,
            token=options.by_token,
            until=options.until,
            allow_loss=options.allow_loss,
            storage_options=_storage(options),
            progress=progress,
        )
    _show(
        screen,
        f"Archive of {told.stream}",
        told,
        added=show_count(told.rows_added),
        messages=show_count(told.rows),
        files=show_count(told.files),
        size=show_bytes(told.bytes),
        cursor=show_count(told.cursor),
        form=told.form,
        place=told.dest,
    )


def _replay(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import Selection, replay

    rename = None
    if options.rename:
        old, equals, new = options.rename.partition("=")
        if not equals:
            raise Misuse("--rename takes OLD=NEW, what subjects begin with")
        rename = (old, new)
    with _session(screen, options) as spark:
        told = replay(
            spark,
            options.archive,
            options.stream,
            connection_of(options),
            selection=Selection(
                options.first, options.last, options.since, options.before, tuple(options.subject)
            ),
            rename=rename,
            delivery=options.delivery,
            write_id=options.write_id,
            ordered=not options.unordered,
            storage_options=_storage(options),
        )
    _show(
        screen,
        f"Replay of {told.stream}",
        told,
        messages=show_count(told.rows),
        target=told.target,
        delivery=told.delivery,
    )


def _fold(screen: Screen, options: Namespace) -> None:
    from penstock.kv.records import stream_of
    from penstock.spark.jobs import fold

    with _session(screen, options) as spark:
        told = fold(
            spark,
            _origin(spark, options, stream_of(options.bucket)),
            options.bucket,
            options.dest,
            archive=options.archive,
            shards=options.shards,
            prefixes=options.prefix,
            until=options.until,
            storage_options=_storage(options),
        )
    from dataclasses import asdict

    rows = [
        (one.shard, show_count(one.cursor), show_count(one.entries), show_count(one.changed),
         show_bytes(one.bytes), "yes" if one.published else "no news")
        for one in told.shards
    ]  # fmt: skip
    headings = ("shard", ">cursor", ">entries", ">changed", ">size", "published")
    remark = "made anew from what the bucket holds now\n" if told.anew else ""
    title = f"{remark}Fold of {told.bucket} at {told.dest}"
    screen.answer(asdict(told), Listing(title, headings, rows))


def _verify(screen: Screen, options: Namespace) -> None:
    from penstock.kv.records import stream_of
    from penstock.spark.jobs import verify

    stream = options.stream or (stream_of(options.bucket) if options.bucket else "")
    if options.folds and not options.bucket:
        raise Misuse("--folds needs --bucket, whose folds they are")
    if not options.archive and not options.folds:
        raise Misuse("say what to compare: --archive, --folds, or both")
    with _session(screen, options) as spark:
        told = verify(
            spark,
            origin=_origin(spark, options, stream) if stream else None,
            archive=options.archive,
            folds=options.folds,
            bucket=options.bucket,
            shards=_shards(options),
            storage_options=_storage(options),
        )
    from dataclasses import asdict

    rows = [
        ("well" if one.is_well else "DIFFERS", one.what, show_count(one.expected),
         show_count(one.found), one.detail)
        for one in told.checks
    ]  # fmt: skip
    headings = ("", "what", ">expected", ">found", "detail")
    screen.answer(
        {"is_well": told.is_well, **asdict(told)}, Listing("Verification", headings, rows)
    )
    if not told.is_well:
        raise Failure("they differ")


def _profile(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import draw, profile

    with _session(screen, options) as spark:
        found = profile(
            _rows(spark, options),
            interval=options.interval,
            top=options.top,
            depth=options.depth,
        )
    if options.chart is not None:
        draw(found, options.chart, title=options.source)
    import msgspec

    facts = Facts(
        f"Profile of {options.source}",
        (
            ("messages", show_count(found.messages)),
            ("bytes", show_bytes(found.bytes)),
            ("subjects", f"about {show_count(found.subjects)}"),
            ("from", str(found.first or "")),
            ("to", str(found.last or "")),
            ("size", f"median {show_bytes(found.size_median)}, 99 % {show_bytes(found.size_p99)}, "
                     f"largest {show_bytes(found.size_max)}"),
            ("chart", str(options.chart or "")),
        ),
    )  # fmt: skip
    shares = [
        (one.subjects, show_count(one.messages), show_bytes(one.bytes), show_count(one.distinct))
        for one in found.shares
    ]
    times = [
        (str(one.start), show_count(one.messages), show_bytes(one.bytes), show_count(one.subjects))
        for one in found.timeline
    ]
    screen.answer(
        msgspec.to_builtins(found),
        facts,
        Listing("Subjects", ("begin with", ">messages", ">bytes", ">distinct"), shares),
        Listing("Over time", ("from", ">messages", ">bytes", ">subjects"), times),
    )


def _rows(spark: SparkSession, options: Namespace) -> DataFrame:
    """A stream, or, if there is an archive of that name, the archive."""
    from penstock.spark.jobs import archived, open_archive

    table = open_archive(options.source, storage_options=_storage(options))
    version = table.current()
    if version.stream:
        return archived(spark, table, version)
    origin = _origin(spark, options, options.source)
    extent = origin.extent()
    return origin.rows(max(1, extent.first_seq), extent.last_seq)


def _show(screen: Screen, title: str, told: Any, **facts: str) -> None:
    from dataclasses import asdict

    screen.answer(asdict(told), Facts(title, tuple(facts.items())))


# -- arguments


def _shared() -> tuple[Argument, ...]:
    return (
        argument("--master", default="local[*]", metavar="URL", help="where Spark runs (local[*])"),
        argument(
            "--storage-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="of the object store, such as endpoint; may be given often",
        ),
        *connection_arguments(),
    )


def _store() -> Argument:
    return argument(
        "--store", type=Path, metavar="DIR", help="read the files of a stopped server instead"
    )


def _cut() -> tuple[Argument, ...]:
    return (
        argument("--shards", type=positive, default=SHARDS, metavar="N",
                 help=f"cut by hash into so many (default: {SHARDS})"),
        argument("--prefix", action="append", default=[], metavar="PREFIX",
                 help="cut by prefix of keys instead; may be given often"),
    )  # fmt: skip


def _archive_arguments() -> tuple[Argument, ...]:
    return (
        argument("stream", help="name of the stream"),
        argument("dest", help="a directory, or a URL such as s3://bucket/place"),
        argument("--form", choices=("parquet", "delta"), default="", help="of a new archive"),
        argument("--by-token", type=int, metavar="N", help="partition by this token, from 0"),
        argument("--until", type=positive, metavar="SEQ", help="the last sequence to archive"),
        argument("--allow-loss", action="store_true", help="go on where messages were dropped"),
        _store(),
        *_shared(),
    )


def _replay_arguments() -> tuple[Argument, ...]:
    return (
        argument("archive", help="where the archive is"),
        argument("stream", help="the stream that is to have the messages"),
        argument("--first", type=positive, metavar="SEQ", help="the first sequence"),
        argument("--last", type=positive, metavar="SEQ", help="the last sequence"),
        argument("--since", default="", metavar="TIME", help="messages from then on"),
        argument("--before", default="", metavar="TIME", help="messages before then"),
        argument("--subject", action="append", default=[], metavar="SUBJECT",
                 help="messages on this, wildcards too; may be given often"),
        argument("--rename", default="", metavar="OLD=NEW", help="what subjects begin with"),
        argument("--delivery", choices=("exactlyOnce", "strict", "atLeastOnce"),
                 default="exactlyOnce", help="how surely each is stored once (exactlyOnce)"),
        argument("--write-id", default="", metavar="NAME", help="of a strict replay"),
        argument("--unordered", action="store_true", help="faster, in no order"),
        *_shared(),
    )  # fmt: skip


def _fold_arguments() -> tuple[Argument, ...]:
    return (
        argument("bucket", help="name of the bucket"),
        argument("dest", help="where artifacts are published: a directory or a URL"),
        argument("--archive", default="", metavar="PLACE", help="an archive of its stream"),
        argument("--until", type=positive, metavar="SEQ", help="the last sequence to fold"),
        *_cut(),
        _store(),
        *_shared(),
    )


def _verify_arguments() -> tuple[Argument, ...]:
    return (
        argument("--stream", default="", metavar="NAME", help="compare with this stream"),
        argument("--bucket", default="", metavar="NAME", help="compare with this bucket"),
        argument("--archive", default="", metavar="PLACE", help="the archive"),
        argument("--folds", default="", metavar="PLACE", help="where folds are published"),
        *_cut(),
        _store(),
        *_shared(),
    )


def _profile_arguments() -> tuple[Argument, ...]:
    return (
        argument("source", help="name of a stream, or the place of an archive"),
        argument("--interval", default="1 hour", metavar="STEP", help="of the timeline (1 hour)"),
        argument("--top", type=positive, default=20, metavar="N", help="subjects shown (20)"),
        argument("--depth", type=positive, default=2, metavar="N", help="tokens of them (2)"),
        argument("--chart", type=Path, metavar="FILE", help="draw it: a name.png or name.svg"),
        _store(),
        *_shared(),
    )


NOUN: Final = Noun(
    "pipeline",
    "jobs on Spark over streams, archives and folds",
    (
        Command("archive", "keep a stream as Parquet or Delta", _archive_arguments, local=_archive),
        Command("replay", "publish an archive again", _replay_arguments, local=_replay),
        Command("fold", "publish folds of a bucket", _fold_arguments, local=_fold),
        Command("verify", "compare stream, archive and folds", _verify_arguments, local=_verify),
        Command("profile", "subjects, rates and sizes", _profile_arguments, local=_profile),
    ),
)
