"""/healthz: whether the server can serve clients, with a matching status code.

Requests about JetStream assets are validated. A server without JetStream replies to them like a
reference server without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.server.jetstream.runtime import JetStreamRuntime
    from penstock.server.monitor.query_string import Query
    from penstock.server.server_state import ServerState

UNSERVED_LISTED_MAX: Final = 8
"""Unavailable streams and consumers listed in the page; the log lists all."""


class HealthOptions(Struct, frozen=True, kw_only=True):
    """Parameters of an HTTP or system request."""

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


class HealthError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem, and the affected asset."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: str
    status_code: int = 0  # in system requests only; HTTP has its own status
    error: str = ""
    errors: tuple[HealthError, ...] = ()


def healthz(service: ServerState, options: HealthOptions) -> tuple[int, Health]:
    """Return the HTTP status and the body."""
    if options.stream and not options.account:
        return _bad(options, '"account" must not be empty when checking stream health')
    if options.consumer and not options.stream:
        return _bad(options, '"stream" must not be empty when checking consumer health')
    if service.lame_duck:
        closed = ["websocket"] if service.options.websocket is not None else []
        names = ", ".join([*closed, "server"])
        text = f"failed to be ready for connections after 1ms: {names}"
        return 500, _unwell(options, "CONNECTION", text)
    problem = _jetstream_problem(service, options)
    if problem is not None:
        return problem
    return 200, Health(status="ok")


def _jetstream_problem(service: ServerState, options: HealthOptions) -> tuple[int, Health] | None:
    """Return the problem of JetStream or of the requested asset, or None."""
    runtime = service.jetstream
    if runtime is None:
        return None
    if not options.account:
        return _broken_store(runtime, options)
    account, stream, consumer = options.account, options.stream, options.consumer
    if account not in runtime.accounts:
        return _missing(options, "ACCOUNT", f'JetStream account "{account}" not found')
    if not stream:
        return None
    host = runtime.accounts[account].assets.hosts.get(stream)
    if host is None:
        text = f'JetStream stream "{stream}" not found on account "{account}"'
        return _missing(options, "STREAM", text)
    if consumer and consumer not in host.consumers:
        text = (
            f'JetStream consumer "{consumer}" not found for stream "{stream}"'
            f' on account "{account}"'
        )
        return _missing(options, "CONSUMER", text)
    return None


def _broken_store(runtime: JetStreamRuntime, options: HealthOptions) -> tuple[int, Health] | None:
    """Return a problem if a stream cannot be written or read."""
    if options.js_enabled_only or options.js_server_only or options.js_meta_only:
        return None
    if runtime.unserved:
        return _missing(options, "STREAM", _unserved_text(runtime.unserved), 503)
    for account in runtime.accounts.values():
        for host in account.assets:
            hindrance = host.hindrance
            if hindrance is not None:
                text = f"JetStream stream '{account.name} > {host.name}' failed: {hindrance}"
                return _missing(options, "STREAM", text, 503)
    return None


def _unserved_text(unserved: list[str]) -> str:
    listed = "; ".join(unserved[:UNSERVED_LISTED_MAX])
    more = len(unserved) - UNSERVED_LISTED_MAX
    return f"JetStream can not serve {listed}" + (f"; and {more} more" if more > 0 else "")


def _missing(options: HealthOptions, kind: str, text: str, code: int = 404) -> tuple[int, Health]:
    if options.details:
        found = HealthError(
            type=kind,
            account=options.account,
            stream=options.stream,
            consumer=options.consumer,
            error=text,
        )
        return code, Health(status="error", errors=(found,))
    return code, Health(status="unavailable", error=text)


def _bad(options: HealthOptions, text: str) -> tuple[int, Health]:
    return 400, _unwell(options, "BAD_REQUEST", text)


def _unwell(options: HealthOptions, kind: str, text: str) -> Health:
    if options.details:
        return Health(status="error", errors=(HealthError(type=kind, error=text),))
    return Health(status="error", error=text)
