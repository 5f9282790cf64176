"""Small durable values: two slots in one file, written in turn, so that one is always complete.

A value of generation g lives in slot g % 2; docs/formats/slots.md has the byte tables. A slot is
overwritten only after the other one was synced, so a crash during a write leaves the previous
value. Reading takes the newest valid slot, reports the fault of the other one, and raises if
neither is valid: it never guesses a value and never trusts an unchecked length.

This module does not decide when to sync: `put` writes, the owner of the group commit syncs and
then calls `synced`. `write` does all three for callers that can wait.
"""

from __future__ import annotations

import enum
import errno
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from penstock.store.errors import CorruptRecord, NotFound, StoreError, SyncFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.store.io.disk import Disk, File

PAGE_BYTES: Final = 4096
SLOT_MAGIC: Final = b"PSTKSLOT"
SLOT_VERSION: Final = 1
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of a value, unless its owner sets a lower bound."""
HASH_BYTES: Final = 8
KEY_BYTES: Final = 32
_FIELDS: Final = struct.Struct("<8sHBxIQQ8s")
HEADER_BYTES: Final = _FIELDS.size + HASH_BYTES
NEW_SUFFIX: Final = ".new"
"""Suffix of a file being created, until it is complete."""


class SlotFault(enum.Enum):
    """Why a slot is not valid."""

    SHORT = "the file ends before it"
    BLANK = "nothing but zeros"
    HEADER = "not a slot header of this file"
    PLACE = "a header that belongs elsewhere"
    LENGTH = "a length that cannot be"
    VALUE = "a value that is not what was written"


class SlotDamage(NamedTuple):
    """A slot that could not be used: damaged, or only partly written."""

    slot: int
    fault: SlotFault


class Write(NamedTuple):
    """Bytes and their offset in the file."""

    offset: int
    data: bytes


class SlotReading(NamedTuple):
    """The newest valid value. With `damage` it may not be the newest written: the unreadable slot
    may have been the later one. Only the caller can decide that."""

    value: bytes
    generation: int
    damage: tuple[SlotDamage, ...]
    older: bytes | None = None
    """The value of the other slot, if it is valid."""


class SlotsDamaged(CorruptRecord):
    """Neither slot is valid. The file is left as it is."""

    def __init__(self, path: str, damage: tuple[SlotDamage, ...]) -> None:
        faults = "; ".join(f"slot {slot}: {fault.value}" for slot, fault in damage)
        super().__init__(path, 0, faults)
        self.damage = damage


class UnknownVersion(CorruptRecord):
    """A valid header of a format that this program does not know. Nothing is changed."""


def state_key(role: str, incarnation: int) -> bytes:
    """Return the key of all checksums of one file, from its role and its owner's incarnation.

    A valid slot of another file, or of an owner that was deleted and created again, is not valid
    here.
    """
    name = struct.pack("<Q", incarnation) + role.encode()
    return blake2b(name, digest_size=KEY_BYTES, person=b"penstock state").digest()


def keyed_hash(key: bytes, *parts: bytes | memoryview) -> bytes:
    """Return eight hash bytes over all parts. BLAKE2b because it is keyed, strong and in the
    standard library; the values it protects are small."""
    state = blake2b(digest_size=HASH_BYTES, key=key)
    for part in parts:
        state.update(part)
    return state.digest()


def extents(slot: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of each piece of a slot that holds `length` bytes.

    The pieces of the two slots alternate and double: 4, 4, 8, 16 KiB... each. So a slot grows
    without moving, and a file is never much larger than its contents.
    """
    yield slot * PAGE_BYTES, min(PAGE_BYTES, length)
    rest, size = length - PAGE_BYTES, PAGE_BYTES
    while rest > 0:
        yield (2 + slot) * size, min(size, rest)
        rest, size = rest - size, 2 * size


def encode_slot(key: bytes, generation: int, value: bytes) -> bytes:
    """Return header and value as they follow each other in the pieces of a slot."""
    slot = generation % 2
    value_hash = keyed_hash(key, struct.pack("<QQ", generation, len(value)), value)
    fields = _FIELDS.pack(SLOT_MAGIC, SLOT_VERSION, slot, 0, generation, len(value), value_hash)
    return fields + keyed_hash(key, fields) + value


def read_slots(
    disk: Disk, file: File, key: bytes, *, value_bytes_max: int = VALUE_BYTES_MAX
) -> SlotReading:
    """Return the newest valid value; change nothing. Raises SlotsDamaged or UnknownVersion."""
    path = f"{disk.path}/{file.name}"
    found = [_read_slot(disk, file, key, slot, value_bytes_max) for slot in (0, 1)]
    damage = tuple(
        SlotDamage(slot, got) for slot, got in enumerate(found) if isinstance(got, SlotFault)
    )
    valid = sorted(got for got in found if not isinstance(got, SlotFault))
    if not valid:
        raise SlotsDamaged(path, damage)
    generation, value = valid[-1]
    return SlotReading(value, generation, damage, valid[0][1] if len(valid) == 2 else None)


def _read_slot(
    disk: Disk, file: File, key: bytes, slot: int, value_bytes_max: int
) -> tuple[int, bytes] | SlotFault:
    page = disk.pread(file, PAGE_BYTES, slot * PAGE_BYTES)
    if len(page) < HEADER_BYTES:
        return SlotFault.SHORT
    if not any(page):
        return SlotFault.BLANK
    fields, header_hash = page[: _FIELDS.size], page[_FIELDS.size : HEADER_BYTES]
    if keyed_hash(key, fields) != header_hash:
        return SlotFault.HEADER
    _, version, place, _, generation, length, value_hash = _FIELDS.unpack(fields)
    if version != SLOT_VERSION:
        path = f"{disk.path}/{file.name}"
        raise UnknownVersion(path, slot * PAGE_BYTES, f"slot format {version} is not known")
    if place != slot or generation % 2 != slot:
        return SlotFault.PLACE
    if length > value_bytes_max or _end(slot, HEADER_BYTES + length) > disk.size(file):
        return SlotFault.LENGTH
    value = _read_value(disk, file, page, slot, length)
    if keyed_hash(key, struct.pack("<QQ", generation, length), value) != value_hash:
        return SlotFault.VALUE
    return generation, value


def _read_value(disk: Disk, file: File, page: bytes, slot: int, length: int) -> bytes:
    if HEADER_BYTES + length <= PAGE_BYTES:
        return page[HEADER_BYTES : HEADER_BYTES + length]
    pieces = [disk.pread(file, n, offset) for offset, n in extents(slot, HEADER_BYTES + length)]
    return b"".join(pieces)[HEADER_BYTES:]


def _end(slot: int, length: int) -> int:
    """Return where the last piece of a slot of this length ends."""
    return max(offset + n for offset, n in extents(slot, length))


class SlotFile:
    """One value in two slots of an open file. `generation` is the newest written."""

    __slots__ = ("_disk", "_durable", "_key", "_value_bytes_max", "file", "generation")

    def __init__(
        self, disk: Disk, file: File, key: bytes, generation: int, value_bytes_max: int
    ) -> None:
        """Called by `create` and `open`; the slot of `generation` is durable."""
        self.file = file
        self.generation = generation
        self._disk = disk
        self._durable = generation
        self._key = key
        self._value_bytes_max = value_bytes_max

    @classmethod
    def create(
        cls,
        disk: Disk,
        name: str,
        key: bytes,
        value: bytes,
        *,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> Self:
        """Create the file with the value in both slots, durably, or not at all.

        The file gets its name when it is complete. So a file of that name with no valid slot is
        damaged, never an interrupted creation. Blocks for two syncs. Raises StoreError (EEXIST)
        if the file exists.
        """
        _refuse_existing(disk, name)
        file = disk.open(name + NEW_SUFFIX, create=True)
        disk.truncate(file, 0)
        slots = cls(disk, file, key, 0, value_bytes_max)
        slots.put(value)
        slots.synced(slots.generation)  # the other slot holds no value that a crash could destroy
        slots.put(value)
        disk.fdatasync(file)
        slots.synced(slots.generation)
        disk.rename(name + NEW_SUFFIX, name)
        disk.sync_dir()
        file.name = name
        return slots

    @classmethod
    def open(
        cls,
        disk: Disk,
        name: str,
        key: bytes,
        *,
        repair: bool = True,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> tuple[Self, SlotReading]:
        """Read the value and, if a slot is not valid, rewrite it from the other one.

        Without `repair` the owner does that: its next `put` goes to the bad slot. Blocks for one
        or two syncs: the value read may still be only in the page cache, and a slot may be
        overwritten only when the other one is durable.
        """
        file = disk.open(name)
        try:
            reading = read_slots(disk, file, key, value_bytes_max=value_bytes_max)
            disk.fdatasync(file)
            slots = cls(disk, file, key, reading.generation, value_bytes_max)
            if reading.damage and repair:
                slots.write(reading.value)
        except StoreError:
            disk.close_file(file)
            raise
        return slots, reading

    @property
    def ready(self) -> bool:
        """Whether the newest value is durable, so that the other slot may be overwritten."""
        return self.generation == self._durable

    def prepare(self, value: bytes) -> tuple[Write, ...]:
        """Return the writes that store this value as the next generation. Changes nothing."""
        if len(value) > self._value_bytes_max:
            raise ValueError(f"{len(value)} bytes, a slot holds {self._value_bytes_max}")
        if self.file.failed:
            raise SyncFailed(f"{self._disk.path}/{self.file.name}", "write", errno.EIO)
        assert self.ready, "the slot to be overwritten may be the only durable one"
        generation = self.generation + 1
        image = encode_slot(self._key, generation, value)
        writes, at = [], 0
        for offset, n in extents(generation % 2, len(image)):
            writes.append(Write(offset, image[at : at + n].ljust(_whole_pages(n), b"\0")))
            at += n
        return tuple(writes)

    def put(self, value: bytes) -> int:
        """Write the next generation, without a sync, and return its number.

        After an error the caller may try again, with the same value or another one.
        """
        for write in self.prepare(value):
            self._disk.pwrite(self.file, write.data, write.offset)
        self.generation += 1
        return self.generation

    def synced(self, generation: int) -> None:
        """Record that a sync that began after this generation was written has succeeded."""
        assert self._durable <= generation <= self.generation
        self._durable = generation

    def write(self, value: bytes) -> None:
        """Write the next generation and sync it."""
        generation = self.put(value)
        self._disk.fdatasync(self.file)
        self.synced(generation)

    def close(self) -> None:
        """Close the file."""
        self._disk.close_file(self.file)


def _whole_pages(n: int) -> int:
    return -(-n // PAGE_BYTES) * PAGE_BYTES


def _refuse_existing(disk: Disk, name: str) -> None:
    try:
        disk.close_file(disk.open(name, writable=False))
    except NotFound:
        return
    raise StoreError(f"{disk.path}/{name}", "create", errno.EEXIST)
