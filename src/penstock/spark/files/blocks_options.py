"""Options of the format `penstock-blocks`: which store or backup, and which part of it.

The path may name one stream or many; the other options narrow it. An encryption key is never an
option itself; the option names the file that holds it.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from penstock.spark.options import Doc, SparkOptions

SEQ_MAX: Final = 2**63 - 1
PARTITION_BYTES: Final = 64 << 20

Sequence = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]


class BlocksOptions(SparkOptions, frozen=True, kw_only=True):
    """Files of a server's store, or a backup, read without a server. They must be on every machine
    that runs a task, or in an object store, whose options have the prefix `storage.`, such as
    `storage.endpoint`."""

    # What to read
    path: Annotated[
        str,
        Doc(
            "A server's store directory, one stream's directory, a backup's directory, or an "
            "archive; or a URL such as `s3://bucket/store`. Also set by `load(…)`."
        ),
    ]
    account: Annotated[str, Doc("Only streams of this account.")] = ""
    stream: Annotated[str, Doc("Only this stream; without it, every stream that is there.")] = ""
    starting_seq: Annotated[Sequence, Doc("The first sequence to read.")] = 0
    ending_seq: Annotated[Sequence, Doc("The last sequence to read.")] = SEQ_MAX
    key_file: Annotated[
        str,
        Doc(
            "A file with the server's key, for encrypted stores; else it is taken from the "
            "environment variable `PENSTOCK_STORE_KEY`, of the driver and of the executors."
        ),
    ] = ""
    # Damage
    damage: Annotated[
        bool,
        Doc("Read the table of damage instead of the messages: a row for each range that is lost."),
    ] = False
    fail_on_damage: Annotated[
        bool,
        Doc("Whether messages that cannot be read any more fail the read; else they are left out."),
    ] = True
    # Tasks
    max_partition_bytes: Annotated[
        Size, Doc("How much of the files one task reads; a task has one block at least.")
    ] = PARTITION_BYTES
