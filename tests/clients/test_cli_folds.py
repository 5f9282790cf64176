"""`penstock fold` beside both servers: opened, followed, compared with buckets, told to a fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.fold import AppendLogSnapshot, KvUpdate, Op
from support.servers import until

if TYPE_CHECKING:
    from support.cli import Cli, Streaming

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

STORES = ("append-log", "sqlite", "lmdb", "rocksdb")


@pytest.fixture
def bucket(cli: Cli, name: str) -> str:
    cli.done("kv", "add", name)
    for key, value in (("eu.limit", "10"), ("eu.mode", "on"), ("us.limit", "20")):
        cli.done("kv", "put", name, key, value)
    return name


@pytest.mark.parametrize("store", STORES)
def test_fold_is_opened_and_read_without_server(cli: Cli, bucket: str, store: str) -> None:
    told = cli.done("fold", "open", bucket, "fold", "--backend", store, "--json").json
    assert (told["state"], told["cursor"], told["entries"], told["lag"]) == ("live", 3, 3, 0)
    assert told["backend"] == store
    assert cli.done("fold", "get", "fold", "eu.limit", "--raw").raw == b"10"
    assert cli.done("fold", "ls", "fold", "eu.").out.split() == ["eu.limit", "eu.mode"]


def test_reopened_fold_resumes_at_its_cursor(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "fold", "--backend", "append-log")
    cli.done("kv", "put", bucket, "eu.limit", "11")
    assert cli.done("fold", "status", "fold", "--bucket", bucket, "--json").json["lag"] == 1
    assert cli.done("fold", "open", bucket, "fold", "--json").json["cursor"] == 4
    assert cli.done("fold", "status", "fold", "--bucket", bucket, "--json").json["lag"] == 0


def test_fold_with_prefix_holds_only_that_prefix(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "fold", "--prefix", "us.")
    assert cli.done("fold", "ls", "fold").out.split() == ["us.limit"]
    reason = cli.refused("fold", "open", bucket, "fold", "--prefix", "eu.")
    assert "us." in reason


def test_verify_finds_damage_and_repair_keeps_it_aside(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "fold", "--backend", "append-log")
    store = AppendLogSnapshot.open(cli.directory / "fold")
    store.apply([KvUpdate(Op.PUT, "stray", b"last copy", 2)], store.cursor)
    store.close()
    assert "differ" in cli.refused("fold", "verify", "fold", "--bucket", bucket)
    done = cli.done("fold", "repair", bucket, "fold", "--json").json
    assert (done["removed"], done["entries"]) == (1, 3)
    cli.done("fold", "verify", "fold", "--bucket", bucket)
    assert cli.done("fold", "get", done["aside"], "stray", "--raw").raw == b"last copy"


def test_mistakes_are_reported_in_one_line(cli: Cli, bucket: str) -> None:
    assert "no bucket nowhere" in cli.refused("fold", "open", "nowhere", "fold")
    assert "dot" in cli.refused("fold", "open", bucket, "fold", "--prefix", "eu", code=2)
    cli.done("fold", "open", bucket, "fold")
    reason = cli.refused("fold", "open", bucket, "fold", "--backend", "append-log")
    assert reason.endswith("a fold in sqlite, not in append-log")
    reason = cli.refused("fold", "open", bucket, "new", "--bootstrap", "missing")
    assert "no such directory" in reason
    reason = cli.refused("fold", "open", bucket, "fold", "-s", "nats://127.0.0.1:1")
    assert "cannot connect" in reason


def test_changes_are_shown_after_they_are_in_fold(cli: Cli, bucket: str) -> None:
    watching = cli.start("fold", "watch", bucket, "fold", "--json")
    watching.wait_for("Following")
    cli.done("kv", "put", bucket, "eu.limit", "12")
    change = json.loads(watching.read_line())
    assert change == {
        "key": "eu.limit",
        "operation": "PUT",
        "revision": 4,
        "data": "12",
        "encoding": "utf-8",
    }
    assert cli.done("fold", "get", "fold", "eu.limit", "--raw").raw == b"12"
    cli.done("kv", "del", bucket, "eu.mode", "--force")
    assert json.loads(watching.read_line())["operation"] == "DELETE"
    assert watching.stop().code == 0


def test_watch_can_begin_with_current_values(cli: Cli, bucket: str) -> None:
    ran = cli.done("fold", "watch", bucket, "fold", "--all", "--count", "3", "--timeout", "30s")
    assert "PUT us.limit @ 3: 20" in ran.out.splitlines()


def test_fold_is_compared_with_its_bucket(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "fold")
    told = cli.done("fold", "verify", "fold", "--bucket", bucket, "--json").json
    assert told["agree"] is True
    assert len(told["digest"]) == 64
    cli.done("kv", "put", bucket, "eu.limit", "13")
    reason = cli.refused("fold", "verify", "fold", "--bucket", bucket)
    assert "1 revisions behind" in reason
    assert "eu.limit" in reason


def test_fold_of_another_bucket_is_not_compared(cli: Cli, bucket: str, name: str) -> None:
    cli.done("kv", "add", f"{name}-2")
    cli.done("fold", "open", bucket, "fold")
    for word in ("status", "verify"):
        assert "the fold is of" in cli.refused("fold", word, "fold", "--bucket", f"{name}-2")


def test_recreated_bucket_is_read_again(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "fold")
    cli.done("kv", "rm", bucket, "--force")
    cli.done("kv", "add", bucket)
    cli.done("kv", "put", bucket, "only", "1")
    assert cli.done("fold", "open", bucket, "fold", "--json").json["entries"] == 1


def test_repair_that_could_lose_values_is_refused(cli: Cli, name: str) -> None:
    cli.done("kv", "add", name, "--ttl", "1h")
    for number in range(3):
        cli.done("kv", "put", name, f"k{number}", "v")
    cli.done("fold", "open", name, "fold")
    cli.done("kv", "put", name, "k3", "v")
    cli.done("stream", "purge", f"KV_{name}", "--force")
    assert "artifacts" in cli.refused("fold", "open", name, "fold")
    told = cli.done("fold", "open", name, "fold", "--repair", "mirror", "--json").json
    assert told["entries"] == 0


def test_new_machine_begins_with_shipped_artifact(cli: Cli, bucket: str) -> None:
    cli.done("fold", "open", bucket, "one")
    place = f"file://{cli.directory}/published/{bucket}"
    assert cli.done("fold", "export", "one", place, "--json").json["outcome"] == "published"
    cli.done("kv", "put", bucket, "eu.limit", "14")
    told = cli.done("fold", "open", bucket, "two", "--bootstrap", place, "--json").json
    assert (told["cursor"], told["entries"]) == (4, 3)
    assert cli.done("fold", "get", "two", "eu.limit", "--raw").raw == b"14"


def heard(cli: Cli, status: str, nodes: int, running: list[Streaming]) -> None:
    def all_told() -> bool:
        return len(cli("fold", "fleet", status, "--json").json["nodes"]) == nodes

    until(all_told, "every node told of itself", 30, lambda: str([r.errors for r in running]))


def test_fleet_nodes_report_and_take_turns_shipping(cli: Cli, bucket: str, name: str) -> None:
    status, leases = f"{name}-status", f"{name}-leases"
    cli.done("kv", "add", status)
    cli.done("kv", "add", leases)
    place = f"file://{cli.directory}/published/{bucket}"
    flags = ("--digest", "--status-bucket", status, "--ship", place, "--leases", leases)
    running = [
        cli.start("fold", "run", bucket, node, "--node", node, *flags) for node in ("n1", "n2")
    ]
    heard(cli, status, 2, running)
    document = cli.done("fold", "fleet", status, "--of", bucket, "--json").json
    assert [node["node"] for node in document["nodes"]] == ["n1", "n2"]
    assert document["disagreements"] == []
    assert "n1" in cli.done("fold", "fleet", status).out
    published = cli.directory / "published" / f"{bucket}.manifest.json"
    until(published.exists, "one of them shipped", 30)
    assert [one.stop().code for one in running] == [0, 0]
    assert cli.done("fold", "verify", place, "--artifact", place, "--json").json["agree"] is True
