"""What a server says about all its streams and consumers, and whether two such accounts agree.

Only what stands still is compared: time passes between two surveys, so messages with an age,
copies, schedules and idle consumers may differ with good reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from .peer import Ledger, Peer
from .requests import Operation
from .server_process import Harm

if TYPE_CHECKING:
    from collections.abc import Iterator

API: Final = "$JS.API"
SECONDS: Final = 120.0
MOVING: Final = ("max_age", "allow_msg_ttl", "allow_msg_schedules", "mirror", "sources", "sealed")
STATE: Final = (
    "messages",
    "bytes",
    "first_seq",
    "first_ts",
    "last_seq",
    "last_ts",
    "num_subjects",
    "num_deleted",
)


class Asker:
    """A connection for one question after the other."""

    def __init__(self, port: int) -> None:
        self._peer = Peer(port, 999, Ledger(), [])
        self._answers: dict[int, bytes] = {}
        self._peer.on_answer = self._answers.__setitem__

    def ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body else b""
        self._peer.add(Operation("survey", f"{API}.{subject}", payload))
        number = self._peer.ledger.number
        self._peer.send()
        while number not in self._answers:
            if not self._peer.receive(SECONDS):
                raise Harm(f"{subject} was not answered within {SECONDS} s")
        answer = json.loads(self._answers.pop(number))
        assert isinstance(answer, dict)
        return answer

    def pages(self, subject: str, key: str) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            page = self.ask(subject, {"offset": offset})
            items = page.get(key) or []
            yield from items
            offset += len(items)
            if not items or offset >= page["total"]:
                return

    def close(self) -> None:
        self._peer.close()


def survey(port: int) -> dict[str, dict[str, Any]]:
    """All streams, each with its consumers."""
    asker = Asker(port)
    try:
        streams = {info["config"]["name"]: info for info in asker.pages("STREAM.LIST", "streams")}
        for name, info in streams.items():
            found = asker.pages(f"CONSUMER.LIST.{name}", "consumers")
            info["consumers"] = {consumer["name"]: consumer for consumer in found}
        return streams
    finally:
        asker.close()


def differences(before: dict[str, Any], after: dict[str, Any], *, is_clean: bool) -> list[str]:
    """Where two surveys disagree; what was in memory only does not count."""
    before = {name: info for name, info in before.items() if info["config"]["storage"] == "file"}
    found = [f"stream {name} is missing" for name in before.keys() - after.keys()]
    found += [f"stream {name} has come back" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        found += _stream_differences(name, before[name], after[name], is_clean=is_clean)
    return found


def _stream_differences(
    name: str, before: dict[str, Any], after: dict[str, Any], *, is_clean: bool
) -> list[str]:
    config = before["config"]
    found = _compare(f"stream {name} config", config, after["config"], sorted(config))
    found += _compare(f"stream {name}", before, after, ["created"])
    if (
        before["state"]["last_seq"] == 0
    ):  # a purge of nothing makes the first sequence 1, until then
        before["state"]["first_seq"] = after["state"]["first_seq"]
    if is_still(config, is_clean=is_clean) and not name.startswith("R"):
        found += _compare(f"stream {name} state", before["state"], after["state"], list(STATE))
    for consumer, info in before["consumers"].items():
        if not is_lasting(info["config"]):
            continue
        other = after["consumers"].get(consumer)
        if other is None:
            found.append(f"consumer {name} > {consumer} is missing")
            continue
        where = f"consumer {name} > {consumer}"
        found += _compare(
            f"{where} config", info["config"], other["config"], sorted(info["config"])
        )
        if is_clean and is_still(config, is_clean=True) and config["storage"] == "file":
            expected = at_restart(info, before["state"]["last_seq"])
            found += _compare(where, expected, other, consumer_state(info["config"]))
    return found


def at_restart(consumer: dict[str, Any], last_seq: int) -> dict[str, Any]:
    """A consumer that a reset put beyond the end of its stream goes back to the end.

    In a stream that never had a message it stays, as in the reference.
    """
    if not 0 < last_seq < consumer["delivered"]["stream_seq"]:
        return consumer
    moved = {key: {**consumer[key], "stream_seq": last_seq} for key in ("delivered", "ack_floor")}
    return consumer | moved


def is_still(config: dict[str, Any], *, is_clean: bool) -> bool:
    """Whether nothing but a request changes what the stream holds."""
    if any(config.get(key) for key in MOVING) or config["retention"] != "limits":
        return False
    is_stored = config["storage"] == "file" and config.get("persist_mode") != "async"
    return is_stored if not is_clean else config["storage"] == "file"


def is_lasting(config: dict[str, Any]) -> bool:
    """Whether the consumer stays when it is unused."""
    is_copy = config.get("deliver_subject", "").startswith("$JS.")
    is_idle = config.get("inactive_threshold") or config.get("mem_storage")
    return bool(config.get("durable_name")) and not (is_copy or is_idle)


def consumer_state(config: dict[str, Any]) -> list[str]:
    if config.get("max_deliver", -1) > 0:
        return ["num_pending"]  # what was delivered often enough is given up as time passes
    return ["ack_floor", "delivered", "num_ack_pending", "num_pending"]


def _compare(where: str, before: Any, after: Any, keys: list[str]) -> list[str]:
    return [
        f"{where}: {key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in keys
        if _stable(before.get(key)) != _stable(after.get(key))
    ]


def _stable(value: Any) -> Any:
    """Without the time of the last activity, which a restart may forget."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if key != "last_active"}
    return value
