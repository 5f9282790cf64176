"""/healthz: whether clients can be served, with the status code that says so.

There is no JetStream to judge; questions about its assets are checked for sense and then answered
as a server without it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.server.monitor.query import Query
    from penstock.server.service import Service


class HealthOptions(Struct, frozen=True, kw_only=True):
    """What is asked, over HTTP or in a system request."""

    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    @classmethod
    def from_query(cls, query: Query) -> HealthOptions:
        return cls(
            js_enabled_only=query.flag("js-enabled-only") or query.flag("js-enabled"),
            js_server_only=query.flag("js-server-only"),
            js_meta_only=query.flag("js-meta-only"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
            details=query.flag("details"),
        )


class HealthError(Struct, frozen=True):
    type: str
    error: str


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: str
    status_code: int = 0  # in system requests only: HTTP has a place for it
    error: str = ""
    errors: tuple[HealthError, ...] = ()


def healthz(service: Service, options: HealthOptions) -> tuple[int, Health]:
    """The HTTP status, and the body."""
    if options.stream and not options.account:
        return _bad(options, '"account" must not be empty when checking stream health')
    if options.consumer and not options.stream:
        return _bad(options, '"stream" must not be empty when checking consumer health')
    if service.lame_duck:
        closed = ["websocket"] if service.options.websocket is not None else []
        names = ", ".join([*closed, "server"])
        text = f"failed to be ready for connections after 1ms: {names}"
        return 500, _unwell(options, "CONNECTION", text)
    return 200, Health(status="ok")


def _bad(options: HealthOptions, text: str) -> tuple[int, Health]:
    return 400, _unwell(options, "BAD_REQUEST", text)


def _unwell(options: HealthOptions, kind: str, text: str) -> Health:
    if options.details:
        return Health(status="error", errors=(HealthError(kind, text),))
    return Health(status="error", error=text)
