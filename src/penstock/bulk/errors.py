"""Why a bulk read failed: the way to the server, the server's refusal, or what the stream lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: JetStream is there but not ready, as after a restart.
UNAVAILABLE = 503
STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
NO_MESSAGE_FOUND = 10037


class BulkError(Exception):
    """The root of what this package raises."""


class ConnectFailed(BulkError):
    """No server could be reached, or none would have us."""


class AccessDenied(ConnectFailed):
    """The server does not accept our credentials."""


class LinkLost(BulkError):
    """The connection ended."""


class AnswerLate(BulkError):
    """A request was not answered in time."""


class NoResponders(BulkError):
    """Nobody serves the request: no JetStream here, or none yet."""


class NotPermitted(BulkError):
    """The server's permissions keep us from asking, or from hearing the answer."""


class Closed(BulkError):
    """Who was asked is not open: not yet, or no longer."""


class Refused(BulkError):
    """JetStream said no. `err_code` tells why, 0 if the server gave none."""

    def __init__(self, description: str, *, code: int = 0, err_code: int = 0) -> None:
        super().__init__(f"{description} ({err_code or code})")
        self.description = description
        self.code = code
        self.err_code = err_code

    @classmethod
    def said(cls, error: Mapping[str, Any]) -> Refused:
        """As the `error` of an answer tells it."""
        words = error.get("description", "")
        return cls(words, code=error.get("code", 0), err_code=error.get("err_code", 0))


class Evicted(BulkError):
    """The stream begins at `first_seq`; what was wanted from `wanted` on is gone."""

    def __init__(self, stream: str, *, wanted: int, first_seq: int) -> None:
        super().__init__(f"stream {stream} begins at {first_seq}, {wanted} was wanted")
        self.stream = stream
        self.wanted = wanted
        self.first_seq = first_seq


def may_pass(error: BulkError) -> bool:
    """Whether trying again may help: the server is away, or not ready yet."""
    if isinstance(error, AccessDenied):
        return False
    if isinstance(error, Refused):
        return error.code == UNAVAILABLE
    return isinstance(error, LinkLost | ConnectFailed | AnswerLate | NoResponders)
