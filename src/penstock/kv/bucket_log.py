"""Which log a bucket is, as its handle knows it, for the versions that writes return.

An ack says a sequence, not of which log. The handle asks when it is opened, and again after an ack
that cannot be of the log it knows (its sequence is not above all that were seen) or that comes more
than `LOG_SECONDS` after it last asked. So a version names the log it is of, unless the bucket was
recreated within that time and has more records than the handle has seen. Of one event loop.
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
    """Made with the reply to STREAM.INFO or STREAM.CREATE; see `learn`."""

    def __init__(self, bucket: str, requests: Requests) -> None:
        self._stream = stream_of(bucket)
        self._requests = requests
        self._highest = 0
        self._asked_at = -LOG_SECONDS
        self.identity = ""
        """Empty while it is not known."""

    async def version(self, seq: int) -> WriteVersion:
        """The version of a write that the server acknowledged with this sequence."""
        is_old = time.monotonic() - self._asked_at >= LOG_SECONDS
        if is_old or seq <= self._highest:
            await self._ask()
        self._highest = max(self._highest, seq)
        return WriteVersion.in_log(seq, self.identity)

    async def _ask(self) -> None:
        """The write was made: a server that does not reply makes the log unknown, no error."""
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
