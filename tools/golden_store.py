"""Creates a store that later versions must open: run it with the version to preserve.

    python tools/golden_store.py DIRECTORY

Writes `DIRECTORY/store.tar.xz`, the JetStream directories of two servers (`plain` and `sealed`,
which encrypts), and `DIRECTORY/expected.json`: what the server reported to a client about every
stream, message and consumer before it stopped. `tests/unit/server/jetstream/test_old_stores.py`
opens a copy with the current code and compares. Create it once per released format, never again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import nats

import penstock
from penstock.store.filestore import FileStore

BLOCK_BYTES = 12 * 1024
"""Small blocks, so that few messages fill several: sealed ones, compressed ones, an open one."""
YEARS = "400000h"
YEARS_NS = 400_000 * 3600 * 10**9
KEY = "the key of the kept store"
CONFIG = """
jetstream { store_dir: "%s", %s }
accounts {
  APP { jetstream: enabled, users: [{user: app, password: app}] }
}
"""
SERVERS = {"plain": "", "sealed": f'key: "{KEY}"'}
STREAMS: list[dict[str, Any]] = [
    {"name": "EVENTS", "subjects": ["events.>"], "allow_msg_ttl": True},
    {"name": "PACKED", "subjects": ["packed.>"], "compression": "s2"},
    {"name": "LATEST", "subjects": ["latest.>"], "max_msgs_per_subject": 2, "allow_direct": True},
    {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"},
    {"name": "COUNT", "subjects": ["count.>"], "allow_msg_counter": True, "allow_direct": True},
    {"name": "KV_prefs", "subjects": ["$KV.prefs.>"], "max_msgs_per_subject": 3,
     "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True},
    {"name": "EMPTY", "subjects": ["empty"]},
    {"name": "MIRROR", "mirror": {"name": "EVENTS"}},
    {"name": "SOURCES", "sources": [{"name": "LATEST"}, {"name": "PACKED"}]},
]  # fmt: skip
CONSUMERS: list[tuple[str, dict[str, Any]]] = [
    ("EVENTS", {"durable_name": "fresh", "ack_policy": "explicit"}),
    ("EVENTS", {"durable_name": "half", "ack_policy": "explicit", "ack_wait": YEARS_NS}),
    ("EVENTS", {"durable_name": "all", "ack_policy": "all", "ack_wait": YEARS_NS}),
    ("EVENTS", {"durable_name": "push", "ack_policy": "none", "deliver_subject": "to.push"}),
    ("PACKED", {"durable_name": "some", "ack_policy": "explicit", "ack_wait": YEARS_NS,
                "filter_subjects": ["packed.1", "packed.2"]}),
    ("WORK", {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": YEARS_NS}),
]  # fmt: skip


class Api:
    """JetStream as raw requests."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, subject: str, body: object = None) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer = json.loads((await self.client.request(f"$JS.API.{subject}", data, 30)).data)
        if "error" in answer:
            raise SystemExit(f"{subject}: {answer['error']}")
        return answer

    async def publish(self, subject: str, data: bytes = b"", **headers: str) -> None:
        spelled = {name.replace("_", "-"): value for name, value in headers.items()} or None
        answer = json.loads((await self.client.request(subject, data, 30, headers=spelled)).data)
        if "error" in answer:
            raise SystemExit(f"{subject}: {answer['error']}")

    async def fetch(self, stream: str, consumer: str, count: int) -> list[Any]:
        inbox = self.client.new_inbox()
        waiting = await self.client.subscribe(inbox)
        ask = json.dumps({"batch": count, "expires": 30 * 10**9}).encode()
        await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", ask, inbox)
        found = [await waiting.next_msg(30) for _ in range(count)]
        await waiting.unsubscribe()
        return found


async def fill(api: Api) -> None:
    """Create everything that leaves a distinct trace in files."""
    for config in STREAMS:
        name = config["name"]
        await api.call(f"STREAM.CREATE.{name}", {"storage": "file", **config})
    for n in range(1, 101):
        body = b"event %d " % n * 12
        headers = {"Nats_Msg_Id": f"id-{n}"} if n % 5 == 0 else {}
        if n % 20 == 0:
            headers["Nats_TTL"] = YEARS
        await api.publish(f"events.{n % 4}.n{n}", body, **headers)
        await api.publish(f"packed.{n % 3}", b"%d: again and again " % n * 20)
        await api.publish(f"latest.{n % 9}", b"%d" % n)
    for n in range(1, 31):
        await api.publish(f"work.{n}", b"job %d" % n)
        await api.publish("count.visits", Nats_Incr="+3")
        await api.publish(f"$KV.prefs.user.{n % 7}", b"value %d" % n)
    await api.publish("$KV.prefs.user.3", KV_Operation="DEL")
    await api.publish("$KV.prefs.user.4", KV_Operation="PURGE", Nats_Rollup="sub")
    for seq in (3, 50, 51, 52, 100):
        await api.call("STREAM.MSG.DELETE.EVENTS", {"seq": seq})
    await api.call("STREAM.PURGE.PACKED", {"filter": "packed.0", "keep": 5})


async def consume(api: Api) -> None:
    """Create consumers that delivered nothing, some, and all; acknowledged and not."""
    for stream, config in CONSUMERS:
        name = config["durable_name"]
        body = {"stream_name": stream, "config": {"replay_policy": "instant", **config}}
        await api.call(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    for n, message in enumerate(await api.fetch("EVENTS", "half", 60)):
        if n % 3 == 0:
            await api.client.request(message.reply, b"+ACK", 30)
        elif n % 3 == 1 and n < 10:
            await api.client.publish(message.reply, b"-NAK")
    await api.fetch("EVENTS", "half", 5)
    ten = await api.fetch("EVENTS", "all", 10)
    await api.client.request(ten[-1].reply, b"+ACK", 30)
    for message in (await api.fetch("PACKED", "some", 20))[:7]:
        await api.client.request(message.reply, b"+ACK", 30)
    for message in (await api.fetch("WORK", "worker", 12))[::2]:
        await api.client.request(message.reply, b"+ACK", 30)


async def wait_for_copies(api: Api) -> None:
    for name, wanted in (("MIRROR", 95), ("SOURCES", 85)):
        for _ in range(600):
            state = (await api.call(f"STREAM.INFO.{name}"))["state"]
            if state["messages"] >= wanted:
                break
            await asyncio.sleep(0.1)


async def told(api: Api) -> dict[str, Any]:
    """Return what a client can read of every stream, message and consumer."""
    found = {}
    for info in (await api.call("STREAM.LIST"))["streams"]:
        name = info["config"]["name"]
        state = (await api.call(f"STREAM.INFO.{name}", {"deleted_details": True}))["state"]
        messages = []
        for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1):
            if seq not in state.get("deleted", []):
                answer = await api.call(f"STREAM.MSG.GET.{name}", {"seq": seq})
                messages.append(brief(answer["message"]))
        listed = await api.call(f"CONSUMER.LIST.{name}")
        found[name] = {
            "config": info["config"],
            "created": info["created"],
            "state": state,
            "messages": messages,
            "consumers": {one["name"]: one for one in listed["consumers"]},
        }
    return found


def brief(message: dict[str, Any]) -> list[Any]:
    """Return the recorded part of a message: sequence, subject, time, and a hash of header and
    body."""
    whole = message.get("hdrs", "") + "/" + message.get("data", "")
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    return [message["seq"], message["subject"], message["time"], digest]


async def make(directory: Path, more: str) -> dict[str, Any]:
    """Run one server, fill it and stop it."""
    FileStore.open.__func__.__kwdefaults__["block_bytes"] = BLOCK_BYTES  # type: ignore[attr-defined]
    config = directory / "server.conf"
    config.write_text(CONFIG % (directory / "store", more))
    async with penstock.Server(config=config, host="127.0.0.1", port=-1) as server:
        client = await nats.connect(server.url, user="app", password="app")
        api = Api(client)
        await fill(api)
        await consume(api)
        await wait_for_copies(api)
        found = await told(api)
        await client.close()
    return found


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        expected = {}
        for kind, more in SERVERS.items():
            place = Path(name) / kind
            place.mkdir()
            expected[kind] = asyncio.run(make(place, more))
        with tarfile.open(target / "store.tar.xz", "w:xz") as archive:
            for kind in SERVERS:
                archive.add(Path(name) / kind / "store", kind)
    (target / "expected.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
