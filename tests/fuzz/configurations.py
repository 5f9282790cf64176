"""Random configurations of streams and consumers, most of them valid.

Two kinds of streams exist beside the ordinary ones, so that no run feeds itself for ever: only
streams whose name begins with N send no acks, on subjects below `n.`; only streams whose name
begins with R take what republishing and push consumers send to `rep.`, and they pass nothing on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from .json_values import Json

MS: Final = 1_000_000
SECOND: Final = 1000 * MS
ORDINARY: Final = tuple(f"S{number}" for number in range(7))
MIRRORS: Final = tuple(f"M{number}" for number in range(2))
BUCKETS: Final = ("KV_b0", "KV_b1", "OBJ_o0")
NO_ACKS: Final = ("N0", "N1")
RECEIVERS: Final = ("R0", "R1")
STREAMS: Final = (*ORDINARY, *MIRRORS, *BUCKETS, *NO_ACKS, *RECEIVERS)
TAKING: Final = (*ORDINARY, *ORDINARY, *BUCKETS, *NO_ACKS, *RECEIVERS)
"""Streams that take messages from clients; some twice, because they get more of them."""
CONSUMERS: Final = tuple(f"c{number}" for number in range(4))
TOKENS: Final = ("a", "b", "c", "d.e", "d.f", "g.h.i")
ACK_WAIT_MIN: Final = 200 * MS
"""A shorter wait redelivers without end, to the reference's clients as well."""
TIMES: Final = (
    "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z", "2262-04-12T00:00:00Z", "2026-01-01T00:00:00+14:00", "x", "",
)  # fmt: skip
SCHEDULES: Final = (
    "@at 2026-01-01T00:00:00Z", "@at 2030-01-01T00:00:00Z", "@at 9999-12-31T23:59:59Z", "@at x",
    "@every 1s", "@every 1h", "@every 1ns", "@every -1s", "@every 99999999h", "@daily", "@hourly",
    "* * * * * *", "0 0 0 30 2 *", "*/0 * * * * *", "99 * * * * *", "0 0 0 1-31/3 JAN-DEC MON", "x",
    "",
    "0-59 1,2,3 * * * 7", "0 0 0 L * ?", "* " * 400,
)  # fmt: skip
FIRST_SEQUENCES: Final = (
    1,
    2,
    100,
    2**31,
    2**32,
    2**53,
    2**62,
    2**63 - 2,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def space(stream: str) -> str:
    """The first token of the subjects of a stream."""
    if stream.startswith("KV_"):
        return f"$KV.{stream[3:]}"
    if stream.startswith("OBJ_"):
        return f"$O.{stream[4:]}"
    return {"N": "n", "R": "rep"}.get(stream[:1], stream.lower())


def subject_in(stream: str, dice: random.Random) -> str:
    return f"{space(stream)}.{dice.choice(TOKENS)}"


def pattern_in(stream: str, dice: random.Random) -> str:
    return f"{space(stream)}.{dice.choice(('>', '*', 'a', 'b', 'd.*', 'd.e', '*.*', 'g.>'))}"


def stream_config(name: str, dice: random.Random) -> dict[str, Json]:
    """A configuration that the server should mostly accept."""
    config: dict[str, Json] = {"name": name}
    if name.startswith("M"):
        config["mirror"] = source(dice, dice.choice(ORDINARY + BUCKETS))
    elif name.startswith(("KV_", "OBJ_")):
        config |= bucket(name)
    elif dice.random() < 0.8:
        config["subjects"] = [f"{space(name)}.>"]
    else:
        config["subjects"] = sorted({f"{space(name)}.{token}" for token in dice.sample(TOKENS, 4)})
    for key, value in stream_options(name, dice).items():
        if dice.random() < 0.18:
            config[key] = value
    if name.startswith("N"):
        config["no_ack"] = True
    return config


def bucket(name: str) -> dict[str, Json]:
    if name.startswith("KV_"):
        return {
            "subjects": [f"{space(name)}.>"],
            "max_msgs_per_subject": 5,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "discard": "new",
            "allow_direct": True,
        }
    subjects = [f"{space(name)}.C.>", f"{space(name)}.M.>", f"{space(name)}.a"]
    return {
        "subjects": subjects,
        "allow_rollup_hdrs": True,
        "discard": "new",
        "allow_direct": True,
    }


def stream_options(name: str, dice: random.Random) -> dict[str, Json]:
    return {
        "description": "ü" * dice.choice((1, 100)),
        "retention": dice.choice(("limits", "limits", "interest", "workqueue")),
        "max_consumers": dice.choice((-1, 0, 2, 50)),
        "max_msgs": dice.choice((-1, 1, 10, 500)),
        "max_bytes": dice.choice((-1, 1, 1000, 100_000)),
        "max_msgs_per_subject": dice.choice((-1, 1, 3)),
        "max_age": dice.choice((0, 100 * MS, SECOND, 3600 * SECOND)),
        "max_msg_size": dice.choice((-1, 10, 1000)),
        "discard": dice.choice(("old", "new")),
        "discard_new_per_subject": True,
        "storage": dice.choice(("file", "memory")),
        "num_replicas": dice.choice((0, 1, 1, 3)),
        "duplicate_window": dice.choice((0, 100 * MS, SECOND, 120 * SECOND)),
        "placement": dice.choice(({}, {"cluster": "x"}, {"tags": ["a"]})),
        "sources": [source(dice, other) for other in origins(name, dice)],
        "compression": dice.choice(("none", "s2")),
        "first_seq": dice.choice(FIRST_SEQUENCES),
        "subject_transform": {"src": f"{space(name)}.*", "dest": f"{space(name)}.t.$1"},
        "republish": {
            "src": dice.choice((">", "", f"{space(name)}.*")),
            "dest": dice.choice(("rep.>", "rep.x", "rep.$1", "")),
            "headers_only": dice.random() < 0.5,
        },
        "allow_direct": True,
        "mirror_direct": True,
        "sealed": dice.random() < 0.3,
        "deny_delete": True,
        "deny_purge": dice.random() < 0.3,
        "allow_rollup_hdrs": True,
        "consumer_limits": {"inactive_threshold": 10 * SECOND, "max_ack_pending": 50},
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": dice.choice((SECOND, 5 * SECOND, MS)),
        "allow_msg_counter": dice.random() < 0.3,
        "allow_atomic": True,
        "allow_msg_schedules": True,
        "persist_mode": dice.choice(("default", "async")),
        "allow_batched": True,
        "metadata": {"a": "b", "_nats.x": "y"},
        "pedantic": True,
    }


def origins(name: str, dice: random.Random) -> list[str]:
    """Streams that come before this one, so that no stream copies from itself by a detour."""
    before = ORDINARY[: ORDINARY.index(name)] if name in ORDINARY else ORDINARY
    return dice.sample(before, min(dice.randint(1, 3), len(before)))


def source(dice: random.Random, name: str) -> dict[str, Json]:
    """A mirror or a source of a stream."""
    found: dict[str, Json] = {"name": name}
    options = {
        "opt_start_seq": dice.choice((0, 1, 5, 2**63 - 1, 2**64 - 1)),
        "opt_start_time": "2026-01-01T00:00:00Z",
        "filter_subject": pattern_in(name, dice),
        "subject_transforms": [{"src": f"{space(name)}.a", "dest": f"moved.{name}"}],
        "external": {"api": "$JS.API", "deliver": "dlv.ext"},
        "consumer": {"name": dice.choice(CONSUMERS), "deliver_subject": "dlv.src"},
    }
    return found | {key: value for key, value in options.items() if dice.random() < 0.12}


def consumer_config(stream: str, name: str, dice: random.Random) -> dict[str, Json]:
    """A configuration that the server should mostly accept."""
    config: dict[str, Json] = {"ack_policy": dice.choice(("explicit", "explicit", "all", "none"))}
    if dice.random() < 0.7:
        config["durable_name"] = name
    else:
        config["name"] = name
    is_push = dice.random() < 0.35
    if is_push:
        receivers = ("rep.in",) if stream.startswith("S") and dice.random() < 0.1 else ()
        config["deliver_subject"] = dice.choice(receivers or ("dlv.0", "dlv.1", "dlv.2"))
    options = {
        **common_options(stream, dice),
        **(push_options(dice) if is_push else pull_options(dice)),
    }
    return config | {key: value for key, value in options.items() if dice.random() < 0.18}


def common_options(stream: str, dice: random.Random) -> dict[str, Json]:
    filters = sorted({pattern_in(stream, dice) for _ in range(dice.randint(1, 4))})
    return {
        "description": "x",
        "deliver_policy": dice.choice(
            ("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")
        ),
        "opt_start_seq": dice.choice((1, 5, 2**63 - 1, 2**64 - 1)),
        "opt_start_time": dice.choice(("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z")),
        "ack_wait": dice.choice((ACK_WAIT_MIN, SECOND, 30 * SECOND)),
        "max_deliver": dice.choice((-1, 0, 1, 3, 5)),
        "backoff": [ACK_WAIT_MIN] * dice.randint(1, 3),
        "filter_subject": pattern_in(stream, dice),
        "filter_subjects": filters,
        "replay_policy": dice.choice(("instant", "original")),
        "sample_freq": dice.choice(("50%", "100", "x%")),
        "max_ack_pending": dice.choice((-1, 1, 5, 100)),
        "headers_only": True,
        "inactive_threshold": dice.choice((SECOND, 60 * SECOND)),
        "num_replicas": dice.choice((0, 1, 3)),
        "mem_storage": True,
        "metadata": {"k": "v"},
        "pause_until": dice.choice(("2026-01-01T00:00:00Z", "2030-01-01T00:00:00Z")),
    }


def push_options(dice: random.Random) -> dict[str, Json]:
    return {
        "deliver_group": dice.choice(("q", "r")),
        "rate_limit_bps": dice.choice((1, 10_000, 10**9)),
        "flow_control": True,
        "idle_heartbeat": dice.choice((100 * MS, SECOND)),
    }


def pull_options(dice: random.Random) -> dict[str, Json]:
    return {
        "max_waiting": dice.choice((1, 4, 512)),
        "max_batch": dice.choice((1, 10)),
        "max_expires": dice.choice((MS, SECOND)),
        "max_bytes": dice.choice((1, 1000)),
        "priority_groups": dice.choice((["g"], ["g", "h"], [])),
        "priority_policy": dice.choice(("none", "overflow", "pinned_client", "prioritized")),
        "priority_timeout": dice.choice((100 * MS, SECOND)),
    }


def tame(config: Json, stream: str) -> Json:
    """Take out of a mutated configuration what would feed itself for ever, or hide a lost ack."""
    if not isinstance(config, dict):
        return config
    is_quiet = stream.startswith("N")
    if is_quiet and config.get("no_ack"):
        config["subjects"] = ["n.>"]
    elif "no_ack" in config:
        del config["no_ack"]
    if stream.startswith(("N", "R")):
        config.pop("republish", None)
    if isinstance(config.get("subjects"), list):
        config["subjects"] = [tame_subject(one) for one in config["subjects"]]
    for key in ("ack_wait", "backoff"):
        given = config.get(key)
        waits = given if isinstance(given, list) else [given]
        if any(isinstance(wait, int | float) and 0 < wait < ACK_WAIT_MIN for wait in waits):
            del config[key]
    republish = config.get("republish")
    if isinstance(republish, dict) and not str(republish.get("dest") or "rep").startswith("rep"):
        republish["dest"] = f"rep.{republish['dest']}"
    deliver = config.get("deliver_subject")
    if isinstance(deliver, str) and deliver and not deliver.startswith(("dlv", "rep")):
        config["deliver_subject"] = f"dlv.{deliver}"
    return config


def tame_subject(subject: Json) -> Json:
    """Patterns that match inboxes or what consumers deliver get a first token of their own."""
    if isinstance(subject, str) and subject != ">" and subject.startswith(("*", ">", "_INBOX")):
        return f"x.{subject}"
    return subject
