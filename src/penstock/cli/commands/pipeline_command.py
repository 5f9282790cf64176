"""`penstock pipeline`: Spark jobs over streams, archives and folds.

The jobs are functions of `penstock.spark.jobs`; this module gives them a session, a connection and
a screen. It reduces the Java traces of Spark to the one line that names the error. `verify` ends
with exit code 1 if anything differs.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.command_spec import Command, Noun
from penstock.cli.commands.pipeline_arguments import (
    archive_arguments,
    fold_arguments,
    profile_arguments,
    replay_arguments,
    verify_arguments,
)
from penstock.cli.output import Facts, TableListing, show_bytes, show_count

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock.cli.output import Screen
    from penstock.fold.artifact.shards import Shard
    from penstock.spark.jobs import Origin

#: The line of a Python traceback, inside Spark's, that names the error.
ERROR_LINE: Final = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|[a-z]): (.+)$", re.MULTILINE
)


# -- shared by all jobs


@contextmanager
def _session(options: Namespace) -> Iterator[SparkSession]:
    """Open a session that ends with the job, unless one existed; convert errors to `Failure`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from penstock.spark import session

    # This command shows its own progress bars.
    settings: dict[str, Any] = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": False,
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
        raise Failure(_error_line(str(error))) from error
    except Exception as error:
        if isinstance(error, Failure) or not type(error).__module__.startswith("penstock."):
            raise
        raise Failure(str(error)) from error


@contextmanager
def _tasks(spark: SparkSession, screen: Screen, title: str) -> Iterator[None]:
    """Show a bar of Spark's tasks while the body runs, on a terminal only."""
    from penstock.spark.jobs.task_progress import task_progress

    with screen.steps(title, unit="tasks") as progress, task_progress(spark, progress):
        yield


def _error_line(text: str) -> str:
    found = ERROR_LINE.findall(text)
    return str(found[-1] if found else text.strip().splitlines()[0])


def connection_of(options: Namespace) -> dict[str, str]:
    """Return the connection options of the formats, from command line, context and environment."""
    from penstock.cli.server_target import resolve

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

    payload = _payload(options)
    if options.store is not None:
        if payload:
            raise Misuse("--payload reads a server: it does not go with --store")
        return StoreOrigin(spark, str(options.store), stream)
    return ServerOrigin(spark, stream, connection_of(options), payload)


def _payload(options: Namespace) -> dict[str, str]:
    """Return the payload options of the format, for a job with such arguments."""
    named = {
        "payload": "payload",
        "payload_schema": "payloadSchema",
        "payload_message": "payloadMessage",
        "bad_records": "badRecords",
        "bad_records_subject": "badRecordsSubject",
    }
    given = {option: getattr(options, name, "") for name, option in named.items()}
    return {option: value for option, value in given.items() if value}


def _shards(options: Namespace) -> tuple[Shard, ...]:
    """Return the shards of the command line; () if they are read from the published fold."""
    from penstock.fold.artifact.shards import by_hash, by_prefix

    if options.prefix:
        return by_prefix(options.prefix)
    return by_hash(options.shards) if options.shards else ()


def _storage(options: Namespace) -> dict[str, str]:
    pairs = [given.partition("=") for given in options.storage_option]
    if not all(equals for _, equals, _ in pairs):
        raise Misuse("--storage-option takes NAME=VALUE")
    return {name: value for name, _, value in pairs}


# -- the jobs


def _archive(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import archive

    with (
        _session(options) as spark,
        screen.steps(f"Archiving {options.stream}") as progress,
    ):
        result = archive(
            spark,
            _origin(spark, options, options.stream),
            options.dest,
            form=options.form,
            token=options.by_token,
            token_values_max=options.by_token_max,
            by_time=options.by_time,
            expire_days=options.expire_days,
            until=options.until,
            allow_loss=options.allow_loss,
            storage_options=_storage(options),
            progress=progress,
        )
    _show(
        screen,
        f"Archive of {result.stream}",
        result,
        added=show_count(result.rows_added),
        messages=show_count(result.rows),
        files=show_count(result.files),
        size=show_bytes(result.bytes),
        cursor=show_count(result.cursor),
        removed=f"{show_count(result.removed)} before they were read" if result.removed else "",
        form=result.form,
        place=result.dest,
    )


def _replay(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import MessageSelection, replay

    rename = None
    if options.rename:
        old, equals, new = options.rename.partition("=")
        if not equals:
            raise Misuse("--rename takes OLD=NEW, what subjects begin with")
        rename = (old, new)
    with (
        _session(options) as spark,
        screen.steps(f"Replaying to {options.stream}") as progress,
    ):
        result = replay(
            spark,
            options.archive,
            options.stream,
            connection_of(options),
            selection=MessageSelection(
                options.first, options.last, options.since, options.before, tuple(options.subject)
            ),
            rename=rename,
            delivery=options.delivery,
            write_id=options.write_id,
            ordered=not options.unordered,
            storage_options=_storage(options),
            progress=progress,
        )
    _show(
        screen,
        f"Replay of {result.stream}",
        result,
        messages=show_count(result.rows),
        stored=show_count(result.stored),
        repeated=show_count(result.repeated),
        refused=show_count(result.refused),
        target=result.target,
        delivery=result.delivery,
    )


def _fold(screen: Screen, options: Namespace) -> None:
    from penstock.kv.bucket_records import stream_of
    from penstock.spark.jobs import fold

    with _session(options) as spark, _tasks(spark, screen, f"Folding {options.bucket}"):
        result = fold(
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
        for one in result.shards
    ]  # fmt: skip
    headings = ("shard", ">cursor", ">entries", ">changed", ">size", "published")
    remark = "rebuilt from what the bucket holds now\n" if result.rebuilt else ""
    title = f"{remark}Fold of {result.bucket} at {result.dest}"
    screen.answer(asdict(result), TableListing(title, headings, rows))


def _verify(screen: Screen, options: Namespace) -> None:
    from penstock.kv.bucket_records import stream_of
    from penstock.spark.jobs import verify

    stream = options.stream or (stream_of(options.bucket) if options.bucket else "")
    if options.folds and not options.bucket:
        raise Misuse("--folds needs --bucket, whose folds they are")
    if not options.archive and not options.folds:
        raise Misuse("say what to compare: --archive, --folds, or both")
    with _session(options) as spark, _tasks(spark, screen, "Verifying"):
        result = verify(
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
        for one in result.checks
    ]  # fmt: skip
    headings = ("", "what", ">expected", ">found", "detail")
    screen.answer(
        {"is_well": result.is_well, **asdict(result)}, TableListing("Verification", headings, rows)
    )
    if not result.is_well:
        raise Failure("they differ")


def _profile(screen: Screen, options: Namespace) -> None:
    from penstock.spark.jobs import draw, profile

    with _session(options) as spark, _tasks(spark, screen, f"Profiling {options.source}"):
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
        TableListing("Subjects", ("begin with", ">messages", ">bytes", ">distinct"), shares),
        TableListing("Over time", ("from", ">messages", ">bytes", ">subjects"), times),
    )


def _rows(spark: SparkSession, options: Namespace) -> DataFrame:
    """Return the rows of an archive if one exists at that name, else of the stream."""
    from penstock.spark.jobs import archived, open_archive

    table = open_archive(options.source, storage_options=_storage(options))
    version = table.current()
    if version.stream:
        return archived(spark, table, version)
    origin = _origin(spark, options, options.source)
    extent = origin.extent()
    return origin.rows(max(1, extent.first_seq), extent.last_seq)


def _show(screen: Screen, title: str, result: Any, **facts: str) -> None:
    from dataclasses import asdict

    screen.answer(asdict(result), Facts(title, tuple(facts.items())))


NOUN: Final = Noun(
    "pipeline",
    "jobs on Spark over streams, archives and folds",
    (
        Command(
            "archive",
            "keep a stream as Parquet, Delta or Iceberg",
            archive_arguments,
            local=_archive,
        ),
        Command("replay", "publish an archive again", replay_arguments, local=_replay),
        Command("fold", "publish folds of a bucket", fold_arguments, local=_fold),
        Command("verify", "compare stream, archive and folds", verify_arguments, local=_verify),
        Command("profile", "subjects, rates and sizes", profile_arguments, local=_profile),
    ),
)
