"""Stores that older versions wrote: this version opens, reads, serves and checks them.

`tests/golden/store-VERSION` holds the files of two servers, one of which encrypts, and what a
client was told of every stream, message and consumer; `tools/golden_store.py` made them. A format
that is released is added and never removed.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import nats
import pytest

import penstock
from penstock.cli.stores import store_command as store_command

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "tools"))
from golden_store import CONFIG, KEY, SERVERS, Api, told  # noqa: E402

pytestmark = pytest.mark.sockets

VERSIONS = sorted(path.name for path in GOLDEN.glob("store-*"))
KEPT = [(version, kind) for version in VERSIONS for kind in SERVERS]
STATE = ("messages", "bytes", "first_seq", "first_ts", "last_seq", "last_ts", "num_subjects",
         "num_deleted", "deleted", "consumer_count")  # fmt: skip
CONSUMER = ("created", "delivered", "ack_floor", "num_ack_pending", "num_redelivered",
            "num_pending")  # fmt: skip
OUR_METADATA = "_nats."


class Kept:
    """A copy of a kept store, and what was told of it."""

    def __init__(self, version: str, kind: str, directory: Path) -> None:
        with tarfile.open(GOLDEN / version / "store.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        self.files = directory / kind
        self.config = directory / "server.conf"
        self.config.write_text(CONFIG % (self.files, SERVERS[kind]))
        self.expected = json.loads((GOLDEN / version / "expected.json").read_text())[kind]

    def server(self) -> penstock.Server:
        return penstock.Server(config=self.config, host="127.0.0.1", port=-1)


@pytest.fixture(params=KEPT, ids="-".join)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    version, kind = request.param
    return Kept(version, kind, tmp_path)


def own_config(config: dict[str, Any]) -> dict[str, Any]:
    """What the user configured; the server's own metadata has changed its place."""
    metadata = config.get("metadata") or {}
    own = {name: value for name, value in metadata.items() if not name.startswith(OUR_METADATA)}
    return {**config, "metadata": own}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, was in expected.items():
        now = found[name]
        assert now["messages"] == was["messages"], name
        assert now["created"] == was["created"], name
        configured = own_config(now["config"])
        for field, value in own_config(was["config"]).items():
            assert configured[field] == value, (name, field)
        for field in STATE:
            assert now["state"].get(field) == was["state"].get(field), (name, field)
        assert now["consumers"].keys() == was["consumers"].keys(), name
        for consumer, before in was["consumers"].items():
            after = now["consumers"][consumer]
            for field in CONSUMER:
                assert counted(after[field]) == counted(before[field]), (name, consumer, field)


def counted(value: Any) -> Any:
    """Without the time of the last activity, which is of a run and not of the store."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if key != "last_active"}
    return value


async def connected(server: penstock.Server) -> Api:
    return Api(await nats.connect(server.url, user="app", password="app"))


async def test_every_message_and_consumer_of_old_store_is_served(kept: Kept) -> None:
    for _ in range(2):  # the second start reads what the first one wrote
        async with kept.server() as server:
            api = await connected(server)
            assert_same(await told(api), kept.expected)
            await api.client.close()


async def test_old_store_continues_where_it_was(kept: Kept) -> None:
    before = kept.expected
    async with kept.server() as server:
        api = await connected(server)
        await api.publish("events.new", b"new")
        await api.publish("packed.1", b"new")
        await api.publish("count.visits", Nats_Incr="+3")
        (next_one,) = await api.fetch("PACKED", "some", 1)
        await api.client.request(next_one.reply, b"+ACK", 30)
        got = await api.fetch("EVENTS", "fresh", 3)
        assert [message.data for message in got] == [b"event %d " % n * 12 for n in (1, 2, 4)]
        await api.client.close()
    async with kept.server() as server:
        api = await connected(server)
        found = await told(api)
        await api.client.close()
    for name in ("EVENTS", "PACKED", "COUNT"):
        assert found[name]["messages"][:-1] == before[name]["messages"]
        last = before[name]["state"]["last_seq"]
        assert found[name]["state"]["last_seq"] == last + 1
    was, now = (one["PACKED"]["consumers"]["some"] for one in (before, found))
    assert now["delivered"]["consumer_seq"] == was["delivered"]["consumer_seq"] + 1
    assert now["num_ack_pending"] == was["num_ack_pending"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_key_that_is_configured_later_costs_no_message(version: str, tmp_path: Path) -> None:
    """Blocks that were compressed and sealed without a key stay readable with one."""
    kept = Kept(version, "plain", tmp_path)
    kept.config.write_text(CONFIG % (kept.files, SERVERS["sealed"]))
    for _ in range(2):
        async with kept.server() as server:
            api = await connected(server)
            assert_same(await told(api), kept.expected)
            await api.client.close()


def test_old_store_verifies_and_stays_as_it_is(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(store_command.KEY_VARIABLE, KEY)
    before = {path: path.read_bytes() for path in kept.files.rglob("*") if path.is_file()}
    assert store_command.run(["verify", str(kept.files), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["stores"]
    stores = {one["path"].rpartition("/")[2]: one for one in listed}
    assert stores.keys() == kept.expected.keys()
    for name, was in kept.expected.items():
        assert stores[name]["messages"] == was["state"]["messages"]
        assert len(stores[name]["consumers"]) == len(was["consumers"])
    assert {path: path.read_bytes() for path in kept.files.rglob("*") if path.is_file()} == before


def test_old_store_has_every_form_of_block(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the tests above would prove less than they say."""
    monkeypatch.setenv(store_command.KEY_VARIABLE, KEY)
    assert store_command.run(["inspect", str(kept.files), "--json"]) == 0
    blocks = [b for one in json.loads(capsys.readouterr().out)["stores"] for b in one["blocks"]]
    assert {block["sealed"] for block in blocks} == {True, False}
    assert any(block["compressed"] for block in blocks)
    assert any(block["encrypted"] for block in blocks) == (kept.files.name == "sealed")
