"""Random lives of a stream and its consumers, as steps that any server can be asked to take.

A `Life` draws from one seed, so two servers are asked the same. Each step answers with a value
that holds no times and no names the server made up. Steps that only look may be taken again: what
follows from an acknowledgement may come a little later than its answer. Nothing here waits for
timers: acknowledgements have all the time in the world.
"""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from support.assets import MILLISECOND, ack_fields
from support.jetstream import API, Client, ClientError, encode_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.jetstream import Json, Message

RESTS = ["a", "b", "c", "c.d"]
FILTERS = ["a", "b", "*", ">", "c.>", "nope"]
CONSUMERS = ["k", "l", "m"]
TIMELESS = {"created", "ts", "last_active", "first_ts", "last_ts", "time", "cluster", "metadata"}
#: What only our server reports.
OURS_ONLY = {"penstock"}
#: The reference corrects this number step by step, and drifts when limits or purges interfere.
DRIFTING = {"num_pending"}
LONG = 3600 * 1_000_000_000
FETCH = 60 * MILLISECOND
#: After this long an acknowledgement counts as unanswered.
SILENT_SECONDS = 3.0
STEPS: dict[str, int] = {
    "publish": 30,
    "fetch": 20,
    "ack": 22,
    "look": 8,
    "consumer": 8,
    "get": 5,
    "direct": 4,
    "remove": 3,
    "purge": 3,
    "update": 2,
    "forget": 1,
    "reset": 1,
}
#: Steps that change nothing on a server.
LOOKING = {"look", "get", "direct"}


class Step(NamedTuple):
    """What to do, and with what."""

    verb: str
    details: dict[str, Any]


def timeless(value: Any) -> Any:
    """An answer without what differs from server to server."""
    if isinstance(value, dict):
        left_out = TIMELESS | DRIFTING | OURS_ONLY
        return {key: timeless(one) for key, one in value.items() if key not in left_out}
    return [timeless(one) for one in value] if isinstance(value, list) else value


class Life:
    """The steps of one seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.name = f"LIFE{seed}"
        self.config = self._config()

    def steps(self, count: int) -> list[Step]:
        begin = [Step("consumer", self._consumer()) for _ in range(self._draw.randint(0, 2))]
        verbs = self._draw.choices([*STEPS], [*STEPS.values()], k=count)
        return [*begin, *(Step(verb, getattr(self, f"_{verb}")()) for verb in verbs)]

    def _some(self, pools: dict[str, Any], chance: float) -> dict[str, Any]:
        return {key: value for key, value in pools.items() if self._draw.random() < chance}

    def _subject(self, rests: list[str]) -> str:
        return f"{self.name}.{self._draw.choice(rests)}"

    def _config(self) -> Json:
        draw = self._draw
        limits = {
            "max_msgs": draw.randint(3, 12),
            "max_msgs_per_subject": draw.randint(1, 4),
            "max_bytes": draw.randint(500, 3000),
            "max_msg_size": draw.randint(30, 200),
            "discard": "new",
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        retention = draw.choices(["limits", "interest", "workqueue"], [6, 3, 2])[0]
        return {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            "storage": draw.choice(["file", "memory"]),
            "retention": retention,
            **self._some(limits, 0.3),
        }

    def _publish(self) -> dict[str, Any]:
        draw = self._draw
        headers = {
            "Nats-Msg-Id": str(draw.randint(1, 9)),
            "Nats-Expected-Last-Sequence": str(draw.randint(0, 12)),
            "Nats-Expected-Last-Subject-Sequence": str(draw.randint(0, 6)),
            "Nats-Expected-Last-Msg-Id": str(draw.randint(1, 9)),
            "Nats-Expected-Stream": draw.choice([self.name, "other"]),
            "Nats-Rollup": draw.choice(["all", "x"]),
            "Key": "value",
        }
        return {
            "subject": self._subject(RESTS),
            "payload": b"x" * draw.choice([0, 1, 10, 50, 120]),
            "headers": self._some(headers, 0.06),
        }

    def _consumer(self) -> dict[str, Any]:
        draw = self._draw
        pools: dict[str, Any] = {
            "filter_subject": self._subject(FILTERS),
            "max_deliver": draw.randint(1, 3),
            "max_ack_pending": draw.randint(1, 5),
            "headers_only": True,
            "max_batch": 3,
            "description": draw.choice(["x", "y"]),
        }
        config = {
            "durable_name": draw.choice(CONSUMERS),
            "ack_policy": draw.choices(["explicit", "all", "none"], [6, 2, 1])[0],
            "deliver_policy": draw.choices(
                ["all", "new", "last", "last_per_subject"], [6, 1, 1, 1]
            )[0],
            "ack_wait": LONG,
            **self._some(pools, 0.3),
        }
        if config["ack_policy"] == "none":
            config.pop("ack_wait")
        return config

    def _fetch(self) -> dict[str, Any]:
        return {"consumer": self._draw.choice(CONSUMERS), "batch": self._draw.randint(1, 4)}

    def _ack(self) -> dict[str, Any]:
        verbs = [b"+ACK", b"-NAK", b"+TERM", b"+WPI", b"nonsense", b""]
        return {
            "consumer": self._draw.choice(CONSUMERS),
            "which": self._draw.random(),
            "payload": self._draw.choices(verbs, [10, 4, 2, 1, 1, 2])[0],
        }

    def _look(self) -> dict[str, Any]:
        return {"consumer": self._draw.choice([*CONSUMERS, ""])}

    def _get(self) -> dict[str, Any]:
        subjects = {"last_by_subj": self._subject(FILTERS), "next_by_subj": self._subject(FILTERS)}
        return self._some({"seq": self._draw.randint(0, 15), **subjects}, 0.5)

    def _direct(self) -> dict[str, Any]:
        body = self._get()
        return {**body, "batch": self._draw.randint(1, 5)} if "seq" in body else body

    def _remove(self) -> dict[str, Any]:
        return {"seq": self._draw.randint(1, 15)}

    def _purge(self) -> dict[str, Any]:
        # Filtered purges are left out: around them the reference loses count of acknowledgements.
        return self._some({"seq": self._draw.randint(1, 15)}, 0.5)

    def _update(self) -> dict[str, Any]:
        kept = {key: self.config[key] for key in ("name", "subjects", "storage", "retention")}
        self.config = {**self._config(), **kept}
        return self.config

    def _forget(self) -> dict[str, Any]:
        return {"consumer": self._draw.choice(CONSUMERS)}

    def _reset(self) -> dict[str, Any]:
        body = self._some({"seq": self._draw.randint(1, 9)}, 0.5)
        return {"consumer": self._draw.choice(CONSUMERS), "body": body}


class Actor:
    """Takes the steps of a life on one server."""

    def __init__(self, client: Client, life: Life) -> None:
        self._client = client
        self._stream = life.name
        self._out: dict[str, list[Message]] = {name: [] for name in CONSUMERS}

    def take(self, step: Step) -> Any:
        verb: Callable[..., Any] = getattr(self, f"_{step.verb}")
        return verb(**step.details)

    def begin(self, config: Json) -> Any:
        return self._call(f"STREAM.CREATE.{self._stream}", config)

    def end(self) -> None:
        self._call(f"STREAM.DELETE.{self._stream}", None)

    def _call(self, api: str, body: object) -> Any:
        return timeless(self._client.call(api, body))

    def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> Any:
        return self._client.publish_ack(subject, payload, headers or None)

    def _consumer(self, **config: Any) -> Any:
        name = config["durable_name"]
        body = {"stream_name": self._stream, "config": config}
        return self._call(f"CONSUMER.CREATE.{self._stream}.{name}", body)

    def _fetch(self, consumer: str, batch: int) -> Any:
        body = {"batch": batch, "expires": FETCH, "no_wait": True}
        inbox = self._client.pull(self._stream, consumer, body)
        seen: list[Any] = []
        while len(seen) < batch:
            message = inbox.next()
            if message.status:
                seen.append((message.status, message.fields))
                break
            self._out[consumer].append(message)
            place = ack_fields(message)[:3]
            seen.append((message.subject, message.header, message.payload, place))
        inbox.close()
        return seen

    def _ack(self, consumer: str, which: float, payload: bytes) -> Any:
        out = self._out[consumer]
        if not out:
            return None
        message = out[int(which * len(out))]
        try:
            answer = self._client.request(message.reply, payload, seconds=SILENT_SECONDS)
            return answer.header.partition(b"\r\n")[0], answer.payload
        except ClientError:
            return "no answer"

    def _look(self, consumer: str) -> Any:
        if consumer:
            info = self._call(f"CONSUMER.INFO.{self._stream}.{consumer}", None)
            info.pop("num_waiting", None)
            return info
        info = self._call(f"STREAM.INFO.{self._stream}", {"deleted_details": True})
        if not info["state"]["messages"]:
            # The reference finds gaps in streams without messages, some before the first sequence.
            info["state"].pop("deleted", None)
            info["state"].pop("num_deleted", None)
        return info

    def _get(self, **body: Any) -> Any:
        return self._call(f"STREAM.MSG.GET.{self._stream}", body)

    def _direct(self, **body: Any) -> Any:
        inbox = self._client.subscribe()
        subject = f"{API}DIRECT.GET.{self._stream}"
        self._client.publish(subject, encode_body(body), reply=inbox.subject)
        answers = inbox.until_status() if "batch" in body else [inbox.next()]
        inbox.close()
        return [_direct(one) for one in answers]

    def _remove(self, seq: int) -> Any:
        return self._call(f"STREAM.MSG.DELETE.{self._stream}", {"seq": seq})

    def _purge(self, **body: Any) -> Any:
        return self._call(f"STREAM.PURGE.{self._stream}", body)

    def _update(self, **config: Any) -> Any:
        return self._call(f"STREAM.UPDATE.{self._stream}", config)

    def _forget(self, consumer: str) -> Any:
        self._out[consumer].clear()
        return self._call(f"CONSUMER.DELETE.{self._stream}.{consumer}", None)

    def _reset(self, consumer: str, body: dict[str, int]) -> Any:
        known = self._call(f"CONSUMER.INFO.{self._stream}.{consumer}", None)
        if "error" in known:  # a reset of a missing consumer gets no reply
            return known
        self._out[consumer].clear()
        return self._call(f"CONSUMER.RESET.{self._stream}.{consumer}", body)


def _direct(message: Message) -> tuple[str, list[tuple[str, str]], bytes]:
    fields = [pair for pair in message.fields if pair[0] != "Nats-Time-Stamp"]
    return message.status, fields, base64.b64encode(message.payload)
