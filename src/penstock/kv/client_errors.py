"""Maps errors of the bulk reader and server error codes to the errors of `penstock.kv.errors`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.api.error_codes import STREAM_NOT_FOUND
from penstock.bulk import errors as bulk
from penstock.kv.errors import (
    BucketNotFound,
    ConnectionFailed,
    KvError,
    OperationFailed,
    OperationTimeout,
    WatchError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def named(error: bulk.BulkError, bucket: str) -> KvError:
    """Return the `penstock.kv.errors` equivalent of a bulk reader error."""
    if isinstance(error, bulk.Refused):
        return refused(error.description, error.err_code or error.code, bucket)
    if isinstance(error, bulk.ConnectFailed):
        return ConnectionFailed(str(error), bucket=bucket)
    if isinstance(error, bulk.ReplyTimeout):
        return OperationTimeout(str(error), bucket=bucket)
    if isinstance(error, bulk.NoResponders):
        return OperationFailed("the server has no JetStream, or not yet", bucket=bucket)
    return WatchError(str(error), bucket=bucket)


def refused(description: str, code: int, bucket: str) -> KvError:
    if code == STREAM_NOT_FOUND:
        return BucketNotFound("there is no such bucket", bucket=bucket)
    return OperationFailed(description, code=code, bucket=bucket)


@contextlib.contextmanager
def by_name(bucket: str) -> Iterator[None]:
    """Convert bulk reader errors raised inside the block."""
    try:
        yield
    except bulk.BulkError as error:
        raise named(error, bucket) from error
