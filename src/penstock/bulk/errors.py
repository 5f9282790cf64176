"""Errors of the bulk client: connection failures, refusals by the server, evicted records."""

from __future__ import annotations

#: JetStream exists but is not ready, for example after a restart.
UNAVAILABLE = 503


class BulkError(Exception):
    """Base class of the errors this package raises."""


class ConnectFailed(BulkError):
    """No server was reachable, or none accepted the connection."""


class AccessDenied(ConnectFailed):
    """The server rejected the credentials."""


class ConnectionLost(BulkError):
    """The connection ended."""


class ReplyTimeout(BulkError):
    """No reply to a request arrived in time."""


class NoResponders(BulkError):
    """No subscriber serves the request: JetStream is disabled, or not ready yet."""


class NotPermitted(BulkError):
    """The server's permissions forbid the request, or the subscription to its reply."""


class Closed(BulkError):
    """The callee is not open yet, or already closed."""


class Refused(BulkError):
    """JetStream refused a request. `err_code` gives the reason, 0 if the server gave none."""

    def __init__(self, description: str, *, code: int = 0, err_code: int = 0) -> None:
        super().__init__(f"{description} ({err_code or code})")
        self.description = description
        self.code = code
        self.err_code = err_code


class Evicted(BulkError):
    """The stream begins at `first_seq`; records from `wanted` up to it were removed."""

    def __init__(self, stream: str, *, wanted: int, first_seq: int) -> None:
        super().__init__(f"stream {stream} begins at {first_seq}, {wanted} was wanted")
        self.stream = stream
        self.wanted = wanted
        self.first_seq = first_seq


def may_pass(error: BulkError) -> bool:
    """Return True if a retry may help: the server is unreachable, or not ready yet."""
    if isinstance(error, AccessDenied):
        return False
    if isinstance(error, Refused):
        return error.code == UNAVAILABLE
    return isinstance(error, ConnectionLost | ConnectFailed | ReplyTimeout | NoResponders)
