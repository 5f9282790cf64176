"""Pull requests drawn at random, whole and broken: a running server against our pure reading.

On an empty stream each request ends at once, so what comes back is how it was read: the refusal
of the consumer, the reason why it is a bad request, or that there is nothing.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.json_codec import decode
from penstock.api.pull_request import bad_request, parse_pull, refuse_pull
from support.jetstream import API

if TYPE_CHECKING:
    from support.assets import JetStream

SEEDS = range(4)
DRAWS = 150
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "capped": {"max_batch": 5, "max_expires": 90 * 10**9, "max_bytes": 1000},
    "overflow": {"priority_policy": "overflow", "priority_groups": ["g", "h"]},
    "pinned": {"priority_policy": "pinned_client", "priority_groups": ["g"]},
    "prioritized": {"priority_policy": "prioritized", "priority_groups": ["g"]},
}
POOLS: dict[str, tuple[Any, ...]] = {
    "batch": (0, 1, 5, 6, -1, None, "x", 1.5, 10**30, True),
    "expires": (0, 1, None, 91 * 10**9, "1s", 2**63),
    "max_bytes": (0, 7, 1001, [], {}),
    "idle_heartbeat": (0, 1, 10**9, -1),
    "group": ("", "g", "h", "other", 5, None),
    "min_pending": (0, 1, -1, "x"),
    "min_ack_pending": (0, 1, 2**63),
    "id": ("", "pin", 7),
    "priority": (0, 9, 10, -1),
    "unknown": (1, {"deep": [1, {}]}),
    "No_Wait": (True, 1, None),
}
BREAKERS = b'{}[]",:\\tfn0-1.eE \n\x00\x1f\x7f\xc3\xa9\xff'


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_pull_requests_match_reference(jetstream: JetStream, seed: int, kind: str) -> None:
    draw = random.Random(seed)
    stream = jetstream.stream(storage="memory")
    consumer = stream.consumer(**CONFIGS[kind])
    cfg = decode(ConsumerConfig, json.dumps(CONFIGS[kind]).encode())
    for _ in range(DRAWS):
        body = drawn(draw)
        expected = ruled(body, cfg)
        if expected is not None:
            subject = f"{API}CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}"
            assert jetstream.request(subject, body).status == expected, body


def ruled(body: bytes, cfg: ConsumerConfig) -> str | None:
    """The status our code would answer with; None if that depends on more than the request."""
    pull = parse_pull(body)
    if isinstance(pull, str):
        return bad_request(pull)
    refused = refuse_pull(pull, cfg)
    if refused is not None:
        return refused
    is_over_at_once = pull.no_wait and pull.expires == 0 and not pull.id
    return "404 No Messages" if is_over_at_once else None


def drawn(draw: random.Random) -> bytes:
    """A request, every other one with a byte lost, doubled or changed."""
    names = draw.sample(sorted(POOLS), draw.randint(0, 3))
    said = {"no_wait": True, **{name: draw.choice(POOLS[name]) for name in names}}
    body = bytearray(json.dumps(said).encode())
    if draw.random() < 0.5:
        at = draw.randrange(1, len(body) + 1)
        piece = bytes([draw.choice(BREAKERS)])
        body[at : at + draw.randint(0, 2)] = piece * draw.randint(0, 2)
    return bytes(body)
