"""Limits of an account's JetStream use, and its actual use.

These are plain values in the form that the API reports as account information. -1 means no limit;
for the two limits of a single stream, 0 also means no limit. An account has either one set of
limits or one set per tier. The number of replicas of a stream determines its tier (`R1`, `R3`).
"""

from typing import Annotated, ClassVar, Final

from msgspec import Struct

from penstock.api.fields import EMIT, Doc, Int64, UInt64

UNLIMITED = -1


class AccountLimits(Struct, frozen=True, kw_only=True):
    """Limits of an account."""

    wire_name: ClassVar[str] = "server.JetStreamAccountLimits"

    max_memory: Annotated[Int64, Doc("Bytes in memory."), EMIT] = UNLIMITED
    max_storage: Annotated[Int64, Doc("Bytes in files."), EMIT] = UNLIMITED
    max_streams: Annotated[int, Doc("Streams."), EMIT] = UNLIMITED
    max_consumers: Annotated[int, Doc("Consumers of each stream."), EMIT] = UNLIMITED
    max_ack_pending: Annotated[int, Doc("Unacknowledged messages of a consumer."), EMIT] = UNLIMITED
    memory_max_stream_bytes: Annotated[Int64, Doc("Bytes of one stream in memory."), EMIT] = (
        UNLIMITED
    )
    storage_max_stream_bytes: Annotated[Int64, Doc("Bytes of one stream in files."), EMIT] = (
        UNLIMITED
    )
    max_bytes_required: Annotated[bool, Doc("Every stream must say `max_bytes`."), EMIT] = False


NOTHING: Final = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""Limits that an account with tiers reports in place of one set of limits."""


def tier_of(replicas: int) -> str:
    """Return the tier of a stream with `replicas` replicas; 0 means the default of one."""
    return f"R{replicas or 1}"


class ApiStats(Struct, frozen=True, kw_only=True):
    """Counts of API requests."""

    wire_name: ClassVar[str] = "server.JetStreamAPIStats"

    level: Annotated[int, Doc("What the server understands."), EMIT] = 0
    total: Annotated[UInt64, Doc("Requests."), EMIT] = 0
    errors: Annotated[UInt64, Doc("Requests refused."), EMIT] = 0
    inflight: Annotated[UInt64, Doc("Requests being served.")] = 0


class Tier(Struct, frozen=True, kw_only=True):
    """Current use and limits of an account or of one tier."""

    wire_name: ClassVar[str] = "server.JetStreamTier"

    memory: Annotated[UInt64, Doc("Bytes in memory."), EMIT] = 0
    storage: Annotated[UInt64, Doc("Bytes in files."), EMIT] = 0
    reserved_memory: Annotated[UInt64, Doc("Bytes in memory, promised to streams."), EMIT] = 0
    reserved_storage: Annotated[UInt64, Doc("Bytes in files, promised to streams."), EMIT] = 0
    streams: Annotated[int, Doc("Streams."), EMIT] = 0
    consumers: Annotated[int, Doc("Consumers."), EMIT] = 0
    limits: Annotated[AccountLimits, Doc("What may be used."), EMIT] = AccountLimits()


class AccountStats(Tier, frozen=True, kw_only=True):
    """JetStream use of an account."""

    wire_name: ClassVar[str] = "server.JetStreamAccountStats"

    domain: Annotated[str, Doc("The domain of the server.")] = ""
    api: Annotated[ApiStats, Doc("Its requests."), EMIT] = ApiStats()
    tiers: Annotated[dict[str, Tier], Doc("By number of replicas, where limits are so.")] = {}
