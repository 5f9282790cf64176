"""The call path of the API: one reply to each request, whatever its handler does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.advisories import ClientInfo
from penstock.api.responses import StreamCreateResponse, StreamNamesResponse
from penstock.base.effects import Send
from penstock.jetstream.endpoints import Endpoint, Endpoints, Request
from support_archives import START_NS, account

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.jetstream.endpoints import Call, Outcome


class Port:
    """Collects what the API sends and what it reports."""

    def __init__(self) -> None:
        self.performed: list[Effect] = []
        self.failures: list[tuple[str, Exception]] = []

    def perform(self, effects: list[Effect]) -> None:
        self.performed += effects

    def failed(self, request: Request, error: Exception) -> None:
        self.failures.append((request.subject, error))

    def describe_client(self, request: Request) -> ClientInfo:
        return ClientInfo()

    @property
    def replies(self) -> list[dict[str, Any]]:
        sent = [effect for effect in self.performed if isinstance(effect, Send)]
        assert all(effect.subject == "inbox" for effect in sent)
        return [json.loads(effect.payload) for effect in sent]


def raising(_call: Call) -> Outcome:
    raise OverflowError("too large for C")


def unwritable(_call: Call) -> Outcome:
    not_text: Any = object()
    return StreamNamesResponse(streams=(not_text,))


@pytest.mark.parametrize("handler", [raising, unwritable])
def test_handler_that_raises_is_answered_with_500_and_reported(handler: Any) -> None:
    assets = account()
    port: Any = Port()
    table = {"STREAM.CREATE": Endpoint(StreamCreateResponse, handler, 1, 1)}
    endpoints = Endpoints(assets, port, table)

    endpoints.handle(Request("$JS.API.STREAM.CREATE.S", "inbox", b"", b"{}"), START_NS)

    (reply,) = port.replies
    assert (reply["error"]["code"], reply["error"]["err_code"]) == (500, 10051)
    assert reply["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    ((subject, _error),) = port.failures
    assert subject == "$JS.API.STREAM.CREATE.S"
    assert (assets.api_total, assets.api_errors) == (1, 1)
    assert len(port.performed) == 2  # the reply, and the audit event that shows it
