"""An archive as a Delta table, written by delta-rs: no JVM jar, and readable by every engine.

Data files are the same as in other forms; a commit adds them and sets an application transaction,
whose version is the cursor, in one entry of the table's log. The table's description records the
stream and the ranges it dropped. Two writers of the same transaction conflict; one of them fails.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec

from penstock.spark.jobs.archive_columns import row_schema
from penstock.spark.jobs.parquet_table import ArchiveError, CommitLost, DataFile, Version
from penstock.spark.jobs.parquet_writer import DATE, NO_TOKEN, plain_layout
from penstock.spark.message_rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.parquet_writer import FileLayout

APPLICATION: Final = "penstock-archive"
LOG: Final = "_delta_log"
PARTITION_PREFIX: Final = "partition."
MS: Final = 1000
US_MS: Final = 1000
DAY_HOURS: Final = 24
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Described(msgspec.Struct, frozen=True):
    """Content of the description of a table."""

    stream: str
    created_ns: int
    evicted: tuple[tuple[int, int], ...] = ()
    columns: str = ""

    @classmethod
    def text(cls, version: Version) -> str:
        described = cls(version.stream, version.created_ns, version.evicted, version.columns)
        return msgspec.json.encode(described).decode()


class DeltaArchive:
    """An archive whose versions are those of a Delta table."""

    kind = "delta"
    data = ""

    def __init__(self, storage: ArchiveStorage, options: dict[str, str] | None = None) -> None:
        self.storage = storage
        self._options = options

    def exists(self) -> bool:
        return next(iter(self.storage.listed(LOG)), None) is not None

    def current(self) -> Version:
        from deltalake import DeltaTable

        if not self.exists():
            return Version()
        table = DeltaTable(self.storage.root, storage_options=self._options)
        metadata = table.metadata()
        try:
            described = msgspec.json.decode(metadata.description or "", type=_Described)
        except msgspec.MsgspecError as error:
            raise ArchiveError(f"{self.storage.root} is a table that is no archive") from error
        return Version(
            version=table.version() + 1,
            stream=described.stream,
            created_ns=described.created_ns,
            cursor=table.transaction_version(APPLICATION) or 0,
            partition_by=tuple(metadata.partition_columns),
            evicted=described.evicted,
            files=tuple(_files(table, metadata.partition_columns)),
            columns=described.columns,
        )

    def commit(
        self, base: Version, added: Iterable[DataFile], removed: Iterable[str] = (), **changes: Any
    ) -> Version:
        """Commit as `ManifestTable.commit` does; only `compact` removes files."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        made: Version = msgspec.structs.replace(base, **changes)
        if base.version == 0:
            self._create(made)
        table = DeltaTable(self.storage.root, storage_options=self._options)
        if (table.transaction_version(APPLICATION) or 0) != base.cursor:
            raise CommitLost("another writer committed first")
        if made.evicted != base.evicted and base.version:
            # Before the cursor passes the loss: the loss may be recorded too early, never too late.
            table.alter.set_table_description(_Described.text(made))
        properties = CommitProperties(
            custom_metadata={"penstock.stream": made.stream, "penstock.cursor": str(made.cursor)},
            app_transactions=[Transaction(APPLICATION, made.cursor)],
            max_commit_retries=0,
        )
        try:
            table.create_write_transaction(
                [_action(file) for file in added],
                "append",
                table.schema(),  # its own: older tables store dates as text
                list(made.partition_by),
                commit_properties=properties,
            )
        except (CommitFailedError, DeltaError) as error:
            raise CommitLost(f"another writer committed first: {error}") from error
        return self.current()

    def _create(self, made: Version) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(
            self.storage.root,
            _whole_schema(made),
            mode="ignore",
            partition_by=list(made.partition_by),
            name=made.stream,
            description=_Described.text(made),
            storage_options=self._options,
        )

    def layout(self, version: Version, schema: Any) -> FileLayout:
        return plain_layout(self.storage, self.data, version, schema)

    def joinable(self, version: Version) -> Iterable[DataFile]:
        return version.files

    def expire(self, days: float) -> int:
        """Delete files that left the table more than `days` ago; return their number."""
        from deltalake import DeltaTable

        table = DeltaTable(self.storage.root, storage_options=self._options)
        hours = int(days * DAY_HOURS)
        return len(
            table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
        )

    def compact(self, target_bytes: int) -> int:
        """Join small files; return by how many the number of files decreased."""
        from deltalake import DeltaTable

        metrics = DeltaTable(self.storage.root, storage_options=self._options).optimize.compact(
            target_size=target_bytes
        )
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])


def _whole_schema(made: Version) -> Any:
    import pyarrow as pa

    kinds = {DATE: pa.date32()}
    added = [pa.field(name, kinds.get(name, pa.string())) for name in made.partition_by]
    return pa.schema([*arrow_schema(row_schema(made)), *added])


def _action(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    low: dict[str, Any] = {"seq": file.first_seq}
    high: dict[str, Any] = {"seq": file.last_seq}
    if file.first_us is not None and file.last_us is not None:
        low["timestamp"] = _instant(file.first_us // US_MS)
        high["timestamp"] = _instant(-(-file.last_us // US_MS))
    if file.first_subject:
        low["subject"], high["subject"] = file.first_subject, file.last_subject
    stats = {
        "numRecords": file.rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": dict.fromkeys(low, 0),
    }
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={name: _value(text) for name, text in file.partition.items()},
        modification_time=int(time.time() * MS),
        data_change=True,
        stats=json.dumps(stats),
    )


def _instant(milliseconds: int) -> str:
    """Return a time for statistics; they store milliseconds, so bounds are rounded outwards."""
    moment = datetime.fromtimestamp(milliseconds // MS, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % MS:03d}Z"


def _files(table: Any, partition_by: list[str]) -> Iterable[DataFile]:
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    for row in actions.to_pylist():
        yield DataFile(
            path=row["path"],
            rows=row["num_records"],
            size=row["size_bytes"],
            first_seq=row["min.seq"],
            last_seq=row["max.seq"],
            partition={name: _directory(row[f"{PARTITION_PREFIX}{name}"]) for name in partition_by},
            first_us=_microseconds(row.get("min.timestamp")),
            last_us=_microseconds(row.get("max.timestamp")),
            first_subject=row.get("min.subject") or "",
            last_subject=row.get("max.subject") or "",
        )


def _value(directory: str) -> str | None:
    """Return the value of a partition from the name of its directory."""
    return None if directory == NO_TOKEN else unquote(directory)


def _directory(value: Any) -> str:
    return NO_TOKEN if value in (None, NO_TOKEN) else quote(str(value), safe="-_")


def _microseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
