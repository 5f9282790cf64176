"""An archive as an Iceberg table, written by PyIceberg: no JVM jar, any catalog, any engine reads
it.

A snapshot adds files and records their stream and cursor in its summary; the same commit also sets
them in the table's properties, which remain when snapshots expire. A commit is never retried on top
of another writer's: PyIceberg would append the same messages again. Columns that others add to the
table are left alone; missing columns of ours are an error.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from penstock.spark.jobs.iceberg_io import FileIOStorage, TableName, open_catalog
from penstock.spark.jobs.parquet_table import ArchiveError, CommitLost, DataFile, Version
from penstock.spark.jobs.parquet_writer import NO_TOKEN, TIME_FORMATS, TOKEN_PREFIX, FileLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

PREFIX: Final = "penstock."
STATE: Final = PREFIX + "archive"
CURSOR: Final = PREFIX + "cursor"
STREAM: Final = PREFIX + "stream"
RETRIES: Final = "commit.retry.num-retries"
DATA_PATH: Final = "write.data.path"


class _TableState(msgspec.Struct, frozen=True):
    """State in a snapshot's summary and in the table's properties, as JSON."""

    stream: str
    created_ns: int
    cursor: int = 0
    evicted: tuple[tuple[int, int], ...] = ()

    def properties(self) -> dict[str, str]:
        """Return the whole state, and the fields a person may want to read separately."""
        whole = msgspec.json.encode(self).decode()
        return {STATE: whole, STREAM: self.stream, CURSOR: str(self.cursor)}


class IcebergArchive:
    """An archive whose versions are the snapshots of an Iceberg table."""

    kind = "iceberg"

    def __init__(self, dest: str, options: Mapping[str, Any] | None = None) -> None:
        self.name = TableName.of(dest)
        self._catalog = open_catalog(self.name.catalog, options or {})
        self._table: Any = None

    @property
    def data(self) -> str:
        table = self._loaded()
        return str(table.properties.get(DATA_PATH) or f"{table.location().rstrip('/')}/data")

    @property
    def storage(self) -> FileIOStorage:
        table = self._loaded()
        return FileIOStorage(table.location(), dict(table.io.properties))

    def exists(self) -> bool:
        return bool(self._catalog.table_exists(self.name.identifier))

    def current(self) -> Version:
        if not self.exists():
            return Version()
        table = self._load()
        state = self._state(table)
        spec = tuple(partition_name(table, field) for field in table.spec().fields)
        return Version(
            version=table.metadata.last_sequence_number,
            stream=state.stream,
            created_ns=state.created_ns,
            cursor=state.cursor,
            partition_by=spec,
            evicted=state.evicted,
            files=tuple(data_file(table, task.file) for task in table.scan().plan_files()),
        )

    def scan_tasks(self, version: Version) -> list[Any]:
        """Return what PyIceberg would read of a version, one task per file."""
        table = self._loaded()
        number = version.version
        found = [one for one in table.snapshots() if one.sequence_number == number]
        return list(table.scan(snapshot_id=found[0].snapshot_id if found else None).plan_files())

    def spark_schema(self) -> StructType:
        """Return all columns of the table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyspark.sql.pandas.types import from_arrow_schema

        plain = schema_to_pyarrow(self._loaded().schema(), include_field_ids=False)
        return from_arrow_schema(plain)

    @property
    def table(self) -> Any:
        """PyIceberg's table as last loaded."""
        return self._loaded()

    # -- writing

    def layout(self, version: Version, schema: Any) -> FileLayout:
        """Return how files of this version are written; creates the table, or adds new columns."""
        if schema is not None and not self.exists():
            self._create(version, schema)
        table = self._load()
        if schema is not None:
            table = self._evolved(table, schema, version.partition_by)
        return FileLayout(self.storage, self.data, version.partition_by, file_schema(table, schema))

    def commit(
        self, base: Version, added: Iterable[DataFile], removed: Iterable[str] = (), **changes: Any
    ) -> Version:
        """Commit one snapshot as `ManifestTable.commit` does, provided that `base` is the
        newest."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        made: Version = msgspec.structs.replace(base, **changes)
        table = self._load()
        before = self._state(table)
        if (before.cursor, table.metadata.last_sequence_number) != (base.cursor, base.version):
            raise CommitLost("another writer committed first")
        files, without = list(added), set(removed)
        state = _TableState(made.stream, made.created_ns, made.cursor, made.evicted)
        # Otherwise PyIceberg would retry a lost commit after the winner's, with the same messages.
        table.metadata.properties[RETRIES] = "0"
        try:
            with table.transaction() as change:
                change.set_properties(state.properties())
                update = change.update_snapshot(snapshot_properties=state.properties())
                with update.overwrite() if without else update.fast_append() as snapshot:
                    for file in files:
                        snapshot.append_data_file(_described(table, file.path))
                    for old in _named(table, without):
                        snapshot.delete_data_file(old)
        except (CommitFailedException, ValidationException) as error:
            raise CommitLost(f"another writer committed first: {error}") from error
        kept = [file for file in base.files if file.path not in without]
        return msgspec.structs.replace(
            made,
            version=table.metadata.last_sequence_number,
            files=tuple(sorted([*kept, *files], key=lambda file: (file.first_seq, file.path))),
        )

    def joinable(self, version: Version) -> list[DataFile]:
        """Return files of the table's partition spec without deleted rows."""
        spec = self._loaded().metadata.default_spec_id
        tasks = self.scan_tasks(version)
        left = {
            task.file.file_path for task in tasks if task.delete_files or task.file.spec_id != spec
        }
        return [file for file in version.files if file.path not in left]

    def expire(self, days: float) -> int:
        """Remove snapshots older than `days` and the data files that only they reference.

        PyIceberg removes the snapshots, but leaves the files to the caller. Returns the number of
        files.
        """
        table = self._load()
        oldest = datetime.now(UTC) - timedelta(days=days)
        before = _held(table)
        table.maintenance.expire_snapshots().older_than(oldest).commit()
        table = self._load()
        unused = before - _held(table)
        storage = self.storage
        for path in unused:
            storage.delete(path)
        return len(unused)

    # -- the table

    def _create(self, version: Version, schema: Any) -> None:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

        whole = with_tokens(schema, version.partition_by)
        namespace = tuple(self.name.identifier.split(".")[:-1])
        state = _TableState(version.stream, version.created_ns)
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace_if_not_exists(namespace)
        try:
            with (
                self._catalog.create_table_transaction(
                    self.name.identifier, schema=whole, properties=state.properties()
                ) as making,
                making.update_spec() as spec,
            ):
                for name in version.partition_by:
                    _partition(spec, name)
        except TableAlreadyExistsError:
            return  # created by another writer; the commit decides

    def _evolved(self, table: Any, schema: Any, partition_by: tuple[str, ...]) -> Any:
        """Return the table with every column of the rows."""
        there = set(table.schema().column_names)
        wanted = with_tokens(schema, partition_by)
        new = [field for field in wanted if field.name not in there]
        missing = [field.name for field in new if field.name in _message_columns()]
        if missing:
            raise ArchiveError(
                f"table {self.name.identifier} has no column {', '.join(missing)}: it was renamed "
                "or dropped, or has typed payloads. Give it its name back, archive with the same "
                "payload as before, or to another table"
            )
        left = [name for name in _message_columns() if name in there and name not in wanted.names]
        if left:
            raise ArchiveError(
                f"table {self.name.identifier} has column {', '.join(left)}, and these rows have "
                "not: archive with the same payload as before, or to another table"
            )
        return self._grown(table, [one for one in wanted if one.name not in _message_columns()])

    def _grown(self, table: Any, fields: list[Any]) -> Any:
        """Return the table with these columns, and everything nested in them."""
        import pyarrow as pa

        if not fields:
            return table
        update = table.update_schema()
        update.union_by_name(pa.schema(fields))
        if update._apply().as_struct() == table.schema().as_struct():
            return table
        update.commit()
        return self._load()

    def _loaded(self) -> Any:
        return self._load() if self._table is None else self._table

    def _load(self) -> Any:
        self._table = self._catalog.load_table(self.name.identifier)
        return self._table

    def _state(self, table: Any) -> _TableState:
        """Return the state of our newest snapshot; others may compact and delete in between."""
        found = table.current_snapshot()
        while found is not None:
            text = found.summary.get(STATE) if found.summary else None
            if text:
                return msgspec.json.decode(text, type=_TableState)
            parent = found.parent_snapshot_id
            found = table.snapshot_by_id(parent) if parent is not None else None
        text = table.properties.get(STATE)
        if text is None:
            raise ArchiveError(f"{self.name.identifier} is a table that is no archive")
        return msgspec.json.decode(text, type=_TableState)


def with_tokens(schema: Any, partition_by: tuple[str, ...]) -> Any:
    """Return an Arrow schema of the rows and the partition token columns."""
    import pyarrow as pa

    names = [name for name in partition_by if name.startswith(TOKEN_PREFIX)]
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in names)])


def file_schema(table: Any, schema: Any) -> Any:
    """Return the schema of the files: columns of rows and tokens, with the table's types and
    ids."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    whole = schema_to_pyarrow(table.schema(), include_field_ids=True)
    if schema is None:
        return whole
    ours = [field for field in whole if field.name in schema.names or _is_token(field.name)]
    required = [field.name for field in whole if not field.nullable and field not in ours]
    if required:
        raise ArchiveError(f"columns {', '.join(required)} are required, and messages have none")
    return pa.schema(ours)


def partition_name(table: Any, field: Any) -> str:
    """Return our name of a field of a partition spec."""
    source = table.schema().find_column_name(field.source_id)
    transform = str(field.transform)
    if transform == "identity" and _is_token(source):
        return str(source)
    name = f"{source}_{transform}"
    if name not in TIME_FORMATS:
        raise ArchiveError(
            f"the table is partitioned by {transform}({source}): archives are partitioned by "
            "hour, day, month or year of the timestamp, and by a token of the subject"
        )
    return name


def data_file(table: Any, file: Any) -> DataFile:
    """Convert a file of the table to a `DataFile`."""
    from pyiceberg.conversions import from_bytes

    def bounds(name: str, bounds: Mapping[int, bytes] | None) -> Any:
        field = table.schema().find_field(name)
        raw = (bounds or {}).get(field.field_id)
        return None if raw is None else from_bytes(field.field_type, raw)

    fields = table.specs()[file.spec_id].fields
    named = {
        partition_name(table, field): _directory(table, field, file.partition[n])
        for n, field in enumerate(fields)
    }
    return DataFile(
        path=file.file_path,
        rows=file.record_count,
        size=file.file_size_in_bytes,
        first_seq=bounds("seq", file.lower_bounds) or 0,
        last_seq=bounds("seq", file.upper_bounds) or 0,
        partition=named,
        first_us=bounds("timestamp", file.lower_bounds),
        last_us=bounds("timestamp", file.upper_bounds),
    )


def _directory(table: Any, field: Any, value: Any) -> str:
    """Return the value of a partition in the form of a directory name."""
    if value is None:
        return NO_TOKEN
    kind = table.schema().find_type(field.source_id)
    return quote(field.transform.to_human_string(kind, value), safe="-_")


def _described(table: Any, path: str) -> Any:
    """Return a file with its partition and statistics, from its footer."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    return parquet_file_to_data_file(table.io, table.metadata, path)


def _named(table: Any, paths: set[str]) -> list[Any]:
    if not paths:
        return []
    return [task.file for task in table.scan().plan_files() if task.file.file_path in paths]


def _held(table: Any) -> set[str]:
    """Return the data files of all snapshots."""
    return {
        entry.data_file.file_path
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _partition(spec: Any, name: str) -> None:
    from pyiceberg import transforms

    if _is_token(name):
        spec.add_field(name, transforms.IdentityTransform(), name)
        return
    kind = name.removeprefix("timestamp_").capitalize()
    spec.add_field("timestamp", getattr(transforms, f"{kind}Transform")(), name)


def _is_token(name: str) -> bool:
    return name.startswith(TOKEN_PREFIX) and name.removeprefix(TOKEN_PREFIX).isdigit()


def _message_columns() -> tuple[str, ...]:
    from penstock.spark.message_rows import COLUMNS

    return COLUMNS
