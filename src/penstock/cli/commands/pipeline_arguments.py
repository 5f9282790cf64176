"""The arguments of `penstock pipeline`: one function per job, called when its parser is built."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.cli.argument_values import positive
from penstock.cli.command_spec import Argument, argument, connection_arguments

SHARDS: Final = 4
TOKEN_VALUES_MAX: Final = 500


def _shared() -> tuple[Argument, ...]:
    return (
        argument("--master", default="local[*]", metavar="URL", help="where Spark runs (local[*])"),
        argument(
            "--storage-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="of the object store or the catalog, such as endpoint; may be given often",
        ),
        *connection_arguments(),
    )


def _store() -> Argument:
    return argument(
        "--store", type=Path, metavar="DIR", help="read the files of a stopped server instead"
    )


def _cut(shards: int | None = SHARDS) -> tuple[Argument, ...]:
    default = shards or "as published"
    return (
        argument("--shards", type=positive, default=shards, metavar="N",
                 help=f"cut by hash into so many (default: {default})"),
        argument("--prefix", action="append", default=[], metavar="PREFIX",
                 help="cut by prefix of keys instead; may be given often"),
    )  # fmt: skip


def archive_arguments() -> tuple[Argument, ...]:
    return (
        argument("stream", help="name of the stream"),
        argument("dest", help="a directory, a URL such as s3://bucket/place, or "
                 "iceberg://CATALOG/NAMESPACE.TABLE"),
        argument("--form", choices=("parquet", "delta", "iceberg"), default="",
                 help="of a new archive"),
        argument("--by-token", type=int, metavar="N", help="partition by this token, from 0"),
        argument("--by-token-max", type=positive, default=TOKEN_VALUES_MAX, metavar="N",
                 help=f"refuse a token with more values ({TOKEN_VALUES_MAX})"),
        argument("--by-time", choices=("hour", "day", "month", "year", "none"), default="day",
                 help="step of an Iceberg table's partitions (day)"),
        argument("--expire-days", type=float, metavar="DAYS",
                 help="remove versions older than that, and the files that only they have"),
        argument("--until", type=positive, metavar="SEQ", help="the last sequence to archive"),
        argument("--allow-loss", action="store_true", help="go on where messages were dropped"),
        argument("--payload", choices=("text", "json", "avro", "protobuf"), default="",
                 help="decode payloads into the column value, in place of data"),
        argument("--payload-schema", default="", metavar="SCHEMA",
                 help="of them: written out, file:PATH or kv:BUCKET/KEY"),
        argument("--payload-message", default="", metavar="NAME",
                 help="full name of the message, for protobuf"),
        argument("--bad-records", choices=("fail", "null", "column", "deadletter"), default="",
                 help="what to do with payloads that are not of the schema (fail)"),
        argument("--bad-records-subject", default="", metavar="SUBJECT",
                 help="where deadletter publishes them"),
        _store(),
        *_shared(),
    )  # fmt: skip


def replay_arguments() -> tuple[Argument, ...]:
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


def fold_arguments() -> tuple[Argument, ...]:
    return (
        argument("bucket", help="name of the bucket"),
        argument("dest", help="where artifacts are published: a directory or a URL"),
        argument("--archive", default="", metavar="PLACE", help="an archive of its stream"),
        argument("--until", type=positive, metavar="SEQ", help="the last sequence to fold"),
        *_cut(),
        _store(),
        *_shared(),
    )


def verify_arguments() -> tuple[Argument, ...]:
    return (
        argument("--stream", default="", metavar="NAME", help="compare with this stream"),
        argument("--bucket", default="", metavar="NAME", help="compare with this bucket"),
        argument("--archive", default="", metavar="PLACE", help="the archive"),
        argument("--folds", default="", metavar="PLACE", help="where folds are published"),
        *_cut(None),
        _store(),
        *_shared(),
    )


def profile_arguments() -> tuple[Argument, ...]:
    return (
        argument("source", help="name of a stream, or the place of an archive"),
        argument("--interval", default="1 hour", metavar="STEP", help="of the timeline (1 hour)"),
        argument("--top", type=positive, default=20, metavar="N", help="subjects shown (20)"),
        argument("--depth", type=positive, default=2, metavar="N", help="tokens of them (2)"),
        argument("--chart", type=Path, metavar="FILE", help="draw it: a name.png or name.svg"),
        _store(),
        *_shared(),
    )
