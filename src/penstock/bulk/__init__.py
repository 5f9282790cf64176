"""Reading streams in bulk: a fast client over a compiled parser, beside the ordinary one."""

from penstock.bulk.asking import StreamState
from penstock.bulk.batch import Batch
from penstock.bulk.blocking import BlockingReader
from penstock.bulk.errors import (
    AccessDenied,
    AnswerLate,
    BulkError,
    ConnectFailed,
    Evicted,
    LinkLost,
    NoResponders,
    Refused,
)
from penstock.bulk.following import CaughtUp, Following, Idle, PastEnd
from penstock.bulk.link import Dialling
from penstock.bulk.login import Address, Credentials
from penstock.bulk.reader import BulkReader

__all__ = [
    "AccessDenied",
    "Address",
    "AnswerLate",
    "Batch",
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
    "PastEnd",
    "Refused",
    "StreamState",
]
