"""`penstock kv` and `penstock object` on both servers, and beside the clients people use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import nats
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from support.cli import Cli

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

#: More than the chunks that are sent ahead.
LARGE = bytes(range(256)) * 12_000


@pytest.fixture
def bucket(cli: Cli, name: str) -> str:
    cli.done("kv", "add", name, "--history", "5")
    return name


@pytest.fixture
def files(cli: Cli, name: str) -> str:
    cli.done("object", "add", name)
    return name


@contextlib.asynccontextmanager
async def library(cli: Cli) -> AsyncIterator[JetStreamContext]:
    """JetStream as nats-py has it."""
    assert cli.server is not None
    client = await nats.connect(cli.server.url, allow_reconnect=False)
    try:
        yield client.jetstream()
    finally:
        await client.close()


# -- keys


def test_key_is_put_and_got(cli: Cli, bucket: str) -> None:
    told = cli.done("kv", "put", bucket, "a.b", "-", "--json", stdin=b"\x00value").json
    assert told == {"bucket": bucket, "key": "a.b", "revision": 1, "operation": "PUT"}
    assert cli.done("kv", "get", bucket, "a.b", "--raw").raw == b"\x00value"
    entry = cli.done("kv", "get", bucket, "a.b", "--json").json
    assert entry.pop("created").endswith("Z")
    assert entry == {**told, "data": "\x00value", "encoding": "utf-8"}


def test_old_revision_can_be_read(cli: Cli, bucket: str) -> None:
    for value in "12":
        cli.done("kv", "put", bucket, "k", value)
    cli.done("kv", "put", bucket, "other", "3")
    assert cli.done("kv", "get", bucket, "k", "--revision", "1", "--raw").out == "1"
    assert "no key k" in cli.refused("kv", "get", bucket, "k", "--revision", "3")


def test_create_is_exclusive_and_update_needs_expected_revision(cli: Cli, bucket: str) -> None:
    cli.done("kv", "create", bucket, "k", "1")
    assert "there already" in cli.refused("kv", "create", bucket, "k", "2")
    cli.done("kv", "update", bucket, "k", "2", "1")
    refused = cli.refused("kv", "update", bucket, "k", "3", "1")
    assert "not as expected" in refused
    assert "error 10071" in refused
    assert cli.done("kv", "get", bucket, "k", "--raw").out == "2"


@pytest.mark.parametrize("how", ["del", "purge"])
def test_deleted_key_is_missing_and_can_be_created(cli: Cli, bucket: str, how: str) -> None:
    cli.done("kv", "put", bucket, "k", "1")
    assert "--force" in cli.refused("kv", how, bucket, "k", code=2)
    cli.done("kv", how, bucket, "k", "--force")
    assert "no key k" in cli.refused("kv", "get", bucket, "k")
    assert cli.done("kv", "ls", bucket, "--json").json == []
    operations = [one["operation"] for one in cli.done("kv", "history", bucket, "k", "--json").json]
    assert operations == (["PUT", "DEL"] if how == "del" else ["PURGE"])
    cli.done("kv", "create", bucket, "k", "2")
    assert cli.done("kv", "get", bucket, "k", "--raw").out == "2"


def test_keys_are_listed_by_pattern(cli: Cli, bucket: str) -> None:
    for key in ("b.x", "a.x", "a.y"):
        cli.done("kv", "put", bucket, key, "1")
    assert cli.done("kv", "ls", bucket).out == "a.x\na.y\nb.x\n"
    assert cli.done("kv", "ls", bucket, "a.*", "--json").json == ["a.x", "a.y"]


def test_watch_shows_current_keys_and_later_changes(cli: Cli, bucket: str) -> None:
    for value in "12":
        cli.done("kv", "put", bucket, "k", value)
    watching = cli.start("kv", "watch", bucket)
    assert "PUT k @ 2: 2" in watching.read_line()
    cli.done("kv", "del", bucket, "k", "--force")
    assert "DEL k @ 3" in watching.read_line()
    assert watching.stop().code == 0
    history = cli.done("kv", "watch", bucket, "--history", "--count", "3", "--json").lines
    assert [one["revision"] for one in history] == [1, 2, 3]


def test_bucket_is_shown_listed_and_removed(cli: Cli, bucket: str) -> None:
    status = cli.done("kv", "status", bucket, "--json").json
    assert (status["bucket"], status["history"], status["values"]) == (bucket, 5, 0)
    assert bucket in [one["bucket"] for one in cli.done("kv", "ls", "--json").json]
    cli.done("kv", "rm", bucket, "--force")
    for words in (("status",), ("get", "k"), ("put", "k", "v"), ("ls",), ("history", "k")):
        told = cli.refused("kv", words[0], bucket, *words[1:])
        assert f"there is no bucket {bucket} (error 10059)" in told


@pytest.mark.parametrize("key", ["a b", ".a", "a.", "a.*", ">", "ü"])
def test_invalid_key_is_refused(cli: Cli, bucket: str, key: str) -> None:
    assert "is not a key" in cli.refused("kv", "put", bucket, key, "v", code=2)


def test_buckets_are_shared_with_client_library(cli: Cli, bucket: str) -> None:
    cli.done("kv", "put", bucket, "ours", "1")

    async def meet() -> tuple[bytes | None, Any]:
        async with library(cli) as js:
            kv = await js.key_value(bucket)
            await kv.put("theirs", b"2")
            made = await js.create_key_value(bucket=f"{bucket}L", history=5)
            entry = await kv.get("ours")
            return entry.value, (await made.status()).stream_info.config

    value, theirs = asyncio.run(meet())
    assert value == b"1"
    assert cli.done("kv", "get", bucket, "theirs", "--raw").out == "2"
    ours = cli.done("stream", "info", f"KV_{bucket}", "--json").json["config"]
    for field in ("discard", "allow_rollup_hdrs", "deny_delete", "max_msgs_per_subject"):
        assert ours[field] == getattr(theirs, field), field
    assert ours["allow_direct"] is True


def test_key_with_ttl_expires(cli: Cli, name: str) -> None:
    cli.done("kv", "add", name, "--marker-ttl", "1h")
    cli.done("kv", "create", name, "k", "v", "--ttl", "1h")
    message = cli.done("stream", "get", f"KV_{name}", "1", "--json").json
    assert message["headers"]["Nats-TTL"] == "3600s"


# -- objects


def test_file_round_trips_through_object_store(cli: Cli, files: str) -> None:
    (cli.directory / "large.bin").write_bytes(LARGE)
    info = cli.done("object", "put", files, "large.bin", "--json").json
    assert (info["name"], info["size"], info["chunks"]) == ("large.bin", len(LARGE), 24)
    cli.done("object", "get", files, "large.bin", "-o", "back.bin")
    assert (cli.directory / "back.bin").read_bytes() == LARGE
    assert cli.done("object", "get", files, "large.bin", "-o", "-").raw == LARGE


def test_empty_object_round_trips(cli: Cli, files: str) -> None:
    cli.done("object", "put", files, "-", "--name", "empty")
    cli.done("object", "get", files, "empty")
    assert (cli.directory / "empty").read_bytes() == b""


def test_existing_file_is_overwritten_only_with_force(cli: Cli, files: str) -> None:
    cli.done("object", "put", files, "-", "--name", "o", stdin=b"new")
    (cli.directory / "o").write_bytes(b"old")
    assert "--force" in cli.refused("object", "get", files, "o")
    assert (cli.directory / "o").read_bytes() == b"old"
    cli.done("object", "get", files, "o", "--force")
    assert (cli.directory / "o").read_bytes() == b"new"


def test_object_name_cannot_leave_directory(cli: Cli, files: str) -> None:
    cli.done("object", "put", files, "-", "--name", "../../evil", stdin=b"x")
    told = cli.done("object", "get", files, "../../evil", "--json").json
    assert told["file"] == "evil"


def test_new_version_removes_old_chunks(cli: Cli, files: str) -> None:
    for content in (b"1" * 300_000, b"2"):
        cli.done("object", "put", files, "-", "--name", "o", stdin=content)
    assert cli.done("object", "get", files, "o", "-o", "-").raw == b"2"
    state = cli.done("stream", "info", f"OBJ_{files}", "--json").json["state"]
    assert state["messages"] == 2


def test_damaged_object_is_reported_and_leaves_no_file(cli: Cli, files: str) -> None:
    info = cli.done("object", "put", files, "-", "--name", "o", "--json", stdin=b"good").json
    cli.done("stream", "purge", f"OBJ_{files}", "--subject", f"$O.{files}.C.>", "--force")
    assert "4 bytes are missing" in cli.refused("object", "get", files, "o")
    cli.done("pub", f"$O.{files}.C.{info['nuid']}", "evil", "--ack")
    assert "digest" in cli.refused("object", "get", files, "o")
    assert list(cli.directory.glob("*o*partial")) == []
    assert not (cli.directory / "o").exists()


def test_objects_are_listed_shown_removed_and_watched(cli: Cli, files: str) -> None:
    for name in ("b", "a"):
        cli.done("object", "put", files, "-", "--name", name, stdin=b"x")
    assert [one["name"] for one in cli.done("object", "ls", files, "--json").json] == ["a", "b"]
    assert cli.done("object", "info", files, "a", "--json").json["size"] == 1
    cli.done("object", "rm", files, "a", "--force")
    assert "no object a" in cli.refused("object", "info", files, "a")
    told = cli.done("object", "watch", files, "--count", "2", "--json").lines
    assert [(one["name"], one.get("deleted", False)) for one in told] == [("b", False), ("a", True)]
    assert files in [one["bucket"] for one in cli.done("object", "ls", "--json").json]
    assert cli.done("object", "info", files, "--json").json["bucket"] == files
    cli.done("object", "rm", files, "--force")
    assert "error 10059" in cli.refused("object", "ls", files)


def test_objects_are_shared_with_client_library(cli: Cli, files: str) -> None:
    cli.done("object", "put", files, "-", "--name", "ours", stdin=LARGE)

    async def meet() -> bytes | None:
        async with library(cli) as js:
            store = await js.object_store(files)
            await store.put("theirs", LARGE)
            return (await store.get("ours")).data

    assert asyncio.run(meet()) == LARGE
    assert cli.done("object", "get", files, "theirs", "-o", "-").raw == LARGE
