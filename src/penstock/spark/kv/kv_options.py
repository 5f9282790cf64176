"""Options of the format `jetstream-kv`: buckets read as tables or change feeds, and written.

A bucket is a stream, so reading takes the options of reading a stream; those without meaning for a
bucket are rejected. `stream_options` converts them to options for the stream of the bucket.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from penstock.kv.bucket_records import enclosing, filters_of, stream_of
from penstock.kv.kv_types import Scope
from penstock.spark.options import Doc, Milliseconds, OptionError
from penstock.spark.read.source_options import ReadOptions
from penstock.spark.read.stream_metadata import split_list
from penstock.spark.write.sink_options import PublishOptions, check_name

FAIL: Final = "fail"
SKIP: Final = "skip"
REPORT: Final = "report"
TTL_MS_MIN: Final = 1000


class KvReadOptions(ReadOptions, frozen=True, kw_only=True):
    """Reading a bucket: as a table of its keys, or as the feed of its changes."""

    bucket: Annotated[str, Doc("Name of the bucket; also `load(name)`.")]
    stream: Annotated[str, Doc("Not for buckets, which are named by `bucket`.")] = ""
    key_prefixes: Annotated[
        str,
        Doc("Only keys that begin so; several separated by commas, each a task of its own."),
    ] = ""
    history: Annotated[
        bool, Doc("For tables: every revision the bucket keeps, in place of the newest.")
    ] = False
    include_deletes: Annotated[
        bool, Doc("For tables of newest values: deleted keys too, with `op` and without value.")
    ] = False

    @property
    def prefixes(self) -> tuple[str, ...]:
        return split_list(self.key_prefixes) or ("",)

    def filters(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        """Return subjects that cover all keys of these prefixes, and possibly others."""
        return filters_of(self.bucket, Scope.of(map(enclosing, prefixes)))

    def stream_options(self) -> ReadOptions:
        """Return the same options for the stream of the bucket."""
        if self.stream or self.subjects:
            raise OptionError("a bucket is named by bucket, and its keys by keyPrefixes")
        return msgspec.structs.replace(
            self, stream=named_stream(self.bucket), subjects=",".join(self.filters(self.prefixes))
        )


class KvWriteOptions(PublishOptions, frozen=True, kw_only=True):
    """Options of the sink `jetstream-kv`."""

    bucket: Annotated[str, Doc("Name of the bucket. `save(…)` sets it too.")]
    latest_per_key: Annotated[
        bool, Doc("Write only the last row of a key in each Arrow batch of a task.")
    ] = False
    revision_column: Annotated[
        str,
        Doc(
            "Column with the revision a key must have for its row to be written: 0 if it must not "
            "be there, null for any."
        ),
    ] = ""
    on_conflict: Annotated[
        Literal["fail", "skip", "report"],
        Doc("What to do with a row whose key has another revision; `report` publishes it."),
    ] = FAIL
    conflict_subject: Annotated[
        str, Doc("Where `report` publishes such rows: a subject that a stream takes.")
    ] = ""
    ttl_ms: Annotated[Milliseconds, Doc("How long every value lives; 0 for ever.")] = 0
    ttl_column: Annotated[
        str, Doc("Column with how long a row lives, in milliseconds; null for `ttlMs`.")
    ] = ""


def check_write(options: KvWriteOptions) -> None:
    """Raise `OptionError` if options contradict each other."""
    named_stream(options.bucket)
    check_name(options)
    if (options.on_conflict == REPORT) != bool(options.conflict_subject):
        raise OptionError("onConflict report and conflictSubject belong together: set both")
    if options.on_conflict != FAIL and not options.revision_column:
        raise OptionError("onConflict needs revisionColumn: without it there are no conflicts")
    if 0 < options.ttl_ms < TTL_MS_MIN:
        raise OptionError(f"option ttlMs: at least {TTL_MS_MIN}, or 0")
    if options.revision_column and options.latest_per_key:
        raise OptionError("give one of revisionColumn, latestPerKey, not both")


def named_stream(bucket: str) -> str:
    """Return the name of the stream of a bucket."""
    try:
        return stream_of(bucket)
    except ValueError as error:
        raise OptionError(f"option bucket: {error}") from None
