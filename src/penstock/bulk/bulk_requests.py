"""JetStream API requests of the bulk reader: subjects, JSON bodies and replies.

A reply with an error raises `Refused`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_client import ApiClient, ApiRequest, Document, read_message, read_reply
from penstock.api.api_levels import PENSTOCK_HEADER
from penstock.api.error_codes import NO_MESSAGE_FOUND
from penstock.api.refusals import ApiError
from penstock.api.timestamps import format_time, parse_time
from penstock.base.units import SECOND_NS
from penstock.bulk.errors import Refused

if TYPE_CHECKING:
    from penstock.bulk.bulk_connection import BulkConnection

#: How long the server keeps a consumer whose reader disconnected without deleting it.
INACTIVE_SECONDS: Final = 300
ASK_IDENTITY: Final = f"NATS/1.0\r\n{PENSTOCK_HEADER}: 1\r\n\r\n".encode()


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """State, identity and configuration of a stream."""

    name: str
    created_ns: int
    first_seq: int
    last_seq: int
    messages: int
    config: dict[str, Any]
    byte_count: int = 0
    penstock: dict[str, Any] | None = None
    """What a Penstock server adds (`PenstockInfo`); None from other servers."""


@dataclass(frozen=True, slots=True)
class SubjectSelection:
    """What an ordered consumer delivers.

    Without `start_seq` it starts at the beginning or, with `last_per_subject`, delivers the newest
    record of each subject and then new records.
    """

    filters: tuple[str, ...] = ()
    start_seq: int | None = None
    last_per_subject: bool = False
    headers_only: bool = False
    heartbeat: float = 5.0
    name_prefix: str = ""


class JetStreamApi(ApiClient):
    """The JetStream API, called over a connection."""

    async def stream_state(self, link: BulkConnection, stream: str) -> StreamSummary:
        info = await self.call(link, f"STREAM.INFO.{stream}", {}, header=ASK_IDENTITY)
        state = info["state"]
        return StreamSummary(
            name=stream,
            created_ns=parse_time(info["created"]),
            first_seq=state["first_seq"],
            last_seq=state["last_seq"],
            messages=state["messages"],
            config=info["config"],
            byte_count=state["bytes"],
            penstock=info.get("penstock"),
        )

    async def first_since(self, link: BulkConnection, stream: str, time_ns: int) -> int | None:
        """Return the sequence of the first record at or after a time; None if there is none."""
        body = {"start_time": format_time(time_ns), "next_by_subj": ">"}
        try:
            found = await self.call(link, f"STREAM.MSG.GET.{stream}", body)
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return int(found["message"]["seq"])

    async def time_of(self, link: BulkConnection, stream: str, seq: int) -> int | None:
        """Return the time of the first record at or after a sequence; None if there is none."""
        try:
            found = await self.call(
                link, f"STREAM.MSG.GET.{stream}", {"seq": seq, "next_by_subj": ">"}
            )
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return parse_time(found["message"]["time"])

    async def newest_payload(self, link: BulkConnection, stream: str, subject: str) -> bytes | None:
        """Return the payload of the newest record of a subject; None if there is none."""
        try:
            found = await self.call(link, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return read_message(found).payload

    async def create_consumer(
        self,
        link: BulkConnection,
        stream: str,
        name: str,
        deliver: str,
        selection: SubjectSelection,
    ) -> int:
        """Create an ordered consumer; return how many records it had to deliver at that time."""
        request = self.consumer_create(stream, ordered_config(name, deliver, selection))
        info = await self._send(link, request)
        # Delivery may begin before the server creates the reply; those records count as well.
        return int(info["num_pending"]) + int(info["delivered"]["consumer_seq"])

    async def pending_of(self, link: BulkConnection, stream: str, name: str) -> int:
        """Return how many records a consumer has yet to deliver."""
        info = await self.call(link, f"CONSUMER.INFO.{stream}.{name}", {})
        return int(info["num_pending"])

    async def delete_consumer(
        self, link: BulkConnection, stream: str, name: str, seconds: float
    ) -> None:
        await self.call(link, f"CONSUMER.DELETE.{stream}.{name}", {}, seconds)

    async def call(
        self,
        link: BulkConnection,
        subject: str,
        body: dict[str, Any],
        seconds: float | None = None,
        header: bytes = b"",
    ) -> dict[str, Any]:
        """Send one request; return the reply as JSON."""
        return await self._send(link, self.request(subject, body or None), seconds, header)

    async def _send(
        self,
        link: BulkConnection,
        request: ApiRequest,
        seconds: float | None = None,
        header: bytes = b"",
    ) -> Document:
        reply = await link.request(request.subject, request.payload, seconds, header=header)
        return accepted(reply.payload)


def accepted(raw: bytes) -> Document:
    """Decode a reply of the JSON API or of a stream; raise `Refused` if it is a refusal."""
    try:
        return read_reply(raw)
    except ApiError as error:
        raise Refused(error.description, code=error.code, err_code=error.err_code) from None


def ordered_config(name: str, deliver: str, selection: SubjectSelection) -> dict[str, Any]:
    """Return the configuration of an in-memory consumer that never redelivers.

    It pushes to `deliver` under flow control, or is a pull consumer if `deliver` is empty.
    """
    config: dict[str, Any] = {
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "max_deliver": 1,
        "inactive_threshold": INACTIVE_SECONDS * SECOND_NS,
        "mem_storage": True,
        "num_replicas": 1,
    }
    if deliver:
        config |= {
            "deliver_subject": deliver,
            "flow_control": True,
            "idle_heartbeat": round(selection.heartbeat * SECOND_NS),
        }
    if selection.start_seq is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": selection.start_seq}
    elif selection.last_per_subject:
        config["deliver_policy"] = "last_per_subject"
    if selection.headers_only:
        config["headers_only"] = True
    if len(selection.filters) == 1:
        config["filter_subject"] = selection.filters[0]
    elif selection.filters:
        config["filter_subjects"] = list(selection.filters)
    return config
