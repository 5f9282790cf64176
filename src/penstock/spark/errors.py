"""Errors of the Spark sources, with texts that name the option or action that helps.

Driver and tasks convert every `BulkError` a user can act on to a `SourceError` here. `lost` builds
the error for data loss, which an option may allow. Invariant: no text contains a secret.
"""

from __future__ import annotations

from penstock.api.error_codes import ACCOUNT_WITHOUT_JETSTREAM, STREAM_NOT_FOUND
from penstock.bulk.errors import (
    AccessDenied,
    BulkError,
    ConnectFailed,
    ConnectionLost,
    NoResponders,
    NotPermitted,
    Refused,
    ReplyTimeout,
)


class SourceError(Exception):
    """A read that cannot continue; the text names the remedy."""


class DataLoss(SourceError):
    """The stream removed messages before the query read them."""


def lost(what: str) -> DataLoss:
    return DataLoss(
        f"{what}. Set failOnDataLoss to false to go on with what is there, or start again with "
        "another checkpointLocation"
    )


def explained(error: BulkError, stream: str) -> SourceError:
    """Convert an error of the bulk client to one that refers to options."""
    return SourceError(_words(error, stream))


def _words(error: BulkError, stream: str) -> str:
    if isinstance(error, AccessDenied):
        return f"{error}: check user, password, token, creds or nkeySeed"
    if isinstance(error, ConnectFailed):
        return f"no server could be reached: {error}. Check url, and whether the server runs"
    if isinstance(error, NoResponders):
        return (
            f"no JetStream responder for stream {stream}: JetStream is off on this server, or "
            "domain or apiPrefix is wrong"
        )
    if isinstance(error, NotPermitted):
        return f"stream {stream} cannot be read: {error}. Give this user that permission"
    if isinstance(error, ReplyTimeout):
        return f"stream {stream}: {error}. Raise requestTimeoutMs if the server is only slow"
    if isinstance(error, ConnectionLost):
        return (
            f"stream {stream}: the connection was lost ({error}) and the server did not come back "
            "in time. Raise retries or reconnectTimeoutMs to wait for longer"
        )
    if isinstance(error, Refused):
        return _refusal(error, stream)
    return f"stream {stream}: {error}"


def _refusal(error: Refused, stream: str) -> str:
    if error.err_code == STREAM_NOT_FOUND:
        return (
            f"there is no stream {stream} in this account: check stream, domain and the "
            "credentials, which choose the account"
        )
    if error.err_code == ACCOUNT_WITHOUT_JETSTREAM:
        return f"this account has no JetStream, so no stream {stream}: check the credentials"
    return f"the server refused to read stream {stream}: {error}"
