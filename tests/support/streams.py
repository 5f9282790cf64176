"""Stream configurations for tests: what is wrong with each, and parts to draw others from.

`FAULTS` are configurations with one fault and the refusal they must get. `PARTS` are pieces, good
and bad, that tests combine; `ORIGINS` are the streams around. `asked` is what the rules in
`penstock.api` answer to a request, in the form a server's answer has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.api.account_usage import AccountLimits
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import StreamConfigRequest
from penstock.api.rules.stream_defaults import StreamContext, shown
from penstock.api.rules.stream_requests import plan_create, plan_update
from penstock.api.stream_config import StreamConfig
from support.jetstream import Refusal

if TYPE_CHECKING:
    import random

Json = dict[str, Any]

SECOND = 1_000_000_000
NAME = "T"
INVALID = 10052
#: What a test server can promise to streams; much more than any part here but the huge one.
FREE_BYTES = 1 << 40
HUGE_BYTES = 1 << 62


class Fault(NamedTuple):
    """A configuration with one fault, and its refusal."""

    config: Json
    err_code: int
    description: str
    code: int = 400

    @property
    def refusal(self) -> Refusal:
        return Refusal(self.code, self.err_code, self.description)

    @property
    def label(self) -> str:
        return f"{self.err_code}-{'-'.join(self.config)}-{self.description[:24]}"


def invalid(config: Json, description: str) -> Fault:
    return Fault(config, INVALID, description, 500)


def mirror(**more: Any) -> Json:
    return {"mirror": {"name": "ORIGIN", **more}}


def source(**more: Any) -> Json:
    return {"sources": [{"name": "ORIGIN", **more}]}


def transform(src: str, dest: str) -> Json:
    return {"subject_transforms": [{"src": src, "dest": dest}]}


ORIGINS: Json = {
    "ORIGIN": {"subjects": ["o.>"]},
    "DIRECT": {"subjects": ["d.>"], "allow_direct": True},
    "BIG": {"subjects": ["big"], "max_msg_size": 5000},
    "CYCLE": {"subjects": ["cycle", "q.>"], "sources": [{"name": NAME}]},
}

FAULTS = [
    Fault({"name": "other"}, 10056, "stream name in subject does not match request"),
    invalid({"description": "x" * 4097}, "stream description is too long, maximum allowed is 4096"),
    invalid(
        {"metadata": {"k": "x" * 131_072}}, "stream metadata exceeds maximum size of 131072 bytes"
    ),
    invalid({"num_replicas": 6}, "maximum replicas is 5"),
    Fault({"num_replicas": -1}, 10133, "replicas count cannot be negative"),
    Fault({"num_replicas": 3}, 10074, "replicas > 1 not supported in non-clustered mode", 500),
    invalid({"max_age": -1}, "max age can not be negative"),
    invalid({"max_age": 1}, "max age needs to be >= 100ms"),
    invalid({"duplicate_window": -1}, "duplicates window can not be negative"),
    invalid({"duplicate_window": 1}, "duplicates window needs to be >= 100ms"),
    invalid(
        {"duplicate_window": 3 * SECOND, "max_age": SECOND},
        "duplicates window can not be larger then max age",
    ),
    invalid(
        {"deny_purge": True, "allow_rollup_hdrs": True}, "roll-ups require the purge permission"
    ),
    invalid({"allow_msg_counter": True, "discard": "new"}, "counter stream cannot use discard new"),
    invalid(
        {"allow_msg_counter": True, "allow_msg_ttl": True}, "counter stream cannot use message TTLs"
    ),
    invalid(
        {"allow_msg_counter": True, "allow_msg_schedules": True},
        "counter stream cannot use message schedules",
    ),
    invalid(
        {"allow_msg_counter": True, "retention": "interest"},
        "counter stream can only use limits retention",
    ),
    invalid(
        {"discard_new_per_subject": True},
        "discard new per subject requires discard new policy to be set",
    ),
    invalid(
        {"discard_new_per_subject": True, "discard": "new"},
        "discard new per subject requires max msgs per subject > 0",
    ),
    invalid(
        {"subject_delete_marker_ttl": 1}, "subject delete marker TTL must be at least 1 second"
    ),
    invalid({"subject_delete_marker_ttl": -1}, "subject delete marker TTL must not be negative"),
    invalid(
        {"allow_msg_schedules": True, "discard": "new"}, "message scheduling cannot use discard new"
    ),
    invalid(
        {"persist_mode": "async", "storage": "memory"},
        "async persist mode is only supported on file storage",
    ),
    invalid(
        {"persist_mode": "async", "storage": "file", "allow_atomic": True},
        "async persist mode is not supported with atomic batch publish",
    ),
    invalid({"sealed": True}, "stream configuration for create can not be sealed"),
    invalid({"mirror_direct": True}, "stream has no mirror but does have mirror direct"),
    invalid({"placement": {"preferred": "x"}}, "preferred server not permitted in placement"),
    # mirrors
    Fault(
        {**mirror(), "first_seq": 5}, 10143, "stream mirrors can not have first sequence configured"
    ),
    Fault({**mirror(), "subjects": ["x"]}, 10034, "stream mirrors can not contain subjects"),
    Fault({**mirror(), **source()}, 10031, "stream mirrors can not also contain other sources"),
    Fault(
        {**mirror(), "allow_msg_counter": True},
        10173,
        "stream mirrors can not also calculate counters",
    ),
    Fault(
        {**mirror(), "allow_atomic": True},
        10198,
        "stream mirrors can not also use atomic publishing",
    ),
    Fault(
        {**mirror(), "allow_batched": True},
        10209,
        "stream mirrors can not also use batch publishing",
    ),
    Fault(
        {**mirror(), "allow_msg_schedules": True},
        10186,
        "stream mirrors can not also schedule messages",
    ),
    Fault(mirror(consumer={"name": "c"}), 10213, "stream mirror consumer config is invalid"),
    Fault(
        mirror(filter_subject="o.a", **transform("o.>", "z.>")),
        10150,
        "mirror with multiple subject transforms cannot also have a single subject filter",
    ),
    invalid(
        {**mirror(), "subject_delete_marker_ttl": SECOND},
        "subject delete markers forbidden on mirrors",
    ),
    Fault(mirror(**transform("o..", "z")), 10151, "mirror transform source: invalid subject o.."),
    Fault(
        mirror(**transform("o.*", "z.{{foo(1)}}")),
        10154,
        "mirror transform: invalid mapping destination: unknown function in {{foo(1)}}",
    ),
    Fault(
        mirror(subject_transforms=[{"src": "o.>", "dest": "z.>"}, {"src": "o.a", "dest": "z"}]),
        10152,
        "mirror subject filters can not overlap",
    ),
    Fault(mirror(name="a.b"), 10142, "mirrored stream name is invalid"),
    Fault(
        {**mirror(name="BIG"), "max_msg_size": 10},
        10030,
        "stream mirror must have max message size >= source",
    ),
    Fault(
        mirror(filter_subject="o..a"),
        10049,
        "subject filter 'o..a' for the mirror invalid subject",
        500,
    ),
    invalid(mirror(name=NAME), "detected cycle"),
    # sources
    Fault(
        {**source(), "allow_msg_schedules": True},
        10187,
        "stream source can not also schedule messages",
    ),
    Fault(source(name="a b"), 10141, "sourced stream name is invalid"),
    Fault({"sources": [{"name": "ORIGIN"}] * 2}, 10140, "duplicate source configuration detected"),
    Fault(
        source(filter_subject="o.a", **transform("o.>", "z.>")),
        10144,
        "source with multiple subject transforms cannot also have a single subject filter",
    ),
    Fault(source(**transform("o..", "z")), 10145, "source transform source: invalid subject o.."),
    Fault(
        source(**transform("o.*", "z.$2")),
        10146,
        "source transform: invalid mapping destination: wildcard index out of range in $2: [2]",
    ),
    Fault(
        source(subject_transforms=[{"src": "o.>", "dest": "z.>"}, {"src": "o.a", "dest": "z"}]),
        10147,
        "source filters can not overlap",
    ),
    Fault(source(consumer={"name": "c"}), 10215, "stream source consumer config is invalid"),
    Fault(
        {
            "sources": [
                {"name": "ORIGIN", "consumer": {"name": "c", "deliver_subject": "x"}},
                {
                    "name": "ORIGIN",
                    "consumer": {"name": "c", "deliver_subject": "y"},
                    **transform("o.a", "z"),
                },
            ]
        },
        10216,
        "duplicate stream source consumer detected",
    ),
    Fault(
        {**source(name="BIG"), "max_msg_size": 10},
        10046,
        "stream source must have max message size >= target",
    ),
    Fault(
        source(filter_subject="o..a"),
        10049,
        "subject filter 'o..a' for the source: invalid subject",
        500,
    ),
    Fault(
        source(external={"api": "x", "deliver": "d.>"}),
        10024,
        "stream external delivery prefix d.> must not contain wildcards",
    ),
    Fault(
        source(external={"api": "$JS.API", "deliver": "d"}),
        10021,
        "stream external api prefix $JS.API must not overlap with $JS.API",
    ),
    invalid(
        source(external={"api": "x.*", "deliver": "d"}),
        'stream external api prefix "x.*" must be a valid subject without wildcards',
    ),
    Fault(
        {"sources": [{"name": "ORIGIN"}, {"name": "X", "external": {"api": "y", "deliver": "o"}}]},
        10022,
        "stream external delivery prefix o overlaps with stream subject o.>",
    ),
    invalid(source(name="CYCLE"), "detected cycle"),
    # subjects
    invalid({"subjects": ["a..b"]}, "invalid subject"),
    invalid({"subjects": ["a.*", "a.b"]}, 'subject "a.*" overlaps with "a.b"'),
    invalid({"subjects": [">"]}, "capturing all subjects requires no-ack to be true"),
    invalid(
        {"subjects": ["$JS.API.x"]},
        "subjects that overlap with jetstream api require no-ack to be true",
    ),
    invalid(
        {"subjects": ["$SYS.x"]}, "subjects that overlap with system api require no-ack to be true"
    ),
    Fault({"subjects": ["o.x"]}, 10065, "subjects overlap with an existing stream"),
    # transforms
    Fault(
        {"subject_transform": {"src": "a..", "dest": "b"}},
        10155,
        "stream transform source: invalid subject a..",
    ),
    Fault(
        {"subject_transform": {"src": "a.*", "dest": "b.{{wildcard()}}"}},
        10156,
        "stream transform: invalid mapping destination: "
        "not enough arguments passed to the function in {{wildcard()}}",
    ),
    invalid(
        {"republish": {"src": ">", "dest": NAME}},
        "stream configuration for republish destination forms a cycle",
    ),
    invalid(
        {"republish": {"src": "a.*", "dest": "r.*"}},
        "stream configuration for republish with transform from 'a.*' to 'r.*' not valid",
    ),
    Fault(
        {"max_bytes": HUGE_BYTES, "storage": "memory"},
        10028,
        "insufficient memory resources available",
        500,
    ),
    Fault(
        {"max_bytes": HUGE_BYTES, "storage": "file"},
        10047,
        "insufficient storage resources available",
        500,
    ),
]

#: Good configurations, to be combined with each other and with faults.
GOOD: list[Json] = [
    {"subjects": ["a", "b.>"]},
    {"subjects": [">"], "no_ack": True},
    {"subjects": ["$JS.EVENT.>"]},
    {"subjects": ["$SYS.ACCOUNT.x.>"]},
    {"description": "x" * 4096},
    {"metadata": {"a": "b", "_nats.level": "9", "_nats.req.level": "7"}},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"max_consumers": -5},
    {"max_msgs": -2},
    {"max_bytes": -7},
    {"max_bytes": 1000},
    {"max_msgs_per_subject": -3},
    {"max_msgs_per_subject": 2},
    {"max_msg_size": -2},
    {"max_msg_size": 100_000},
    {"max_age": SECOND},
    {"discard": "new"},
    {"duplicate_window": 10 * SECOND},
    {"placement": {}},
    {"placement": {"cluster": "x", "tags": ["y"]}},
    mirror(),
    mirror(name="DIRECT"),
    mirror(name="nowhere"),
    mirror(opt_start_seq=3),
    mirror(name="X", external={"api": "$JS.x.API", "deliver": "d"}),
    source(),
    source(opt_start_time="2026-01-01T00:00:00Z"),
    {"sources": [{"name": "ORIGIN", "filter_subject": "o.a"}, {"name": "ORIGIN"}]},
    {"compression": "s2"},
    {"first_seq": 5},
    {"subject_transform": {"src": "", "dest": "b.>"}},
    {"subject_transform": {"src": NAME, "dest": "T.x"}},
    {"republish": {"dest": "r.>"}},
    {
        "republish": {"src": ">", "dest": ">"},
        "subject_transform": {"src": NAME, "dest": "T.x"},
    },
    {"republish": {}},
    {"allow_direct": True},
    {"deny_delete": True},
    {"deny_purge": True},
    {"allow_rollup_hdrs": True},
    {"consumer_limits": {"max_ack_pending": 5}},
    {"allow_msg_ttl": True},
    {"subject_delete_marker_ttl": SECOND},
    {"allow_msg_counter": True},
    {"allow_atomic": True},
    {"allow_msg_schedules": True},
    {"persist_mode": "async", "storage": "file"},
    {"persist_mode": ""},
    {"allow_batched": True},
    {"sealed": True},
    {"pedantic": True},
    {"pedantic": True},
]
PARTS = GOOD + [fault.config for fault in FAULTS]


def drawn(draw: random.Random, parts: int) -> Json:
    """A configuration of so many parts; later ones win."""
    config: Json = {"name": NAME, "storage": "memory"}
    for part in draw.sample(PARTS, parts):
        config |= part
    return config


def named(config: Json, name: str = NAME) -> Json:
    return {"name": name, "storage": "memory", **config}


def asked(
    verb: str,
    name: str,
    body: Json,
    streams: dict[str, StreamConfig],
    limits: AccountLimits | None = None,
    **context: Any,
) -> StreamConfig | ApiError:
    """What the rules answer to a request to create or update a stream."""
    request = decode(StreamConfigRequest, json.dumps(body).encode())
    ctx = StreamContext(
        streams=streams,
        limits=limits or AccountLimits(),
        pedantic=request.pedantic,
        **{"free_memory": FREE_BYTES, "free_storage": FREE_BYTES, **context},
    )
    plan = plan_create if verb == "CREATE" else plan_update
    return plan(name, request.config, ctx)


def plain(answer: StreamConfig | ApiError) -> Json | Refusal:
    """The rules' answer in the form of a server's."""
    if isinstance(answer, ApiError):
        return Refusal(answer.code, answer.err_code, answer.description)
    config: Json = json.loads(encode(shown(answer)))
    return config


def origins() -> dict[str, StreamConfig]:
    """The streams around, as the rules know them."""
    streams: dict[str, StreamConfig] = {}
    for name, config in ORIGINS.items():
        made = asked("CREATE", name, named(config, name), streams)
        assert isinstance(made, StreamConfig), made
        streams[name] = made
    return streams
