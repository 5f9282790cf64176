"""The few questions a bulk reader asks of JetStream, as subjects and JSON, and what comes back.

An answer with an error becomes `Refused`; nothing else is decided here.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_levels import PENSTOCK_HEADER
from penstock.api.api_subjects import API, domain_api
from penstock.api.timestamps import format_time, parse_time
from penstock.bulk.errors import NO_MESSAGE_FOUND, Refused

if TYPE_CHECKING:
    from penstock.bulk.bulk_connection import BulkConnection

SECOND_NS: Final = 1_000_000_000
#: How long the server keeps a consumer whose reader vanished without a word.
INACTIVE_SECONDS: Final = 300
ASK_IDENTITY: Final = f"NATS/1.0\r\n{PENSTOCK_HEADER}: 1\r\n\r\n".encode()


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What a stream holds now, and which stream it is."""

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
    """What an ordered consumer delivers. Without `start_seq` from the beginning, or, if
    `last_per_subject`, the newest record of each subject and then what is new."""

    filters: tuple[str, ...] = ()
    start_seq: int | None = None
    last_per_subject: bool = False
    headers_only: bool = False
    heartbeat: float = 5.0
    name_prefix: str = ""


class Questions:
    """The API as reached over a link."""

    def __init__(self, domain: str = "", prefix: str = "") -> None:
        self.prefix = prefix or (domain_api(domain) if domain else API)

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
        """The sequence of the first record at or after a time; None if there is none."""
        body = {"start_time": format_time(time_ns), "next_by_subj": ">"}
        try:
            found = await self.call(link, f"STREAM.MSG.GET.{stream}", body)
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return int(found["message"]["seq"])

    async def time_of(self, link: BulkConnection, stream: str, seq: int) -> int | None:
        """The time of the first record at or after a sequence; None if there is none."""
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
        """The payload of the newest record of a subject; None if there is none."""
        try:
            found = await self.call(link, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return base64.b64decode(found["message"].get("data", ""))

    async def create_consumer(
        self,
        link: BulkConnection,
        stream: str,
        name: str,
        deliver: str,
        selection: SubjectSelection,
    ) -> int:
        """Make an ordered consumer; how many records it had to deliver when it was made."""
        subject = f"CONSUMER.CREATE.{stream}.{name}"
        if len(selection.filters) == 1:
            subject += f".{selection.filters[0]}"
        body = {"stream_name": stream, "action": "create"}
        info = await self.call(
            link, subject, body | {"config": ordered_config(name, deliver, selection)}
        )
        # Delivery may have begun before the answer was made: those count as well.
        return int(info["num_pending"]) + int(info["delivered"]["consumer_seq"])

    async def pending_of(self, link: BulkConnection, stream: str, name: str) -> int:
        """How many records a consumer has still to deliver."""
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
        payload = json.dumps(body).encode() if body else b""
        heard = await link.request(f"{self.prefix}.{subject}", payload, seconds, header=header)
        answer: dict[str, Any] = json.loads(heard.payload)
        if error := answer.get("error"):
            raise Refused.said(error)
        return answer


def ordered_config(name: str, deliver: str, selection: SubjectSelection) -> dict[str, Any]:
    """A consumer in memory that never redelivers: pushed to `deliver` under flow control, or a
    pull consumer if that is empty."""
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
