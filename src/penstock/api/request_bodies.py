"""The bodies of API requests, except consumer creation and pull requests.

Each is declared as the reference decodes it, because its names appear in error texts. An empty body
decodes to all defaults; the handler checks whether a body must or must not be empty.
"""

import json
from typing import Annotated, ClassVar

from msgspec import Struct

from penstock.api.fields import Doc, Time, UInt64
from penstock.api.stream_config import StreamConfig, StreamState
from penstock.base.json_depth import check_nesting


class StreamConfigRequest(StreamConfig, frozen=True, kw_only=True):
    """STREAM.CREATE, STREAM.UPDATE: a configuration and the pedantic flag."""

    pedantic: Annotated[bool, Doc("Refuse what would otherwise be corrected.")] = False

    @property
    def config(self) -> StreamConfig:
        """Return the configuration without the pedantic flag."""
        names = StreamConfig.__struct_fields__
        return StreamConfig(**{name: getattr(self, name) for name in names})


class StreamInfoRequest(Struct, frozen=True, kw_only=True):
    """STREAM.INFO"""

    wire_name: ClassVar[str] = "server.JSApiStreamInfoRequest"

    offset: int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class StreamNamesRequest(Struct, frozen=True, kw_only=True):
    """STREAM.NAMES"""

    wire_name: ClassVar[str] = "server.JSApiStreamNamesRequest"

    offset: int = 0
    subject: str = ""


class StreamListRequest(Struct, frozen=True, kw_only=True):
    """STREAM.LIST"""

    wire_name: ClassVar[str] = "server.JSApiStreamListRequest"

    offset: int = 0
    subject: str = ""


class ConsumersRequest(Struct, frozen=True, kw_only=True):
    """CONSUMER.NAMES, CONSUMER.LIST"""

    wire_name: ClassVar[str] = "server.JSApiConsumersRequest"

    offset: int = 0


class PurgeRequest(Struct, frozen=True, kw_only=True):
    """STREAM.PURGE"""

    wire_name: ClassVar[str] = "server.JSApiStreamPurgeRequest"

    seq: UInt64 = 0
    filter: str = ""
    keep: UInt64 = 0


class MsgGetRequest(Struct, frozen=True, kw_only=True):
    """STREAM.MSG.GET, DIRECT.GET"""

    wire_name: ClassVar[str] = "server.JSApiMsgGetRequest"

    seq: UInt64 = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: int = 0
    max_bytes: int = 0
    start_time: Time | None = None
    multi_last: tuple[str, ...] = ()
    up_to_seq: UInt64 = 0
    up_to_time: Time | None = None
    no_hdr: bool = False


class MsgDeleteRequest(Struct, frozen=True, kw_only=True):
    """STREAM.MSG.DELETE"""

    wire_name: ClassVar[str] = "server.JSApiMsgDeleteRequest"

    seq: UInt64 = 0
    no_erase: bool = False


class SnapshotRequest(Struct, frozen=True, kw_only=True):
    """STREAM.SNAPSHOT"""

    wire_name: ClassVar[str] = "server.JSApiStreamSnapshotRequest"

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False


class RestoreRequest(Struct, frozen=True, kw_only=True):
    """STREAM.RESTORE"""

    wire_name: ClassVar[str] = "server.JSApiStreamRestoreRequest"

    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


class PauseRequest(Struct, frozen=True, kw_only=True):
    """CONSUMER.PAUSE; without a time the consumer resumes"""

    wire_name: ClassVar[str] = "server.JSApiConsumerPauseRequest"

    pause_until: Time = 0


class ResetRequest(Struct, frozen=True, kw_only=True):
    """CONSUMER.RESET; without a sequence it resets to just after the ack floor"""

    wire_name: ClassVar[str] = "server.JSApiConsumerResetRequest"

    seq: UInt64 = 0


class UnpinRequest(Struct, frozen=True, kw_only=True):
    """CONSUMER.UNPIN"""

    wire_name: ClassVar[str] = "server.JSApiConsumerUnpinRequest"

    group: str = ""


def is_empty_body(body: bytes) -> bool:
    """Return whether a body is empty: no bytes, or an object without keys."""
    if not body or body == b"{}":
        return True
    try:
        check_nesting(body)
        return bool(json.loads(body) == {})
    except ValueError:
        return False


def is_json_body(body: bytes) -> bool:
    """Return whether a body of unknown format is decoded as JSON."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")
