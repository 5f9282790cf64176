"""Opens all streams and consumers of an account that are on disk, after a start.

Invariant: a damaged stream or consumer does not keep others from being served; its files stay
unchanged, and the report names it with the reason. Interest and work-queue streams are swept,
because a crash may have come between an ack and the removal it causes.

`recover_in_slices` yields after each stream and after some consumers, so the server can recover an
account that a reload adds while it serves others. Between two slices every open file belongs to a
host.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.json_codec import decode
from penstock.api.stream_config import Retention, StreamConfig
from penstock.base.slices import Sliced, finish
from penstock.jetstream.account.asset_factory import host_consumer, host_stream, withdraw_consumer
from penstock.jetstream.host.asset_files import UnreadableAsset, file_name, why_unserved
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.consumers.state.state_files import RecoveryReport
    from penstock.jetstream.host.asset_files import (
        ConsumerFiles,
        ConsumerMeta,
        StreamFiles,
        StreamMeta,
    )
    from penstock.jetstream.host.stream_host import StreamHost


@dataclass(slots=True)
class AccountRecovery:
    """The result of a recovery."""

    streams: int = 0
    consumers: int = 0
    messages: int = 0
    unserved: list[str] = field(default_factory=list)
    """Streams and consumers on disk that cannot be served, each with the reason."""
    problems: list[str] = field(default_factory=list)

    def refuse_stream(self, assets: Assets, directory: str, why: str) -> None:
        """Record that a stream is not served; its files stay unchanged and its name stays taken."""
        assets.unserved[directory] = why
        self.unserved.append(f"stream directory {directory}: {why}")


CONSUMERS_PER_SLICE: Final = 32


def recover_account(assets: Assets, now_ns: int) -> AccountRecovery:
    """Open every stream of an account, without a pause."""
    return finish(recover_in_slices(assets, now_ns))


def recover_in_slices(assets: Assets, now_ns: int) -> Sliced[AccountRecovery]:
    """Open every stream of an account; yield after each."""
    report = AccountRecovery()
    if assets.files is None:
        return report
    try:
        assets.files.sweep(staged=True)
    except Exception as error:
        report.problems.append(f"remains of streams: {why_unserved(error)}")
    yield
    for found in assets.files.open_streams():
        if isinstance(found, UnreadableAsset):
            report.refuse_stream(assets, found.name, found.why)
            continue
        meta, files = found
        try:
            host = _recover_stream(assets, meta, files, report, now_ns)
        except Exception as error:  # any error concerns this stream alone
            report.refuse_stream(assets, files.name, why_unserved(error))
            with contextlib.suppress(StoreError):
                files.close()
            continue
        yield from _recover_consumers(assets, host, report, now_ns)
        if host.stream.cfg.retention is not Retention.LIMITS:
            _sweep(host, report, now_ns)
        if host.proposals.is_local:  # else the leader does them, once there is one
            yield from _finish_chores(host, report, now_ns)
        yield
    return report


def _finish_chores(host: StreamHost, report: AccountRecovery, now_ns: int) -> Sliced[None]:
    """Finish the stream's chores, which run in slices, before the stream is served."""
    try:
        for _ in host.chores.finish(now_ns):
            yield
    except Exception as error:
        report.problems.append(f"stream {host.name}: not trimmed: {why_unserved(error)}")


def _sweep(host: StreamHost, report: AccountRecovery, now_ns: int) -> None:
    """Remove messages that were acked before a crash but not removed."""
    try:
        host.chores.sweep(now_ns)
    except Exception as error:
        report.problems.append(f"stream {host.name}: not swept: {why_unserved(error)}")


def _recover_stream(
    assets: Assets, meta: StreamMeta, files: StreamFiles, report: AccountRecovery, now_ns: int
) -> StreamHost:
    cfg = decode(StreamConfig, bytes(meta.config), strict=False)
    if file_name(cfg.name) != files.name:
        raise StoreError(files.name, "open", errno.EINVAL, f'it describes the stream "{cfg.name}"')
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
) -> Sliced[None]:
    assert host.files is not None
    try:
        for count, found in enumerate(host.files.open_consumers(), 1):
            if isinstance(found, UnreadableAsset):
                report.unserved.append(f"stream {host.name}, consumer {found.name}: {found.why}")
            else:
                _recover_consumer(assets, host, found, report, now_ns)
            if count % CONSUMERS_PER_SLICE == 0:
                yield
    except Exception as error:
        host.files.refuse_consumer("*", error)
        why = why_unserved(error)
        report.unserved.append(f"stream {host.name}: its consumers cannot be listed: {why}")


def _recover_consumer(
    assets: Assets,
    host: StreamHost,
    found: tuple[ConsumerMeta, ConsumerFiles, RecoveryReport],
    report: AccountRecovery,
    now_ns: int,
) -> None:
    meta, files, recovered = found
    try:
        cfg = decode(ConsumerConfig, bytes(meta.config), strict=False)
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
    except Exception as error:  # any error concerns this consumer alone
        assert host.files is not None
        host.files.refuse_consumer(file_name(meta.name), error)
        withdraw_consumer(host, meta.name, now_ns)
        why = why_unserved(error)
        report.unserved.append(f"stream {host.name}, consumer {meta.name}: {why}")
        return
    report.consumers += 1
    report.problems += [
        f"stream {host.name}, consumer {meta.name}: {damage}" for damage in recovered.damage
    ]
