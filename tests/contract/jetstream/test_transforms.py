"""Subjects rewritten on the way in, and messages repeated on the way out.

What the functions of a destination do is the same wherever one may stand; here they are watched
through a stream's own transform.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.assets import unique
from support.jetstream import Refusal

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"


def stored(jetstream: JetStream, src: str, dest: str, rest: str) -> str:
    """Under which subject a message to `<name>.<rest>` is stored, without the name."""
    name = unique("S")
    stream = jetstream.stream(
        name,
        subjects=[f"{name}.>"],
        subject_transform={"src": f"{name}.{src}", "dest": dest},
    )
    jetstream.publish_ack(stream.subject(rest))
    subject: str = stream.get(seq=1)["subject"]
    return subject.removeprefix(f"{name}.")


# -- functions


@pytest.mark.parametrize(
    ("src", "dest", "sent", "expected"),
    [
        ("*", "out.$1", "a", "out.a"),
        ("*", "out.{{wildcard(1)}}", "a", "out.a"),
        ("*", "out.{{Wildcard(1)}}", "a", "out.a"),
        ("*", "out.{{ wildcard( 1 ) }}", "a", "out.a"),
        ("*.*", "out.$2.$1", "a.b", "out.b.a"),
        ("*.*", "out.$2", "a.b", "out.b"),
        ("x.*.>", "out.$1.>", "x.a.b.c", "out.a.b.c"),
        (">", "out.>", "a.b", "out.a.b"),
        ("a", "out.fixed", "a", "out.fixed"),
        ("*", "out.{{partition(3,1)}}", "a", "out.1"),
        ("*", "out.{{partition(3,1)}}", "c", "out.2"),
        ("*.*", "out.{{partition(10,1,2)}}.$1.$2", "ab.c", "out.1.ab.c"),
        ("*.*", "out.{{partition(10,1,2)}}.$1.$2", "a.bc", "out.1.a.bc"),
        ("*", "out.{{split(1,-)}}", "a-b-c", "out.a.b.c"),
        ("*", "out.{{split(1,-)}}", "-a--b-", "out.a.b"),
        ("*", "out.{{split(1,-)}}", "abc", "out.abc"),
        ("*", "out.{{splitfromleft(1,3)}}", "abcdef", "out.abc.def"),
        ("*", "out.{{SplitFromLeft(1,3)}}", "abcdef", "out.abc.def"),
        ("*", "out.{{splitfromright(1,1)}}", "abcdef", "out.abcde.f"),
        ("*", "out.{{splitfromleft(1,9)}}", "abc", "out.abc"),
        ("*", "out.{{slicefromleft(1,2)}}", "abcde", "out.ab.cd.e"),
        ("*", "out.{{slicefromright(1,2)}}", "abcde", "out.a.bc.de"),
        ("*", "out.{{slicefromleft(1,9)}}", "abc", "out.abc"),
        ("*", "out.{{left(1,2)}}", "abcde", "out.ab"),
        ("*", "out.{{right(1,2)}}", "abcde", "out.de"),
        ("*", "out.{{left(1,9)}}", "abc", "out.abc"),
        ("*", "out.{{random(1)}}", "abc", "out.0"),
    ],
)
def test_destination_is_made_of_tokens_and_functions(
    jetstream: JetStream, src: str, dest: str, sent: str, expected: str
) -> None:
    assert stored(jetstream, src, dest, sent) == expected


def test_unmatched_subject_stays_unchanged(jetstream: JetStream) -> None:
    assert stored(jetstream, "*", "out.$1", "a.b") == "a.b"


BAD = "invalid mapping destination: "


@pytest.mark.parametrize(
    ("src", "dest", "text"),
    [
        ("*", "out.$2", BAD + "wildcard index out of range in $2: [2]"),
        ("*", "out.{{wildcard(2)}}", BAD + "wildcard index out of range in {{wildcard(2)}}: [2]"),
        ("*", "out.{{unknown(1)}}", BAD + "unknown function in {{unknown(1)}}"),
        (
            "*",
            "out.{{wildcard()}}",
            BAD + "not enough arguments passed to the function in {{wildcard()}}",
        ),
        (
            "*",
            "out.{{split(1)}}",
            BAD + "not enough arguments passed to the function in {{split(1)}}",
        ),
        (
            "*",
            "out.{{partition(3,2)}}",
            BAD + "wildcard index out of range in {{partition(3,2)}}: [2]",
        ),
        (
            "*",
            "out.{{splitfromleft(1,x)}}",
            BAD + "function argument is invalid or in the wrong format in {{splitfromleft(1,x)}}",
        ),
        (">", "out", "invalid subject"),
        ("*", "out.>", "invalid subject"),
        ("*", "out..x", BAD + "invalid transform"),
    ],
)
def test_invalid_transform_is_refused(jetstream: JetStream, src: str, dest: str, text: str) -> None:
    name = unique("S")
    body = {
        "name": name,
        "subjects": [f"{name}.>"],
        "subject_transform": {"src": f"{name}.{src}", "dest": dest},
    }
    refusal = jetstream.refused(f"STREAM.CREATE.{name}", body)
    assert refusal == Refusal(400, 10156, f"stream transform: {text}")


def test_everything_after_transform_sees_new_subject(jetstream: JetStream) -> None:
    name = unique("S")
    stream = jetstream.stream(
        name,
        subjects=[f"{name}.in.*"],
        subject_transform={"src": f"{name}.in.*", "dest": f"{name}.out.$1"},
        max_msgs_per_subject=1,
        republish={"dest": f"copy.{name}.>"},
    )
    copies = jetstream.subscribe(f"copy.{name}.>")
    consumer = stream.consumer(filter_subject=f"{name}.out.a")
    heard = jetstream.subscribe(f"{name}.in.*")
    for _ in range(2):
        stream.publish("in.a", b"x")
    assert stream.sequences() == [2]
    assert consumer.fetch(1)[0].subject == f"{name}.out.a"
    assert copies.next().subject == f"copy.{name}.{name}.out.a"
    assert heard.next().subject == f"{name}.in.a"


def test_transform_can_be_updated_and_removed(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    changes = ({"src": ">", "dest": "x.>"}, {"src": "", "dest": "y.>"}, None)
    for change in changes:
        stream.update(subject_transform=change)
        stream.publish("a")
    subjects = [stream.get(seq=seq)["subject"] for seq in (1, 2, 3)]
    name = stream.name
    assert subjects == [f"x.{name}.a", f"y.{name}.a", f"{name}.a"]


# -- republishing


def republishing(jetstream: JetStream, **config: object) -> Stream:
    name = unique("S")
    return jetstream.stream(name, republish={"dest": f"copy.{name}.>", **config})


def test_republished_message_has_stream_and_sequence_headers(jetstream: JetStream) -> None:
    stream = republishing(jetstream)
    copies = jetstream.subscribe(f"copy.{stream.name}.>")
    stream.publish("a", b"x", Key="value")
    stream.publish("b", b"y")
    stream.publish("a", b"z")
    first, second, third = copies.take(3)
    name = re.escape(stream.name)
    assert re.fullmatch(
        rf"NATS/1\.0\r\nKey: value\r\nNats-Stream: {name}\r\nNats-Subject: {name}\.a\r\n"
        rf"Nats-Sequence: 1\r\nNats-Time-Stamp: {TIME}\r\nNats-Last-Sequence: 0\r\n\r\n",
        first.header.decode(),
    )
    assert (first.subject, first.reply, first.payload) == (
        f"copy.{stream.name}.{stream.name}.a",
        "",
        b"x",
    )
    assert second.headers["Nats-Last-Sequence"] == "0"
    assert (third.headers["Nats-Sequence"], third.headers["Nats-Last-Sequence"]) == ("3", "1")
    assert third.headers["Nats-Time-Stamp"] == stream.get(seq=3)["time"]


def test_republish_can_be_headers_only(jetstream: JetStream) -> None:
    stream = republishing(jetstream, headers_only=True)
    copies = jetstream.subscribe(f"copy.{stream.name}.>")
    stream.publish("a", b"hello")
    copy = copies.next()
    assert copy.payload == b""
    assert copy.fields[-1] == ("Nats-Msg-Size", "5")


def test_only_matching_messages_are_republished(jetstream: JetStream) -> None:
    name = unique("S")
    stream = jetstream.stream(
        name, republish={"src": f"{name}.*", "dest": f"copy.{name}.{{{{wildcard(1)}}}}"}
    )
    copies = jetstream.subscribe(f"copy.{name}.>")
    stream.fill("a.b", "c")
    assert copies.next().subject == f"copy.{name}.c"


def test_refused_messages_are_not_republished(jetstream: JetStream) -> None:
    stream = republishing(jetstream)
    copies = jetstream.subscribe(f"copy.{stream.name}.>")
    stream.publish("a", Nats_Msg_Id="1")
    stream.publish("a", Nats_Msg_Id="1")
    stream.refused("a", b"", {"Nats-Expected-Stream": "x"})
    stream.publish("b")
    sequences = [one.headers["Nats-Sequence"] for one in copies.take(2)]
    assert sequences == ["1", "2"]


def test_republish_cycle_is_refused(jetstream: JetStream) -> None:
    name = unique("S")
    body = {"name": name, "subjects": [f"{name}.>"], "republish": {"dest": f"{name}.copy.>"}}
    refusal = jetstream.refused(f"STREAM.CREATE.{name}", body)
    assert refusal[:2] == (500, 10052)
