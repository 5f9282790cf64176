"""What a trace says of messages that a stream batches or refuses, or over `max_payload`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest

CONFIG = "max_payload: 1000\njetstream: { store_dir: stored }\n"
TRACE = {"Nats-Trace-Dest": "traces"}
STREAM = {"name": "BAT", "subjects": ["bat.>"], "storage": "memory", "max_msg_size": 400}
BATCHES = {"allow_atomic": True, "allow_batched": True}
RENAMED = {"subject_transform": {"src": "bat.old", "dest": "bat.new"}}
Event = dict[str, Any]


class Setup:
    """A publisher with an inbox and the traces of what it publishes, on one connection."""

    def __init__(self, server: ServerUnderTest, asking: dict[str, str]) -> None:
        self.asking = asking
        self.server = server
        self.wire = Wire(server.address)
        self.wire.connect(headers=True, no_responders=True)
        self.wire.send("SUB in.> 1\r\nSUB traces 2\r\n")
        self.wire.expect_quiet()

    def message(self) -> tuple[str, bytes]:
        words = self.wire.line().split()
        return words[1], self.wire.read_exactly(int(words[-1]) + 2)[:-2]

    def api(self, api: str, body: dict[str, object]) -> dict[str, Any]:
        text = json.dumps(body)
        self.wire.send(f"PUB $JS.API.{api} in.api {len(text)}\r\n{text}\r\n")
        subject, answer = self.message()
        assert subject == "in.api"
        err_text = json.loads(answer)
        assert isinstance(err_text, dict)
        return err_text

    def create(self, **more: object) -> None:
        self.api("STREAM.DELETE.BAT", {})
        assert "error" not in self.api("STREAM.CREATE.BAT", {**STREAM, **more})

    def send(self, subject: str, headers: dict[str, str], reply: str = "in.x") -> None:
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        block = f"NATS/1.0\r\n{lines}\r\n"
        self.wire.send(f"HPUB {subject} {reply} {len(block)} {len(block) + 2}\r\n{block}hi\r\n")

    def staged(self, seq: int, headers: dict[str, str], subject: str = "bat.a") -> None:
        """Publish a message of an atomic batch, and see it taken."""
        self.send(subject, {**headers, **_atomic(seq)})
        assert self.message() == ("in.x", b"")

    def heard(self, num: int) -> tuple[list[dict[str, Any]], list[Event]]:
        """The next messages: what the publisher was answered, and the events of its traces."""
        answers, events = [], []
        for _ in range(num):
            subject, body = self.message()
            err_text = json.loads(body)
            if subject == "traces":
                events += [
                    {k: v for k, v in e.items() if k != "ts"} for e in err_text["events"][1:]
                ]
            else:
                answers.append(err_text)
        return answers, events

    @property
    def num_messages(self) -> int:
        return int(self.api("STREAM.INFO.BAT", {})["state"]["messages"])


def _atomic(seq: int, commit: str = "") -> dict[str, str]:
    known = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(seq)}
    return {**known, "Nats-Batch-Commit": commit} if commit else known


def _fast(seq: int, operation: int) -> str:
    return f"in.f.10.fail.{seq}.{operation}.$FI"


def js(**fields: object) -> list[Event]:
    return [{"type": "js", "stream": "BAT", **fields}]


@pytest.fixture(params=[False, True], ids=["delivered", "only"])
def setup(
    request: pytest.FixtureRequest, pool: ServerPool, implementation: Implementation
) -> Iterator[Setup]:
    asking = {**TRACE, "Nats-Trace-Only": "true"} if request.param else TRACE
    made = Setup(pool.get(implementation, CONFIG), asking)
    yield made
    made.wire.close()


def is_only(setup: Setup) -> bool:
    return "Nats-Trace-Only" in setup.asking


# -- batches


def test_joining_atomic_batch_has_no_trace(setup: Setup) -> None:
    setup.create(**BATCHES)
    setup.staged(1, setup.asking)
    setup.staged(2, setup.asking)
    setup.send("bat.a", _atomic(3, "1"))
    answers, events = setup.heard(1)
    assert answers == [{"stream": "BAT", "seq": 3, "batch": "b", "count": 3}]
    assert events == []
    assert setup.num_messages == 3


@pytest.mark.parametrize("commit", ["1", "eob"])
def test_commit_of_atomic_batch_names_the_last_message(setup: Setup, commit: str) -> None:
    setup.create(**BATCHES, **RENAMED)
    setup.staged(1, {}, "bat.old")
    setup.send("bat.old", {**setup.asking, **_atomic(2, commit)})
    answers, events = setup.heard(1 if is_only(setup) else 2)
    assert events == js(subject="bat.new")
    assert len(answers) == (0 if is_only(setup) else 1)
    stored = 0 if is_only(setup) else 2 if commit == "1" else 1
    assert setup.num_messages == stored
    setup.send("bat.a", {**TRACE, **_atomic(2, "1")})
    assert setup.heard(2)[1] == js(error="atomic publish batch is incomplete (10176)")


def test_batch_without_interest_is_reported(setup: Setup) -> None:
    setup.create(**BATCHES, retention="interest")
    setup.staged(1, {})
    setup.send("bat.a", {**setup.asking, **_atomic(2, "1")})
    events = setup.heard(1 if is_only(setup) else 2)[1]
    assert events == js(subject="bat.a", nointerest=True)
    assert setup.num_messages == 0


def test_fast_batch_is_traced_message_by_message(setup: Setup) -> None:
    setup.create(**BATCHES, **RENAMED)
    setup.send("bat.old", setup.asking, _fast(1, 0))
    answers, events = setup.heard(2)
    assert answers == [{"type": "ack", "seq": 0, "msgs": 10}]
    assert events == js(subject="bat.new")
    setup.send("bat.a", setup.asking, _fast(2, 1))
    assert setup.heard(1) == ([], js(subject="bat.a"))
    setup.send("bat.a", setup.asking, _fast(3, 2))
    events = setup.heard(1 if is_only(setup) else 2)[1]
    assert events == js(subject="bat.a")
    assert setup.num_messages == (0 if is_only(setup) else 3)


def test_invalid_fast_batch_message_has_no_trace(setup: Setup) -> None:
    setup.create(**BATCHES)
    setup.send("bat.a", {"K": "v"}, _fast(1, 0))
    assert setup.heard(1) == ([{"type": "ack", "seq": 0, "msgs": 10}], [])
    setup.send("bat.a", setup.asking, _fast(1, 4))
    assert setup.heard(1) == ([{"type": "ack", "seq": 0, "msgs": 10}], [])
    setup.send("bat.a", setup.asking, _fast(3, 1))
    gap, end = setup.heard(2)[0]
    assert gap == {"type": "gap", "last_seq": 2, "seq": 3}
    assert end == {"stream": "BAT", "seq": 1, "batch": "f", "count": 1}
    setup.wire.expect_quiet()


# -- refusals

LARGE = {"X": "y" * 400}
REFUSED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "stream": (
        {"Nats-Expected-Stream": "OTHER"},
        dict.fromkeys(("single", "atomic", "fast"), "expected stream does not match"),
    ),
    "sequence": (
        {"Nats-Expected-Last-Sequence": "9"},
        dict.fromkeys(("single", "atomic", "fast"), "last sequence mismatch: 9 vs 1"),
    ),
    "no sequence": (
        {"Nats-Expected-Last-Sequence": "x"},
        dict.fromkeys(
            ("single", "atomic", "fast"), "last sequence mismatch: 18446744073709551615 vs 1"
        ),
    ),
    "subject sequence": (
        {"Nats-Expected-Last-Subject-Sequence": "9"},
        dict.fromkeys(("single", "atomic", "fast"), "last sequence by subject mismatch: 9 vs 1"),
    ),
    "message id": (
        {"Nats-Expected-Last-Msg-Id": "9"},
        {
            "single": 'last msgid mismatch: "9" vs "1"',
            "atomic": ("atomic publish unsupported header used: Nats-Expected-Last-Msg-Id (10177)"),
            "fast": 'last msgid mismatch: "9" vs "1"',
        },
    ),
    "rollup": (
        {"Nats-Rollup": "sub"},
        dict.fromkeys(("single", "atomic", "fast"), "rollup not permitted"),
    ),
    "time to live": (
        {"Nats-TTL": "5s"},
        dict.fromkeys(("single", "atomic", "fast"), "message TTL disabled"),
    ),
    "counter": (
        {"Nats-Incr": "1"},
        dict.fromkeys(("single", "atomic", "fast"), "message counters is disabled (10168)"),
    ),
    "duplicate": (
        {"Nats-Msg-Id": "1"},
        dict.fromkeys(("single", "atomic", "fast"), "msgid is duplicate"),
    ),
}


@pytest.mark.parametrize("kind", ["single", "atomic", "fast"])
@pytest.mark.parametrize("case", REFUSED)
def test_refusal_is_worded_as_by_reference(setup: Setup, case: str, kind: str) -> None:
    more, texts = REFUSED[case]
    setup.create(**BATCHES)
    setup.send("bat.a", {"Nats-Msg-Id": "1"})
    assert setup.heard(1)[0] == [{"stream": "BAT", "seq": 1}]
    if kind == "atomic":
        setup.staged(1, more)
        setup.send("bat.b", {**setup.asking, **_atomic(2, "1")})
    else:
        setup.send("bat.a", {**setup.asking, **more}, "in.x" if kind == "single" else _fast(1, 0))
    started = kind == "fast" and case != "duplicate"
    assert setup.heard(3 if started else 2)[1] == js(error=texts[kind])


FULL: dict[str, dict[str, object]] = {
    "maximum messages exceeded": {"max_msgs": 1},
    "maximum messages per subject exceeded": {
        "max_msgs_per_subject": 1,
        "discard_new_per_subject": True,
    },
}


@pytest.mark.parametrize("text", FULL)
def test_full_stream_names_subject_of_single_message(setup: Setup, text: str) -> None:
    setup.create(**BATCHES, discard="new", **FULL[text])
    setup.send("bat.a", {"K": "v"})
    setup.heard(1)
    setup.send("bat.a", setup.asking)
    if is_only(setup):
        assert setup.heard(1) == ([], js(subject="bat.a"))
    else:
        assert setup.heard(2)[1] == js(subject="bat.a", error=text)
    setup.send("bat.a", {**setup.asking, **_atomic(1, "1")})
    assert setup.heard(2)[1] == js(error=text)


def test_message_too_large_for_stream_is_reported(setup: Setup) -> None:
    setup.create(**BATCHES)
    setup.send("bat.a", {**setup.asking, **LARGE})
    assert setup.heard(2)[1] == js(error="maximum payload exceeded")
    over = "JetStream message size exceeds limits for '$G > BAT'"
    setup.send("bat.a", {**setup.asking, **LARGE, **_atomic(1)})
    assert setup.heard(2)[1] == js(error=over)
    setup.send("bat.a", {**setup.asking, **LARGE}, _fast(1, 0))
    assert setup.heard(2)[1] == js(error=over)


@pytest.mark.parametrize(
    ("reply", "headers", "text"),
    [
        ("in.x", _atomic(1), "atomic publish is disabled (10174)"),
        (_fast(1, 0), {}, "batch publish is disabled (10205)"),
    ],
)
def test_stream_without_batches_reports_refusal(
    setup: Setup, reply: str, headers: dict[str, str], text: str
) -> None:
    setup.create()
    setup.send("bat.a", {**setup.asking, **headers}, reply)
    assert setup.heard(2)[1] == js(error=text)


# -- max_payload


@pytest.mark.parametrize("received", ["line", "half", "block", "all"])
def test_message_over_max_payload_is_traced_if_its_header_arrived(
    setup: Setup, received: str
) -> None:
    lines = "".join(f"{key}: {value}\r\n" for key, value in setup.asking.items())
    block = f"NATS/1.0\r\n{lines}\r\n"
    size = len(block) + 1000
    line = f"HPUB x {len(block)} {size}\r\n"
    sent = {"line": "", "half": block[:20], "block": block, "all": block + "z" * 1000 + "\r\n"}
    with Wire(setup.server.address) as sender:
        sender.connect(headers=True, name="large")
        sender.send(line + sent[received])
        sender.expect("-ERR 'Maximum Payload Violation'")
    setup.wire.send("PING\r\n")
    if received in ("line", "half"):
        assert setup.wire.line() == "PONG"
        return
    subject, err_text = setup.message()
    assert subject == "traces"
    assert json.loads(err_text)["request"]["msgsize"] == size
    (event,) = json.loads(err_text)["events"]
    assert event["type"] == "in"
    assert event["name"] == "large"
    assert event["subj"] == "x"
    assert event["error"] == "maximum payload exceeded"


def test_large_message_without_valid_destination_has_no_trace(setup: Setup) -> None:
    block = "NATS/1.0\r\nNats-Trace-Dest: tra..ces\r\n\r\n"
    with Wire(setup.server.address) as sender:
        sender.connect(headers=True)
        sender.send(f"HPUB x {len(block)} 1001\r\n{block}")
        sender.expect("-ERR 'Maximum Payload Violation'")
    setup.wire.expect_quiet()


DENYING = """
max_payload: 1000
authorization { users: [
  { user: limited, password: p, permissions: { publish: { deny: "hidden" } } }
] }
"""


def test_large_message_with_denied_destination_is_refused_twice(
    pool: ServerPool, implementation: Implementation
) -> None:
    block = "NATS/1.0\r\nNats-Trace-Dest: hidden\r\n\r\n"
    with Wire(pool.get(implementation, DENYING).address) as sender:
        sender.connect(headers=True, user="limited", **{"pass": "p"})
        sender.send(f"HPUB x {len(block)} 1001\r\n{block}")
        sender.expect("-ERR 'Permissions Violation for Publish to \"hidden\"'")
        sender.expect("-ERR 'Maximum Payload Violation'")
