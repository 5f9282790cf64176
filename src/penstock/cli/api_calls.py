"""The JetStream API for commands: takes a subject and a document, returns a document.

Documents are passed on as the server sent them, so that fields unknown to this version are neither
lost from the output nor from what is sent back. A refusal is raised as `RequestRefused` with the
server's code; a missing reply and missing JetStream have their own messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_client import (
    ApiClient,
    Document,
    MalformedReply,
    read_message,
    read_reply,
)
from penstock.api.refusals import ApiError
from penstock.cli.cli_errors import Failure, Misuse, RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

NO_STREAM: Final = "no stream takes that subject"
#: Characters that cannot be in one token of a subject or in a file name.
_BAD_NAME: Final = re.compile(r"[\s.*>/\\]")


def checked_name(name: str, what: str) -> str:
    """Return the name if it can be one token of a subject; raise Misuse otherwise."""
    if not name or _BAD_NAME.search(name):
        raise Misuse(f"{name!r} is not a name for a {what}: no blanks and none of . * > / \\")
    return name


@dataclass(frozen=True, slots=True)
class FetchedMessage:
    """A message as stored in a stream."""

    subject: str
    seq: int
    time: str
    headers: dict[str, str]
    data: bytes


class Api:
    """Requests to one JetStream domain."""

    def __init__(self, client: Client, prefix: str, seconds: float) -> None:
        self.client = client
        self.prefix = prefix
        self.seconds = seconds
        self._api = ApiClient(prefix=prefix)

    async def call(
        self, name: str, body: Mapping[str, Any] | None = None, *, seconds: float = 0
    ) -> Document:
        """Send a request and return the reply without its `type`; raise errors."""
        request = self._api.request(name, body)
        message = await self._ask(request.subject, request.payload, seconds=seconds)
        return read_answer(message.data)

    async def pages(
        self, name: str, key: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Any]:
        """Yield every member of a list that comes in pages."""
        offset = 0
        while True:
            answer = await self.call(name, {**(body or {}), "offset": offset})
            page = answer.get(key) or []
            for one in page:
                yield one
            offset += len(page)
            if not page or offset >= answer.get("total", 0):
                return

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> Document:
        """Publish to a stream and wait until it is stored."""
        message = await self._ask(subject, payload, headers=headers, missing=NO_STREAM)
        return read_answer(message.data)

    async def ack_from(self, inbox: Subscription) -> Document:
        """Return the next publish acknowledgement that arrives on a subscribed inbox."""
        from nats.errors import TimeoutError

        try:
            message = await inbox.next_msg(self.seconds)
        except TimeoutError:
            raise Failure(f"no answer within {self.seconds:g} s") from None
        if not message.data and (message.headers or {}).get("Status") == "503":
            raise Failure(NO_STREAM)
        return read_answer(message.data)

    async def message(self, stream: str, query: Mapping[str, Any]) -> FetchedMessage:
        """Return one stored message, by sequence or subject."""
        found = read_message(await self.call(f"STREAM.MSG.GET.{stream}", query))
        return FetchedMessage(
            found.subject, found.seq, found.time, _headers(found.header), found.payload
        )

    async def _ask(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = 0,
        missing: str = "",
    ) -> Msg:
        from nats.errors import NoRespondersError, TimeoutError

        wait = seconds or self.seconds
        try:
            return await self.client.request(
                subject, payload, timeout=wait, headers=dict(headers) if headers else None
            )
        except NoRespondersError:
            raise Failure(missing or "JetStream is not served there") from None
        except TimeoutError:
            raise Failure(f"no answer within {wait:g} s") from None


def read_answer(raw: bytes) -> Document:
    """Return the document in a reply, without its `type`; raise a refusal."""
    try:
        answer = read_reply(raw)
    except MalformedReply as error:
        raise Failure(str(error)) from None
    except ApiError as error:
        raise RequestRefused(error) from None
    answer.pop("type", None)
    return answer


def _headers(raw: bytes) -> dict[str, str]:
    """Return names and values of a header block, without its first line."""
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    parted = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in parted}
