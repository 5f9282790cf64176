"""Stream configurations on a running server, against the tables and against the pure rules.

One fault, two faults at once, drawn configurations, updates and account limits: whatever a server
answers, the rules in `penstock.api` answer the same, word for word, and what is left open is
filled in the same. So the rules are as the reference has them, and our server asks them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.account_usage import AccountLimits
from penstock.api.stream_config import Storage, StreamConfig
from support.jetstream import Refusal, refusal
from support.streams import (
    FAULTS,
    GOOD,
    NAME,
    ORIGINS,
    SECOND,
    Fault,
    asked,
    drawn,
    named,
    origins,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.assets import JetStream
    from support.streams import Json

SEEDS = range(6)
DRAWS = 80
#: An account for each of these, so that no other stream is in the way.
SERVER_MEMORY, SERVER_STORAGE = 1_000_000, 10_000_000
WINDOW_SECONDS = 60
CONFIG = f"""
jetstream {{
  store_dir: store, max_mem: {1 << 40}, max_file: {1 << 40}
}}
accounts {{ A {{ jetstream: enabled, users: [{{ user: u, password: p }}] }} }}
"""
LIMITED = f"""
jetstream {{
  store_dir: store, max_mem: {SERVER_MEMORY}, max_file: {SERVER_STORAGE}
  limits {{ duplicate_window: "{WINDOW_SECONDS}s" }}
}}
accounts {{
  A {{
    jetstream {{
      max_mem: 100000, max_file: 1000000, max_streams: 3, max_consumers: 5
      max_bytes_required: true, mem_max_stream_bytes: 60000, disk_max_stream_bytes: 700000
    }}
    users: [{{ user: u, password: p }}]
  }}
}}
"""
LIMITS = AccountLimits(
    max_memory=100_000,
    max_storage=1_000_000,
    max_streams=3,
    max_consumers=5,
    memory_max_stream_bytes=60_000,
    storage_max_stream_bytes=700_000,
    max_bytes_required=True,
)
LOGIN = {"user": "u", "pass": "p"}


class Both:
    """A server's streams, and what the rules know of them: each request is asked of both."""

    def __init__(self, client: JetStream, **around: Any) -> None:
        self.streams: dict[str, StreamConfig] = {}
        self._client = client
        self.around = around

    def create(self, config: Json, name: str = NAME) -> Json | Refusal:
        return self.ask("CREATE", config, name)

    def update(self, config: Json, name: str = NAME) -> Json | Refusal:
        return self.ask("UPDATE", config, name)

    def ask(self, verb: str, config: Json, name: str = NAME) -> Json | Refusal:
        """The answer of the server; fails if the rules say otherwise."""
        body = named(config, name)
        answer = self._client.call(f"STREAM.{verb}.{name}", body)
        found = refusal(answer) if "error" in answer else answer["config"]
        ruled = asked(verb, name, body, self.streams, **self.around)
        if isinstance(ruled, StreamConfig):
            self.streams[name] = ruled
        assert found == plain(ruled), body
        return found

    def delete(self, name: str = NAME) -> None:
        self.streams.pop(name, None)
        self._client.call(f"STREAM.DELETE.{name}")

    def delete_all(self) -> None:
        for name in self._client.done("STREAM.NAMES")["streams"] or []:
            self.delete(name)


@pytest.fixture
def both(configured: Callable[..., JetStream]) -> Iterator[Both]:
    """An account with nothing but the origins."""
    pair = Both(configured(CONFIG, **LOGIN))
    pair.delete_all()
    for name, config in ORIGINS.items():
        pair.create(config, name)
    assert pair.streams == origins()
    yield pair
    pair.delete_all()


# -- creation


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_every_fault_is_refused_with_recorded_error(both: Both, fault: Fault) -> None:
    assert both.create(fault.config) == fault.refusal


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=lambda at: FAULTS[at].label)
def test_of_two_faults_both_servers_report_the_same(both: Both, first: int) -> None:
    one = FAULTS[first].config
    for other in FAULTS[first + 1 :]:
        if one.keys().isdisjoint(other.config):
            both.create({**one, **other.config})
            both.delete()


@pytest.mark.parametrize("pedantic", [False, True], ids=["lenient", "pedantic"])
def test_defaults_match_reference(both: Both, pedantic: bool) -> None:
    for config in [{}, *GOOD]:
        both.create({**config, "pedantic": pedantic})
        both.delete()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_configurations_match_reference(both: Both, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(DRAWS):
        both.create(drawn(draw, draw.randint(1, 4)))
        both.delete()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("a/b", Refusal(400, 10128, "Stream name can not contain path separators")),
        ("a\\b", Refusal(400, 10128, "Stream name can not contain path separators")),
        ("N" * 256, Refusal(500, 10052, "stream name is too long, maximum allowed is 255")),
    ],
    ids=["slash", "backslash", "long"],
)
def test_stream_name_must_be_valid_file_name(both: Both, name: str, refused: Refusal) -> None:
    assert both.create({}, name) == refused


def test_creating_equal_stream_succeeds_and_another_is_refused(both: Both) -> None:
    config = {"subjects": ["a", "b"], "max_age": 600 * SECOND, "metadata": {"k": "v"}}
    assert both.create(config) == both.create(config)
    in_use = "stream name already in use with a different configuration"
    assert both.create({**config, "max_age": 0}) == Refusal(400, 10058, in_use)


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({}, "0"),
        ({"allow_msg_ttl": True}, "1"),
        ({"subject_delete_marker_ttl": SECOND}, "1"),
        ({"allow_msg_counter": True}, "2"),
        ({"allow_atomic": True}, "2"),
        ({"allow_msg_schedules": True}, "2"),
        ({"persist_mode": "async", "storage": "file"}, "2"),
        ({"allow_batched": True, "allow_atomic": True}, "4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_stream_reports_its_required_api_level(both: Both, config: Json, level: str) -> None:
    made = both.create({**config, "metadata": {"_nats.req.level": "9", "_nats.ver": "1"}})
    assert isinstance(made, dict)
    assert made["metadata"] == {
        "_nats.req.level": level,
        "_nats.ver": "2.15.1",
        "_nats.level": "5",
    }


# -- update


@pytest.mark.parametrize("seed", SEEDS)
def test_random_updates_match_reference(both: Both, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(DRAWS):
        before = drawn(draw, draw.randint(0, 2))
        if isinstance(both.create(before), Refusal):
            continue
        kept = before if draw.random() < 0.8 else {}
        both.update({**kept, **drawn(draw, draw.randint(1, 3))})
        both.delete()


@pytest.mark.parametrize(
    ("before", "after", "description"),
    [
        ({"storage": "file"}, {}, "stream configuration update can not change storage type"),
        (
            {},
            {"retention": "workqueue"},
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        (
            {"deny_delete": True},
            {},
            "stream configuration update can not cancel deny message deletes",
        ),
        ({"deny_purge": True}, {}, "stream configuration update can not cancel deny purge"),
        ({"allow_msg_ttl": True}, {}, "message TTL status can not be disabled"),
        (
            {},
            {"allow_msg_counter": True},
            "stream configuration update can not change message counter setting",
        ),
        ({"allow_msg_schedules": True}, {}, "message schedules can not be disabled"),
        (
            {"storage": "file"},
            {"storage": "file", "persist_mode": "async"},
            "stream configuration update can not change persist mode",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain",
)
def test_immutable_fields_cannot_be_updated(
    both: Both, before: Json, after: Json, description: str
) -> None:
    both.create(before)
    assert both.update(after) == Refusal(500, 10052, description)


def test_missing_stream_cannot_be_updated(both: Both) -> None:
    assert both.update({}) == Refusal(404, 10059, "stream not found")


def test_sealing_denies_removals_and_cannot_be_undone(both: Both) -> None:
    both.create({"max_age": 600 * SECOND, "allow_rollup_hdrs": True})
    sealed = both.update({"sealed": True, "max_age": 600 * SECOND, "allow_rollup_hdrs": True})
    assert isinstance(sealed, dict)
    assert sealed["max_age"] == 0
    assert sealed["discard"] == "new"
    assert sealed["deny_delete"] is sealed["deny_purge"] is True
    assert sealed["allow_rollup_hdrs"] is False
    unseal = "stream configuration update can not unseal a sealed stream"
    assert both.update({}) == Refusal(500, 10052, unseal)


def test_mirror_can_only_be_promoted(both: Both) -> None:
    both.create({"mirror": {"name": "ORIGIN"}})
    changed = both.update({"mirror": {"name": "ORIGIN", "filter_subject": "o.a"}})
    assert changed == Refusal(400, 10055, "stream mirror configuration can not be updated")
    promoted = both.update({"subjects": ["a"]})
    assert isinstance(promoted, dict)
    assert "mirror" not in promoted


# -- limits


@pytest.mark.parametrize("seed", SEEDS)
def test_reservations_of_account_and_server_match_reference(
    configured: Callable[..., JetStream], seed: int
) -> None:
    both = Both(
        configured(LIMITED, **LOGIN),
        limits=LIMITS,
        duplicate_window_max=WINDOW_SECONDS * SECOND,
    )
    both.delete_all()
    draw = random.Random(seed)
    for _ in range(DRAWS):
        verb, name = draw.choice(["CREATE", "CREATE", "UPDATE", "DELETE"]), draw.choice("PQRST")
        if verb == "DELETE":
            both.delete(name)
            continue
        both.around |= promised(both.streams.values())
        both.ask(verb, sized(draw, both.streams.get(name)), name)
    both.delete_all()


def promised(streams: Any) -> dict[str, int]:
    """What the server has left for others."""
    taken = {
        storage: sum(max(cfg.max_bytes, 0) for cfg in streams if cfg.storage is storage)
        for storage in Storage
    }
    return {
        "free_memory": SERVER_MEMORY - taken[Storage.MEMORY],
        "free_storage": SERVER_STORAGE - taken[Storage.FILE],
    }


def sized(draw: random.Random, before: StreamConfig | None) -> Json:
    """A configuration that asks for room."""
    config: Json = {"storage": draw.choice(["file", "memory"])}
    if before is not None and draw.random() < 0.9:
        config["storage"] = before.storage.value
    sizes = [-1, 0, 1_000, 50_000, 60_000, 60_001, 400_000, 700_000, 700_001, 9_000_000]
    config["max_bytes"] = draw.choice(sizes)
    if draw.random() < 0.3:
        config["max_consumers"] = draw.choice([0, 1, 5, 6])
    if draw.random() < 0.3:
        config["duplicate_window"] = draw.choice([0, 10 * SECOND, 61 * SECOND])
    if draw.random() < 0.2:
        config["pedantic"] = True
    return config


def test_tighter_limit_must_admit_existing_consumers(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    consumer = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 50}
    body = {"stream_name": stream.name, "config": consumer}
    jetstream.done(f"CONSUMER.CREATE.{stream.name}.c", body)
    tighter = {**stream.config, "consumer_limits": {"max_ack_pending": 10}}
    assert jetstream.refused(f"STREAM.UPDATE.{stream.name}", tighter) == Refusal(
        500, 10069, "change to limits violates consumers: c"
    )
