"""The data keys of a store: sealed under the server's key, in one small file with two copies.

The file holds a key record for every data key that blocks may be encrypted with; the store uses
the one with the highest number. If the server key does not open them, `open_keys` raises StoreError
and writes nothing. A file opened by a former server key is sealed again under the current one; the
blocks stay unchanged.
"""

from __future__ import annotations

import errno as codes
from typing import TYPE_CHECKING, Final

from penstock.store.block_file import is_encrypted, number_of
from penstock.store.errors import NotFound, StoreError
from penstock.store.format.encryption import (
    KEY_BYTES,
    KEY_RECORD_BYTES,
    NONCE_BYTES,
    SALT_BYTES,
    DamagedKeyRecord,
    DataKey,
    WrongKey,
    open_data_key,
    seal_data_key,
)
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.format.encryption import ServerKey
    from penstock.store.io.disk import Disk

KEYS_FILE: Final = "keys"
ROLE: Final = "data keys"
KEYS_MAX: Final = 16
"""Maximum data keys of one store at a time; a block names one of them."""
_BYTES_MAX: Final = KEYS_MAX * KEY_RECORD_BYTES


def open_keys(
    disk: Disk,
    incarnation: int,
    key: ServerKey | None,
    former: tuple[ServerKey, ...],
    salt: bytes | None,
    noise: Callable[[int], bytes],
) -> dict[int, DataKey]:
    """Return the data keys by number; empty if the store is not encrypted and no key is given."""
    try:
        slots, reading = SlotFile.open(
            disk, KEYS_FILE, state_key(ROLE, incarnation), value_bytes_max=_BYTES_MAX
        )
    except NotFound:
        return {} if key is None else _first_key(disk, incarnation, key, salt, noise)
    try:
        if key is None:
            raise _refusal(disk, "the store is encrypted, and no key was given")
        return _opened(disk, slots, reading.value, incarnation, (key, *former), noise)
    finally:
        slots.close()


def _refusal(disk: Disk, reason: str) -> StoreError:
    return StoreError(f"{disk.path}/{KEYS_FILE}", "open", codes.EACCES, reason)


def _first_key(
    disk: Disk,
    incarnation: int,
    key: ServerKey,
    salt: bytes | None,
    noise: Callable[[int], bytes],
) -> dict[int, DataKey]:
    _refuse_orphans(disk)
    made = DataKey(noise(KEY_BYTES))
    record = _sealed(made, key, incarnation, salt or noise(SALT_BYTES), noise)
    SlotFile.create(
        disk, KEYS_FILE, state_key(ROLE, incarnation), record, value_bytes_max=_BYTES_MAX
    ).close()
    return {made.number: made}


def _refuse_orphans(disk: Disk) -> None:
    """Raise for encrypted blocks without a key file: a new key would make their loss final."""
    for name in disk.files():
        if number_of(name) is None:
            continue
        file = disk.open(name, writable=False)
        try:
            if is_encrypted(disk, file):
                raise _refusal(disk, f"{name} is encrypted, and the file of its keys is missing")
        finally:
            disk.close_file(file)


def _sealed(
    key: DataKey, server: ServerKey, incarnation: int, salt: bytes, noise: Callable[[int], bytes]
) -> bytes:
    # The incarnation identifies the stream; another stream may take its name later.
    return seal_data_key(key, server, "", incarnation, salt=salt, nonce=noise(NONCE_BYTES))


def _opened(
    disk: Disk,
    slots: SlotFile,
    value: bytes,
    incarnation: int,
    servers: tuple[ServerKey, ...],
    noise: Callable[[int], bytes],
) -> dict[int, DataKey]:
    records = [value[at : at + KEY_RECORD_BYTES] for at in range(0, len(value), KEY_RECORD_BYTES)]
    try:
        opened = [open_data_key(record, servers, "", incarnation) for record in records]
    except (WrongKey, DamagedKeyRecord) as reason:
        raise _refusal(disk, str(reason)) from None
    if any(one.opened_by for one in opened):
        sealed = [_sealed(one.key, servers[0], incarnation, one.salt, noise) for one in opened]
        slots.write(b"".join(sealed))
    return {one.key.number: one.key for one in opened}
