"""The replies of the API, each with its type, in the reference's format.

A refusal is the same reply with an error and empty fields; `refused` creates it. A value that is
nested in the code but not on the wire is marked FLAT and omitted from a refusal. All other fields
that are always written stay in a refusal, so a refused page still reports offset, limit and total
as 0.
"""

from typing import Annotated, Self

from msgspec import Struct

from penstock.api.account_usage import AccountStats
from penstock.api.consumer_config import ConsumerInfo
from penstock.api.fields import EMIT, FLAT, Nanos, Time
from penstock.api.refusals import ApiError
from penstock.api.stream_config import StreamConfig, StreamInfo, StreamState

TYPE_PREFIX = "io.nats.jetstream.api.v1."


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message of a stream; header and payload travel as base64."""

    subject: Annotated[str, EMIT] = ""
    seq: Annotated[int, EMIT] = 0
    hdrs: bytes = b""
    data: bytes = b""
    time: Annotated[Time, EMIT] = 0


class Response(Struct, frozen=True, kw_only=True):
    """Fields common to all replies."""

    type: Annotated[str, EMIT] = ""
    error: ApiError | None = None

    @classmethod
    def refused(cls, error: ApiError) -> Self:
        """Return this reply with an error and empty fields."""
        return cls(error=error)


class Paged(Response, frozen=True, kw_only=True):
    """A reply that may be one of several pages."""

    total: Annotated[int, EMIT] = 0
    offset: Annotated[int, EMIT] = 0
    limit: Annotated[int, EMIT] = 0


class Done(Response, frozen=True, kw_only=True):
    """A reply that only reports success."""

    success: bool = False


class AccountInfoResponse(Response, frozen=True, kw_only=True):
    """INFO"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}account_info_response"
    stats: Annotated[AccountStats | None, FLAT] = None


class StreamCreateResponse(Response, frozen=True, kw_only=True):
    """STREAM.CREATE, and the end of a restore"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_create_response"
    info: Annotated[StreamInfo | None, FLAT] = None
    did_create: bool = False


class StreamUpdateResponse(Response, frozen=True, kw_only=True):
    """STREAM.UPDATE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_update_response"
    info: Annotated[StreamInfo | None, FLAT] = None


class StreamInfoResponse(Paged, frozen=True, kw_only=True):
    """STREAM.INFO"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_info_response"
    info: Annotated[StreamInfo | None, FLAT] = None


class StreamNamesResponse(Paged, frozen=True, kw_only=True):
    """STREAM.NAMES; null if there is no stream"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_names_response"
    streams: Annotated[tuple[str, ...] | None, EMIT] = None


class StreamListResponse(Paged, frozen=True, kw_only=True):
    """STREAM.LIST"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_list_response"
    streams: Annotated[tuple[StreamInfo, ...], EMIT] = ()
    missing: tuple[str, ...] = ()
    offline: dict[str, str] = {}


class StreamDeleteResponse(Done, frozen=True, kw_only=True):
    """STREAM.DELETE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_delete_response"


class StreamPurgeResponse(Done, frozen=True, kw_only=True):
    """STREAM.PURGE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_purge_response"
    purged: Annotated[int, EMIT] = 0


class MsgGetResponse(Response, frozen=True, kw_only=True):
    """STREAM.MSG.GET"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_msg_get_response"
    message: StoredMessage | None = None


class MsgDeleteResponse(Done, frozen=True, kw_only=True):
    """STREAM.MSG.DELETE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_msg_delete_response"


class SnapshotResponse(Response, frozen=True, kw_only=True):
    """STREAM.SNAPSHOT"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_snapshot_response"
    config: StreamConfig | None = None
    state: StreamState | None = None


class RestoreResponse(Response, frozen=True, kw_only=True):
    """STREAM.RESTORE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_restore_response"
    deliver_subject: Annotated[str, EMIT] = ""


class StreamStepDownResponse(Done, frozen=True, kw_only=True):
    """STREAM.LEADER.STEPDOWN"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_leader_stepdown_response"


class StreamRemovePeerResponse(Done, frozen=True, kw_only=True):
    """STREAM.PEER.REMOVE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_remove_peer_response"


class StreamEvacuatePeerResponse(Done, frozen=True, kw_only=True):
    """STREAM.PEER.EVACUATE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_evacuate_peer_response"


class StreamCancelMoveResponse(Response, frozen=True, kw_only=True):
    """STREAM.CANCEL_MOVE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}stream_cancel_move_response"
    info: Annotated[StreamInfo | None, FLAT] = None


class ConsumerCreateResponse(Response, frozen=True, kw_only=True):
    """CONSUMER.CREATE, CONSUMER.DURABLE.CREATE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_create_response"
    info: Annotated[ConsumerInfo | None, FLAT] = None


class ConsumerInfoResponse(Response, frozen=True, kw_only=True):
    """CONSUMER.INFO"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_info_response"
    info: Annotated[ConsumerInfo | None, FLAT] = None


class ConsumerNamesResponse(Paged, frozen=True, kw_only=True):
    """CONSUMER.NAMES"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_names_response"
    consumers: Annotated[tuple[str, ...], EMIT] = ()


class ConsumerListResponse(Paged, frozen=True, kw_only=True):
    """CONSUMER.LIST"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_list_response"
    consumers: Annotated[tuple[ConsumerInfo, ...], EMIT] = ()
    missing: tuple[str, ...] = ()
    offline: dict[str, str] = {}


class ConsumerDeleteResponse(Done, frozen=True, kw_only=True):
    """CONSUMER.DELETE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_delete_response"


class ConsumerPauseResponse(Response, frozen=True, kw_only=True):
    """CONSUMER.PAUSE"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_pause_response"
    paused: Annotated[bool, EMIT] = False
    pause_until: Annotated[Time, EMIT] = 0
    pause_remaining: Nanos = 0


class ConsumerResetResponse(Response, frozen=True, kw_only=True):
    """CONSUMER.RESET"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_reset_response"
    info: Annotated[ConsumerInfo | None, FLAT] = None
    reset_seq: Annotated[int, EMIT] = 0


class ConsumerUnpinResponse(Response, frozen=True, kw_only=True):
    """CONSUMER.UNPIN"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_unpin_response"


class ConsumerStepDownResponse(Done, frozen=True, kw_only=True):
    """CONSUMER.LEADER.STEPDOWN"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}consumer_leader_stepdown_response"


class SystemResponse(Response, frozen=True, kw_only=True):
    """any request of the system account"""

    type: Annotated[str, EMIT] = f"{TYPE_PREFIX}system_response"
