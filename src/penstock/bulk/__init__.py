"""Bulk client: reads and publishes stream records as columns, with compiled wire code."""

from penstock.bulk.blocking_publisher import BlockingPublisher
from penstock.bulk.blocking_reader import BlockingReader
from penstock.bulk.bulk_connection import ConnectSettings
from penstock.bulk.bulk_publisher import Publisher, PublishRefusal
from penstock.bulk.bulk_reader import BulkReader
from penstock.bulk.bulk_requests import StreamSummary
from penstock.bulk.errors import (
    AccessDenied,
    BulkError,
    ConnectFailed,
    ConnectionLost,
    Evicted,
    NoResponders,
    NotPermitted,
    Refused,
    ReplyTimeout,
)
from penstock.bulk.login import Address, Credentials
from penstock.bulk.ordered_consumer import EndReached, Idle, OrderedConsumer, PastEnd
from penstock.bulk.record_batch import Batch

__all__ = [
    "AccessDenied",
    "Address",
    "Batch",
    "BlockingPublisher",
    "BlockingReader",
    "BulkError",
    "BulkReader",
    "ConnectFailed",
    "ConnectSettings",
    "ConnectionLost",
    "Credentials",
    "EndReached",
    "Evicted",
    "Idle",
    "NoResponders",
    "NotPermitted",
    "OrderedConsumer",
    "PastEnd",
    "PublishRefusal",
    "Publisher",
    "Refused",
    "ReplyTimeout",
    "StreamSummary",
]
