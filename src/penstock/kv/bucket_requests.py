"""Sends the requests of a bucket with nats-py: publishes with acks, reads, and JSON API calls.

A rejection by the server is returned as an `ApiReply` with a code, because its meaning depends on
the caller. A disconnected client, a timeout and a request without responders raise errors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from penstock.api.api_client import ApiClient, read_message, read_reply
from penstock.api.error_codes import MESSAGE_TOO_LARGE, NO_MESSAGE_FOUND, STREAM_NOT_FOUND
from penstock.api.refusals import ApiError
from penstock.kv.client_errors import refused
from penstock.kv.errors import NotConnected, OperationFailed, OperationTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client

ANSWER_SECONDS: Final = 30.0
STATUS_NOT_FOUND: Final = "404"


class StoredRecord(Struct, frozen=True):
    """The newest record of a subject."""

    seq: int
    header: bytes
    payload: bytes


class ApiReply(Struct, frozen=True):
    """A reply of the JSON API. `code` is 0 on success, else the server's error code."""

    document: dict[str, Any]
    code: int = 0
    description: str = ""


class Requests:
    """The requests of one bucket."""

    def __init__(self, client: Client, bucket: str, domain: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._api = ApiClient(domain)
        #: The local account may have a bucket of the same name, so every write names the domain.
        self._written = f"{self._api.prefix}." if domain else ""

    async def call(
        self,
        subject: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> ApiReply:
        """Send a JSON API request and return the reply, which may be a rejection."""
        from nats.errors import NoRespondersError

        request = self._api.request(subject, body)
        try:
            reply = await self._request(request.subject, request.payload, headers)
            return _answer(reply.data)
        except NoRespondersError:
            reason = "the server has no JetStream, or not yet"
            raise OperationFailed(reason, bucket=self._bucket) from None

    async def demand(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a JSON API request and raise if the server rejects it."""
        answer = await self.call(subject, body)
        if answer.code:
            raise refused(answer.description, answer.code, self._bucket)
        return answer.document

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> ApiReply:
        """Publish a record; the reply contains its sequence."""
        from nats.errors import NoRespondersError

        try:
            message = await self._request(self._written + subject, payload, dict(headers) or None)
        except NoRespondersError:  # no stream has this subject: the bucket was deleted
            raise refused("", STREAM_NOT_FOUND, self._bucket) from None
        return _answer(message.data)

    async def newest(self, stream: str, subject: str, *, direct: bool) -> StoredRecord | None:
        """Return the newest record of a subject; `direct` allows a reply from any replica."""
        from nats.errors import NoRespondersError

        if direct:
            with contextlib.suppress(NoRespondersError):
                return await self._newest_direct(stream, subject)
        answer = await self.call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        if answer.code == NO_MESSAGE_FOUND:
            return None
        if answer.code:
            raise refused(answer.description, answer.code, self._bucket)
        message = read_message(answer.document)
        return StoredRecord(message.seq, message.header, message.payload)

    async def _newest_direct(self, stream: str, subject: str) -> StoredRecord | None:
        message = await self._request(f"{self._api.prefix}.DIRECT.GET.{stream}.{subject}", b"")
        header = dict(message.headers or {})
        if header.get("Status"):
            if header["Status"] == STATUS_NOT_FOUND:
                return None
            raise OperationFailed(header.get("Description", ""), bucket=self._bucket)
        lines = "".join(f"{name}: {value}\r\n" for name, value in header.items())
        block = f"NATS/1.0\r\n{lines}\r\n".encode()
        return StoredRecord(int(header["Nats-Sequence"]), block, message.data)

    async def _request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Any:
        from nats.errors import Error, MaxPayloadError, NoRespondersError
        from nats.errors import TimeoutError as LateError

        if not self._client.is_connected:
            raise NotConnected("the client is not connected", bucket=self._bucket)
        try:
            return await self._client.request(
                subject, payload, timeout=ANSWER_SECONDS, headers=headers
            )
        except NoRespondersError:
            raise
        except (LateError, TimeoutError):
            raise OperationTimeout(
                f"no answer within {ANSWER_SECONDS:g} s", bucket=self._bucket
            ) from None
        except MaxPayloadError as error:
            raise OperationFailed(
                str(error), code=MESSAGE_TOO_LARGE, bucket=self._bucket
            ) from error
        except (Error, OSError) as error:
            raise OperationFailed(str(error), bucket=self._bucket) from error


def _answer(data: bytes) -> ApiReply:
    try:
        return ApiReply(read_reply(data))
    except ApiError as error:
        return ApiReply({}, error.err_code or error.code, error.description)
