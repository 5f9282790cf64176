"""Consumer configurations with one fault each, and what the pure rules make of a request.

The tables serve twice: unit tests hold the rules to them, contract tests hold running servers to
the rules, also with two faults at once and with configurations drawn at random.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from penstock.api.consumer_config import ConsumerConfig, CreateConsumerRequest
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import ApiError
from penstock.api.rules.consumer_defaults import ConsumerCaps
from penstock.api.rules.consumer_requests import RequestContext, addressed, decide
from penstock.api.stream_config import StreamConfig
from support.jetstream import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Json = dict[str, Any]
SECOND = 1_000_000_000
MILLISECOND = 1_000_000

CAPTURED = "captured"
"""The first token of all that the streams here capture."""
STREAMS: dict[str, Json] = {
    "plain": {},
    "queue": {"retention": "workqueue"},
    "interest": {"retention": "interest"},
    "capped": {"consumer_limits": {"inactive_threshold": 3600 * SECOND, "max_ack_pending": 5}},
    "narrow": {"max_consumers": 2},
}


NO_CAPS = ConsumerCaps()


class Fault(NamedTuple):
    """A configuration of a durable consumer on a plain stream, and why it is refused."""

    config: Json
    code: int
    err_code: int
    text: str

    @property
    def refusal(self) -> Refusal:
        return Refusal(self.code, self.err_code, self.text)


def fault(err_code: int, text: str, code: int = 400, **config: Any) -> Fault:
    return Fault(config, code, err_code, text)


def started(policy: str, text: str, **config: Any) -> Fault:
    words = f"consumer delivery policy is deliver {policy.replace('_', ' ')}, but optional {text}"
    return fault(10094, words, deliver_policy=policy, **config)


FLOW = {"ack_policy": "flow_control", "deliver_subject": "d"}
TIME = "2025-01-01T00:00:00Z"
FAULTS: tuple[Fault, ...] = (
    fault(10133, "replicas count cannot be negative", num_replicas=-1),
    fault(10184, "consumer backoff needs to be positive", backoff=[1, -1]),
    fault(10183, "consumer ack wait needs to be positive", ack_wait=-1),
    fault(
        10218, "flow control ack policy requires a push based consumer", ack_policy="flow_control"
    ),
    fault(10220, "flow control ack policy requires max ack pending", **FLOW, max_ack_pending=-1),
    fault(10221, "flow control ack policy requires unset ack wait", **FLOW, ack_wait=5),
    fault(10222, "flow control ack policy requires unset max deliver", **FLOW, max_deliver=5),
    fault(
        10116,
        "max deliver is required to be > length of backoff values",
        backoff=[1, 2],
        max_deliver=1,
    ),
    fault(
        10107,
        "consumer description is too long, maximum allowed is 4096",
        description="\u00e9" * 2049,
    ),
    fault(10079, "consumer deliver subject has wildcards", deliver_subject="d.*"),
    fault(10112, "invalid push consumer deliver subject", deliver_subject="d..e"),
    fault(10081, "consumer deliver subject forms a cycle", deliver_subject=f"{CAPTURED}.d"),
    fault(
        10080, "consumer in push mode can not set max waiting", deliver_subject="d", max_waiting=5
    ),
    fault(
        10082,
        "consumer requires ack policy for max ack pending",
        deliver_subject="d",
        max_ack_pending=5,
    ),
    fault(
        10083,
        "consumer idle heartbeat needs to be >= 100ms",
        deliver_subject="d",
        idle_heartbeat=99 * MILLISECOND,
    ),
    fault(10086, "consumer in pull mode can not have rate limit set", rate_limit_bps=1),
    fault(10088, "consumer idle heartbeat requires a push based consumer", idle_heartbeat=SECOND),
    fault(10089, "consumer flow control requires a push based consumer", flow_control=True),
    fault(10115, "consumer max request expires needs to be >= 1ms", max_expires=999_999),
    fault(10090, "consumer direct requires a push based consumer", direct=True),
    fault(
        10091, "consumer direct requires an ephemeral consumer", direct=True, deliver_subject="d"
    ),
    fault(
        10136,
        "consumer cannot have both FilterSubject and FilterSubjects specified",
        filter_subject="a",
        filter_subjects=["b"],
    ),
    fault(10052, "invalid subject", 500, filter_subject="a..b"),
    fault(
        10139, "consumer filter in FilterSubjects cannot be empty", filter_subjects=["a", "", " "]
    ),
    fault(10052, "invalid subject", 500, filter_subjects=["a", "a b"]),
    fault(10138, "consumer subject filters cannot overlap", filter_subjects=["a.*", "a.b"]),
    started("all", "start sequence is also set", opt_start_seq=1),
    started("all", "start time is also set", opt_start_time=TIME),
    started("last", "start sequence is also set", opt_start_seq=1, opt_start_time=TIME),
    started("last", "start time is also set", opt_start_time=TIME),
    started("new", "start sequence is also set", opt_start_seq=1),
    started("last_per_subject", "start time is also set", opt_start_time=TIME),
    started("last_per_subject", "filter subject is not set"),
    started("by_start_sequence", "start sequence is not set", opt_start_time=TIME),
    started("by_start_sequence", "start time is also set", opt_start_time=TIME, opt_start_seq=1),
    started("by_start_time", "start time is not set", opt_start_seq=1),
    started(
        "by_start_time", "start start sequence is also set", opt_start_time=TIME, opt_start_seq=1
    ),
    fault(
        10095,
        "failed to parse consumer sampling configuration:"
        ' strconv.Atoi: parsing "x": invalid syntax',
        sample_freq="x%",
    ),
    fault(10095, "failed to parse consumer sampling configuration: <nil>", sample_freq="-1"),
    fault(
        10108,
        "consumer with flow control also needs heartbeats",
        deliver_subject="d",
        flow_control=True,
    ),
    fault(
        10135, "consumer metadata exceeds maximum size of 128KB", metadata={"k": "v" * 128 * 1024}
    ),
    fault(
        10178,
        "priority groups can not be used with push consumers",
        deliver_subject="d",
        priority_policy="overflow",
    ),
    fault(
        10159,
        "Setting PriorityPolicy requires at least one PriorityGroup to be set",
        priority_policy="overflow",
    ),
    fault(
        10161,
        "Group name cannot be an empty string",
        priority_policy="overflow",
        priority_groups=["a", ""],
    ),
    fault(
        10162,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16"
        " characters",
        priority_policy="pinned_client",
        priority_groups=["a" * 17],
    ),
    fault(
        10196, "consumer can not have priority groups when policy is none", priority_groups=["a"]
    ),
    fault(10197, "PinnedTTL cannot be set when PriorityPolicy is none", priority_timeout=1),
)

#: Values for each field, more or less useful, to draw configurations from.
POOLS: dict[str, tuple[Any, ...]] = {
    "description": ("words",),
    "deliver_policy": (
        "all", "all", "new", "last", "last_per_subject", "by_start_sequence", "by_start_time",
    ),
    "opt_start_seq": (1, 2),
    "opt_start_time": (TIME, "2025-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
    "ack_policy": ("none", "all", "explicit", "explicit", "flow_control"),
    "ack_wait": (0, -1, SECOND),
    "max_deliver": (-2, -1, 0, 1, 3),
    "backoff": ([], [SECOND], [SECOND, 2 * SECOND], [-1]),
    "filter_subject": (f"{CAPTURED}.a", f"{CAPTURED}.*", "elsewhere", "a..b", ""),
    "filter_subjects": ([f"{CAPTURED}.b", f"{CAPTURED}.c"], [""], ["a.>", "a.b"], ["a", "b"]),
    "replay_policy": ("instant", "original"),
    "rate_limit_bps": (0, 1000),
    "sample_freq": ("", "50%", "0", "x"),
    "max_waiting": (-1, 0, 5),
    "max_ack_pending": (-2, -1, 0, 3, 7),
    "flow_control": (False, True),
    "headers_only": (True,),
    "max_batch": (-1, 0, 10),
    "max_expires": (-1, 0, 5, SECOND),
    "max_bytes": (-1, 0, 1024),
    "deliver_subject": ("", "d", "d", "e", f"{CAPTURED}.x", "d.*"),
    "deliver_group": ("g",),
    "idle_heartbeat": (-1, 0, 5, SECOND, SECOND),
    "inactive_threshold": (-1, 0, SECOND, 7200 * SECOND),
    "num_replicas": (0, 1, -1),
    "mem_storage": (False, True),
    "metadata": ({"a": "b"}, {"_nats.ver": "1", "_nats.req.level": "9"}),
    "pause_until": ("2035-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    "priority_groups": (["a"], ["a", "b"], [""]),
    "priority_policy": ("none", "overflow", "pinned_client", "prioritized"),
    "priority_timeout": (-1, 0, SECOND),
}  # fmt: skip


def drawn(random: Random, fields: int) -> Json:
    """A configuration with so many fields set."""
    return {name: random.choice(POOLS[name]) for name in random.sample(sorted(POOLS), fields)}


def stream_config(kind: str, name: str = "S") -> Json:
    """The configuration of a stream of this kind, as the server would have it."""
    return {"name": name, "subjects": [f"{CAPTURED}.>"], **STREAMS[kind]}


def asked(
    subject: str,
    body: Json,
    stream: Json,
    consumers: Mapping[str, ConsumerConfig] = {},
    *,
    caps: ConsumerCaps = NO_CAPS,
    has_interest: Callable[[str], bool] = lambda subject: False,
) -> ConsumerConfig | ApiError:
    """What the rules make of a request to `$JS.API.<subject>`."""
    try:
        request = decode(CreateConsumerRequest, json.dumps(body).encode())
    except ApiError as refused:
        return refused
    meant = addressed(["$JS", "API", *subject.split(".")], request)
    if isinstance(meant, ApiError):
        return meant
    made = decode(StreamConfig, json.dumps(stream).encode())
    made = structs.replace(made, num_replicas=made.num_replicas or 1)
    around = RequestContext(made, caps, consumers, has_interest)
    return decide(meant.config, request.action, around, pedantic=request.pedantic)


def plain(result: ConsumerConfig | ApiError) -> Json | Refusal:
    """A result as the server's answer would show it."""
    if isinstance(result, ApiError):
        return Refusal(result.code, result.err_code, result.description)
    shown: Json = json.loads(encode(result))
    return shown


def as_answered(answer: Json) -> Json | Refusal:
    """A server's answer as `plain` shows results; what it adds to every answer is left out."""
    if "error" in answer:
        error = answer["error"]
        return Refusal(error["code"], error["err_code"], error["description"])
    config: Json = answer["config"]
    for key in ("_nats.ver", "_nats.level"):
        config["metadata"].pop(key)
    return config
