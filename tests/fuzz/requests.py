"""Random JetStream operations: what one client sends, made from a seed.

An `Operation` is a message for the server and what must come back. Operations are drawn from the
dice alone. What depends on the server (acks of deliveries, archives) is filled in by the client
that sends them, without a further draw. So one seed always makes the same list of operations.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from . import configurations as cfg
from . import json_values as js
from . import publishes
from .configurations import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from .json_values import Json

API: Final = "$JS.API"
BODY_BYTES_MAX: Final = 1_000_000
"""The server closes the connection of a client that sends more than `max_payload`, 1 MiB."""
ACK_VERBS: Final = (
    b"", b"+ACK", b"+ACK", b"-NAK", b'-NAK {"delay": 1000000}', b"-NAK 5ms", b'-NAK {"delay": -1}',
    b"+WPI", b"+TERM", b"+TERM because", b"+NXT", b'-NAK {"delay": 9223372036854775807}',
    b'-NAK {"delay": -9223372036854775808}', b'+NXT {"batch": 2}', b"+NXT 3", b"+NXT {", b"+nxt",
    b"garbage", b"\x00", b'-NAK {"delay": 99999999999999999999}', b"-NAK \xff",
)  # fmt: skip
ACK_VERBS_OF_DELIVERIES: Final = 13
"""The first so many also acknowledge deliveries that were received."""


class Need(Enum):
    """What must come back."""

    ANSWER = auto()
    """At least one message to the reply subject."""
    NOTHING = auto()
    """Whatever the server likes."""


class Fill(Enum):
    """What the client fills in before it sends."""

    NO = auto()
    ACK_OF_DELIVERY = auto()
    """The subject becomes that of a delivery that was received, if there is one."""
    ARCHIVE = auto()
    """A restore: when it is answered, an archive is sent."""


@dataclass(slots=True)
class Operation:
    """One message to the server."""

    kind: str
    subject: str
    payload: bytes = b""
    header: bytes = b""
    need: Need = Need.ANSWER
    fill: Fill = Fill.NO
    stream: str = ""
    """The stream that exists or does not exist after this, if it succeeds."""
    choice: int = 0
    """Chooses among what the client may fill in."""
    reply: str = ""
    """An own reply subject; otherwise the client makes one."""


class Operations:
    """The operations of one seed, one after the other."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.publishes = publishes.Publishes(self.dice)
        self._kinds, self._weights = zip(*self._table(), strict=True)

    def draw(self) -> Operation:
        kind: Callable[[], Operation] = self.dice.choices(self._kinds, self._weights)[0]
        made = kind()
        made.choice = self.dice.getrandbits(32)
        return made

    def _table(self) -> list[tuple[Callable[[], Operation], float]]:
        return [
            (self._publish, 38),
            (self._pull, 9),
            (self._ack_delivery, 8),
            (self._ack_guess, 3),
            (self._consumer_create, 6),
            (self._consumer_request, 8),
            (self._stream_create, 5),
            (self._stream_update, 4),
            (self._stream_delete, 1),
            (self._stream_question, 6),
            (self._purge, 2),
            (self._message_request, 4),
            (self._direct_get, 6),
            (self._snapshot, 0.3),
            (self._restore, 0.3),
            (self._account, 0.7),
            (self._administration, 0.6),
            (self._flow_reply, 0.4),
            (self._oddity, 0.7),
        ]

    # -- parts

    def _stream(self) -> str:
        return self.dice.choice(
            cfg.STREAMS if self.dice.random() < 0.98 else ("nobody", "ü", "x" * 260)
        )

    def _consumer(self) -> str:
        return self.dice.choice(
            cfg.CONSUMERS if self.dice.random() < 0.97 else ("nobody", "ü", "*", "\udcff")
        )

    def _body(self, document: Json, mutate: float = 0.2) -> bytes:
        dice = self.dice
        if dice.random() < mutate:
            document = js.mutated(document, dice)
        return self._text(document)

    def _text(self, document: Json) -> bytes:
        text = js.encoded(document)[:BODY_BYTES_MAX]
        return js.spoilt(text, self.dice) if self.dice.random() < 0.03 else text

    def _api_header(self) -> bytes:
        if self.dice.random() < 0.98:
            return b""
        level = self.dice.choice((b"0", b"5", b"6", b"-1", b"x", b"9" * 40, b""))
        return b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level

    def _api(self, kind: str, *names: str, body: bytes = b"") -> Operation:
        subject = ".".join((API, kind, *names))
        return Operation(kind, subject, body, self._api_header())

    # -- messages

    def _publish(self) -> Operation:
        stream = self.dice.choice(cfg.STREAMS if self.dice.random() < 0.05 else cfg.TAKING)
        made = self.publishes.draw(stream)
        is_answered = not stream.startswith("N") and made.is_answered
        return Operation(
            "publish",
            made.subject,
            made.payload,
            made.header,
            Need.ANSWER if is_answered else Need.NOTHING,
            reply=made.reply,
        )

    def _pull(self) -> Operation:
        dice = self.dice
        stream, consumer = self._stream(), self._consumer()
        subject = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        expires = dice.choice((1, MS, 50 * MS, 300 * MS))
        request: dict[str, Json] = {"batch": dice.choice((1, 1, 5, 100)), "expires": expires}
        if dice.random() < 0.5:
            need = Need.ANSWER
            request["no_wait"] = dice.random() < 0.3
        else:
            need = Need.NOTHING
            extra = {
                "idle_heartbeat": dice.choice((MS, 20 * MS, SECOND)),
                "max_bytes": dice.choice((1, 1000, 10**6)),
                "group": dice.choice(("g", "h", "")),
                "min_pending": dice.choice((0, 5, 2**63 - 1)),
                "min_ack_pending": 5,
                "id": dice.choice(("", "x", "ü")),
                "priority": dice.choice((0, 9, 10, -1)),
                "no_wait": True,
            }
            request |= {key: value for key, value in extra.items() if dice.random() < 0.3}
            if dice.random() < 0.2:
                return Operation("pull", subject, self._odd_pull(), need=need)
        body = self._body(request, 0.2 if need is Need.NOTHING else 0)
        if need is Need.ANSWER:
            body = js.encoded(request)
        return Operation("pull", subject, body, self._api_header(), need)

    def _odd_pull(self) -> bytes:
        return self.dice.choice(
            (b"", b"1", b"0", b"-1", b"9" * 30, b"[]", b"null", b"{", b"1 2", b"\xff")
        )

    def _ack_delivery(self) -> Operation:
        verb = self.dice.choice(ACK_VERBS[:ACK_VERBS_OF_DELIVERIES])
        made = self._ack_guess()
        made.payload, made.fill = verb, Fill.ACK_OF_DELIVERY
        return made

    def _ack_guess(self) -> Operation:
        dice = self.dice
        numbers = [self._ack_number() for _ in range(5)]
        tokens = ["$JS", "ACK", self._stream(), self._consumer(), *numbers]
        kind = dice.random()
        if kind < 0.1:
            tokens[2:2] = [dice.choice(("_", "hub", "")), dice.choice(("abcdefgh", "", "ü"))]
        elif kind < 0.15:
            tokens = tokens[: dice.randint(2, 8)]
        elif kind < 0.2:
            tokens += [dice.choice(("x", "", "1", "9" * 30))] * dice.randint(1, 4)
        return Operation("ack", ".".join(tokens), dice.choice(ACK_VERBS), need=Need.NOTHING)

    def _ack_number(self) -> str:
        dice = self.dice
        if dice.random() < 0.85:
            return str(dice.choice((0, 1, 1, 2, 3, 5, 10, 50, 200)))
        return dice.choice((*(str(number) for number in js.NUMBERS), "", "x", "00", "+1", "1" * 60))

    def _flow_reply(self) -> Operation:
        names = f"{self._stream()}.{self._consumer()}"
        subject = f"$JS.FC.{names}.{self.dice.choice(('abcd', '', 'x.y'))}"
        numbers = b"Nats-Last-Consumer: %b\r\nNats-Last-Stream: %b" % (
            self._ack_number().encode(),
            self._ack_number().encode(),
        )
        header = b"NATS/1.0\r\n%b\r\n\r\n" % numbers if self.dice.random() < 0.5 else b""
        return Operation("flow", subject, header=header, need=Need.NOTHING)

    # -- consumers

    def _consumer_create(self) -> Operation:
        dice = self.dice
        stream, name = self._stream(), self._consumer()
        config: Json = cfg.consumer_config(stream, name, dice)
        if dice.random() < 0.2:
            config = cfg.tame(js.mutated(config, dice), stream)
        request = {"stream_name": stream, "config": config}
        if dice.random() < 0.1:
            request["action"] = dice.choice(("", "create", "update", "x"))
        if dice.random() < 0.05:
            request["pedantic"] = True
        form = dice.random()
        if form < 0.8:
            made = self._api("CONSUMER.CREATE", stream, name)
        elif form < 0.9:
            made = self._api("CONSUMER.DURABLE.CREATE", stream, name)
        elif form < 0.95:
            made = self._api("CONSUMER.CREATE", stream)
        else:
            made = self._api("CONSUMER.CREATE", stream, name, cfg.pattern_in(stream, dice))
        made.payload = self._text(request)
        return made

    def _consumer_request(self) -> Operation:
        dice = self.dice
        stream, name = self._stream(), self._consumer()
        kind = dice.choices(
            ("INFO", "NAMES", "LIST", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"),
            (30, 8, 8, 10, 8, 12, 6, 1),
        )[0]
        if kind in ("NAMES", "LIST"):
            return self._api(f"CONSUMER.{kind}", stream, body=self._page())
        body = b""
        if kind == "PAUSE":
            body = self._body({"pause_until": dice.choice(cfg.TIMES)})
        elif kind == "RESET":
            body = self._body({"seq": dice.choice(js.NUMBERS)}) if dice.random() < 0.8 else b""
        elif kind == "UNPIN":
            body = self._body({"group": dice.choice(("g", "h", ""))})
        elif dice.random() < 0.05:
            body = self._body({"x": 1})
        made = self._api(f"CONSUMER.{kind}", stream, name, body=body)
        # A consumer that does not exist does not answer RESET, as in the reference.
        made.need = Need.NOTHING if kind in ("LEADER.STEPDOWN", "RESET") else Need.ANSWER
        return made

    def _page(self) -> bytes:
        if self.dice.random() < 0.5:
            return b""
        page = {"offset": self.dice.choice(js.NUMBERS[:20])}
        if self.dice.random() < 0.5:
            page["subject"] = self.dice.choice(js.TEXTS)
        return self._body(page)

    # -- streams

    def _stream_create(self) -> Operation:
        stream = self._stream()
        made = self._api("STREAM.CREATE", stream, body=self._stream_body(stream))
        made.stream = stream
        return made

    def _stream_update(self) -> Operation:
        stream = self._stream()
        return self._api("STREAM.UPDATE", stream, body=self._stream_body(stream))

    def _stream_body(self, stream: str) -> bytes:
        config: Json = cfg.stream_config(stream, self.dice)
        if self.dice.random() < 0.25:
            config = cfg.tame(js.mutated(config, self.dice), stream)
        return self._text(config)

    def _stream_delete(self) -> Operation:
        stream = self._stream()
        made = self._api("STREAM.DELETE", stream)
        made.stream = stream
        if self.dice.random() < 0.1:
            made.payload = self._body({"x": 1})
        return made

    def _stream_question(self) -> Operation:
        dice = self.dice
        kind = dice.choices(("INFO", "NAMES", "LIST"), (8, 2, 2))[0]
        if kind != "INFO":
            return self._api(f"STREAM.{kind}", body=self._page())
        if dice.random() < 0.4:
            return self._api("STREAM.INFO", self._stream())
        question = {
            "deleted_details": dice.random() < 0.5,
            "subjects_filter": dice.choice(("", ">", *js.TEXTS)),
            "offset": dice.choice(js.NUMBERS),
        }
        return self._api("STREAM.INFO", self._stream(), body=self._body(question))

    def _purge(self) -> Operation:
        dice = self.dice
        stream = self._stream()
        request: dict[str, Json] = {}
        if dice.random() < 0.4:
            request["filter"] = cfg.pattern_in(stream, dice)
        if dice.random() < 0.3:
            request["seq"] = dice.choice((1, 10, 100, *js.NUMBERS))
        elif dice.random() < 0.6:
            request["keep"] = dice.choice((1, 5, 50, *js.NUMBERS))
        return self._api("STREAM.PURGE", stream, body=self._body(request) if request else b"")

    def _message_request(self) -> Operation:
        stream = self._stream()
        if self.dice.random() < 0.4:
            request = {"seq": self.dice.choice((1, 2, 5, 20, 100, *js.NUMBERS))}
            if self.dice.random() < 0.3:
                request["no_erase"] = True
            return self._api("STREAM.MSG.DELETE", stream, body=self._body(request, 0.1))
        return self._api("STREAM.MSG.GET", stream, body=self._body(self._wanted(stream), 0.1))

    def _wanted(self, stream: str) -> dict[str, Json]:
        dice = self.dice
        options = {
            "seq": dice.choice((1, 5, 20, *js.NUMBERS)),
            "last_by_subj": cfg.pattern_in(stream, dice),
            "next_by_subj": cfg.pattern_in(stream, dice),
            "start_time": dice.choice(cfg.TIMES),
            "no_hdr": True,
            "batch": dice.choice((1, 5, 100, 2**31, -1)),
            "max_bytes": dice.choice((1, 1000, 2**62)),
            "multi_last": [cfg.pattern_in(stream, dice) for _ in range(dice.randint(1, 3))],
            "up_to_seq": dice.choice((1, 50, 2**64 - 1)),
            "up_to_time": dice.choice(cfg.TIMES),
        }
        keys = dice.sample(sorted(options), dice.choice((1, 1, 2, 3)))
        return {key: options[key] for key in keys}

    def _direct_get(self) -> Operation:
        stream = self._stream()
        if self.dice.random() < 0.4:
            return self._api("DIRECT.GET", stream, cfg.subject_in(stream, self.dice))
        return self._api("DIRECT.GET", stream, body=self._body(self._wanted(stream), 0.1))

    # -- archives, accounts, and the rest

    def _snapshot(self) -> Operation:
        dice = self.dice
        request: dict[str, Json] = {"deliver_subject": "_INBOX.archive"}
        if dice.random() < 0.3:
            request["chunk_size"] = dice.choice((0, 1, 1024, 4096, 10**6, *js.NUMBERS))
            request["window_size"] = dice.choice((0, 1, 4096, 10**9))
        if dice.random() < 0.3:
            request["no_consumers"] = True
        body = self._body(request, 0.1)
        return self._api("STREAM.SNAPSHOT", self._stream(), body=body)

    def _restore(self) -> Operation:
        stream = self._stream()
        config: Json = cfg.stream_config(stream, self.dice)
        request = {"config": config, "state": {"messages": 1, "bytes": 1, "last_seq": 5}}
        if self.dice.random() < 0.2:
            request = js.mutated(request, self.dice)
        if isinstance(request, dict):
            request["config"] = cfg.tame(request.get("config"), stream)
        made = self._api("STREAM.RESTORE", stream, body=self._text(request))
        made.fill, made.stream = Fill.ARCHIVE, stream
        return made

    def _account(self) -> Operation:
        return self._api("INFO", body=self._body({}, 0.5) if self.dice.random() < 0.2 else b"")

    def _administration(self) -> Operation:
        """Requests for clusters and for the system account, which answers some of them."""
        kind = self.dice.choice(
            ("STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE", "STREAM.PEER.EVACUATE",
             "STREAM.CANCEL_MOVE", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE",
             "ACCOUNT.STREAM.MOVE")
        )  # fmt: skip
        body = self._body({"peer": "x", "placement": {"tags": ["a"]}}, 0.5)
        made = self._api(kind, self._stream(), body=body)
        made.need = Need.NOTHING
        return made

    def _oddity(self) -> Operation:
        """A subject that no endpoint has, or an endpoint with too many or too few names."""
        dice = self.dice
        words = ("STREAM", "CONSUMER", "DIRECT", "X", "INFO", "MSG", "GET", "*", ">", "ü")
        tokens = [dice.choice(words) for _ in range(dice.randint(0, 6))]
        subject = ".".join((API, *tokens))
        return Operation("oddity", subject, self._body({"a": 1}, 0.5), need=Need.NOTHING)
