"""Error codes that clients compare with, taken from the catalogue of refusals.

Clients (bulk, kv, spark, cli) decide by code whether to retry or how to name a failure. They use
these names, so that a code is written once, in `refusals`.
"""

from typing import Final

from penstock.api import refusals

ACCOUNT_WITHOUT_JETSTREAM: Final = refusals.NOT_ENABLED_FOR_ACCOUNT.err_code
BATCH_INCOMPLETE: Final = refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code
BATCH_TOO_LARGE: Final = refusals.ATOMIC_PUBLISH_TOO_LARGE_BATCH.err_code
CONSUMER_NOT_FOUND: Final = refusals.CONSUMER_NOT_FOUND.err_code
MESSAGE_TOO_LARGE: Final = refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code
NO_MESSAGE_FOUND: Final = refusals.NO_MESSAGE_FOUND.err_code
STREAM_NAME_IN_USE: Final = refusals.STREAM_NAME_EXIST.err_code
STREAM_NOT_FOUND: Final = refusals.STREAM_NOT_FOUND.err_code
WRONG_LAST_MSG_ID: Final = refusals.STREAM_WRONG_LAST_MSG_ID.err_code

WRONG_LAST_SEQUENCE: Final = frozenset(
    {
        refusals.STREAM_WRONG_LAST_SEQUENCE.err_code,
        refusals.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
    }
)
#: The stream accepts no further consumer, or none without explicit acks.
NO_CONSUMER: Final = frozenset(
    {
        refusals.MAXIMUM_CONSUMERS_LIMIT.err_code,
        refusals.CONSUMER_PULL_REQUIRES_ACK.err_code,
    }
)
_NO_LEADER: Final = frozenset(
    {refusals.CLUSTER_NOT_AVAIL.err_code, refusals.CLUSTER_NOT_LEADER.err_code}
)
#: A publish that failed with one of these may succeed when it is repeated.
PUBLISH_RETRIABLE: Final = _NO_LEADER | {
    refusals.INSUFFICIENT_RESOURCES.err_code,
    refusals.STREAM_DUPLICATE_MESSAGE_CONFLICT.err_code,
    refusals.STREAM_TOO_MANY_REQUESTS.err_code,
}
#: The same for an atomic batch: the server dropped it, or too many are in flight.
BATCH_RETRIABLE: Final = _NO_LEADER | {
    refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code,
    refusals.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.err_code,
    refusals.STREAM_TOO_MANY_REQUESTS.err_code,
}
