"""An account's streams and consumers after a start: everything that is on disk, served again.

What cannot be read is left alone and said: one damaged stream must not keep the others from being
served. Streams that keep messages for their consumers are swept, for a crash may have come between
an acknowledgement and the removal it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.api.codec import decode
from penstock.api.consumer import ConsumerConfig
from penstock.api.refusals import ApiError
from penstock.api.stream import Retention, StreamConfig
from penstock.jetstream.making import host_consumer, host_stream
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.jetstream.assets import Assets
    from penstock.jetstream.files import StreamFiles, StreamMeta
    from penstock.jetstream.host import StreamHost


@dataclass(slots=True)
class AccountRecovery:
    """What was found."""

    streams: int = 0
    consumers: int = 0
    messages: int = 0
    unserved: list[str] = field(default_factory=list)
    """Streams and consumers that are on disk and cannot be served, each with the reason."""
    problems: list[str] = field(default_factory=list)


def recover_account(assets: Assets, now_ns: int) -> AccountRecovery:
    """Opens every stream of an account."""
    report = AccountRecovery()
    if assets.files is None:
        return report
    try:
        assets.files.sweep(staged=True)
    except StoreError as error:
        report.problems.append(f"remains of streams: {error}")
    found, unreadable = assets.files.open_streams()
    report.unserved += [f"stream directory {item.name}: {item.why}" for item in unreadable]
    for meta, files in found:
        try:
            host = _recover_stream(assets, meta, files, report, now_ns)
        except (StoreError, ApiError) as error:
            report.unserved.append(f"stream directory {files.name}: {error}")
            continue
        _recover_consumers(assets, host, report, now_ns)
        if host.stream.cfg.retention is not Retention.LIMITS:
            host.sweep_unwanted(now_ns)
        for _ in host.chores.finish(now_ns):
            continue
    return report


def _recover_stream(
    assets: Assets, meta: StreamMeta, files: StreamFiles, report: AccountRecovery, now_ns: int
) -> StreamHost:
    cfg = decode(StreamConfig, bytes(meta.config), strict=False)
    host = host_stream(
        assets, cfg, files, created_ns=meta.created_ns, now_ns=now_ns, first_seq=meta.first_seq
    )
    found = host.stream.store.state()
    report.streams += 1
    report.messages += found.msgs
    if found.damaged:
        ranges = ", ".join(f"{first}-{last}" for first, last in found.damaged)
        report.problems.append(f"stream {cfg.name}: messages {ranges} are damaged")
    return host


def _recover_consumers(
    assets: Assets, host: StreamHost, report: AccountRecovery, now_ns: int
) -> None:
    assert host.files is not None
    found, unreadable = host.files.open_consumers()
    report.unserved += [
        f"stream {host.name}, consumer {item.name}: {item.why}" for item in unreadable
    ]
    for meta, files, recovered in found:
        try:
            cfg = decode(ConsumerConfig, bytes(meta.config), strict=False)
        except ApiError as error:
            report.unserved.append(f"stream {host.name}, consumer {meta.name}: {error}")
            continue
        host_consumer(
            assets,
            host,
            meta.name,
            cfg,
            files,
            created_ns=meta.created_ns,
            now_ns=now_ns,
            recovered=True,
        )
        report.consumers += 1
        report.problems += [
            f"stream {host.name}, consumer {meta.name}: {damage}" for damage in recovered.damage
        ]
