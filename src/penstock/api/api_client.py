"""The one client of the JetStream JSON API, without IO: requests and replies as values.

`ApiClient` builds the subject and body of a request; `read_reply` decodes a reply. The caller sends
the request over its own connection (nats-py, the bulk connection, a raw socket), waits for the
reply with its own timeout, and maps `ApiError` to its own errors. Used by bulk, kv, cli and bench.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.api.api_subjects import API, domain_api
from penstock.api.refusals import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

Document = dict[str, Any]


class ApiRequest(NamedTuple):
    """What to publish with a reply subject."""

    subject: str
    payload: bytes


class MalformedReply(ValueError):
    """The reply is not a JSON object."""


class RawMessage(NamedTuple):
    """A stored message as STREAM.MSG.GET returns it."""

    subject: str
    seq: int
    time: str
    header: bytes
    payload: bytes


class ApiClient:
    """Requests below one API prefix: the account's own API, a domain's, or a mapped one."""

    def __init__(self, domain: str = "", prefix: str = "") -> None:
        self.prefix = prefix or (domain_api(domain) if domain else API)

    def request(self, name: str, body: Mapping[str, Any] | None = None) -> ApiRequest:
        """Build the request `<prefix>.<name>`; the payload is empty without a body."""
        payload = b"" if body is None else json.dumps(body).encode()
        return ApiRequest(f"{self.prefix}.{name}", payload)

    def consumer_create(self, stream: str, config: Mapping[str, Any]) -> ApiRequest:
        """Build the request that creates a named consumer.

        The subject contains the filter if there is one, so that permissions can restrict it.
        """
        name = f"CONSUMER.CREATE.{stream}.{config['name']}"
        if config.get("filter_subject"):
            name += f".{config['filter_subject']}"
        body = {"stream_name": stream, "config": dict(config), "action": "create"}
        return self.request(name, body)


def read_reply(raw: bytes) -> Document:
    """Decode a reply. Raises `ApiError` for a refusal and `MalformedReply` for anything else."""
    try:
        document = json.loads(raw)
    except ValueError:
        raise MalformedReply("the reply is not JSON") from None
    if not isinstance(document, dict):
        raise MalformedReply("the reply is not a JSON object")
    error = document.get("error")
    if error:
        raise ApiError(
            int(error.get("code", 0)),
            int(error.get("err_code", 0)),
            str(error.get("description", "")),
        )
    return document


def read_message(document: Document) -> RawMessage:
    """Return the message in a reply to STREAM.MSG.GET."""
    message = document["message"]
    return RawMessage(
        message["subject"],
        int(message["seq"]),
        message["time"],
        base64.b64decode(message.get("hdrs", "")),
        base64.b64decode(message.get("data", "")),
    )
