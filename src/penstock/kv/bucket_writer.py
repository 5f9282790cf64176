"""Writes to a bucket: every write is one publish, with its condition in a header.

The server detects conflicts. The writer reads a key only when a `create` fails, because the newest
record of the key may be a delete. A delete always publishes a marker, so that watchers see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.error_codes import WRONG_LAST_SEQUENCE
from penstock.kv.bucket_records import subject_of
from penstock.kv.client_errors import refused
from penstock.kv.errors import AlreadyExists, RevisionMismatch
from penstock.kv.kv_types import Op, VersionToken

if TYPE_CHECKING:
    from penstock.kv.bucket_log import BucketLog
    from penstock.kv.bucket_reader import NatsReader
    from penstock.kv.bucket_records import LastWrite
    from penstock.kv.bucket_requests import Requests

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
DELETE: Final = {"KV-Operation": "DEL"}
PURGE: Final = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
MILLISECONDS: Final = 1000
#: Attempts of a `create` while other clients delete and create the key in between.
CREATE_TRIES_MAX: Final = 8


class NatsWriter:
    """A `KvWriter`, `KvTtl` and `KvPurge`."""

    def __init__(self, bucket: str, requests: Requests, reader: NatsReader, log: BucketLog) -> None:
        self._log = log
        self._bucket = bucket
        self._requests = requests
        self._reader = reader

    async def put(self, key: str, value: bytes) -> VersionToken:
        return await self._write(key, value, {})

    async def create(self, key: str, value: bytes) -> VersionToken:
        return await self._create(key, value, {})

    async def create_with_ttl(self, key: str, value: bytes, ttl: float) -> VersionToken:
        return await self._create(key, value, {TTL: duration(ttl)})

    async def update(self, key: str, value: bytes, expected: VersionToken) -> VersionToken:
        return await self._write(key, value, {}, expected)

    async def put_with_ttl(self, key: str, value: bytes, ttl: float) -> VersionToken:
        return await self._write(key, value, {TTL: duration(ttl)})

    async def delete(self, key: str) -> VersionToken:
        return await self._write(key, b"", DELETE)

    async def delete_if(self, key: str, expected: VersionToken) -> VersionToken:
        return await self._write(key, b"", DELETE, expected)

    delete_with_version = delete_if
    """The name in the Rust crate."""

    async def write_once(
        self, key: str, value: bytes, *, op: Op, expected: int, message_id: str
    ) -> VersionToken:
        """Put or delete a key that is at revision `expected`; 0 means the key has no record.

        The server stores a message id once within its duplicate window and replies to repeats with
        the sequence of the first write.
        """
        headers = {MESSAGE_ID: message_id} | ({} if op is Op.PUT else DELETE)
        return await self._write(key, value, headers, VersionToken.of(expected))

    async def last_write(self, key: str) -> LastWrite | None:
        """Return the newest record of a key; None if there is none."""
        return await self._reader.last_write(key)

    async def purge(self, key: str, *, marker_ttl: float | None = None) -> None:
        more = {} if marker_ttl is None else {TTL: duration(marker_ttl)}
        await self._write(key, b"", PURGE | more)

    async def _create(self, key: str, value: bytes, headers: dict[str, str]) -> VersionToken:
        behind: int | None = 0
        for _ in range(CREATE_TRIES_MAX):
            if behind is None:
                break
            try:
                return await self._write(key, value, headers, VersionToken.of(behind))
            except RevisionMismatch:
                behind = await self._reader.is_free(key)
        raise AlreadyExists(f"{key} has a value", bucket=self._bucket)

    async def _write(
        self,
        key: str,
        value: bytes,
        headers: dict[str, str],
        expected: VersionToken | None = None,
    ) -> VersionToken:
        subject = subject_of(self._bucket, key)
        if expected is not None:
            headers = headers | {EXPECTED: str(_revision(expected))}
        answer = await self._requests.publish(subject, value, headers)
        if expected is not None and answer.code in WRONG_LAST_SEQUENCE:
            raise RevisionMismatch(
                f"{key} is not at revision {expected.revision}",
                expected=expected,
                bucket=self._bucket,
            )
        if answer.code:
            raise refused(answer.description, answer.code, self._bucket)
        return await self._log.version(int(answer.document["seq"]))


def duration(seconds: float) -> str:
    """Return a TTL as the value of the TTL header."""
    return f"{round(seconds * MILLISECONDS)}ms"


def _revision(expected: VersionToken) -> int:
    revision = expected.revision
    if revision is None:
        raise ValueError("a conditional write needs a version that is a revision")
    return revision
