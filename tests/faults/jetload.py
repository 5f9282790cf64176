"""Clients that use a JetStream server in many ways until it dies, each noting what it was promised.

A role is a function that loops over one connection and ends with it. Streams: LOG is written and
read, JOBS is a work queue, KV_B a bucket; others come and go. No role waits for the clock.
"""

from __future__ import annotations

import threading
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from faults.jetledger import Existence
from support.assets import JetStream, ack_fields
from support.jetstream import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.jetledger import Ledger
    from support.jetstream import Message, Subscription
    from support.servers import ServerUnderTest

WINDOW = 32
BATCH = 8
KEYS = 5
COMING_AND_GOING = 4
PADDINGS = (0, 0, 10, 300, 5_000)
PURGED_BEHIND = 3_000
SECOND = 1_000_000_000
ACK_WAIT_NS = 2 * SECOND
PUSHED = "LOG/pushed"
WORKED = "JOBS/worker"
PUSH_SUBJECT = "deliveries"


def set_up(client: JetStream, **config: Any) -> None:
    """What all roles use."""
    log = client.stream("LOG", **config)
    jobs = client.stream("JOBS", retention="workqueue", **config)
    client.stream("KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=2, **config)
    wait = {"ack_policy": "explicit", "ack_wait": ACK_WAIT_NS}
    log.consumer("pulled", **wait)
    log.consumer("pushed", deliver_subject=PUSH_SUBJECT, max_ack_pending=50, **wait)
    jobs.consumer("worker", **wait)


def publish_ahead(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """Many publishes without waiting for their acknowledgements."""
    answers = client.subscribe(f"{client.inbox}.*")
    waiting: dict[str, bytes] = {}
    number = 0
    while True:
        while len(waiting) < WINDOW:
            number += 1
            payload = ledger.fresh("ahead", chance.choice(PADDINGS))
            ledger.tried["LOG"].add(payload)
            waiting[f"{client.inbox}.{number}"] = payload
            client.publish(f"LOG.{number % 7}", payload, reply=f"{client.inbox}.{number}")
        answer = answers.next()
        _note_ack(ledger, "LOG", answer.json, waiting.pop(answer.subject))


def publish_singly(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """One publish at a time, each sent twice under one id: it is stored once."""
    while True:
        payload = ledger.fresh("single", chance.choice(PADDINGS))
        ledger.tried["LOG"].add(payload)
        header = {"Nats-Msg-Id": payload[:40].decode()}
        first = client.publish_ack("LOG.single", payload, header)
        _note_ack(ledger, "LOG", first, payload)
        again = client.publish_ack("LOG.single", payload, header)
        if again.get("seq") != first.get("seq"):
            ledger.wrong.append(f"one id was stored twice: {first}, {again}")


def _note_ack(ledger: Ledger, stream: str, answer: Any, payload: bytes) -> None:
    if "error" in answer:
        ledger.wrong.append(f"a publish was refused: {answer['error']}")
    else:
        ledger.note_stored(stream, answer["seq"], payload)


def work(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """A work queue: what is acknowledged leaves it, nothing else does."""
    while True:
        for _ in range(BATCH):
            payload = ledger.fresh("job", chance.choice(PADDINGS))
            ledger.tried["JOBS"].add(payload)
            _note_ack(ledger, "JOBS", client.publish_ack("JOBS.x", payload), payload)
        _pull(client, ledger, chance, "JOBS", "worker")


def pull(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """Reads the log in batches."""
    while True:
        _pull(client, ledger, chance, "LOG", "pulled")


def _pull(client: JetStream, ledger: Ledger, chance: Random, stream: str, consumer: str) -> None:
    inbox = client.pull(stream, consumer, {"batch": BATCH, "expires": SECOND // 10})
    taken = deque(_until_status(inbox))
    while taken:
        _settle(client, ledger, chance, f"{stream}/{consumer}", taken)
    inbox.close()


def _until_status(inbox: Subscription) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < BATCH:
        message = inbox.next()
        if message.status:
            break
        taken.append(message)
    return taken


def _settle(
    client: JetStream, ledger: Ledger, chance: Random, name: str, arrived: deque[Message]
) -> None:
    """Acknowledges a delivery: so that it is known to count, so that it is not, or not at all."""
    message, acks, how = arrived.popleft(), ledger.acks[name], chance.random()
    _, seq, consumer_seq, _ = ack_fields(message)
    ledger.note_stored(name.partition("/")[0], seq, message.payload)
    if consumer_seq not in acks.under_way:
        ledger.note_delivered(name, seq)
    if how < 0.1:
        client.publish(message.reply, b"-NAK")
        return
    acks.tried.add(seq)
    if how < 0.5:
        client.publish(message.reply, b"+ACK")
        acks.sent.add(seq)
        return
    client.request(message.reply, b"+ACK")
    acks.confirm(seq)
    # A slow client may be sent a message again, and only then be heard to have acknowledged it.
    fields = map(ack_fields, arrived)
    acks.under_way.update(other for _, again, other, _ in fields if again == seq)


def be_pushed(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """Takes what a push consumer delivers."""
    inbox = client.subscribe(PUSH_SUBJECT)
    while True:
        client.read_until(lambda: bool(inbox.arrived), "deliveries")
        _settle(client, ledger, chance, PUSHED, inbox.arrived)


def put(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """Puts values into a bucket, and reads them back."""
    while True:
        key = f"k{chance.randrange(KEYS)}"
        before, value = ledger.values.get(key, (b"", b""))[0], ledger.fresh("value")
        ledger.values[key] = (before, value)
        answer = client.publish_ack(f"$KV.B.{key}", value)
        if "error" in answer:
            ledger.wrong.append(f"a put was refused: {answer['error']}")
            continue
        ledger.values[key] = (value, value)
        ledger.answers += 1
        if client.request("$JS.API.DIRECT.GET.KV_B.$KV.B." + key).payload != value:
            ledger.wrong.append(f"key {key} does not have the value that was just put")


def administer(client: JetStream, ledger: Ledger, chance: Random) -> None:
    """Makes, changes and deletes; purges; takes snapshots."""
    tasks = (_toggle_stream, _toggle_consumer, _describe, _purge, _snapshot)
    while True:
        chance.choice(tasks)(client, ledger, chance)
        ledger.answers += 1


def _toggle_stream(client: JetStream, ledger: Ledger, chance: Random) -> None:
    name = f"S{chance.randrange(COMING_AND_GOING)}"
    body = {"name": name, "subjects": [f"{name}.>"]}
    _toggle(client, ledger, name, f"STREAM.DELETE.{name}", f"STREAM.CREATE.{name}", body)


def _toggle_consumer(client: JetStream, ledger: Ledger, chance: Random) -> None:
    name = f"C{chance.randrange(COMING_AND_GOING)}"
    body = {"stream_name": "LOG", "config": {"durable_name": name, "ack_policy": "explicit"}}
    create = f"CONSUMER.DURABLE.CREATE.LOG.{name}"
    _toggle(client, ledger, name, f"CONSUMER.DELETE.LOG.{name}", create, body)


def _toggle(
    client: JetStream, ledger: Ledger, name: str, delete: str, create: str, body: object
) -> None:
    was = ledger.existence.get(name, Existence.ABSENT)
    ledger.existence[name] = Existence.UNKNOWN
    if was is Existence.THERE:
        client.done(delete)
        ledger.existence[name] = Existence.ABSENT
    else:
        client.done(create, body)
        ledger.existence[name] = Existence.THERE


def _describe(client: JetStream, ledger: Ledger, _chance: Random) -> None:
    config = client.done("STREAM.INFO.LOG")["config"]
    wanted = ledger.fresh("text").decode()
    ledger.texts["LOG"] = (config.get("description", ""), wanted)
    config["metadata"] = {}
    client.done("STREAM.UPDATE.LOG", {**config, "description": wanted})
    ledger.texts["LOG"] = (wanted, wanted)


def _purge(client: JetStream, ledger: Ledger, _chance: Random) -> None:
    below = client.done("STREAM.INFO.LOG")["state"]["last_seq"] - PURGED_BEHIND
    if below <= ledger.purged_below["LOG"]:
        return
    ledger.purge_tried_below["LOG"] = below
    client.done("STREAM.PURGE.LOG", {"seq": below})
    ledger.purged_below["LOG"] = below


def _snapshot(client: JetStream, _ledger: Ledger, _chance: Random) -> None:
    chunks = client.subscribe()
    client.done("STREAM.SNAPSHOT.KV_B", {"deliver_subject": chunks.subject})
    while (chunk := chunks.next()).payload:
        if chunk.reply:
            client.publish(chunk.reply)
    chunks.close()


ROLES = (publish_ahead, publish_singly, work, pull, be_pushed, put, administer)


class Load:
    """All roles at once, each on a thread and connection of its own, for one life."""

    def __init__(self, server: ServerUnderTest, ledger: Ledger, seed: str) -> None:
        self._ledger = ledger
        self._clients = [JetStream(server) for _ in ROLES]
        self._threads = [
            threading.Thread(target=self._run, args=(role, client, Random(f"{seed} {role}")))
            for role, client in zip(ROLES, self._clients, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _run(
        self,
        role: Callable[[JetStream, Ledger, Random], None],
        client: JetStream,
        chance: Random,
    ) -> None:
        try:
            role(client, self._ledger, chance)
        except (ClientError, OSError) as error:
            if not self._ledger.is_dying:
                self._ledger.wrong.append(f"{role.__name__}: {error}")
        except AssertionError as error:
            self._ledger.wrong.append(f"{role.__name__}: {error}")

    @property
    def is_running(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        """The server is dead: everybody notices."""
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()
