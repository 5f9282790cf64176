"""A bucket on a NATS server: its stream configuration, and its reader, writer and watcher.

`NatsConnection.bucket` creates it. The bucket reads its stream configuration once, when it is
opened. If an operator changes the stream later, the server rejects the affected requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.kv.bucket_reader import NatsReader
from penstock.kv.bucket_records import prefix_of, stream_of
from penstock.kv.bucket_watcher import NatsWatcher
from penstock.kv.bucket_writer import NatsWriter
from penstock.kv.contract import BucketConfig, Capabilities

if TYPE_CHECKING:
    from penstock.bulk.bulk_reader import BulkReader
    from penstock.kv.bucket_log import BucketLog
    from penstock.kv.bucket_requests import Requests

#: Upper limit of the duplicate window of a bucket's stream.
DUPLICATES_NS_MAX: Final = 120 * SECOND_NS
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class NatsBucket:
    """A `KvStore`. `bulk` is None if the caller supplied the client without a configuration; the
    bucket can then be neither watched nor listed."""

    name: str
    requests: Requests
    bulk: BulkReader | None
    stream_config: dict[str, Any]
    max_payload: int
    log: BucketLog
    empty_is_delete: bool = False

    def reader(self) -> NatsReader:
        return NatsReader(
            self.name,
            self.requests,
            self.bulk,
            direct=bool(self.stream_config.get("allow_direct")),
            empty_is_delete=self.empty_is_delete,
        )

    def watcher(self) -> NatsWatcher | None:
        if self.bulk is None:
            return None
        return NatsWatcher(self.name, self.bulk, empty_is_delete=self.empty_is_delete)

    def writer(self) -> NatsWriter:
        return NatsWriter(self.name, self.requests, self.reader(), self.log)

    def ttl_writer(self) -> NatsWriter | None:
        return self.writer() if self.stream_config.get("allow_msg_ttl") else None

    def purger(self) -> NatsWriter | None:
        return self.writer() if self.stream_config.get("allow_rollup_hdrs") else None

    purge_writer = purger
    """The name in the Rust crate."""

    def capabilities(self) -> Capabilities:
        largest = self.stream_config.get("max_msg_size", UNLIMITED)
        return Capabilities(
            streaming_watch=self.bulk is not None,
            prefix_watch=self.bulk is not None,
            purge=bool(self.stream_config.get("allow_rollup_hdrs")),
            ttl=bool(self.stream_config.get("allow_msg_ttl")),
            max_value_size=largest if largest > 0 else self.max_payload,
        )


def stream_config(bucket: str, config: BucketConfig) -> dict[str, Any]:
    """Return the configuration of a bucket's stream, following the NATS KV conventions."""
    max_age_ns = round((config.max_age or 0) * SECOND_NS)
    made: dict[str, Any] = {
        "name": stream_of(bucket),
        "subjects": [f"{prefix_of(bucket)}>"],
        "retention": "limits",
        "storage": config.storage,
        "discard": config.discard,
        "num_replicas": config.replicas,
        "max_msgs": UNLIMITED,
        "max_consumers": UNLIMITED,
        "max_msgs_per_subject": config.history,
        "max_age": max_age_ns,
        "max_bytes": config.max_bytes or UNLIMITED,
        "max_msg_size": config.max_value_size or UNLIMITED,
        "duplicate_window": min(max_age_ns or DUPLICATES_NS_MAX, DUPLICATES_NS_MAX),
        "allow_direct": config.allow_direct,
        "allow_rollup_hdrs": config.allow_rollup,
        "deny_delete": config.deny_delete,
    }
    if config.allow_msg_ttl or config.marker_ttl is not None:
        made["allow_msg_ttl"] = True
    if config.marker_ttl is not None:
        made["subject_delete_marker_ttl"] = round(config.marker_ttl * SECOND_NS)
    return made


def differences(wanted: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Return the names of settings in which an existing stream differs from the wanted ones."""
    empty = (None, False, 0, "")
    return sorted(
        name
        for name, value in wanted.items()
        if there.get(name) != value and not (value in empty and there.get(name) in empty)
    )
