"""The call path of the API: one reply to each request, whatever its handler does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.advisories import AdvisoryClient
from penstock.api.api_subjects import API_AUDIT
from penstock.api.responses import StreamCreateResponse, StreamNamesResponse
from penstock.base.effects import Send
from penstock.jetstream.account.endpoints import Endpoint, Endpoints, Request
from support.archives import START_NS, account

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.jetstream.account.endpoints import ApiCall, Outcome, Steps


class Port:
    """Collects what the API sends and what it reports."""

    def __init__(self) -> None:
        self.performed: list[Effect] = []
        self.failures: list[tuple[str, Exception]] = []

    def perform(self, effects: list[Effect]) -> None:
        self.performed += effects

    def failed(self, request: Request, error: Exception) -> None:
        self.failures.append((request.subject, error))

    def describe_client(self, request: Request) -> AdvisoryClient:
        return AdvisoryClient()

    @property
    def replies(self) -> list[dict[str, Any]]:
        sent = [effect for effect in self.performed if isinstance(effect, Send)]
        assert all(effect.subject == "inbox" for effect in sent)
        return [json.loads(effect.payload) for effect in sent]


def raising(_call: ApiCall) -> Outcome:
    raise OverflowError("too large for C")


def unwritable(_call: ApiCall) -> Outcome:
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


def steps(call: ApiCall) -> Steps:
    """Two steps, then what the body says."""
    yield None
    yield None
    if call.request.body == b"raise":
        raise OverflowError("too large for C")
    return StreamCreateResponse()


def stepped(body: bytes = b"", host: Any = None) -> tuple[Any, Any]:
    assets = account()
    if host is not None:
        assets.hosts["S"] = host
    port: Any = Port()
    table = {"STREAM.CREATE": Endpoint(StreamCreateResponse, steps, 1, 1)}
    running = Endpoints(assets, port, table).handle(
        Request("$JS.API.STREAM.CREATE.S", "inbox", b"", body), START_NS
    )
    return port, running


def test_handler_that_works_in_steps_answers_after_the_last() -> None:
    port, running = stepped()
    assert next(running) is None
    assert next(running) is None
    assert port.performed == []
    assert next(running, "over") == "over"
    assert len(port.replies) == 1


def test_step_that_raises_is_answered_with_500_and_reported() -> None:
    port, running = stepped(b"raise")
    assert list(running) == [None, None]
    (reply,) = port.replies
    assert reply["error"]["code"] == 500
    assert len(port.failures) == 1


def test_stream_closed_between_two_steps_is_not_found() -> None:
    class Host:
        is_closed = False

    host = Host()
    port, running = stepped(host=host)
    next(running)
    host.is_closed = True
    assert list(running) == []
    (reply,) = port.replies
    assert reply["error"]["err_code"] == 10059


def test_closed_steps_answer_nothing() -> None:
    port, running = stepped()
    next(running)
    running.close()
    assert port.performed == []


@pytest.mark.parametrize("listening", [(), ("inbox",), (API_AUDIT,), ("inbox", API_AUDIT)])
def test_only_received_events_are_built(
    listening: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = account()
    heard: list[bool] = []
    environment = replace(
        assets.environment, has_interest=lambda subject, _queue: subject in listening
    )
    monkeypatch.setattr(assets, "environment", environment)

    def handler(call: ApiCall) -> Outcome:
        heard.append(call.has_reader)
        return StreamNamesResponse()

    port: Any = Port()
    table = {"STREAM.NAMES": Endpoint(StreamNamesResponse, handler)}
    Endpoints(assets, port, table).handle(Request("$JS.API.STREAM.NAMES", "inbox", b"", b""), 1)
    assert heard == [bool(listening)]
    assert len(port.performed) == len(listening)
    assert assets.api_total == 1
