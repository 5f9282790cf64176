"""One consumer after another, and never a record twice or out of place: with a scripted link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.bulk import ordered_consumer as module
from penstock.bulk.bulk_requests import StreamSummary, SubjectSelection
from penstock.bulk.errors import AccessDenied, BulkError, ConnectFailed, ConnectionLost, Refused
from penstock.bulk.ordered_consumer import EndReached, Idle, OrderedConsumer, PastEnd, Quiet
from penstock.bulk.record_batch import Batch
from penstock.bulk.subscription_feed import Broken, CaughtUpMark, PastEndMark, Status

if TYPE_CHECKING:
    from penstock.bulk.subscription_feed import Item

EMPTY = b""


def batch(first: int, count: int) -> Batch:
    seqs = b"".join(n.to_bytes(8, "little") for n in range(first, first + count))
    none = bytes(4 * (count + 1))
    return Batch(count, 0, seqs, bytes(8 * count), EMPTY, none, EMPTY, none, EMPTY, none)


def heartbeat(consumer: int, stream: int, stalled: str = "") -> Status:
    lines = f"Nats-Last-Consumer: {consumer}\r\nNats-Last-Stream: {stream}\r\n"
    if stalled:
        lines += f"Nats-Consumer-Stalled: {stalled}\r\n"
    return Status.read(f"NATS/1.0 100 Idle Heartbeat\r\n{lines}\r\n".encode(), "")


def flow_request(reply: str) -> Status:
    return Status.read(b"NATS/1.0 100 FlowControl Request\r\n\r\n", reply)


class World:
    """Plays the server: one list of items for each consumer that is made, in order."""

    def __init__(self, *lives: list[Item], initial: int = 99) -> None:
        self.lives = list(lives)
        self.initial = initial
        self.pending: list[int | BulkError] = []
        self.asked: list[str] = []
        self.failures: list[BulkError] = []
        self.selections: list[SubjectSelection] = []
        self.published: list[str] = []
        self.is_open = True
        self.has_records = False
        self.checked: list[int] = []

    # -- a dialler

    async def dial(self) -> World:
        self.asked.append("dial")
        if self.failures:
            raise self.failures.pop(0)
        self.is_open = True
        return self

    # -- a link

    def follow(
        self, *, stop_seq: int, mark_caught_up: bool, whole_batches: bool
    ) -> tuple[str, World]:
        return "inbox", self

    def unfollow(self) -> None:
        self.asked.append("unfollow")

    def publish(self, subject: str) -> None:
        self.published.append(subject)

    def abort(self) -> None:
        self.asked.append("abort")

    async def close(self) -> None:
        self.is_open = False
        self.asked.append("close")

    # -- a feed

    async def next(self, seconds: float) -> Item:
        life = self.lives[0]
        if not life:
            raise TimeoutError
        item = life.pop(0)
        if isinstance(item, Broken | Status) and not life:
            self.lives.pop(0) if len(self.lives) > 1 else None
        return item

    # -- questions

    async def stream_state(self, link: Any, stream: str) -> StreamSummary:
        self.asked.append("state")
        return StreamSummary(stream, 1, 1, 100, 100, {})

    async def create_consumer(
        self, link: Any, stream: str, name: str, deliver: str, selection: SubjectSelection
    ) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.asked.append("create")
        self.selections.append(selection)
        return self.initial

    async def pending_of(self, link: Any, stream: str, name: str) -> int:
        answer = self.pending.pop(0) if self.pending else 0
        if isinstance(answer, BulkError):
            raise answer
        return answer

    async def delete_consumer(self, link: Any, stream: str, name: str, seconds: float) -> None:
        self.asked.append("delete")

    def check(self, state: StreamSummary, position: int) -> None:
        self.checked.append(position)


def follow(world: World, *, after: int | None = None, **more: Any) -> OrderedConsumer:
    selection = SubjectSelection(heartbeat=5.0)
    made: Any = world
    return OrderedConsumer(made.dial, made, "S", selection, after=after, check=world.check, **more)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS_FIRST", 0.0)


async def test_after_gap_new_consumer_starts_after_last_delivered() -> None:
    world = World([batch(1, 3), Broken("gap")], [batch(4, 1)])
    following = follow(world)
    await following.begin()
    assert [(await following.next()).last, (await following.next()).last] == [3, 4]  # type: ignore[union-attr]
    assert [one.start_seq for one in world.selections] == [None, 4]
    assert following.recreated == 1


async def test_every_start_after_sequence_is_checked_before_and_after() -> None:
    world = World([batch(8, 1), Broken("gap")], [batch(9, 1)])
    following = follow(world, after=7)
    await following.begin()
    await following.next()
    await following.next()
    assert world.checked == [7, 7, 8, 8]
    states = [at for at, word in enumerate(world.asked) if word == "state"]
    creates = [at for at, word in enumerate(world.asked) if word == "create"]
    assert states[0] < creates[0] < states[1] < states[2] < creates[1] < states[3]


async def test_start_without_sequence_needs_no_check() -> None:
    world = World([batch(1, 1)])
    await follow(world).begin()
    assert world.checked == []


async def test_refused_check_ends_it() -> None:
    class Expired(Exception):
        pass

    def refuse(state: StreamSummary, position: int) -> None:
        raise Expired

    world = World([batch(1, 1), Broken("gap")], [])
    following = follow(world)
    following._check = refuse
    await following.begin()
    await following.next()
    with pytest.raises(Expired):
        await following.next()


async def test_heartbeat_that_knows_of_more_deliveries_is_gap() -> None:
    world = World([batch(1, 2), heartbeat(3, 3)], [batch(3, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    event = await following.next()
    assert isinstance(event, Batch)
    assert following.recreated == 1


async def test_heartbeat_in_step_moves_position() -> None:
    world = World([batch(1, 2), CaughtUpMark(), heartbeat(2, 40), Broken("lost")], [batch(41, 1)])
    following = follow(world)
    await following.begin()
    events = [await following.next() for _ in range(3)]
    assert [type(event) for event in events] == [Batch, EndReached, Idle]
    assert following.position == 40
    await following.next()
    assert world.selections[-1].start_seq == 41


async def test_silence_is_break() -> None:
    world = World([batch(1, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    world.lives = [[], [batch(2, 1)]]
    original = world.create_consumer

    async def create(*args: Any) -> int:
        world.lives.pop(0)
        return await original(*args)

    world.create_consumer = create  # type: ignore[method-assign]
    assert isinstance(await following.next(), Quiet)
    assert following.recreated == 0
    event = await following.next()
    assert isinstance(event, Batch)
    assert following.recreated == 1


async def test_flow_control_is_answered_in_its_place_and_not_before() -> None:
    world = World([batch(1, 1), flow_request("fc.1"), batch(2, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    assert world.published == []
    await following.next()
    assert world.published == ["fc.1"]


async def test_stalled_heartbeat_is_answered_and_is_not_the_end() -> None:
    world = World([heartbeat(0, 0, stalled="fc.9"), batch(1, 1), CaughtUpMark()])
    following = follow(world)
    await following.begin()
    events = [await following.next() for _ in range(3)]
    assert [type(event) for event in events] == [Idle, Batch, EndReached]
    assert world.published == ["fc.9"]


async def test_caught_up_is_reported_once_however_often_it_breaks() -> None:
    world = World(
        [batch(1, 1), CaughtUpMark(), Broken("x")], [batch(2, 1), CaughtUpMark(), batch(3, 1)]
    )
    following = follow(world)
    await following.begin()
    events = [await following.next() for _ in range(4)]
    assert [type(event) for event in events] == [Batch, EndReached, Batch, Batch]


async def test_removed_ack_pending_messages_do_not_prevent_catching_up() -> None:
    world = World([batch(1, 1), heartbeat(1, 9), batch(10, 1)], initial=5)
    following = follow(world)
    await following.begin()
    assert isinstance(await following.next(), Batch)
    assert isinstance(await following.next(), EndReached)


async def test_heartbeat_in_midst_of_backlog_does_not_end_it() -> None:
    world = World([batch(1, 1), heartbeat(1, 1), heartbeat(1, 1), batch(2, 1), heartbeat(2, 2)])
    world.pending = [7, ConnectionLost("x"), 0]
    following = follow(world)
    await following.begin()
    events = [await following.next() for _ in range(5)]
    assert [type(event) for event in events] == [Batch, Idle, Idle, Batch, EndReached]


async def test_reader_without_info_permission_trusts_heartbeats() -> None:
    world = World([batch(1, 1), heartbeat(1, 1), batch(2, 1)])
    world.pending = [AccessDenied("x")]
    following = follow(world)
    await following.begin()
    assert [type(await following.next()) for _ in range(2)] == [Batch, EndReached]


async def test_nothing_to_deliver_is_caught_up_at_once() -> None:
    following = follow(World([], initial=0))
    await following.begin()
    assert isinstance(await following.next(), EndReached)


async def test_end_of_range_is_reported() -> None:
    following = follow(World([PastEndMark()]), stop_seq=5)
    await following.begin()
    assert isinstance(await following.next(), PastEnd)


@pytest.mark.parametrize(
    "passing", [ConnectionLost("x"), ConnectFailed("x"), Refused("x", code=503)]
)
async def test_server_that_is_away_is_waited_for(passing: BulkError) -> None:
    world = World([batch(1, 1), Broken("lost")], [batch(2, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    world.failures = [passing, passing]
    assert isinstance(await following.next(), Batch)


@pytest.mark.parametrize("lasting", [AccessDenied("x"), Refused("x", code=404, err_code=10059)])
async def test_permanent_errors_are_not_retried(lasting: BulkError) -> None:
    world = World([batch(1, 1), Broken("lost")], [batch(2, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    world.failures = [lasting]
    with pytest.raises(type(lasting)):
        await following.next()


async def test_patience_ends() -> None:
    world = World([Broken("lost")], [])
    following = follow(world, reconnect_seconds=-1.0)
    await following.begin()
    world.failures = [ConnectionLost("away")]
    with pytest.raises(ConnectionLost):
        await following.next()


async def test_first_start_is_tried_once() -> None:
    world = World([])
    world.failures = [ConnectFailed("reply_no_responders")]
    with pytest.raises(ConnectFailed):
        await follow(world).begin()
    assert world.asked == ["dial"]


async def test_records_count_although_reply_after_them_was_lost() -> None:
    world = World([batch(1, 2), Broken("lost")], [batch(3, 1)])
    world.has_records = True
    following = follow(world)
    original, answers = world.create_consumer, iter([ConnectionLost("cut")])

    async def create(*args: Any) -> int:
        for lost in answers:
            raise lost
        return await original(*args)

    world.create_consumer = create  # type: ignore[method-assign]
    await following.begin()
    assert [(await following.next()).last, (await following.next()).last] == [2, 3]  # type: ignore[union-attr]


async def test_nothing_is_passed_on_before_second_check_has_passed() -> None:
    world = World([batch(1, 1), Broken("gap")], [batch(7, 1)])
    following = follow(world)
    await following.begin()
    await following.next()
    world.failures = []

    def refuse_second(state: StreamSummary, position: int) -> None:
        world.check(state, position)
        if len(world.checked) == 2:
            raise KeyError

    following._check = refuse_second
    with pytest.raises(KeyError):
        await following.next()
    assert world.lives[0], "the record is still where it was"


async def test_closing_takes_consumer_back() -> None:
    world = World([])
    following = follow(world)
    await following.begin()
    await following.close()
    await following.close()
    assert world.asked[-3:] == ["unfollow", "delete", "close"]
