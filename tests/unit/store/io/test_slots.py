"""Two slots: the newest whole value is read, the other slot put right, nothing guessed."""

from __future__ import annotations

import pytest

from penstock.store.errors import DiskFull, NotFound, StoreError, SyncFailed
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import (
    HEADER_BYTES,
    PAGE_BYTES,
    SlotFault,
    SlotFile,
    SlotsDamaged,
    UnknownVersion,
    encode_slot,
    extents,
    keyed_hash,
    read_slots,
    state_key,
)
from penstock.testing.crash_states import crash_states
from penstock.testing.damage import cut, flip_bit, stale_page, swap, zero_page
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice

KEY = state_key("test", 1)
NAME = "small"


def copy(disk: SimDisk) -> SimDisk:
    return disk.crash(Choice())


def made(*values: bytes) -> SimDisk:
    """A disk with a slot file that was given these values one after the other."""
    disk = SimDisk()
    slots = SlotFile.create(disk, NAME, KEY, values[0])
    for value in values[1:]:
        slots.write(value)
    return disk


def opened(disk: SimDisk) -> bytes:
    slots, reading = SlotFile.open(disk, NAME, KEY)
    slots.close()
    return reading.value


def read(disk: SimDisk) -> tuple[bytes, list[tuple[int, SlotFault]]]:
    reading = read_slots(disk, disk.open(NAME), KEY)
    return reading.value, [tuple(damage) for damage in reading.damage]


def test_last_value_written_is_read() -> None:
    assert opened(made(b"one", b"two", b"three")) == b"three"


@pytest.mark.parametrize("length", [0, 1, 4047, 4048, 4049, 4096, 12288, 100_000, 300_001])
def test_value_of_any_length_comes_back_and_leaves_its_neighbour_alone(length: int) -> None:
    value = bytes(i % 251 for i in range(length))
    disk = made(b"small", value)
    assert read(disk) == (value, [])
    slots, _ = SlotFile.open(disk, NAME, KEY)
    slots.write(value[::-1])
    reading = read_slots(disk, slots.file, KEY)
    assert (reading.value, reading.older) == (value[::-1], value)


def test_pieces_of_two_slots_never_overlap() -> None:
    pieces = sorted(piece for slot in (0, 1) for piece in extents(slot, 1_000_000))
    stop = 0
    for offset, n in pieces:
        assert offset >= stop
        assert offset % PAGE_BYTES == 0
        stop = offset + n


def test_value_above_its_bound_is_refused_before_anything_is_written() -> None:
    disk = SimDisk()
    slots = SlotFile.create(disk, NAME, KEY, b"", value_bytes_max=10)
    with pytest.raises(ValueError, match="holds 10"):
        slots.write(b"x" * 11)
    assert read(disk) == (b"", [])


def test_every_bit_flip_costs_at_most_the_newest_value_and_is_reported() -> None:
    disk = made(b"older value", b"newest value")
    used = {0: HEADER_BYTES + len(b"older value"), 1: HEADER_BYTES + len(b"newest value")}
    for slot, length in used.items():
        for bit in range(slot * PAGE_BYTES * 8, (slot * PAGE_BYTES + length) * 8):
            flip_bit(disk, NAME, bit)
            value, damage = read(disk)
            assert value == (b"newest value" if slot == 0 else b"older value")
            assert [which for which, _ in damage] == [slot]
            flip_bit(disk, NAME, bit)


def test_every_truncation_is_read_around_or_refused() -> None:
    disk = made(b"older", b"newest")
    for size in range(2 * PAGE_BYTES):
        short = copy(disk)
        cut(short, NAME, size)
        if size < HEADER_BYTES + len(b"older"):
            with pytest.raises(SlotsDamaged):
                read(short)
        elif size < PAGE_BYTES + HEADER_BYTES + len(b"newest"):
            value, damage = read(short)
            assert value == b"older"
            assert damage[0][1] in (SlotFault.SHORT, SlotFault.LENGTH, SlotFault.BLANK)
        else:
            assert read(short) == (b"newest", [])


def test_opening_puts_bad_slot_right() -> None:
    disk = made(b"older", b"newest")
    zero_page(disk, NAME, 0)
    slots, reading = SlotFile.open(disk, NAME, KEY)
    assert [tuple(d) for d in reading.damage] == [(0, SlotFault.BLANK)]
    slots.close()
    zero_page(disk, NAME, 1)
    assert opened(disk) == b"newest"


def test_with_no_valid_slot_it_refuses_and_touches_nothing() -> None:
    disk = made(b"older", b"newest")
    flip_bit(disk, NAME, 100)
    zero_page(disk, NAME, 1)
    before = disk.read_small(NAME, 1 << 20)
    with pytest.raises(SlotsDamaged) as caught:
        opened(disk)
    assert [d.fault for d in caught.value.damage] == [SlotFault.HEADER, SlotFault.BLANK]
    assert disk.read_small(NAME, 1 << 20) == before


def test_stale_slot_is_older_value_and_never_mixture() -> None:
    disk = made(b"1", b"2", b"3")  # generations 2, 3, 4
    stale_page(disk, NAME, 0)
    assert read(disk) == (b"2", [])


def test_slots_of_another_file_or_another_life_are_not_taken() -> None:
    disk = made(b"mine")
    SlotFile.create(disk, "other", state_key("other", 1), b"theirs")
    SlotFile.create(disk, "before", state_key("test", 0), b"before")
    for other in ("other", "before"):
        mixed = copy(disk)
        swap(mixed, NAME, other)
        with pytest.raises(SlotsDamaged):
            opened(mixed)


def test_slot_in_place_of_the_other_is_not_taken() -> None:
    disk = made(b"one", b"two")
    file = disk.open(NAME)
    disk.pwrite(file, disk.pread(file, PAGE_BYTES, PAGE_BYTES), 0)
    assert read(disk) == (b"two", [(0, SlotFault.PLACE)])


def test_length_is_not_believed_even_with_right_checksum() -> None:
    disk = made(b"one", b"two")
    image = bytearray(encode_slot(KEY, 4, b"long"))
    image[24:32] = (1 << 40).to_bytes(8, "little")
    image[40:48] = keyed_hash(KEY, bytes(image[:40]))
    disk.pwrite(disk.open(NAME), bytes(image), 0)
    assert read(disk) == (b"two", [(0, SlotFault.LENGTH)])


def test_format_of_future_is_refused_not_repaired() -> None:
    disk = made(b"one", b"two")
    image = bytearray(encode_slot(KEY, 4, b"new"))
    image[8:10] = (2).to_bytes(2, "little")
    image[40:48] = keyed_hash(KEY, bytes(image[:40]))
    disk.pwrite(disk.open(NAME), bytes(image), 0)
    with pytest.raises(UnknownVersion):
        opened(disk)


def test_slot_is_not_overwritten_before_the_other_one_was_synced() -> None:
    slots = SlotFile.create(SimDisk(), NAME, KEY, b"one")
    generation = slots.put(b"two")
    with pytest.raises(AssertionError):
        slots.put(b"three")
    slots.synced(generation)
    slots.put(b"three")


def test_missing_file_is_reported_and_existing_one_not_replaced() -> None:
    disk = SimDisk()
    with pytest.raises(NotFound):
        SlotFile.open(disk, NAME, KEY)
    SlotFile.create(disk, NAME, KEY, b"one")
    with pytest.raises(StoreError, match="exists"):
        SlotFile.create(disk, NAME, KEY, b"two")
    assert opened(disk) == b"one"


def write_run(disk: RecordingDisk, *, early: bool = False) -> None:
    """Values 0 to 4 of growing length; a mark says which is durable."""
    slots = SlotFile.create(disk, NAME, KEY, b"0")
    disk.mark(0)
    for n in range(1, 5):
        generation = slots.put(str(n).encode() * n * 3000)
        if not early or n != 3:
            disk.fdatasync(slots.file)
            disk.mark(n)
        slots.synced(generation)


def violations(recording: RecordingDisk) -> list[str]:
    wrong = []
    for image in crash_states(recording):
        durable = image.marks[-1] if image.marks else -1
        try:
            value = int(opened(image.disk)[:1])
        except NotFound:
            value = -1
        except SlotsDamaged:
            value = -2
        if value < durable:
            wrong.append(image.description)
    return wrong


def test_no_power_cut_takes_synced_value_or_leaves_file_without_one() -> None:
    recording = RecordingDisk(SimDisk())
    write_run(recording)
    assert violations(recording) == []


def test_judge_finds_slot_overwritten_before_the_other_was_synced() -> None:
    recording = RecordingDisk(SimDisk())
    write_run(recording, early=True)
    assert violations(recording)


def test_failed_sync_is_final() -> None:
    disk = SimDisk()
    slots = SlotFile.create(disk, NAME, KEY, b"one")
    disk.fail_nth(1, DiskFault.SYNC_ERROR)
    with pytest.raises(SyncFailed):
        slots.write(b"two")
    with pytest.raises(SyncFailed):
        slots.write(b"three")


def test_full_disk_leaves_value_and_the_next_try_works() -> None:
    disk = SimDisk()
    slots = SlotFile.create(disk, NAME, KEY, b"one")
    disk.fail_nth(1, DiskFault.SHORT_WRITE)
    with pytest.raises(DiskFull):
        slots.write(b"two" * 5000)
    assert read(disk)[0] == b"one"
    slots.write(b"three")
    assert read(disk) == (b"three", [])


def test_it_works_on_real_disk(tmp_path: object) -> None:
    disk = RealDisk.at(str(tmp_path))
    slots = SlotFile.create(disk, NAME, KEY, b"one")
    slots.write(b"two" * 10_000)
    slots.close()
    slots, reading = SlotFile.open(disk, NAME, KEY)
    assert reading.value == b"two" * 10_000
    assert disk.files() == [NAME]
    slots.close()
    disk.close()
