"""The format `penstock-blocks`: the files of a stopped server, or a backup, as a table of messages.

Columns are those of the format `jetstream`. The driver decides once which messages are live, over
all blocks together; tasks then read only their blocks. A torn tail, whose messages were never
acknowledged, is not damage. Stored messages that cannot be read fail the read, unless
`failOnDamage` is false; `damage` reads a table of them instead:

    stream string, file string, firstSeq bigint, lastSeq bigint,
    firstByte bigint, stopByte bigint, what string

Sequences are null where only bytes are known, and vice versa. The table includes messages past
their time to live that a server would remove at startup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark.files.archive_options import split_storage
from penstock.spark.files.blocks_location import pairs_of
from penstock.spark.files.blocks_options import BlocksOptions
from penstock.spark.files.blocks_plan import (
    ArchiveTask,
    StoreTask,
    find_archives,
    find_stores,
    tasks_of,
)
from penstock.spark.message_rows import RowMaker, check_schema, message_schema
from penstock.spark.options import OptionError, parse
from penstock.spark.read.prefetch import ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from penstock.bulk.record_batch import Batch
    from penstock.spark.files.blocks_location import Pairs
    from penstock.spark.files.blocks_plan import Found

DAMAGE_SCHEMA: Final = (
    "stream string, file string, firstSeq bigint, lastSeq bigint, "
    "firstByte bigint, stopByte bigint, what string"
)
DAMAGE_RANGES_SHOWN: Final = 5

DamageRow = tuple[str, str | None, int | None, int | None, int | None, int | None, str]


class PenstockBlocks(DataSource):
    """Data source for stores and backups."""

    @classmethod
    def name(cls) -> str:
        return "penstock-blocks"

    def schema(self) -> StructType | str:
        return DAMAGE_SCHEMA if self._parsed()[0].damage else message_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options, storage = self._parsed()
        if options.damage:
            return DamageReader(options, storage)
        check_schema(schema)
        return BlocksReader(options, schema, storage)

    def _parsed(self) -> tuple[BlocksOptions, Pairs]:
        others, storage = split_storage(self.options)
        return parse(BlocksOptions, others), pairs_of(storage)


class BlocksPartition(InputPartition):
    """A task. `damage` holds rows of damage that the driver found, only for a table of damage."""

    def __init__(self, task: StoreTask | ArchiveTask | None, damage: tuple[DamageRow, ...] = ()):
        super().__init__(None)
        self.task = task
        self.damage = damage


class BlocksReader(DataSourceReader):
    """Reads messages."""

    def __init__(self, options: BlocksOptions, schema: StructType, storage: Pairs = ()) -> None:
        self._options = options
        self._schema = schema
        self._storage = storage

    def partitions(self) -> list[InputPartition]:
        options = self._options
        archives = find_archives(options)
        if archives:
            return [BlocksPartition(task) for task in archives]
        stores = find_stores(options, self._storage)
        for found in stores:
            if options.fail_on_damage:
                _check_damage(found)
        tasks = [task for found in stores for task in tasks_of(found, options.max_partition_bytes)]
        return [BlocksPartition(task) for task in tasks] or [BlocksPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, BlocksPartition)
        task = partition.task
        if task is None:
            return
        maker = RowMaker(task.stream, self._schema)
        yield from ahead(maker.make(batch) for batch in self._batches(task))

    def _batches(self, task: StoreTask | ArchiveTask) -> Iterator[Batch]:
        from penstock.spark.files.blocks_task import read_archive, read_store

        options = self._options
        if isinstance(task, ArchiveTask):
            return read_archive(task, options.starting_seq, options.ending_seq)
        return read_store(task, options.key_file, fail_on_damage=options.fail_on_damage)


class DamageReader(DataSourceReader):
    """Reports what cannot be read; reads every byte of the selected blocks."""

    def __init__(self, options: BlocksOptions, storage: Pairs = ()) -> None:
        self._options = options
        self._storage = storage

    def partitions(self) -> list[InputPartition]:
        if find_archives(self._options):
            raise OptionError("option damage: a backup is whole or refused, it has no such table")
        stores = find_stores(self._options, self._storage)
        damage = tuple(row for found in stores for row in _store_damage(found))
        tasks = [
            task for found in stores for task in tasks_of(found, self._options.max_partition_bytes)
        ]
        return [BlocksPartition(None, damage), *(BlocksPartition(task) for task in tasks)]

    def read(self, partition: InputPartition) -> Iterator[DamageRow]:
        from penstock.spark.files.blocks_task import damage_of

        assert isinstance(partition, BlocksPartition)
        yield from partition.damage
        if isinstance(partition.task, StoreTask):
            yield from damage_of(partition.task, self._options.key_file)


def _store_damage(found: Found) -> Iterator[DamageRow]:
    """Yield the damage that is visible in the log as a whole."""
    for first, last in found.plan.damaged:
        yield found.stream, None, first, last, None, None, "messages are lost"
    for name in found.plan.unreadable:
        yield found.stream, name, None, None, None, None, "nothing in it can be used"
    if found.plan.cut_short:
        yield found.stream, None, None, None, None, None, "the end of the log is missing"


def _check_damage(found: Found) -> None:
    from penstock.spark.files.blocks_task import DamagedBlock

    rows = [row[1:4] + row[6:] for row in _store_damage(found)]
    if rows:
        shown = "; ".join(
            " ".join(str(part) for part in row if part is not None)
            for row in rows[:DAMAGE_RANGES_SHOWN]
        )
        raise DamagedBlock(found.stream, shown)
