"""Restores: all of a stream or nothing, whatever comes, and whenever the power goes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.advisories import RestoreComplete
from penstock.api.consumer_config import AckPolicy, ConsumerConfig
from penstock.api.json_codec import decode
from penstock.api.request_bodies import SnapshotRequest
from penstock.api.stream_config import Retention, Storage, StreamConfig, StreamState
from penstock.jetstream.account.asset_recovery import recover_account
from penstock.jetstream.archive import stream_archive
from penstock.jetstream.archive.restore_session import IDLE_NS, QUEUED_BYTES_MAX, STEP_BYTES
from penstock.jetstream.archive.snapshot_session import SnapshotSession, capture
from penstock.jetstream.archive.stream_archive import rebuilt_state
from penstock.records.s2_stream import Deflater
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import DiskFault, SimDisk
from support.archives import (
    CLIENT,
    SECOND_NS,
    START_NS,
    Wire,
    account,
    configured,
    contents,
    publish,
    restoring,
    settle,
    stream,
)

if TYPE_CHECKING:
    from penstock.jetstream.account.assets import Assets

GOLDEN = Path(__file__).parents[3] / "golden" / "archive-2.12.s2"
PIECE = 200
STATES = 300
RESTORE_FAILED = 10062

MESSAGES = [
    (3, START_NS, "S.a", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n", b"first"),
    (4, START_NS + 5, "S.b", b"", b"x" * 300),
    (8, START_NS + 9, "S.a", b"", b"last"),
]
#: Some frames full of messages that do not compress.
LARGE = [(n, START_NS, "S.a", b"", random.Random(n).randbytes(10_000)) for n in range(1, 21)]


def pressed(data: bytes) -> bytes:
    deflater = Deflater()
    return deflater.add(data) + deflater.finish()


def archived(
    messages: list[tuple[int, int, str, bytes, bytes]] = MESSAGES,
    *,
    first: int = 3,
    last: int = 10,
    consumers: tuple[str, ...] = ("c",),
    end: bytes = stream_archive.END,
) -> bytes:
    """An archive, consumers in the middle of it, sequences missing at its end."""
    state = StreamState(
        messages=len(messages),
        first_seq=first,
        last_seq=last,
        last_ts=START_NS + 20,
        consumer_count=len(consumers),
    )
    saved = rebuilt_state((2, 4), (1, 3), {4: (2, START_NS)}, {4: 1})
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=30 * SECOND_NS)
    parts = [
        stream_archive.MAGIC,
        stream_archive.state_entry(state, START_NS),
        *(stream_archive.consumer_entry(name, config, saved, last, START_NS) for name in consumers),
        *(stream_archive.message_entry(*message) for message in messages),
        end,
    ]
    return pressed(b"".join(parts))


def send(wire: Wire, data: bytes, piece: int = PIECE) -> None:
    for at in range(0, len(data), piece):
        wire.deliver(data[at : at + piece], f"r{at}")


def answer(wire: Wire) -> dict[str, Any]:
    """What the end of the archive is answered with."""
    wire.deliver(b"", "end")
    said = wire.sent[-1]
    assert said.subject == "end"
    told: dict[str, Any] = json.loads(said.payload)
    assert told["type"].endswith("stream_create_response")
    return told


def restored(assets: Assets, data: bytes, cfg: StreamConfig | None = None) -> dict[str, Any]:
    _, wire = restoring(assets, cfg or configured())
    send(wire, data)
    return answer(wire)


def refused(told: dict[str, Any]) -> tuple[int, str]:
    return told["error"]["err_code"], told["error"]["description"]


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return Storage(request.param)


def test_archive_becomes_stream_it_was(storage: Storage) -> None:
    assets = account(SimDisk())
    told = restored(assets, archived(), configured(storage=storage))
    assert "error" not in told
    state = told["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 3, 10)
    assert (state["num_deleted"], state["consumer_count"]) == (5, 1)
    host = assets.hosts["S"]
    assert contents(host) == MESSAGES
    kept = host.consumers["c"].log.state
    assert (kept.delivered_stream, kept.floor_stream) == (4, 3)
    assert (kept.pending, kept.redelivered) == ({4: (2, START_NS)}, {4: 1})


def test_every_chunk_is_answered_and_the_end_is_reported() -> None:
    _, wire = restoring(account(SimDisk()), configured())
    data = archived()
    send(wire, data)
    assert [sent.subject for sent in wire.sent] == [f"r{at}" for at in range(0, len(data), PIECE)]
    assert not any(sent.payload or sent.header for sent in wire.sent)
    answer(wire)
    complete = wire.told[-1].event
    assert isinstance(complete, RestoreComplete)
    assert (complete.stream, complete.bytes) == ("S", len(data))


def test_restored_stream_continues_where_it_was() -> None:
    assets = account(SimDisk())
    restored(assets, archived())
    host = assets.hosts["S"]
    publish(host, "c", b"new")
    publish(host, "c", b"again", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")
    assert [message[0] for message in contents(host)] == [3, 4, 8, 11]


def test_restored_stream_is_there_after_restart() -> None:
    disk = SimDisk()
    restored(account(disk), archived())
    again = account(disk)
    assert recover_account(again, START_NS).problems == []
    assert contents(again.hosts["S"]) == MESSAGES
    assert again.hosts["S"].consumers["c"].log.state.pending == {4: (2, START_NS)}
    assert again.hosts["S"].stream.last_seq == 10


def test_nothing_is_seen_of_stream_before_all_of_it_is_there() -> None:
    disk = SimDisk()
    assets = account(disk)
    _, wire = restoring(assets, configured())
    send(wire, archived())
    assert not assets.hosts
    again = account(disk)
    recover_account(again, START_NS)
    assert (again.hosts, disk.directories()) == ({}, [])


def test_power_cut_leaves_all_of_stream_or_nothing() -> None:
    disk = RecordingDisk(SimDisk())
    _, wire = restoring(account(disk), configured())
    send(wire, archived())
    assert "error" not in answer(wire)
    disk.mark("answered")
    seen = set()
    for image in crash_states(disk, images_max=STATES):
        again = account(image.disk)
        assert recover_account(again, START_NS).problems == [], image.description
        assert image.disk.directories() in ([], ["S"]), image.description
        seen.add("S" in again.hosts)
        if image.marks:
            assert again.hosts, image.description
        if again.hosts:
            host = again.hosts["S"]
            assert (contents(host), list(host.consumers)) == (MESSAGES, ["c"]), image.description
            assert host.consumers["c"].log.state.pending == {4: (2, START_NS)}
    assert seen == {True, False}


@pytest.mark.parametrize("fault", [DiskFault.ENOSPC, DiskFault.SYNC_ERROR, DiskFault.EIO])
def test_disk_that_fails_leaves_no_stream(fault: DiskFault) -> None:
    data = archived(LARGE, first=1, last=20)
    failed = whole = 0
    for number in range(1, 400):
        disk = SimDisk()
        assets = account(disk)
        _, wire = restoring(assets, configured())
        disk.fail_nth(number, fault)
        send(wire, data, 20_000)
        told = answer(wire)
        if "error" in told:
            assert refused(told)[0] == RESTORE_FAILED
            assert (assets.hosts, assets.used(Storage.FILE)) == ({}, 0)
            assert disk.directories() == [], number
            failed += 1
        else:
            assert len(contents(assets.hosts["S"])) == len(LARGE)
            whole += 1
        if whole > 3:
            break
    assert failed > 8


def test_abandoned_restore_leaves_nothing() -> None:
    disk = SimDisk()
    assets = account(disk)
    transfer, wire = restoring(assets, configured())
    send(wire, archived(LARGE, first=1, last=20)[:-20])
    assert disk.directories()
    wire.wait()
    assert transfer.is_over
    assert wire.now_ns == START_NS + IDLE_NS
    assert (disk.directories(), assets.used(Storage.FILE)) == ([], 0)
    assert not wire.told


def test_server_that_stops_leaves_nothing() -> None:
    disk = SimDisk()
    transfer, wire = restoring(account(disk), configured())
    send(wire, archived())
    transfer.abandon()
    assert disk.directories() == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"garbage" * 100, "not an S2 stream"),
        (archived()[:-3], "truncated"),
        (archived()[: PIECE * 2], "truncated"),
        (archived(end=b""), "truncated"),
        (pressed(b"neither archive nor tar" * 100), "invalid header"),
        (archived([MESSAGES[1], MESSAGES[0]]), "sequence 3 out of order"),
        (archived([MESSAGES[0], MESSAGES[0]]), "sequence 3 out of order"),
        (archived([(3, 0, "S. a", b"", b"")]), "invalid subject"),
        (archived(consumers=("c", "c")), "another's"),
        (archived(consumers=("c", "a.b")), "failed to add consumer"),
    ],
)
def test_incomplete_archive_leaves_no_stream(data: bytes, why: str) -> None:
    disk = SimDisk()
    assets = account(disk)
    code, said = refused(restored(assets, data))
    assert code == RESTORE_FAILED
    assert why in said
    assert (assets.hosts, disk.directories(), assets.used(Storage.FILE)) == ({}, [], 0)


def test_chunks_after_broken_one_are_answered() -> None:
    _, wire = restoring(account(SimDisk()), configured())
    send(wire, b"garbage" * 1000)
    assert {(sent.payload, sent.header) for sent in wire.sent} == {(b"", b"")}
    assert len(wire.sent) == 35


def test_chunk_without_way_to_answer_spoils_it() -> None:
    _, wire = restoring(account(SimDisk()), configured())
    data = archived()
    wire.deliver(data[:PIECE], "")
    send(wire, data[PIECE:])
    assert "reply subject" in refused(answer(wire))[1]


def test_chunks_may_be_sent_ahead_but_not_without_bound() -> None:
    assets = account(SimDisk())
    transfer, wire = restoring(assets, configured())
    data = archived()
    for at in range(0, len(data), 50):
        transfer.received("r", data[at : at + 50], START_NS)
    assert "error" not in answer(wire)

    transfer, wire = restoring(account(SimDisk()), configured())
    for _ in range(3):
        transfer.received("r", bytes(QUEUED_BYTES_MAX // 2), START_NS)
    assert "too many" in refused(answer(wire))[1]


def test_name_taken_meanwhile_stays_with_its_owner() -> None:
    disk = SimDisk()
    assets = account(disk)
    _, wire = restoring(assets, configured())
    send(wire, archived())
    made = stream(assets)
    assert refused(answer(wire))[0] == 10130
    assert (assets.hosts, disk.directories()) == ({"S": made}, ["S"])


def test_subjects_taken_meanwhile_stay_with_their_owner() -> None:
    assets = account(SimDisk())
    _, wire = restoring(assets, configured())
    send(wire, archived())
    stream(assets, "T", subjects=("S.a",))
    code, said = refused(answer(wire))
    assert code == RESTORE_FAILED
    assert "subjects overlap" in said


def test_account_has_to_have_room() -> None:
    assets = account(SimDisk(), max_storage=1000)
    many = [(n, START_NS, "S.a", b"", bytes(200)) for n in range(1, 20)]
    data = archived(many, first=1, last=19, consumers=())
    assert refused(restored(assets, data))[0] == 10047
    assert assets.used(Storage.FILE) == 0
    few = archived(many[:3], first=1, last=3, consumers=())
    assert "error" not in restored(assets, few)
    assert 600 < assets.used(Storage.FILE) < 1000


def test_restore_is_counted_while_it_runs() -> None:
    assets = account(SimDisk())
    _, wire = restoring(assets, configured())
    send(wire, archived(consumers=()))
    answer(wire)
    host = assets.hosts["S"]
    assert assets.used(Storage.FILE) == host.stream.store.total_bytes


def test_limits_hold_for_what_is_restored() -> None:
    assets = account(SimDisk())
    restored(assets, archived(), configured(max_msgs=2))
    assert [message[0] for message in contents(assets.hosts["S"])] == [4, 8]
    assert refused(restored(account(), archived(), configured(max_msg_size=100)))[1].endswith(
        "message sequence 4 exceeds maximum message size"
    )


def test_unneeded_messages_are_not_kept_for_interest() -> None:
    assets = account(SimDisk())
    restored(assets, archived(), configured(retention=Retention.INTEREST))
    assert [message[0] for message in contents(assets.hosts["S"])] == [4, 8]


def test_expired_messages_are_left_out() -> None:
    lives = b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n"
    old = START_NS - 100 * SECOND_NS
    messages = [
        (1, old, "S.a", lives % b"10s", b""),
        (2, old, "S.a", lives % b"1h", b""),
        (3, old, "S.a", lives % b"never", b""),
        (4, old, "S.a", lives % b"99", b""),
    ]
    assets = account(SimDisk())
    told = restored(assets, archived(messages, first=1, last=4), configured(allow_msg_ttl=True))
    host = assets.hosts["S"]
    assert [message[0] for message in contents(host)] == [2, 3]
    assert (told["state"]["first_seq"], told["state"]["last_seq"]) == (2, 4)
    assert host.stream.store.next_deadline_ns() is not None


def test_times_that_fall_are_lifted() -> None:
    messages = [(1, START_NS, "S.a", b"", b""), (2, START_NS - 50, "S.a", b"", b"")]
    assets = account(SimDisk())
    restored(assets, archived(messages, first=1, last=2))
    assert [message[1] for message in contents(assets.hosts["S"])] == [START_NS, START_NS]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (11, 10), (1, 5)])
def test_empty_stream_keeps_its_sequences(first: int, last: int) -> None:
    assets = account(SimDisk())
    told = restored(assets, archived([], first=first, last=last, consumers=()))
    assert told["state"]["last_seq"] == last
    publish(assets.hosts["S"], "a", b"")
    assert contents(assets.hosts["S"])[0][0] == last + 1


def test_archive_that_swells_is_read_in_bounded_steps() -> None:
    messages = [(n, START_NS, "S.a", b"", bytes(1 << 20)) for n in range(1, 33)]
    data = archived(messages, first=1, last=32, consumers=())
    assets = account()
    transfer, wire = restoring(assets, configured(storage=Storage.MEMORY))
    transfer.received("r", data, START_NS)
    steps = 0
    while not wire.sent:
        step = transfer.step(START_NS)
        wire.sent += [effect for effect in step.effects]  # type: ignore[misc]
        steps += 1
    assert len(data) < 3 << 20
    assert steps > (32 << 20) / (2 * STEP_BYTES)
    assert "error" not in answer(wire)


def test_archive_of_old_server_becomes_stream_it_was() -> None:
    told = json.loads(GOLDEN.with_suffix(".json").read_text())
    cfg = decode(StreamConfig, json.dumps(told["config"]).encode(), strict=False)
    assets = account(SimDisk())
    later_ns = 1_900_000_000 * SECOND_NS
    _, wire = restoring(assets, cfg, later_ns)
    send(wire, GOLDEN.read_bytes())
    state = answer(wire)["state"]
    # All but the message that lived for a second.
    assert state["messages"] == told["state"]["messages"] - 1
    for name in ("first_seq", "last_seq", "first_ts", "last_ts", "consumer_count"):
        assert state[name] == told["state"][name]
    host = assets.hosts["OLD"]
    kept = [one["seq"] for one in told["messages"] if one["seq"] != told["state"]["last_seq"]]
    assert [message[0] for message in contents(host)] == kept
    assert host.stream.created_ns < later_ns
    for name, saved in told["consumers"].items():
        info = host.consumers[name].info(later_ns)
        assert info.num_ack_pending == saved["num_ack_pending"]
        assert info.num_redelivered == saved["num_redelivered"]
        assert info.delivered.stream_seq == saved["delivered"]["stream_seq"]
        assert info.ack_floor.stream_seq == saved["ack_floor"]["stream_seq"]


def test_old_archive_keeps_its_name() -> None:
    code, said = refused(restored(account(SimDisk()), GOLDEN.read_bytes()))
    assert (code, said) == (RESTORE_FAILED, "restore failed: stream names do not match")


def test_messages_stored_before_snapshot_are_restored(storage: Storage) -> None:
    assets = account(SimDisk())
    host = stream(assets, storage=storage)
    for number in range(50):
        publish(host, str(number), bytes([number]) * number * 10)
    settle(host)
    extent, head = capture(host, START_NS, has_consumers=True)
    out = Wire(
        SnapshotSession(
            host,
            SnapshotRequest(deliver_subject="to"),
            head=head,
            last_seq=extent.state.last_seq,
            inlet="acks",
            client=CLIENT,
            has_interest=lambda subject: True,
            now_ns=START_NS,
        )
    )
    out.transfer.listening(is_there=True)
    out.run()
    elsewhere = account(SimDisk())
    told = restored(elsewhere, b"".join(sent.payload for sent in out.sent))
    assert "error" not in told
    assert contents(elsewhere.hosts["S"]) == contents(host)
