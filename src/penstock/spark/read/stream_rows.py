"""Messages of a stream as Arrow, Polars or pandas, without Spark: `penstock.read`.

Columns, reader and rules are those of the format `jetstream`: a read ends where the stream ended
when it began, resumes after a lost connection, and fails if messages were removed before they were
read. `cursor` records the stream and the end of a read; a later read takes it as `after` and
rejects another stream of the same name. This module does not import pyspark.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.base.durations import parse_duration
from penstock.spark.errors import lost
from penstock.spark.message_rows import COLUMNS
from penstock.spark.options import OptionError, check_connection, parse
from penstock.spark.read.offsets import Position
from penstock.spark.read.read_plan import SeqRange, fault_of
from penstock.spark.read.read_task import mode_for, read_range
from penstock.spark.read.source_options import ReadOptions
from penstock.spark.read.start_positions import time_ns
from penstock.spark.read.stream_metadata import StreamMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.spark.read.read_task import RangePartition

URL: Final = "nats://127.0.0.1:4222"
URL_VARIABLE: Final = "NATS_URL"


def read(
    stream: str,
    *,
    url: str = "",
    last: str = "",
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    first_seq: int = 0,
    last_seq: int | None = None,
    after: str = "",
    subjects: str | Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
    allow_loss: bool = False,
    creds: str = "",
    **connection: Any,
) -> StreamRows:
    """Read what a stream holds now.

    `last` is a duration (`"1h"`), `since` and `until` are times (ISO 8601, UTC without a zone),
    `after` is the `cursor` of an earlier read. `columns` is a subset of those of the format
    `jetstream`; without `data` no payload is transferred. `url` defaults to `NATS_URL`, `creds` is
    the path of a credentials file; `connection` are further connection options of the format, in
    snake case (`user`, `password`, `nkey_seed_file`, `tls_ca`, …).
    """
    if sum(map(bool, (last, since, first_seq, after))) > 1:
        raise OptionError("give one of last, since, first_seq, after, not several")
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise OptionError(f"there is no column {unknown[0]}: there are {', '.join(COLUMNS)}")
    wanted = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    given = {
        "url": url or os.environ.get(URL_VARIABLE, URL),
        "stream": stream,
        "subjects": ",".join(wanted),
        "failOnDataLoss": "false" if allow_loss else "true",
        "credsFile": creds,
        **{_camel(name): str(value) for name, value in connection.items()},
    }
    options = parse(ReadOptions, {name: value for name, value in given.items() if value})
    check_connection(options)
    start_ns = time.time_ns() - parse_duration(last) if last else _time(since)
    return _planned(options, tuple(columns), start_ns, _time(until), first_seq, last_seq, after)


@dataclass(frozen=True, slots=True)
class _Part:
    """A range in the form `read_range` takes."""

    range: SeqRange
    filters: tuple[str, ...]
    mode: str
    may_shrink: bool


class StreamRows:
    """Result of `read`. Every access reads the range again; `cursor` is its end.

    Libraries that accept Arrow streams (DuckDB, Polars, pandas, pyarrow) accept this object.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], part: _Part) -> None:
        self._options = options
        self._columns = columns
        self._part = part

    @property
    def cursor(self) -> str:
        """Value for `after`: this read contains every message up to here."""
        return json.dumps(Position(self._part.range.stop - 1, self._part.range.created).as_json())

    @property
    def schema(self) -> Any:
        """The columns as a `pyarrow.Schema`."""
        import pyarrow as pa

        text = pa.string()
        kinds = {
            "stream": text,
            "subject": text,
            "seq": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "headers": pa.map_(text, pa.list_(text)),
            "data": pa.binary(),
            "size": pa.int32(),
        }
        return pa.schema([(name, kinds[name]) for name in self._columns])

    def batches(self) -> Iterator[Any]:
        """Yield record batches as they arrive."""
        if not len(self._part.range):
            return iter(())
        return read_range(cast("RangePartition", self._part), self.schema, self._options)

    def reader(self) -> Any:
        """Return a `pyarrow.RecordBatchReader`."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        return self.reader().read_all()

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`; headers are a list of structs."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


def _planned(
    options: ReadOptions,
    columns: tuple[str, ...],
    start_ns: int | None,
    stop_ns: int | None,
    first_seq: int,
    last_seq: int | None,
    after: str,
) -> StreamRows:
    """Resolve the range to fixed sequences."""
    desk = StreamMetadata(options)
    view = desk.views()[options.stream]
    start = max(first_seq, view.front + 1)
    if after:
        given = json.loads(after)
        position = Position(int(given["seq"]), str(given["created"]))
        fault = fault_of(view, position)
        if fault and options.fail_on_data_loss:
            raise lost(fault)
        is_same = position.created == view.created
        start = max(position.seq + 1, start) if is_same else start
    if start_ns is not None:
        start = max(start, desk.first_since(view, start_ns))
    stop = view.last_seq + 1
    if last_seq is not None:
        stop = min(stop, last_seq + 1)
    if stop_ns is not None:
        stop = min(stop, desk.first_since(view, stop_ns))
    filters = tuple(one for one in options.subjects.split(",") if one)
    seqs = SeqRange(view.name, view.created, start, max(start, stop))
    mode = mode_for(view, options.read_mode)
    part = _Part(seqs, filters, mode, may_shrink=not options.fails_on_removal)
    return StreamRows(options, columns, part)


def _time(given: datetime | str | None) -> int | None:
    if given is None or given == "":
        return None
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise OptionError(f"{given!r} is no time: expected ISO 8601") from None
    return time_ns(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)
