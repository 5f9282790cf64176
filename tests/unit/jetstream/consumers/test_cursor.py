"""Where a consumer starts, what its filters let through, and how much it says is to come."""

from __future__ import annotations

import pytest

from penstock.api.consumer_config import DeliverPolicy
from penstock.jetstream.consumers import cursor
from penstock.jetstream.consumers.cursor import TAIL_SCAN_MAX
from penstock.store.contract import Limits
from penstock.store.filestore import FileStore
from penstock.store.memstore import MemStore
from penstock.testing.sim_disk import SimDisk
from support.consumer_stage import SECOND, T0, Stage, pull_config

SUBJECTS = ["a", "b", "a", "c", "b"]


def sync(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def seqs(stage: Stage) -> list[int]:
    stage.pull("99")
    return stage.seqs()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"deliver_policy": DeliverPolicy.LAST}, [5]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subject": "a"}, [3]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subjects": ("a", "c")}, [4]),
        ({"deliver_policy": DeliverPolicy.NEW}, []),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 4}, [4, 5]),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": ">"}, [3, 4, 5]),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "b"}, [5]),
        ({"filter_subject": "a"}, [1, 3]),
        ({"filter_subjects": ("a", "c")}, [1, 3, 4]),
        ({"filter_subject": "nothing"}, []),
    ],
)
def test_policy_decides_where_delivery_starts(
    fields: dict[str, object], expected: list[int]
) -> None:
    stage = Stage(pull_config(**fields), before=SUBJECTS)
    assert stage.consumer.info(T0).num_pending == len(expected)
    assert seqs(stage) == expected
    stage.publish("a")
    stage.publish("b")
    wanted = fields.get("filter_subject", fields.get("filter_subjects", ">"))
    assert (6 in stage.seqs()) == ("a" in wanted or ">" in wanted)  # type: ignore[operator]


def test_delivery_may_start_at_time() -> None:
    store = MemStore()
    for n in range(4):
        store.append("ab"[n % 2], b"", b"", T0 + n * SECOND)
    by_time = {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": T0 + SECOND}
    assert seqs(Stage(pull_config(**by_time), store=store)) == [2, 3, 4]
    assert seqs(Stage(pull_config(**by_time, filter_subject="a"), store=store)) == [3]


def test_start_below_the_first_message_is_moved_up() -> None:
    store = MemStore(Limits(msgs_max=2))
    for _ in range(5):
        store.append("a", b"", b"", T0)
    by_seq = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 1}
    stage = Stage(pull_config(**by_seq), store=store)
    assert stage.consumer.info(T0).delivered.stream_seq == 3
    assert seqs(stage) == [4, 5]


def test_start_in_future_is_waited_for() -> None:
    by_seq = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 3}
    stage = Stage(pull_config(**by_seq))
    stage.pull("9")
    for _ in range(4):
        stage.publish()
    assert stage.seqs() == [3, 4]


def test_last_of_each_subject_is_as_it_was_at_the_start() -> None:
    cfg = pull_config(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">")
    stage = Stage(cfg, before=SUBJECTS)
    stage.pull("1")
    assert stage.seqs() == [3]
    stage.publish("c")
    assert stage.consumer.info(T0).num_pending == 3
    assert seqs(stage) == [4, 5, 6]


def test_last_of_subject_that_is_not_visible_yet_is_not_lost() -> None:
    store = FileStore.open(SimDisk(), incarnation=1, noise=bytes)
    store.append("a", b"", b"", T0)
    store.append("b", b"", b"", T0)
    sync(store)
    store.append("a", b"", b"", T0)
    stage = Stage(pull_config(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT), store=store)
    stage.pull("5")
    assert seqs(stage) == [1, 2]
    sync(store)
    stage.consumer.stored_some()
    stage.take(stage.consumer.wake(T0))
    assert seqs(stage) == [3]
    store.close()


def test_last_of_subject_may_be_deleted_before_its_turn() -> None:
    cfg = pull_config(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">")
    stage = Stage(cfg, before=SUBJECTS)
    stage.remove(4)
    stage.remove(5)
    stage.publish("z")
    assert seqs(stage) == [3, 6]


def test_num_pending_follows_stores_and_removals() -> None:
    stage = Stage(pull_config(filter_subject="a"), before=SUBJECTS)
    stage.publish("a")
    stage.publish("b")
    assert stage.consumer.info(T0).num_pending == 3
    stage.remove(3)
    assert stage.consumer.info(T0).num_pending == 2
    stage.pull("1")
    assert stage.consumer.info(T0).num_pending == 1


def test_new_filters_hold_for_what_was_not_delivered_yet() -> None:
    stage = Stage(pull_config(), before=SUBJECTS)
    stage.pull("2")
    stage.deliveries()
    stage.take(stage.consumer.update(pull_config(filter_subject="b"), T0))
    assert stage.consumer.info(T0).num_pending == 1
    assert seqs(stage) == [5]


def test_message_of_another_subject_wakes_no_waiter() -> None:
    stage = Stage(pull_config(filter_subject="a.*"))
    assert not stage.consumer.stored(1, "b", T0)
    assert stage.consumer.stored(1, "a.b", T0)


def test_message_read_before_it_was_announced_is_counted_once() -> None:
    stage = Stage(pull_config(), before=["a"])
    assert stage.consumer.info(T0).num_pending == 1
    seq = stage._append("a", b"", b"")
    stage.pull("2")
    assert [d.reply.rsplit(".", 1)[1] for d in stage.deliveries()] == ["0", "0"]
    stage.consumer.stored(seq, "a", T0)
    assert stage.consumer.info(T0).num_pending == 0


@pytest.mark.parametrize("wanted", [1, 40, 90])
def test_wildcard_finds_its_messages_among_any_number_of_others(wanted: int) -> None:
    before = [*["x"] * 50, *["w.a"] * wanted, *["x"] * 50, "w.b"]
    stage = Stage(pull_config(filter_subject="w.*"), before=before)
    stage.pull("999")
    assert stage.seqs() == [*range(51, 51 + wanted), 101 + wanted]


@pytest.mark.parametrize("filters", [(), ("a",), ("w.>",), ("w.*", "a")])
@pytest.mark.parametrize("many", [3, TAIL_SCAN_MAX + 50])
def test_unannounced_messages_are_counted(filters: tuple[str, ...], many: int) -> None:
    stage = Stage(pull_config(filter_subjects=filters), before=["a", "w.a", "x"])
    stage.consumer.info(T0)
    for n in range(many):
        stage._append(("a", "w.b", "x")[n % 3], b"", b"")
    stage.consumer.stored_some()
    told = stage.consumer.info(T0).num_pending
    stage.pull("999")
    assert told == len(stage.seqs())


@pytest.mark.parametrize("filters", [(), ("a",), ("w.>",)])
def test_announced_message_does_not_hide_unannounced_ones(filters: tuple[str, ...]) -> None:
    stage = Stage(pull_config(filter_subjects=filters), before=["a", "w.a"])
    stage.consumer.info(T0)
    for subject in ("a", "w.b", "x"):
        stage._append(subject, b"", b"")
    stage.consumer.stored_some()
    for subject in ("a", "w.b"):
        stage.consumer.stored(stage._append(subject, b"", b""), subject, T0)
    told = stage.consumer.info(T0).num_pending
    stage.pull("999")
    assert told == len(stage.seqs())


@pytest.mark.parametrize("pattern", ["a", "*"])
def test_removals_are_taken_off_what_is_to_come(pattern: str) -> None:
    stage = Stage(pull_config(filter_subject=pattern), before=["a"] * 8 + ["b.c"] * 2)
    stage.pull("1")
    for seq in (3, 5, 9):
        stage.remove(seq)
    stage.pull("99")
    assert [d.reply.rsplit(".", 1)[1] for d in stage.deliveries()][-3:] == ["2", "1", "0"]
    assert stage.consumer.info(T0).num_pending == 0


def test_last_message_reports_zero_pending_although_counting_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursor, "CHEAP_SUBJECTS_MAX", 0)
    stage = Stage(pull_config(filter_subject="*"), before=["a"] * 8 + ["b.c"] * 2)
    stage.pull("1")
    for seq in (3, 5, 9):
        stage.remove(seq)
    stage.pull("99")
    assert [d.reply.rsplit(".", 1)[1] for d in stage.deliveries()][-2:] == ["1", "0"]
    assert stage.consumer.info(T0).num_pending == 0
