"""Streams in bulk, read and written: a fast client over compiled parts, beside the ordinary one."""

from penstock.bulk.asking import StreamState
from penstock.bulk.batch import Batch
from penstock.bulk.blocking import BlockingReader
from penstock.bulk.blocking_publisher import BlockingPublisher
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
from penstock.bulk.following import CaughtUp, Following, Idle, PastEnd
from penstock.bulk.link import Dialling
from penstock.bulk.login import Address, Credentials
from penstock.bulk.publishing import Publisher, Refusal
from penstock.bulk.reader import BulkReader

__all__ = [
    "AccessDenied",
    "Address",
    "AnswerLate",
    "Batch",
    "BlockingPublisher",
    "BlockingReader",
    "BulkError",
    "BulkReader",
    "CaughtUp",
    "ConnectFailed",
    "Credentials",
    "Dialling",
    "Evicted",
    "Following",
    "Idle",
    "LinkLost",
    "NoResponders",
    "NotPermitted",
    "PastEnd",
    "Publisher",
    "Refusal",
    "Refused",
    "StreamState",
]
