"""TraceIngress: decides whether a published message is traced, and starts the trace.

One part of the link's handler. The rules are the reference's: the destination must be a subject
that the client may publish to; a message that is only to be traced is never delivered, even if it
cannot be traced.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from penstock.base.text import go_quoted
from penstock.server.server_log import log
from penstock.server.system.message_trace import MessageTrace, disabled
from penstock.subjects.tokens import has_wildcard, is_valid_subject
from penstock.wire.trace_headers import ORIGIN_ACCOUNT, read_trace

if TYPE_CHECKING:
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.connect_info import ConnectOptions
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account, Guards
    from penstock.wire.trace_headers import TraceRequest

RESERVED: Final = ("_GR_.", "$NRG.")


class TraceIngress:
    """Called by the link; no method may raise."""

    service: ServerState
    link: ClientLink
    account: Account
    options: ConnectOptions
    cid: int
    guards: Guards | None

    def begin_trace(
        self, header: bytes, subject: str, size: int
    ) -> tuple[MessageTrace | None, bytes | None]:
        """Return the trace or None, and the header to publish with; header None: do not publish."""
        request = read_trace(header)
        if request is None:
            return None, header
        withheld = None if request.is_only else header
        origin = request.first(ORIGIN_ACCOUNT)
        if origin:
            log.error(
                '%s - Message tracing disabled because of header "%s" with value=%s',
                self,
                ORIGIN_ACCOUNT,
                go_quoted(origin),
            )
            return None, None if request.is_only else disabled(header)
        dest = self._destination(request)
        if dest is None:
            return None, header
        if not dest:
            return None, disabled(header)
        if not is_valid_subject(dest) or has_wildcard(dest):
            log.error(
                "%s - Destination %s is not valid, won't be able to trace events",
                self,
                go_quoted(dest),
            )
            return None, withheld
        if not self._may_trace_to(dest):
            self.publish_refused(dest)
            return None, None
        return MessageTrace(self, dest, request, subject, size), header

    def payload_exceeded(self, size: int, allowed: int, header: bytes, subject: str) -> None:
        """Log a message over `max_payload`; trace it if the received header lines request that.

        The message may be incomplete: only `Nats-Trace-Dest` counts, if its line was received.
        """
        self.service.violations.write(
            self, self.account.name, f"maximum payload exceeded: {size} vs {allowed}"
        )
        request = read_trace(header)
        if request is None or request.is_external or request.first(ORIGIN_ACCOUNT):
            return
        dest = request.dest
        if not is_valid_subject(dest) or has_wildcard(dest):
            return
        if not self._may_trace_to(dest):
            self.publish_refused(dest)
        else:
            trace = MessageTrace(self, dest, request, subject, size)
            trace.refused_size()
            trace.release()

    def publish_refused(self, subject: str) -> None:
        raise NotImplementedError

    def _destination(self, request: TraceRequest) -> str | None:
        """Return the trace destination; "": not sampled; None: the account has no destination."""
        if not request.is_external:
            return request.dest
        if not self.account.trace_dest:
            return None
        drawn = secrets.randbelow(100) < self.account.trace_sampling
        return self.account.trace_dest if drawn else ""

    def _may_trace_to(self, dest: str) -> bool:
        if dest.startswith(RESERVED[0]):
            return False
        if dest.startswith(RESERVED[1]) and self.account.name != self.service.system_account:
            return False
        return self.guards is None or self.guards.permissions.may_publish(dest)
