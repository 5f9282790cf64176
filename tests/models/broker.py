"""A naive NATS server: what every client must be sent, message by message, from the prose alone.

Clients hold their subscriptions in a dict; a publish looks at all of all clients. Where the
server throws dice (one member of a queue group, one subscription for a no-responders notice) the
model names the candidates, and the test tells it afterwards who was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.subjects import matches

OK = "+OK"
INVALID_SUBJECT = "-ERR 'Invalid Subject'"
INVALID_PUBLISH = "-ERR 'Invalid Publish Subject'"


@dataclass(eq=False, slots=True)
class Sub:
    client: Client
    sid: str
    subject: str
    queue: str | None
    delivered: int = 0
    maximum: int = 0

    def count(self) -> None:
        self.delivered += 1
        if self.maximum and self.delivered >= self.maximum:
            self.client.subs.pop(self.sid, None)


@dataclass(eq=False, slots=True)
class Client:
    """The defaults are those of a client that has not sent CONNECT."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    connected: bool = False
    subs: dict[str, Sub] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def ok(self) -> None:
        if self.verbose:
            self.lines.append(OK)


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    reply: str
    header: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """What one subscription gets."""

    sub: Sub
    message: Message

    @property
    def seen(self) -> tuple[str, str, str, bytes, bytes]:
        """As its client reads it: without the header block, if it does not know headers."""
        header = self.message.header if self.sub.client.headers else b""
        message = self.message
        return (message.subject, self.sub.sid, message.reply, header, message.payload)


@dataclass(slots=True)
class Outcome:
    """Certain deliveries; of each list of choices exactly one; notices are not counted."""

    certain: list[Sent] = field(default_factory=list)
    choices: list[list[Sent]] = field(default_factory=list)
    notices: list[Sent] = field(default_factory=list)


class BrokerModel:
    def __init__(self) -> None:
        self.clients: list[Client] = []

    def join(self) -> Client:
        client = Client()
        self.clients.append(client)
        return client

    def leave(self, client: Client) -> None:
        self.clients.remove(client)

    def connect(self, client: Client, options: dict[str, bool]) -> None:
        if client.connected:
            client.subs.clear()
        client.connected = True
        for name, value in options.items():
            setattr(client, name, value)
        client.ok()

    def subscribe(self, client: Client, subject: str, queue: str | None, sid: str) -> None:
        if sid not in client.subs:
            if not _valid(subject):
                client.lines.append(INVALID_SUBJECT)
                return
            client.subs[sid] = Sub(client, sid, subject, queue)
        client.ok()

    def unsubscribe(self, client: Client, sid: str, maximum: int | None) -> None:
        sub = client.subs.get(sid)
        if sub is not None:
            if maximum is not None and maximum > sub.delivered:
                sub.maximum = maximum
            else:
                del client.subs[sid]
        client.ok()

    def publish(self, sender: Client, message: Message) -> Outcome:
        if sender.pedantic and not _literal(message.subject):
            sender.lines.append(INVALID_PUBLISH)
        sender.ok()
        outcome = Outcome()
        groups: dict[str, list[Sent]] = {}
        for sub in self._interested(message.subject):
            if sub.client is sender and not sender.echo:
                continue
            if sub.queue is None:
                outcome.certain.append(Sent(sub, message))
            else:
                groups.setdefault(sub.queue, []).append(Sent(sub, message))
        outcome.choices = list(groups.values())
        if not outcome.certain and not outcome.choices and message.reply and sender.no_responders:
            outcome.notices = self._no_responders(sender, message)
        return outcome

    def _interested(self, subject: str) -> list[Sub]:
        everything = [sub for client in self.clients for sub in client.subs.values()]
        return [sub for sub in everything if matches(subject, sub.subject)]

    def _no_responders(self, sender: Client, message: Message) -> list[Sent]:
        block = f"NATS/1.0 503\r\nNats-Subject: {message.subject}\r\n\r\n".encode()
        notice = Message(message.reply, "", block, b"")
        own = [sub for sub in self._interested(message.reply) if sub.client is sender]
        return [Sent(sub, notice) for sub in own if sub.queue is None]


def _valid(subject: str) -> bool:
    tokens = subject.split(".")
    return "" not in tokens and ">" not in tokens[:-1]


def _literal(subject: str) -> bool:
    return _valid(subject) and not {"*", ">"} & set(subject.split("."))
