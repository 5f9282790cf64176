"""Message tracing: what a server reports of a message, event by event, on both servers."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.records.s2_stream import S2Inflater
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest

CONFIG = """
accounts {
  A {
    jetstream: enabled
    users: [
      { user: a, password: p }
      { user: limited, password: p, permissions: {
          publish: { deny: ["secret.>", "hidden"] }, subscribe: { deny: "d.x" } } }
    ]
    mappings { "pub.*": "secret.$1", "lost": [ { dest: "lost", weight: 0 } ] }
    imports: [
      { service: { account: B, subject: "svc.seen" }, to: "my.seen" }
      { service: { account: B, subject: "svc.unseen" }, to: "my.unseen" }
      { stream: { account: B, subject: "feed.unseen" } }
      { stream: { account: B, subject: "feed.seen" }, prefix: imp, allow_trace: true }
    ]
    trace_dest: "sampled"
  }
  B {
    jetstream: enabled
    users: [ { user: b, password: p } ]
    mappings { "svc.seen": "svc.mapped" }
    exports: [
      { service: "svc.seen", allow_trace: true }, { service: "svc.unseen" }, { stream: "feed.>" }
    ]
  }
}
"""
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"Nats-Trace-Dest": "traces"}
Events = list[dict[str, Any]]


class Setup:
    """Clients that publish, watch and collect traces on one server."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.server = server
        self.wires: list[Wire] = []
        self.traces = self.client("a")
        self.traces.send("SUB traces 1\r\nSUB sampled 2\r\n")
        self.traces.expect_quiet()

    def client(self, user: str, **options: object) -> Wire:
        wire = Wire(self.server.address)
        self.wires.append(wire)
        settings = {"headers": True, "no_responders": True, "name": f"n-{user}", **options}
        wire.connect(user=user, **{"pass": "p"}, **settings)
        return wire

    def subscriber(self, user: str, *subjects: str, **options: object) -> Wire:
        wire = self.client(user, **options)
        for number, subject in enumerate(subjects, 1):
            wire.send(f"SUB {subject} {number}\r\n")
        wire.expect_quiet()
        return wire

    def trace(self, where: Wire | None = None) -> tuple[dict[str, Any], Events]:
        """The next trace: its request, and its events with `in` first and times taken off."""
        wire = where or self.traces
        line = wire.line()
        body = wire.read_exactly(int(line.split()[-1]) + 2)
        told = json.loads(body)
        assert list(told) == ["server", "request", "events"]
        assert told["server"]["id"].startswith("N")
        events = [{k: v for k, v in one.items() if k != "ts"} for one in told["events"]]
        assert all(one["ts"].endswith("Z") for one in told["events"])
        return told["request"], [events[0], *sorted(events[1:], key=str)]


def publish(wire: Wire, subject: str, headers: dict[str, str], reply: str = "") -> None:
    block = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
    wire.send(f"HPUB {subject} {reply} {len(block)} {len(block) + 2}\r\n{block}hi\r\n")


@pytest.fixture
def setup(
    pool: ServerPool, implementation: Implementation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    made = Setup(pool.get(implementation, f"jetstream: {{ store_dir: stored }}\n{CONFIG}"))
    yield made
    for wire in made.wires:
        wire.close()


def ingress(wire: Wire, user: str, account: str, subject: str, **more: str) -> dict[str, Any]:
    cid = wire.info["client_id"]
    known = {"type": "in", "kind": 0, "cid": cid, "name": f"n-{user}", "acc": account}
    return {**known, "subj": subject, **more}


def egress(wire: Wire, user: str, **more: str) -> dict[str, Any]:
    return {"type": "eg", "kind": 0, "cid": wire.info["client_id"], "name": f"n-{user}", **more}


@pytest.fixture(params=[False, True], ids=["delivered", "only"])
def asking(request: pytest.FixtureRequest) -> dict[str, str]:
    """Headers of a traced message, which is delivered or not."""
    return {**TRACE, "Nats-Trace-Only": "true"} if request.param else TRACE


def delivered(wire: Wire, asking: dict[str, str]) -> None:
    """The subscriber has the message, or nothing if it was only traced."""
    if "Nats-Trace-Only" in asking:
        wire.expect_quiet()
    else:
        line = wire.line()
        assert line.startswith("HMSG ")
        assert wire.read_exactly(int(line.split()[-1]) + 2).endswith(b"hi\r\n")


def test_every_delivery_is_event(setup: Setup, asking: dict[str, str]) -> None:
    heard = setup.subscriber("a", "x.y", "x.* grp", name="hear")
    sender = setup.client("a")
    publish(sender, "x.y", {**asking, "K": "1"})
    request, events = setup.trace()
    assert request["header"] == {**{key: [value] for key, value in asking.items()}, "K": ["1"]}
    assert request["msgsize"] > 0
    assert events == [
        ingress(sender, "a", "A", "x.y"),
        {**egress(heard, "a", sub="x.*", queue="grp"), "name": "hear"},
        {**egress(heard, "a", sub="x.y"), "name": "hear"},
    ]
    delivered(heard, asking)


def test_message_without_receivers_has_only_its_ingress_event(
    setup: Setup, asking: dict[str, str]
) -> None:
    sender = setup.subscriber("a", "in")
    publish(sender, "nobody.here", asking, "in")
    assert setup.trace()[1] == [ingress(sender, "a", "A", "nobody.here")]
    assert sender.line().startswith("HMSG in 1 ")
    assert sender.line() == "NATS/1.0 503"


def test_mapping_is_event(setup: Setup, asking: dict[str, str]) -> None:
    heard = setup.subscriber("a", "secret.a")
    sender = setup.client("a")
    publish(sender, "pub.a", asking)
    assert setup.trace()[1] == [
        ingress(sender, "a", "A", "pub.a"),
        egress(heard, "a", sub="secret.a"),
        {"type": "sm", "to": "secret.a"},
    ]
    delivered(heard, asking)
    publish(sender, "lost", asking)
    assert setup.trace()[1] == [ingress(sender, "a", "A", "lost"), {"type": "sm", "to": ""}]


def test_refusal_is_in_ingress_event(setup: Setup, asking: dict[str, str]) -> None:
    sender = setup.client("limited")
    publish(sender, "secret.a", asking)
    told = 'Permissions Violation for Publish to "secret.a"'
    assert setup.trace()[1] == [ingress(sender, "limited", "A", "secret.a", error=told)]
    sender.expect(f"-ERR '{told}'")
    publish(sender, "x", asking, "_R_.x")
    told = 'Permissions Violation for Publish with Reply of "_R_.x"'
    assert setup.trace()[1] == [ingress(sender, "limited", "A", "x", error=told)]
    sender.expect(f"-ERR '{told}'")


def test_denied_destination_refuses_message(setup: Setup, asking: dict[str, str]) -> None:
    heard = setup.subscriber("a", "x.y")
    sender = setup.client("limited")
    publish(sender, "x.y", {**asking, "Nats-Trace-Dest": "hidden"})
    sender.expect("-ERR 'Permissions Violation for Publish to \"hidden\"'")
    heard.expect_quiet()


@pytest.mark.parametrize("dest", ["a..b", "a.*", ">"])
def test_invalid_destination_traces_nothing(
    setup: Setup, asking: dict[str, str], dest: str
) -> None:
    heard = setup.subscriber("a", "x.y")
    sender = setup.client("a")
    publish(sender, "x.y", {**asking, "Nats-Trace-Dest": dest})
    sender.expect_quiet()
    delivered(heard, asking)
    setup.traces.expect_quiet()
    setup.server.wait_for_log(r"Destination .* is not valid, won't be able to trace events")


def test_reason_for_no_delivery_is_in_clients_event(setup: Setup, asking: dict[str, str]) -> None:
    denied = setup.subscriber("limited", "d.*")
    sender = setup.subscriber("a", "d.x", echo=False)
    publish(sender, "d.x", asking)
    no_echo = "Not delivered because of no echo"
    denies = "Not delivered because subscription denies this subject"
    assert setup.trace()[1] == [
        ingress(sender, "a", "A", "d.x"),
        *sorted(
            [
                egress(sender, "a", sub="d.x", error=no_echo),
                egress(denied, "limited", sub="d.*", error=denies),
            ],
            key=str,
        ),
    ]


def test_service_import_is_traced_where_allowed(setup: Setup, asking: dict[str, str]) -> None:
    served = setup.subscriber("b", "svc.>")
    sender = setup.subscriber("a", "in")
    publish(sender, "my.seen", asking, "in")
    assert setup.trace()[1] == [
        ingress(sender, "a", "A", "my.seen"),
        egress(served, "b", acc="B", sub="svc.>"),
        {"type": "si", "acc": "B", "from": "my.seen", "to": "svc.mapped"},
    ]
    delivered(served, asking)
    publish(sender, "my.unseen", asking, "in")
    assert setup.trace()[1] == [
        ingress(sender, "a", "A", "my.unseen"),
        {"type": "si", "acc": "B", "from": "my.unseen", "to": "svc.unseen"},
    ]
    delivered(served, asking)


def test_stream_import_is_traced_where_allowed(setup: Setup, asking: dict[str, str]) -> None:
    traces = setup.subscriber("b", "traces")
    heard = setup.subscriber("a", "feed.>", "imp.feed.>")
    sender = setup.client("b")
    publish(sender, "feed.unseen", asking)
    assert setup.trace(traces)[1] == [
        ingress(sender, "b", "B", "feed.unseen"),
        {"type": "se", "acc": "A", "to": "feed.unseen"},
    ]
    delivered(heard, asking)
    publish(sender, "feed.seen", asking)
    assert setup.trace(traces)[1] == [
        ingress(sender, "b", "B", "feed.seen"),
        egress(heard, "a", acc="A", sub="feed.seen"),
        {"type": "se", "acc": "A", "to": "imp.feed.seen"},
    ]
    delivered(heard, asking)


# -- JetStream


def _api(wire: Wire, api: str, body: dict[str, object]) -> dict[str, Any]:
    text = json.dumps(body)
    wire.send(f"SUB api.in 99\r\nPUB $JS.API.{api} api.in {len(text)}\r\n{text}\r\nUNSUB 99 1\r\n")
    line = wire.line()
    while not line.startswith("MSG api.in"):
        line = wire.line()
    answer = json.loads(wire.read_exactly(int(line.split()[-1]) + 2))
    assert isinstance(answer, dict)
    return answer


@pytest.fixture
def stream(setup: Setup) -> Iterator[Wire]:
    """A client of an account with the stream KEPT, and of nothing else."""
    wire = setup.subscriber("a", "in")
    config = {
        "name": "KEPT",
        "subjects": ["kept.>"],
        "storage": "memory",
        "max_msg_size": 200,
        "subject_transform": {"src": "kept.old", "dest": "kept.new"},
    }
    assert "error" not in _api(wire, "STREAM.CREATE.KEPT", config)
    yield wire
    _api(setup.client("a"), "STREAM.DELETE.KEPT", {})


def test_stored_message_is_event(setup: Setup, stream: Wire, asking: dict[str, str]) -> None:
    publish(stream, "kept.old", {**asking, "K": "v"}, "in")
    assert setup.trace()[1] == [
        ingress(stream, "a", "A", "kept.old"),
        {"type": "js", "stream": "KEPT", "subject": "kept.new"},
    ]
    is_only = "Nats-Trace-Only" in asking
    if is_only:
        stream.expect_quiet()
    else:
        assert stream.line().startswith("MSG in 1 ")
        assert json.loads(stream.line()) == {"stream": "KEPT", "seq": 1}
        stored = _api(stream, "STREAM.MSG.GET.KEPT", {"seq": 1})["message"]["hdrs"]
        expected = b"NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\nK: v\r\n\r\n"
        assert base64.b64decode(stored) == expected
    state = _api(stream, "STREAM.INFO.KEPT", {})["state"]
    assert state["messages"] == (0 if is_only else 1)


REFUSED = {
    "wrong sequence": (
        {"Nats-Expected-Last-Sequence": "77"},
        "last sequence mismatch: 77 vs 0",
        10071,
    ),
    "too large": ({"X": "y" * 200}, "maximum payload exceeded", 10054),
}


@pytest.mark.parametrize("case", REFUSED)
def test_reason_of_stream_refusal_is_in_its_event(
    setup: Setup, stream: Wire, asking: dict[str, str], case: str
) -> None:
    more, text, code = REFUSED[case]
    publish(stream, "kept.a", {**asking, **more}, "in")
    assert setup.trace()[1] == [
        ingress(stream, "a", "A", "kept.a"),
        {"type": "js", "stream": "KEPT", "error": text},
    ]
    assert stream.line().startswith("MSG in 1 ")
    assert json.loads(stream.line())["error"]["err_code"] == code


def test_duplicate_is_error_in_trace(setup: Setup, stream: Wire, asking: dict[str, str]) -> None:
    publish(stream, "kept.a", {"Nats-Msg-Id": "1"}, "in")
    stream.line()
    stream.line()
    publish(stream, "kept.a", {**asking, "Nats-Msg-Id": "1"}, "in")
    assert setup.trace()[1][1:] == [{"type": "js", "stream": "KEPT", "error": "msgid is duplicate"}]
    stream.line()
    assert json.loads(stream.line())["duplicate"] is True


def test_message_without_interest_is_reported(setup: Setup, asking: dict[str, str]) -> None:
    wire = setup.client("a")
    config = {"name": "INT", "subjects": ["int.>"], "storage": "memory", "retention": "interest"}
    assert "error" not in _api(wire, "STREAM.CREATE.INT", config)
    publish(wire, "int.a", asking)
    expected = {"type": "js", "stream": "INT", "subject": "int.a", "nointerest": True}
    assert setup.trace()[1][1:] == [expected]
    _api(wire, "STREAM.DELETE.INT", {})


def test_requests_to_api_end_at_system_account(setup: Setup, asking: dict[str, str]) -> None:
    wire = setup.subscriber("a", "in")
    publish(wire, "$JS.API.INFO", asking, "in")
    assert setup.trace()[1][1:] == [
        {"type": "si", "acc": "$SYS", "from": "$JS.API.INFO", "to": "$JS.API.INFO"}
    ]
    line = wire.line()
    assert line.startswith("HMSG in 1 " if "Nats-Trace-Only" in asking else "MSG in 1 ")


# -- who asks, and how


def test_traceparent_triggers_trace_where_account_has_destination(setup: Setup) -> None:
    heard = setup.subscriber("a", "x.y")
    sender = setup.client("a")
    publish(sender, "x.y", {"TraceParent": PARENT, "Nats-Trace-Only": "true"})
    request, events = setup.trace()
    assert request["header"]["TraceParent"] == [PARENT]
    assert events == [ingress(sender, "a", "A", "x.y"), egress(heard, "a", sub="x.y")]
    delivered(heard, {})
    publish(sender, "x.y", {"traceparent": PARENT[:-1] + "0"})
    delivered(heard, {})
    elsewhere = setup.client("b")
    publish(elsewhere, "x.y", {"traceparent": PARENT})
    elsewhere.expect_quiet()
    setup.traces.expect_quiet()


def test_disabled_trace_is_delivered_as_it_is(setup: Setup) -> None:
    heard = setup.subscriber("a", "x.y")
    sender = setup.client("a")
    publish(sender, "x.y", {"Nats-Trace-Dest": "trace disabled", "Nats-Trace-Only": "true"})
    delivered(heard, {})
    publish(sender, "x.y", {"Nats-Trace-Only": "true"})
    delivered(heard, {})
    setup.traces.expect_quiet()


@pytest.mark.parametrize("encoding", ["gzip", "snappy"])
def test_trace_may_be_compressed(setup: Setup, encoding: str) -> None:
    sender = setup.client("a")
    publish(sender, "x.y", {**TRACE, "Accept-Encoding": encoding})
    words = setup.traces.line().split()
    assert words[0] == "HMSG"
    body = setup.traces.read_exactly(int(words[-1]) + 2)[:-2]
    header, packed = body[: int(words[-2])], body[int(words[-2]) :]
    assert header == f"NATS/1.0\r\nContent-Encoding: {encoding}\r\n\r\n".encode()
    if encoding == "gzip":
        plain = gzip.decompress(packed)
    else:
        inflater = S2Inflater()
        inflater.feed(packed)
        plain = inflater.next() or b""
    assert json.loads(plain)["events"][0]["type"] == "in"


def test_many_traced_messages_are_reported_in_order(setup: Setup) -> None:
    heard = setup.subscriber("a", "x.*")
    sender = setup.client("a")
    for number in range(100):
        publish(sender, f"x.{number}", TRACE)
    sender.expect_quiet()
    told = [setup.trace()[1][0]["subj"] for _ in range(100)]
    assert told == [f"x.{number}" for number in range(100)]
    for number in range(100):
        assert heard.line().startswith(f"HMSG x.{number} ")
        for _ in range(4):
            heard.line()
