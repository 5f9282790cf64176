"""Bulk client: reads and publishes stream records as columns, with compiled wire code."""

from penstock.bulk.blocking_publisher import BlockingPublisher
from penstock.bulk.blocking_reader import BlockingReader
from penstock.bulk.bulk_connection import Dialling
from penstock.bulk.bulk_publisher import Publisher, PublishRefusal
from penstock.bulk.bulk_reader import BulkReader
from penstock.bulk.bulk_requests import StreamSummary
from penstock.bulk.errors import (
    AccessDenied,
    AnswerLate,
    BulkError,
    ConnectFailed,
    Evicted,
    LinkLost,
    NoResponders,
    NotPermitted,
    Refused,
)
from penstock.bulk.login import Address, Credentials
from penstock.bulk.ordered_consumer import EndReached, Following, Idle, PastEnd
from penstock.bulk.record_batch import Batch

__all__ = [
    "AccessDenied",
    "Address",
    "AnswerLate",
    "Batch",
    "BlockingPublisher",
    "BlockingReader",
    "BulkError",
    "BulkReader",
    "ConnectFailed",
    "Credentials",
    "Dialling",
    "EndReached",
    "Evicted",
    "Following",
    "Idle",
    "LinkLost",
    "NoResponders",
    "NotPermitted",
    "PastEnd",
    "PublishRefusal",
    "Publisher",
    "Refused",
    "StreamSummary",
]
