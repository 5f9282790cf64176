"""MessageTrace: records what happens to one message on this server and publishes the result.

A trace collects events in order: `in` (received), `sm` (mapped), `si` (passed to a service of
another account), `se` (passed to a subscriber of another account), `js` (passed to a stream), `eg`
(passed to a client). Types, fields and texts are the reference's, so that `nats trace` can read
them. Internal receivers run after the data path, so the trace counts them with `hold` and
`release`; the last one publishes it.

Only messages whose header requests it have a trace. The router has a separate traced data path;
the normal one never calls a trace.
"""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.server.net.refusal_log import publish_violation, reply_violation
from penstock.wire import headers
from penstock.wire.trace_headers import ACCEPT_ENCODING, DEST, DISABLED

if TYPE_CHECKING:
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.connect_info import ConnectOptions
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account
    from penstock.wire.trace_headers import TraceRequest

TRACE_EVENTS_MAX: Final = 4096
"""Per trace; a message to more receivers is delivered to all, but the trace omits some."""
CLIENT_KIND: Final = 0
API_PREFIX: Final = "$JS.API."
UNTRACED_API: Final = ("$JS.API.DIRECT.GET.", "$JS.API.CONSUMER.MSG.NEXT.")
"""Requests that go directly to their stream or consumer."""

DUPLICATE: Final = "msgid is duplicate"
TOO_LARGE: Final = "maximum payload exceeded"


def disabled(header: bytes) -> bytes:
    """Return the header block changed so that no receiver traces the message again."""
    return headers.added(headers.without(header, DEST), DEST, DISABLED)


class TracePublisher(Protocol):
    """The session of the client that published the message."""

    service: ServerState
    account: Account
    options: ConnectOptions
    cid: int


class MessageTrace:
    """One traced message."""

    def __init__(
        self, session: TracePublisher, dest: str, request: TraceRequest, subject: str, size: int
    ) -> None:
        self._service: Final[ServerState] = session.service
        self._account: Final[Account] = session.account
        self.dest: Final = dest
        self.only: Final = request.is_only
        self._request: Final = {"header": request.headers, "msgsize": size}
        self._encoding: Final = request.first(ACCEPT_ENCODING).lower()
        self._pending = 1
        self._is_dropped = False
        self._events: list[dict[str, Any]] = []
        self._ingress = self._add(
            "in",
            kind=CLIENT_KIND,
            cid=session.cid,
            name=session.options.name or None,
            acc=self._account.name,
            subj=subject,
            error=None,
        )

    def _add(self, event_type: str, /, **fields: object) -> dict[str, Any]:
        """Append an event; fields that are None are omitted."""
        event: dict[str, Any] = {"type": event_type, "ts": time.time_ns(), **fields}
        if len(self._events) < TRACE_EVENTS_MAX:
            self._events.append(event)
        return event

    # -- events, recorded by the link and the router

    def refused_publish(self, subject: str) -> None:
        self._ingress["error"] = publish_violation(subject).err_text

    def refused_reply(self, reply: str) -> None:
        self._ingress["error"] = reply_violation(reply).err_text

    def refused_size(self) -> None:
        self._ingress["error"] = TOO_LARGE

    def mapped(self, subject: str) -> None:
        self._add("sm", to=subject)

    def egress(self, link: ClientLink, subject: str, queue: str | None, error: str | None) -> None:
        session: Any = link.handler
        home = session.account.name
        self._add(
            "eg",
            kind=CLIENT_KIND,
            cid=link.cid,
            name=session.options.name or None,
            acc=home if home != self._account.name else None,
            sub=subject,
            queue=queue,
            error=error,
        )

    def service_import(self, account: str, subject: str, to: str) -> None:
        self._add("si", acc=account, **{"from": subject}, to=to)

    def stream_export(self, account: str, to: str) -> None:
        self._add("se", acc=account, to=to)

    def jetstream(
        self, stream: str, *, subject: str = "", no_interest: bool = False, error: str = ""
    ) -> None:
        self._add(
            "js",
            stream=stream,
            subject=subject or None,
            nointerest=no_interest or None,
            error=error or None,
        )

    def drop(self) -> None:
        """Do not send the trace: as in the reference, a message staged in a batch has none."""
        self._is_dropped = True

    # -- internal receivers

    def hold(self) -> None:
        """Count one more receiver that will run later."""
        self._pending += 1

    def hop(
        self,
        target: object,
        call: Any,
        to: str | None,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        """Run one internal receiver; `to` is its first argument unless None."""
        message = (subject, reply, header, payload, source)
        traced: Any = getattr(target, "traced", None)
        try:
            if traced is not None:
                traced(self, to, *message)
            elif subject.startswith(API_PREFIX) and not subject.startswith(UNTRACED_API):
                self._ask_api(call, to, *message)
            elif not self.only:
                _run(call, to, *message)
        finally:
            self.release()

    def _ask_api(
        self,
        call: Any,
        to: str | None,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        """Call the JetStream API; it belongs to the system account, which is never traced."""
        self.service_import(self._service.system_account, subject, subject)
        if not self.only:
            _run(call, to, subject, reply, disabled(header), payload, source)
        elif source is not None:
            source.reply_no_responders(subject, reply)

    def release(self) -> None:
        """Record that a receiver or the data path has finished; the last one sends the trace."""
        self._pending -= 1
        if self._pending == 0:
            self._send()

    def _send(self) -> None:
        from penstock.server.monitor.page_values import compact, timestamp

        system = self._service.system
        if system is None or self._is_dropped:
            return
        events = [
            {name: value for name, value in event.items() if value is not None}
            for event in self._events
        ]
        for event in events:
            event["ts"] = timestamp(event["ts"])
        err_text = {"server": system.identity(), "request": self._request, "events": events}
        header, payload = _encoded(compact(err_text), self._encoding)
        self._service.io_loop.post(self._account.interest, self.dest, payload, "", header)


def _run(call: Any, to: str | None, *message: object) -> None:
    if to is None:
        call(*message)
    else:
        call(to, *message)


def _encoded(payload: bytes, accepted: str) -> tuple[bytes, bytes]:
    """Return header and payload, compressed if the requester accepts that."""
    if "snappy" in accepted or "s2" in accepted:
        from penstock.records.s2_stream import snappy_frames

        return b"NATS/1.0\r\nContent-Encoding: snappy\r\n\r\n", snappy_frames(payload)
    if "gzip" in accepted:
        return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(payload)
    return b"", payload
