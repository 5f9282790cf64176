"""Tracks the identity of a bucket's log, for the versions that writes return.

A publish ack contains a sequence but not the log it belongs to. The bucket handle requests the
identity when it is opened. It requests it again after an ack whose sequence is not above all
earlier ones, and after an ack more than `LOG_SECONDS` after the last request. So a version names
its log, unless the bucket was recreated within that time and has more records than the handle has
seen. `NatsWriter` calls `version` after each write. Use from one event loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_levels import PENSTOCK_HEADER
from penstock.kv.bucket_records import stream_of
from penstock.kv.errors import BucketError
from penstock.kv.kv_types import WriteVersion
from penstock.kv.resume_check import identity_of

if TYPE_CHECKING:
    from penstock.kv.bucket_requests import Requests

LOG_SECONDS: Final = 1.0
ASK_IDENTITY: Final = {PENSTOCK_HEADER: "1"}


class BucketLog:
    """The log of one bucket. The connection passes the STREAM.INFO reply to `learn`."""

    def __init__(self, bucket: str, requests: Requests) -> None:
        self._stream = stream_of(bucket)
        self._requests = requests
        self._highest = 0
        self._asked_at = -LOG_SECONDS
        self.identity = ""
        """Empty while unknown."""

    async def version(self, seq: int) -> WriteVersion:
        """Return the version of a write that the server acknowledged with this sequence."""
        is_old = time.monotonic() - self._asked_at >= LOG_SECONDS
        if is_old or seq <= self._highest:
            await self._ask()
        self._highest = max(self._highest, seq)
        return WriteVersion.in_log(seq, self.identity)

    async def _ask(self) -> None:
        """Request the identity. The write has succeeded, so a failed request raises no error and
        leaves the identity unknown."""
        self.identity, self._highest = "", 0
        try:
            answer = await self._requests.call(f"STREAM.INFO.{self._stream}", headers=ASK_IDENTITY)
        except BucketError:
            return
        if not answer.code:
            self.learn(answer.document)

    def learn(self, info: dict[str, Any]) -> None:
        self._asked_at = time.monotonic()
        self.identity = identity_of(self._stream, info)
