"""Folds connected to their buckets, for `penstock fold`: open, follow, watch, compare.

A connection of the command itself checks first that the server and the bucket exist, so that
mistakes are reported at once. The fold then reads through connections that reconnect by themselves.
Only `open` gives up: a fold that follows its bucket continues whatever happens to the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import checked_name
from penstock.cli.cli_errors import Failure
from penstock.cli.commands.bucket_streams import bucket_info
from penstock.cli.folds.fold_copies import TransferBar, meant, published_at, source_at
from penstock.cli.folds.fold_files import described, facts
from penstock.cli.folds.fold_http import FoldMonitor
from penstock.cli.message_format import payload_document, payload_text
from penstock.cli.output import TableListing, printable, show_count, show_duration
from penstock.cli.server_target import read_seed, tls_context

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from penstock.cli.command_session import CommandSession
    from penstock.cli.output import Screen
    from penstock.cli.server_target import ServerTarget
    from penstock.fold import ArtifactSource, Fold, KvUpdate, Observer, Repair, SnapshotReader
    from penstock.fold.ship.fleet_status import BucketComparison, Fleet, NodeStatus
    from penstock.kv.bucket import NatsBucket
    from penstock.kv.kv_connection import NatsConfig

POLL_SECONDS: Final = 0.1
ATTEMPTS_MAX: Final = 3
"""How often a watch may fail before `open` gives up."""
DIFFERENT_SHOWN_MAX: Final = 5


# -- connecting to the bucket


def config_of(target: ServerTarget) -> NatsConfig:
    """Return the same server and login, for connections that the fold opens itself."""
    from penstock.bulk.bulk_connection import INBOX_PREFIX
    from penstock.bulk.login import Credentials, split_urls
    from penstock.kv.kv_connection import NatsConfig

    with meant():
        addresses, in_url = split_urls(target.urls)
        found = in_url
        if target.creds:
            found = Credentials.from_file(Path(target.creds).expanduser())
        elif target.nkey:
            found = Credentials(seed=read_seed(target.nkey))
        elif target.has_credentials:
            found = Credentials(target.user, target.password, target.token)
    return NatsConfig(
        addresses,
        found,
        tls_context(target) if target.wants_tls else None,
        target.domain,
        bool(target.tlsfirst),
        target.inbox_prefix or INBOX_PREFIX,
    )


async def bucket_of(session: CommandSession, name: str) -> NatsBucket:
    """Return a bucket; raise Failure if it does not exist."""
    from penstock.kv.kv_connection import NatsConnection

    await bucket_info(session, name, f"KV_{checked_name(name, 'bucket')}")
    return await NatsConnection.around(session.client, config_of(session.target)).bucket(name)


# -- opening


def _backend(options: Namespace) -> str:
    """Return the requested backend, or that of the existing fold."""
    from penstock.fold.artifact.store_detect import kind_at
    from penstock.fold.follow.open_target import backend_of, is_there

    kind = backend_of(options.backend or "sqlite")
    if not is_there(kind, options.path):
        return kind.backend
    found = kind_at(options.path)
    if options.backend and found is not kind:
        raise Failure(f"{options.path}: this is a fold in {found.backend}, not in {kind.backend}")
    return found.backend


def _repair(options: Namespace, source: ArtifactSource | None) -> Repair:
    from penstock.fold import Repair

    if options.repair == "mirror":
        return Repair.relist(mirror=True)
    if options.repair == "none":
        return Repair.none()
    return Repair.auto(source)


@contextlib.asynccontextmanager
async def _opened(
    session: CommandSession, options: Namespace, observers: Sequence[Observer] = ()
) -> AsyncIterator[Fold]:
    """Open the fold and follow its bucket."""
    from penstock.fold import KEYS_ONLY, Fold, FoldDigest

    await bucket_info(session, options.bucket, f"KV_{checked_name(options.bucket, 'bucket')}")
    with TransferBar(session.screen, "Fetching the artifact") as bar:
        source = source_at(options.bootstrap, options, bar) if options.bootstrap else None
        with meant():
            fold = Fold.open(
                options.bucket,
                options.path,
                scope=options.prefix or "",
                backend=_backend(options),
                config=config_of(session.target),
                bootstrap=source,
                repair=_repair(options, source),
                observers=observers,
                keep=KEYS_ONLY if options.keys_only else None,
                extensions=[FoldDigest()] if options.digest else [],
            )
        await fold.__aenter__()
    try:
        yield fold
    finally:
        await fold.close()


async def _caught_up(screen: Screen, fold: Fold) -> None:
    """Wait until the fold is up to date, with a bar; raise Failure if it cannot be."""
    ready = asyncio.ensure_future(fold.ready())
    try:
        while not ready.done() and not fold.lag:
            await _look(fold, ready)
        if not ready.done():
            await _draw_reading(screen, fold, ready)
        await ready
    finally:
        ready.cancel()


async def _draw_reading(screen: Screen, fold: Fold, ready: asyncio.Future[None]) -> None:
    done = fold.cursor.rank
    with screen.progress(f"Reading {fold.name}", fold.lag) as advance:
        while not ready.done():
            await _look(fold, ready)
            now = fold.cursor.rank
            advance(now - done)
            done = now


async def _look(fold: Fold, ready: asyncio.Future[None]) -> None:
    from penstock.fold import FoldState

    await asyncio.wait({ready}, timeout=POLL_SECONDS)
    if ready.done() or fold.state not in (FoldState.STALE, FoldState.RETRYING):
        return
    status = await asyncio.to_thread(fold.status)
    if status.state is FoldState.STALE or status.restarts >= ATTEMPTS_MAX:
        raise Failure(status.error)


async def _described(fold: Fold, path: Path) -> dict[str, Any]:
    status = await asyncio.to_thread(fold.status)
    document = await asyncio.to_thread(described, fold.store, path)
    return {**document, "state": status.state.value, "lag": status.lag, "error": status.error}


@contextlib.contextmanager
def warnings_shown(screen: Screen | None) -> Iterator[None]:
    """Show the fold's warnings as remarks, or drop them if the command reports them itself."""
    handler: logging.Handler = logging.NullHandler() if screen is None else _Remarks(screen)
    loggers = [logging.getLogger(f"penstock.{package}") for package in ("fold", "kv", "bulk")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _Remarks(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._screen.remark(f"{text[0].upper()}{text[1:]}")


async def open_(session: CommandSession, options: Namespace) -> None:
    with warnings_shown(None):
        async with _opened(session, options) as fold:
            await _caught_up(session.screen, fold)
            document = await _described(fold, Path(options.path))
    session.screen.answer(document, facts(document))


# -- following


async def run(session: CommandSession, options: Namespace) -> None:
    await _follow(session, options, shows=False)


async def watch(session: CommandSession, options: Namespace) -> None:
    await _follow(session, options, shows=True)


async def _follow(session: CommandSession, options: Namespace, *, shows: bool) -> None:
    screen = session.screen
    monitor = FoldMonitor(options) if options.http else None
    observers = () if monitor is None else (monitor.observer,)
    with warnings_shown(screen):
        async with _opened(session, options, observers) as fold, _monitored(screen, monitor, fold):
            changes = fold.changes()
            if not options.all:
                await _caught_up(screen, fold)
                changes = fold.changes()
            screen.remark(f"Following {fold.name} from revision {fold.cursor.rank}")
            async with _beside(_side_work(session, options, fold)):
                number = 0
                async for updates in changes:
                    for update in updates:
                        number += 1
                        if shows:
                            screen.item(_change_document(update), _change_line(update))
                        if number == options.count:
                            return
            await fold.ready()  # raises the reason if the fold ended by itself


@contextlib.asynccontextmanager
async def _monitored(
    screen: Screen, monitor: FoldMonitor | None, fold: Fold
) -> AsyncIterator[None]:
    if monitor is None:
        yield
        return
    async with monitor.serving(fold) as (host, port):
        screen.remark(f"Health and metrics are on http://{host}:{port}")
        yield


def _change_document(update: KvUpdate) -> dict[str, Any]:
    from penstock.fold import Op

    document = {"key": update.key, "operation": update.op.name, "revision": update.revision}
    if update.op is Op.PUT:
        return {**document, **payload_document(update.value)}
    return {**document, "reason": update.reason or ""}


def _change_line(update: KvUpdate) -> str:
    from penstock.fold import Op

    where = f"{update.op.name} {update.key} @ {update.revision}"
    if update.op is Op.PUT:
        return printable(f"{where}: {payload_text(update.value)}")
    return printable(f"{where} ({update.reason})" if update.reason else where)


def _side_work(
    session: CommandSession, options: Namespace, fold: Fold
) -> list[Coroutine[Any, Any, object]]:
    """Return the tasks beside following: publish the status to a fleet, ship artifacts."""
    work: list[Coroutine[Any, Any, object]] = []
    if options.status_bucket:
        work.append(_publish(session, options, fold))
    if options.ship:
        if not options.leases:
            raise Failure("--ship needs --leases: a bucket that says who ships")
        work.append(_ship(session, options, fold))
    return work


def _node(options: Namespace) -> str:
    return options.node or socket.gethostname()


async def _publish(session: CommandSession, options: Namespace, fold: Fold) -> None:
    from penstock.fold.ship.fleet_status import keep_publishing

    writer = (await bucket_of(session, options.status_bucket)).writer()
    await keep_publishing(fold, writer, _node(options))


async def _ship(session: CommandSession, options: Namespace, fold: Fold) -> None:
    from penstock.fold import ExportLease, repeat_rounds

    leases = await bucket_of(session, options.leases)
    place = published_at(options.ship, options, TransferBar(session.screen, "Uploading"))
    lease = ExportLease(leases, f"export.{options.bucket}", _node(options))
    await repeat_rounds(
        lease,
        options.every / SECOND_NS,
        fold,
        place.transport,
        place.key,
        Path(options.path).parent,
        form=options.form,
    )


@contextlib.asynccontextmanager
async def _beside(work: list[Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """Run tasks while the body runs; a failing task fails the command."""
    owner = asyncio.current_task()
    assert owner is not None
    tasks = [asyncio.create_task(one) for one in work]
    for task in tasks:
        task.add_done_callback(lambda one: None if one.cancelled() else owner.cancel())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


# -- comparison


async def lag(session: CommandSession, name: str, fold: SnapshotReader) -> int:
    """Return how many revisions the fold lags; raise Failure if it is of another bucket."""
    from penstock.kv.resume_check import is_same_log

    watcher = (await bucket_of(session, name)).watcher()
    assert watcher is not None, "our own configuration names the server"
    info = await watcher.log_info()
    if fold.meta.identity and not is_same_log(fold.meta.identity, info.identity):
        raise Failure(f"the fold is of {fold.meta.identity}, and bucket {name} is {info.identity}")
    return max(0, info.last_seq - fold.cursor.rank)


async def compared(session: CommandSession, name: str, fold: SnapshotReader) -> dict[str, Any]:
    """Check that the fold holds the same as the bucket; raise Failure if not."""
    from penstock.fold.ship.fleet_status import compare_with_bucket

    behind = await lag(session, name, fold)
    bucket = await bucket_of(session, name)
    found = await compare_with_bucket(fold, bucket, prefixes=fold.meta.scope or ("",))
    if not found.agree:
        raise Failure(_difference(found, name, behind))
    return {"bucket": name, "lag": behind, "agree": True}


def _difference(found: BucketComparison, name: str, behind: int) -> str:
    if found.agree is None:
        return f"bucket {name} changed while it was read: try again"
    keys = ", ".join(found.differing[:DIFFERENT_SHOWN_MAX])
    more = ", …" if len(found.differing) > DIFFERENT_SHOWN_MAX else ""
    parts = [f"the fold and bucket {name} differ"]
    parts += [f"the fold is {show_count(behind)} revisions behind"] if behind else []
    parts += [f"not as in the bucket: {keys}{more}"] if keys else []
    parts += [f"{show_count(found.extra)} that the bucket does not have"] if found.extra else []
    return "; ".join(parts)


# -- the fleet


async def fleet(session: CommandSession, options: Namespace) -> None:
    import time

    import msgspec

    from penstock.fold.ship.fleet_status import fleet as read_fleet

    reader = (await bucket_of(session, options.bucket)).reader()
    found = await read_fleet(reader, options.of)
    now, differing = time.time(), _differing(found)
    rows = [_node_row(node, now, differing) for node in found.nodes]
    headings = ("node", "bucket", "state", ">revision", ">lag", ">heard", "digest", ">rejected")
    document = {
        "nodes": [msgspec.to_builtins(node) for node in found.nodes],
        "disagreements": [msgspec.to_builtins(one) for one in found.disagreements()],
    }
    session.screen.answer(document, TableListing("Fleet", headings, rows))
    if differing:
        raise Failure(f"copies differ: {', '.join(sorted(node for _, node in differing))}")


def _differing(found: Fleet) -> set[tuple[str, str]]:
    return {
        (one.bucket, node)
        for one in found.disagreements()
        for holders in one.holders.values()
        for node in holders
    }


def _node_row(node: NodeStatus, now: float, differing: set[tuple[str, str]]) -> list[str]:
    heard = show_duration(max(0, round(now - node.at)) * SECOND_NS)
    digest = "differs" if (node.bucket, node.node) in differing else node.digest.digest[:12]
    return [
        node.node,
        node.bucket,
        node.state,
        show_count(node.cursor),
        show_count(node.lag),
        f"{heard} ago",
        digest,
        show_count(node.rejected_count) if node.rejected_count else "",
    ]
