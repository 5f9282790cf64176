"""Derives the settings for all accounts' streams and consumers from the server options.

The runtime calls `policy_of` once, before it opens the first account. The salt of the encryption
key is stored in the store directory.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from penstock.jetstream.account.policy import Policy
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
from penstock.store.errors import NotFound

if TYPE_CHECKING:
    from penstock.server.config.options import JetStreamOptions, Options
    from penstock.store.format.encryption import ServerKey
    from penstock.store.io.disk import Disk

SALT_FILE: Final = "salt"


def policy_of(options: Options, disk: Disk) -> Policy:
    """Return the settings that apply to all accounts."""
    jetstream = options.jetstream_options
    limits = jetstream.limits
    key, former = server_keys(jetstream)
    return Policy(
        strict=jetstream.strict,
        lazy=jetstream.sync_interval_ns > 0,
        key=key,
        former_keys=former,
        key_salt=None if key is None else key_salt(disk),
        max_ack_pending=limits.max_ack_pending,
        max_request_batch=limits.max_request_batch,
        default_max_consumers=limits.default_max_consumers,
        duplicate_window_ns=limits.duplicate_window_ns,
        max_payload=options.max_payload,
        batches=BatchLimits(
            msgs_max=limits.batch.max_msgs,
            atomic_max=limits.batch.max_inflight_per_stream,
            atomic_total_max=limits.batch.max_inflight_total,
            idle_ns_max=limits.batch.timeout_ns,
        ),
    )


def server_keys(options: JetStreamOptions) -> tuple[ServerKey | None, tuple[ServerKey, ...]]:
    """Return the key to encrypt with, and the previous one."""
    if not options.key:
        return None, ()
    from penstock.store.format.encryption import ServerKey

    former = (ServerKey(options.prev_key),) if options.prev_key else ()
    return ServerKey(options.key), former


def key_salt(disk: Disk) -> bytes:
    """Return the server's salt. It is created once, so that one key derivation serves all streams.

    Every store keeps what it needs to be opened, so a lost salt costs only time.
    """
    from penstock.store.format.encryption import SALT_BYTES

    try:
        salt = disk.read_small(SALT_FILE, SALT_BYTES)
    except NotFound:
        salt = b""
    if len(salt) != SALT_BYTES:
        salt = secrets.token_bytes(SALT_BYTES)
        file = disk.open(SALT_FILE, create=True)
        disk.pwrite(file, salt, 0)
        disk.fdatasync(file)
        disk.close_file(file)
        disk.sync_dir()
    return salt
