"""Streams and consumers of one test, with names of their own, deleted when the test is over.

A `Stream` captures `<name>.>`; subjects are given relative to that name. Handles only save typing:
they ask through the same `Client` a test may use itself, and succeed or fail loudly.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from support.jetstream import Client, Refusal, refusal

if TYPE_CHECKING:
    from support.jetstream import Headers, Json, Message, Subscription
    from support.servers import ServerUnderTest

SECOND = 1_000_000_000
MILLISECOND = 1_000_000

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """A name that no other test of this run has."""
    return f"{prefix}{next(_numbers)}"


class JetStream(Client):
    """A client of a server with JetStream, and the streams made through it."""

    def __init__(self, server: ServerUnderTest, **options: Any) -> None:
        super().__init__(server.address, **options)
        self.server = server
        self._made: list[str] = []

    def stream(self, name: str = "", **config: Any) -> Stream:
        """A new stream; without subjects, mirror or sources it captures `<name>.>`."""
        name = name or unique("S")
        if not {"subjects", "mirror", "sources"} & set(config):
            config["subjects"] = [f"{name}.>"]
        self._made.append(name)
        answer = self.done(f"STREAM.CREATE.{name}", {"name": name, **config})
        return Stream(self, name, answer)

    def forget(self) -> None:
        """Delete what this client made, whatever became of it."""
        for name in self._made:
            self.call(f"STREAM.DELETE.{name}")


class Stream:
    """A stream on the server."""

    def __init__(self, client: JetStream, name: str, created: Json) -> None:
        self.client = client
        self.name = name
        self.created = created

    @property
    def config(self) -> Json:
        """The configuration as the server has it now, fit to be sent again."""
        config: Json = self.info()["config"]
        kept = config.get("metadata", {})
        config["metadata"] = {k: v for k, v in kept.items() if not k.startswith("_nats.")}
        return config

    def subject(self, rest: str) -> str:
        return f"{self.name}.{rest}"

    def publish(self, rest: str, payload: bytes = b"", **headers: str) -> Json:
        """The acknowledgement of a publish that must succeed; `Nats_Msg_Id="x"` sets a header."""
        answer = self.client.publish_ack(self.subject(rest), payload, spelled(headers))
        assert "error" not in answer, answer
        return answer

    def fill(self, *rests: str) -> None:
        """One message to each subject, the payload telling its place: m1, m2, ..."""
        for number, rest in enumerate(rests, 1):
            self.publish(rest, b"m%d" % number)

    def refused(self, rest: str, payload: bytes = b"", headers: Headers = None) -> Refusal:
        """The refusal of a publish."""
        answer = self.client.publish_ack(self.subject(rest), payload, headers)
        assert "error" in answer, answer
        return refusal(answer)

    def info(self, **body: Any) -> Json:
        return self.client.done(f"STREAM.INFO.{self.name}", body or None)

    def state(self, **body: Any) -> Json:
        state: Json = self.info(**body)["state"]
        return state

    def update(self, **changes: Any) -> Json:
        return self.client.done(f"STREAM.UPDATE.{self.name}", {**self.config, **changes})

    def update_refused(self, **changes: Any) -> Refusal:
        return self.client.refused(f"STREAM.UPDATE.{self.name}", {**self.config, **changes})

    def purge(self, **body: Any) -> int:
        purged: int = self.client.done(f"STREAM.PURGE.{self.name}", body or None)["purged"]
        return purged

    def get(self, **body: Any) -> Json:
        message: Json = self.client.done(f"STREAM.MSG.GET.{self.name}", body)["message"]
        return message

    def remove(self, seq: int) -> Json:
        return self.client.done(f"STREAM.MSG.DELETE.{self.name}", {"seq": seq})

    def sequences(self) -> list[int]:
        """The sequences that are there."""
        state = self.state(deleted_details=True)
        gone = set(state.get("deleted") or ())
        present = range(state["first_seq"], state["last_seq"] + 1)
        return [seq for seq in present if seq not in gone] if state["messages"] else []

    def delete(self) -> None:
        self.client.done(f"STREAM.DELETE.{self.name}")

    def consumer(self, name: str = "", **config: Any) -> Consumer:
        """A durable consumer, unless the configuration says `name`."""
        named = name or unique("C")
        body = {"stream_name": self.name, "config": {"durable_name": named, **config}}
        created = self.client.done(f"CONSUMER.CREATE.{self.name}.{named}", body)
        return Consumer(self, named, created)

    def consumer_refused(self, name: str = "", **config: Any) -> Refusal:
        named = name or unique("C")
        body = {"stream_name": self.name, "config": {"durable_name": named, **config}}
        return self.client.refused(f"CONSUMER.CREATE.{self.name}.{named}", body)


class Consumer:
    """A consumer on the server."""

    def __init__(self, stream: Stream, name: str, created: Json) -> None:
        self.client = stream.client
        self.stream = stream
        self.name = name
        self.created = created

    def call(self, verb: str, body: object = None) -> Json:
        """`CONSUMER.<verb>.<stream>.<consumer>`, which must succeed."""
        return self.client.done(f"CONSUMER.{verb}.{self.stream.name}.{self.name}", body)

    def refused(self, verb: str, body: object = None) -> Refusal:
        return self.client.refused(f"CONSUMER.{verb}.{self.stream.name}.{self.name}", body)

    def info(self) -> Json:
        return self.call("INFO")

    def pull(self, **body: Any) -> Subscription:
        """A waiting pull request."""
        return self.client.pull(self.stream.name, self.name, body or None)

    def fetch(self, count: int, **body: Any) -> list[Message]:
        """So many messages, which must be there or come."""
        inbox = self.pull(batch=count, expires=10 * SECOND, **body)
        taken = inbox.take(count)
        inbox.close()
        return taken

    def available(self, batch: int = 100) -> list[Message]:
        """What is there now; the status that reports an exhausted stream is left out."""
        inbox = self.pull(batch=batch, no_wait=True)
        taken = inbox.until_status()
        inbox.close()
        return taken[:-1]

    def answer(self, message: Message, payload: bytes = b"+ACK") -> Message:
        """Acknowledge and wait until it counts."""
        return self.client.request(message.reply, payload)

    def delete(self) -> None:
        self.call("DELETE")


def spelled(headers: dict[str, str]) -> dict[str, str] | None:
    """Keyword arguments as header names: an underscore stands for a dash."""
    return {key.replace("_", "-"): value for key, value in headers.items()} or None


def ack_fields(message: Message) -> tuple[int, int, int, int]:
    """Delivery count, stream sequence, consumer sequence and pending count of a delivery."""
    tokens = message.reply.split(".")
    assert len(tokens) == 9, message.reply
    return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])


def stream_sequences(messages: list[Message]) -> list[int]:
    return [ack_fields(message)[1] for message in messages]
