"""The lane of direct reads says what `directget` says, or leaves it to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.broker.router import LaneListener, Router
from penstock.jetstream.account.direct_get import direct_get
from penstock.jetstream.account.get_lane import GetLane
from penstock.server.net.io_loop import IoLoop
from penstock.store.memstore import MemStore
from penstock.subjects.trie import SubList, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

GET = "$JS.API.DIRECT.GET."
SUBJECTS = ("a", "b.c", "$KV.x.k\u00e9y")
HEADERS = (b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"\r\n")
Stored = tuple[str, bytes, bytes, int]

times = st.integers(1, 2**63 - 1) | st.integers(1, 4 * 10**9).map(lambda s: s * 10**9)
stored = st.tuples(
    st.sampled_from(SUBJECTS), st.sampled_from(HEADERS), st.binary(max_size=40), times
)
asked = st.one_of(
    st.sampled_from(SUBJECTS).map(lambda subject: f"{GET}S.{subject}"),
    st.sampled_from(["S", "S.nope", "S.*", "S.>", "S.b.*", "T.a"]).map(lambda rest: GET + rest),
)


class Left(LaneListener):
    """Collects the subjects of the requests that the lane leaves."""

    def __init__(self, subjects: list[str]) -> None:
        self._subjects = subjects

    def received(self, subject: str, *_: object) -> None:
        self._subjects.append(subject)


class Scene:
    """A stream S, its lane, and who hears the answers."""

    def __init__(self, messages: Iterable[Stored]) -> None:
        self.store = MemStore()
        for subject, header, payload, ts_ns in messages:
            self.store.append(subject, header, payload, ts_ns)
        router, self._interest = Router(seed=1), SubList()
        self._router = router
        self._io_loop = IoLoop(router=router, arm=lambda *_: None, write_deadline_ns=10**10)
        self._io_loop.add_interest(self._interest)
        self.left: list[str] = []
        self.heard: list[Send] = []
        self.lane = GetLane(router=router, interest=self._interest, listener=Left(self.left))
        self.lane.open("S", self.store.lane_parts()["log"])
        self._listen("$JS.API.>", self.lane, lane=True)
        self._listen("r", self._hear)
        self._listen(">", lambda *_: None)

    def _listen(self, subject: str, value: object, *, lane: bool = False) -> None:
        self._interest.insert(Subscription(subject, value=value), call=True, lane=lane)

    def _hear(self, subject: str, _: str, header: bytes, payload: bytes, __: object) -> None:
        self.heard.append(Send(subject, payload, header))

    def ask(self, subject: str, payload: bytes = b"", reply: str = "r") -> None:
        self._io_loop.publish(self._interest, subject, payload, reply=reply)
        self._router.take_lanes()

    def expected(self, subject: str) -> list[object]:
        """What the other lane would answer."""
        return list(direct_get(self.store, "S", Inbound(subject, "r", b"", b"")).effects)


@given(st.lists(stored, max_size=6), asked)
def test_both_lanes_give_the_same_reply(messages: list[Stored], subject: str) -> None:
    scene = Scene(messages)
    scene.ask(subject)
    assert len(scene.heard) + len(scene.left) == 1
    if scene.heard:
        assert scene.heard == scene.expected(subject)


@pytest.mark.parametrize("subject", [*SUBJECTS, "nope"])
def test_literal_subject_is_answered_by_lane(subject: str) -> None:
    scene = Scene([("a", b"", b"1", 1), ("b.c", b"", b"2", 2), (SUBJECTS[2], b"", b"3", 3)])
    scene.ask(f"{GET}S.{subject}")
    assert not scene.left


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (f"{GET}S", b'{"seq":1}'),
        (f"{GET}S.a", b"{}"),
        (f"{GET}S.*", b""),
        (f"{GET}T.a", b""),
        ("$JS.API.INFO", b""),
        ("$JS.API.STREAM.INFO.S", b""),
    ],
)
def test_everything_else_is_left_to_callback(subject: str, payload: bytes) -> None:
    scene = Scene([("a", b"", b"1", 1)])
    scene.ask(subject, payload)
    assert (scene.left, scene.heard) == ([subject], [])


def test_invisible_messages_are_absent() -> None:
    scene = Scene([("a", b"", b"old", 1), ("a", b"", b"new", 2)])
    scene.store.lane_parts()["log"].visible_max = 1
    scene.ask(f"{GET}S.a")
    assert [sent.payload for sent in scene.heard] == [b"old"]


def test_stream_that_is_forgotten_is_left_to_callback() -> None:
    scene = Scene([("a", b"", b"1", 1)])
    scene.ask(f"{GET}S.a")
    scene.lane.clear()
    scene.ask(f"{GET}S.a")
    assert (len(scene.heard), len(scene.left), len(scene.lane)) == (1, 1, 0)


def test_large_messages_are_answered_whole() -> None:
    scene = Scene([("a", b"", b"x" * 300_000, 1), ("b.c", b"", b"y", 2)])
    for subject in ("a", "b.c", "a"):
        scene.ask(f"{GET}S.{subject}")
    assert [len(sent.payload) for sent in scene.heard] == [300_000, 1, 300_000]
