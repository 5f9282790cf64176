"""An archive as a Delta table, written by delta-rs: no JVM jar, and readable by every engine.

Data files are the same as elsewhere; a commit adds them and sets an application transaction, whose
version is the cursor, in one entry of the table's log. Which stream it is stands in the table's
description, with what it has dropped. Two writers of the same transaction conflict; one loses.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.spark.jobs.table import ArchiveError, CommitLost, DataFile, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.jobs.storage import Storage

APPLICATION: Final = "penstock-archive"
LOG: Final = "_delta_log"
PARTITION_PREFIX: Final = "partition."
MS: Final = 1000


class _Described(msgspec.Struct, frozen=True):
    """What the description of a table says."""

    stream: str
    created_ns: int
    evicted: tuple[tuple[int, int], ...] = ()

    @classmethod
    def text(cls, version: Version) -> str:
        told = cls(version.stream, version.created_ns, version.evicted)
        return msgspec.json.encode(told).decode()


class DeltaArchive:
    """An archive whose versions are those of a Delta table."""

    kind = "delta"
    data = ""

    def __init__(
        self, storage: Storage, schema: Any, options: dict[str, str] | None = None
    ) -> None:
        """`schema` is the Arrow schema of messages without partition columns."""
        self.storage = storage
        self._schema = schema
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
            told = msgspec.json.decode(metadata.description or "", type=_Described)
        except msgspec.MsgspecError as error:
            raise ArchiveError(f"{self.storage.root} is a table that is no archive") from error
        return Version(
            version=table.version() + 1,
            stream=told.stream,
            created_ns=told.created_ns,
            cursor=table.transaction_version(APPLICATION) or 0,
            partition_by=tuple(metadata.partition_columns),
            evicted=told.evicted,
            files=tuple(_files(table, metadata.partition_columns)),
        )

    def commit(
        self, base: Version, added: Iterable[DataFile], removed: Iterable[str] = (), **changes: Any
    ) -> Version:
        """As of a table of manifests; files are removed by `compact` alone."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        made: Version = msgspec.structs.replace(base, **changes)
        if base.version == 0:
            self._create(made)
        table = DeltaTable(self.storage.root, storage_options=self._options)
        if (table.transaction_version(APPLICATION) or 0) != base.cursor:
            raise CommitLost("another writer committed first")
        if made.evicted != base.evicted and base.version:
            # Before the cursor passes it: that something is missing may be told too early only.
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
                self._whole_schema(made.partition_by),
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
            self._whole_schema(made.partition_by),
            mode="ignore",
            partition_by=list(made.partition_by),
            name=made.stream,
            description=_Described.text(made),
            storage_options=self._options,
        )

    def _whole_schema(self, partition_by: tuple[str, ...]) -> Any:
        import pyarrow as pa

        added = [pa.field(name, pa.string()) for name in partition_by]
        return pa.schema([*self._schema, *added])

    def compact(self, target_bytes: int) -> int:
        """Join small files; how many there are less."""
        from deltalake import DeltaTable

        told = DeltaTable(self.storage.root, storage_options=self._options).optimize.compact(
            target_size=target_bytes
        )
        return int(told["numFilesRemoved"]) - int(told["numFilesAdded"])


def flat(options: dict[str, Any]) -> dict[str, str]:
    """Options of a store of objects as delta-rs takes them: all in one, all text."""
    inner = options.get("client_options", {})
    outer = {name: value for name, value in options.items() if name != "client_options"}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (outer | inner).items()
    }


def _action(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": {"seq": file.first_seq},
        "maxValues": {"seq": file.last_seq},
        "nullCount": {"seq": 0},
    }
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition),
        modification_time=int(time.time() * MS),
        data_change=True,
        stats=json.dumps(stats),
    )


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
            partition={name: str(row[f"{PARTITION_PREFIX}{name}"]) for name in partition_by},
        )
