"""Reading messages with requests drawn at random: a running server against our pure answers.

A twin of the stream is kept in memory, with the server's own times. Whatever a request says, sense
or nonsense, the server and the functions in `penstock.jetstream` answer the same bytes.
"""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.json_codec import decode, encode
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import MsgGetRequest, is_empty_body
from penstock.api.responses import MsgGetResponse, StoredMessage
from penstock.api.timestamps import parse_time
from penstock.jetstream.account.message_get import get_message
from penstock.store.memstore import MemStore
from support.forgetful_store import answers
from support.jetstream import API, encode_body

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

SEEDS = range(6)
DRAWS = 60
RESTS = ["a", "b", "b", "c.d", "a", "c.e", "b", "c.d"]
FILTERS = ["a", "b", "nope", "*", "c.*", ">", "c.d", ""]


class Twin:
    """A stream on the server and the same messages in memory."""

    def __init__(self, client: JetStream, storage: str) -> None:
        self.server: Stream = client.stream(storage=storage, allow_direct=True)
        for number, rest in enumerate(RESTS, 1):
            headers = {"Number": str(number)} if number % 3 == 0 else {}
            self.server.publish(rest, b"m" * number, **headers)
        self.store = MemStore()
        self.times: list[str] = []
        for seq in range(1, len(RESTS) + 1):
            message = self.server.get(seq=seq)
            header = base64.b64decode(message.get("hdrs", ""))
            payload = base64.b64decode(message["data"])
            self.times.append(message["time"])
            ts_ns = parse_time(message["time"])
            self.store.append(message["subject"], header, payload, ts_ns)
        for gone in (2, 5):
            self.server.remove(gone)
            self.store.remove(gone)

    def drawn(self, draw: random.Random) -> dict[str, Any]:
        """A request with some fields, often in conflict with each other."""
        time = draw.choice([*self.times, "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
        pools: dict[str, Any] = {
            "seq": draw.randint(0, 10),
            "last_by_subj": self._subject(draw),
            "next_by_subj": self._subject(draw),
            "batch": draw.randint(-1, 5),
            "max_bytes": draw.choice([-1, 0, 12, 40]),
            "start_time": draw.choice([time, None]),
            "multi_last": [self._subject(draw) for _ in range(draw.randint(0, 3))],
            "up_to_seq": draw.randint(0, 10),
            "up_to_time": time,
            "no_hdr": draw.choice([True, False]),
        }
        names = draw.sample(sorted(pools), draw.randint(0, 3))
        return {name: pools[name] for name in names}

    def _subject(self, draw: random.Random) -> str:
        rest = draw.choice(FILTERS)
        return self.server.subject(rest) if rest else ""


@pytest.fixture(params=["file", "memory"])
def twin(request: pytest.FixtureRequest, jetstream: JetStream) -> Twin:
    return Twin(jetstream, request.param)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_direct_gets_match_reference(twin: Twin, seed: int) -> None:
    draw = random.Random(seed)
    client = twin.server.client
    for _ in range(DRAWS):
        body = twin.drawn(draw)
        subject = twin.server.subject(draw.choice(["a", "c.*", "nope"])) if seed % 3 == 0 else ""
        expected = answers(twin.store, encode_body(body), subject=subject, stream=twin.server.name)
        inbox = client.subscribe()
        asked = f"{API}DIRECT.GET.{twin.server.name}{subject and '.' + subject}"
        client.publish(asked, encode_body(body), reply=inbox.subject)
        found = [(one.payload, one.header) for one in inbox.take(len(expected))]
        assert found == [(one.payload, one.header) for one in expected], body
        assert inbox.waiting() == [], body
        inbox.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_api_requests_match_reference(twin: Twin, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(DRAWS):
        body = twin.drawn(draw)
        if draw.random() < 0.7:
            body.pop("batch", None)
            body.pop("max_bytes", None)
        answer = twin.server.client.request(f"{API}STREAM.MSG.GET.{twin.server.name}", body)
        assert answer.payload == expected_answer(twin, encode_body(body)), body


def expected_answer(twin: Twin, body: bytes) -> bytes:
    """What our handler would answer."""
    if is_empty_body(body):
        return encode(MsgGetResponse(error=ApiError(400, 10003, "bad request")))
    found = get_message(twin.store, decode(MsgGetRequest, body))
    if isinstance(found, StoredMessage):
        return encode(MsgGetResponse(message=found))
    assert isinstance(found, ApiError)
    return encode(MsgGetResponse(error=found))
