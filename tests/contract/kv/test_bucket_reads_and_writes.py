"""Keys of a bucket, one by one and listed, beside what nats-py sees of them, on both servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.kv.contract import BucketConfig
from penstock.kv.errors import (
    AlreadyExists,
    BucketNotFound,
    ConnectionFailed,
    NotConnected,
    OperationFailed,
    RevisionMismatch,
)
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.kv.kv_types import KvEntry, VersionToken
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker
    from support.servers import ServerUnderTest, Starter


async def listed(bucket: NatsBucket, prefix: str = "") -> list[str]:
    return [key async for key in bucket.reader().keys(prefix)]


async def test_value_is_read_back_with_version_it_was_given(bucket: NatsBucket) -> None:
    version = await bucket.writer().put("a.b", b"1")
    assert await bucket.reader().get("a.b") == KvEntry("a.b", b"1", version)
    assert await bucket.reader().get("a.c") is None
    assert await bucket.reader().entry("a.c") is None


async def test_nats_py_and_penstock_read_each_others_values(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    theirs = await jetstream.key_value(bucket.name)
    version = await bucket.writer().put("k", b"ours")
    seen = await theirs.get("k")
    assert (seen.value, seen.revision) == (b"ours", version.revision)
    revision = await theirs.put("k", b"theirs")
    got = await bucket.reader().get("k")
    assert got == KvEntry("k", b"theirs", VersionToken.of(revision))
    await bucket.writer().delete("k")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await theirs.get("k")


async def test_bucket_in_domain_is_written_read_and_listed(start: Starter) -> None:
    server = start("jetstream { store_dir: store, domain: far }")
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        NatsConnection(NatsConfig.of(server.url, domain="far")) as connection,
    ):
        bucket = await connection.bucket("b", BucketConfig())
        version = await bucket.writer().create("k", b"1")
        assert await bucket.reader().get("k") == KvEntry("k", b"1", version)
        assert await listed(bucket) == ["k"]
        with pytest.raises(RevisionMismatch):
            await bucket.writer().delete_if("k", VersionToken.of(9))
    async with NatsConnection(NatsConfig.of(server.url, domain="nowhere")) as connection:
        with pytest.raises(OperationFailed):
            await connection.bucket("b", BucketConfig())


async def test_deleted_key_has_record_without_value(bucket: NatsBucket) -> None:
    writer, reader = bucket.writer(), bucket.reader()
    await writer.put("k", b"1")
    await writer.delete("k")
    raw = await reader.entry("k")
    assert await reader.get("k") is None
    assert raw == KvEntry("k", b"", VersionToken.of(2))


async def test_create_refuses_key_that_has_value(bucket: NatsBucket) -> None:
    writer = bucket.writer()
    await writer.create("k", b"1")
    with pytest.raises(AlreadyExists):
        await writer.create("k", b"2")
    await writer.delete("k")
    version = await writer.create("k", b"3")
    assert await bucket.reader().get("k") == KvEntry("k", b"3", version)


async def test_conditional_write_needs_current_version(bucket: NatsBucket) -> None:
    writer = bucket.writer()
    first = await writer.put("k", b"1")
    second = await writer.update("k", b"2", first)
    with pytest.raises(RevisionMismatch) as conflict:
        await writer.update("k", b"3", first)
    assert conflict.value.expected == first
    with pytest.raises(RevisionMismatch):
        await writer.delete_if("k", first)
    await writer.delete_if("k", second)
    assert await bucket.reader().get("k") is None


async def test_conditional_write_without_revision_raises(bucket: NatsBucket) -> None:
    with pytest.raises(ValueError, match="revision"):
        await bucket.writer().update("k", b"", VersionToken.UNKNOWN)


async def test_purge_leaves_one_record_of_key(make: Maker) -> None:
    bucket = await make(BucketConfig(history=5))
    purger = bucket.purger()
    assert purger is not None
    for number in range(3):
        await purger.put("k", b"%d" % number)
    await purger.purge("k")
    watcher = bucket.watcher()
    assert watcher is not None
    info = await watcher.log_info()
    assert (info.first_seq, info.last_seq) == (4, 4)
    assert await bucket.reader().get("k") is None


async def test_empty_value_is_value_unless_bucket_treats_it_as_delete(
    bucket: NatsBucket, connection: NatsConnection
) -> None:
    await bucket.writer().put("k", b"")
    meant = await connection.bucket(bucket.name, BucketConfig(empty_value_is_delete=True))
    assert await bucket.reader().get("k") == KvEntry("k", b"", VersionToken.of(1))
    assert await listed(bucket) == ["k"]
    assert await meant.reader().get("k") is None
    assert await listed(meant) == []
    assert [entry async for entry in meant.reader().scan()] == []
    await meant.writer().create("k", b"now")


async def test_listing_has_no_limit_and_no_deleted_keys(bucket: NatsBucket) -> None:
    writer = bucket.writer()
    names = [f"n.{number:04}" for number in range(1200)]
    for at in range(0, len(names), 100):
        await asyncio.gather(*(writer.put(name, name.encode()) for name in names[at : at + 100]))
    await writer.delete("n.0007")
    expected = set(names) - {"n.0007"}
    keys = await listed(bucket)
    assert len(keys) == len(set(keys))
    assert set(keys) == expected
    entries = [entry async for entry in bucket.reader().scan()]
    assert {entry.key: entry.value for entry in entries} == {k: k.encode() for k in expected}
    revisions = [entry.revision or 0 for entry in entries]
    assert revisions == sorted(revisions)


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("", {"a", "a.1", "a.2", "ab.1"}), ("a.", {"a.1", "a.2"}), ("a", {"a", "a.1", "a.2", "ab.1"}),
     ("ab", {"ab.1"}), ("a.1", {"a.1"}), ("z.", set())],
)  # fmt: skip
async def test_any_prefix_lists_what_starts_with_it(
    bucket: NatsBucket, prefix: str, found: set[str]
) -> None:
    for key in ("a", "a.1", "a.2", "ab.1"):
        await bucket.writer().put(key, b"v")
    assert set(await listed(bucket, prefix)) == found
    assert {entry.key async for entry in bucket.reader().scan(prefix)} == found


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", ">", "é"])
async def test_invalid_key_is_refused_before_sending(bucket: NatsBucket, key: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        await bucket.writer().put(key, b"")
    with pytest.raises(ValueError, match="no key"):
        await bucket.reader().get(key)


async def test_key_with_ttl_expires(make: Maker) -> None:
    bucket = await make(BucketConfig(allow_msg_ttl=True))
    writer = bucket.ttl_writer()
    assert writer is not None
    assert bucket.capabilities().ttl
    await writer.create_with_ttl("k", b"1", 1.0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await bucket.reader().entry("k") is not None:
            await bucket.watcher().log_info()  # type: ignore[union-attr]


async def test_capabilities_of_bucket_are_reported(make: Maker) -> None:
    bucket = await make(BucketConfig(allow_rollup=False, max_value_size=100))
    assert bucket.ttl_writer() is None
    assert bucket.purger() is None
    assert bucket.capabilities().max_value_size == 100
    with pytest.raises(OperationFailed) as refusal:
        await bucket.writer().put("k", bytes(101))
    assert refusal.value.code == 10054


async def test_reads_without_direct_access_go_to_leader(make: Maker) -> None:
    bucket = await make(BucketConfig(allow_direct=False))
    version = await bucket.writer().put("k", b"1")
    assert await bucket.reader().get("k") == KvEntry("k", b"1", version)
    assert await bucket.reader().get("l") is None
    await bucket.writer().delete("k")
    assert await bucket.reader().get("k") is None


async def test_missing_bucket_is_named(
    connection: NatsConnection, bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    with pytest.raises(BucketNotFound, match="bucket nosuch"):
        await connection.bucket("nosuch")
    await jetstream.delete_stream(f"KV_{bucket.name}")
    with pytest.raises(BucketNotFound):
        await bucket.writer().put("k", b"")
    with pytest.raises(BucketNotFound):
        await bucket.reader().get("k")
    with pytest.raises(BucketNotFound):
        await listed(bucket)


async def test_existing_bucket_is_unchanged_and_differences_are_reported(
    bucket: NatsBucket, connection: NatsConnection, caplog: pytest.LogCaptureFixture
) -> None:
    same = await connection.bucket(bucket.name, BucketConfig())
    assert caplog.records == []
    again = await connection.bucket(bucket.name, BucketConfig(history=7, max_age=60))
    assert again.stream_config["max_msgs_per_subject"] == 1
    assert same.stream_config == again.stream_config
    assert "max_age" in caplog.text
    assert "max_msgs_per_subject" in caplog.text


async def test_health_follows_connection(server: ServerUnderTest) -> None:
    connection = NatsConnection(NatsConfig.of(server.url))
    assert not connection.is_healthy()
    with pytest.raises(NotConnected):
        await connection.bucket("b")
    await connection.connect()
    assert connection.is_healthy()
    assert connection.capabilities().max_value_size == 1 << 20
    await connection.close()
    assert not connection.is_healthy()


async def test_connect_error_names_address_but_no_credentials() -> None:
    connection = NatsConnection(NatsConfig.of("nats://amy:sesame@127.0.0.1:1"))
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as failure:
        await connection.connect()
    assert "sesame" not in str(failure.value)
    assert "sesame" not in repr(NatsConfig.of("nats://amy:sesame@h"))


async def test_bucket_works_over_client_of_caller(
    server: ServerUnderTest, bucket: NatsBucket
) -> None:
    client = await nats.connect(server.url)
    around = NatsConnection.around(client)
    same = await around.bucket(bucket.name)
    await same.writer().put("k", b"1")
    assert (await same.reader().get("k")) is not None
    assert same.watcher() is None
    assert not around.capabilities().streaming_watch
    with pytest.raises(NotConnected, match="list"):
        await listed(same)
    await around.close()
    assert client.is_connected
    with pytest.raises(ConnectionFailed, match="redial"):
        await around.connect()
    await client.close()
