"""Local folds for `penstock fold`: show, query and dump them. No server is needed.

All functions only read, even while another process keeps the fold up to date. Values are shown as
in every command: text if they are text, else base64, without terminal control characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.cli_errors import Failure
from penstock.cli.message_format import payload_document, payload_text
from penstock.cli.output import (
    NOTHING,
    Facts,
    TableListing,
    printable,
    show_bytes,
    show_count,
    show_yes,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from penstock.cli.output import Screen
    from penstock.fold import KvEntry, SnapshotReader, VersionToken, WatchCursor

CHECKSUM_BYTES: Final = 4
VERSION_LENGTH_BYTES: Final = 1


# -- entries


def show_version(version: VersionToken | WatchCursor) -> str:
    """Format a revision as a number, another engine's token in hexadecimal."""
    if version.revision is None:
        return version.raw.hex() or NOTHING
    return str(version.revision)


def entry_document(entry: KvEntry) -> dict[str, Any]:
    version = {"version": entry.version.raw.hex()} if entry.revision is None else {}
    value = payload_document(entry.value)
    return {"key": entry.key, "revision": entry.revision, **version, **value}


def entry_line(entry: KvEntry) -> str:
    return printable(f"{entry.key} @ {show_version(entry.version)}: {payload_text(entry.value)}")


def get(screen: Screen, options: Namespace) -> None:
    from penstock.fold.artifact.store_detect import open_reader

    with open_reader(options.path) as fold:
        entry = fold.get(options.key)
    if entry is None:
        raise Failure(f"there is no key {options.key} in {options.path}")
    if options.raw:
        screen.raw(entry.value)
        return
    screen.answer(entry_document(entry), entry_line(entry))


def ls(screen: Screen, options: Namespace) -> None:
    for entry in _range(options):
        screen.item(entry.key, printable(entry.key))


def scan(screen: Screen, options: Namespace) -> None:
    for entry in _range(options):
        screen.item(entry_document(entry), entry_line(entry))


def _range(options: Namespace) -> Iterator[KvEntry]:
    from penstock.fold.artifact.store_detect import open_reader

    with open_reader(options.path) as fold:
        yield from fold.range(options.prefix, after=options.after, limit=options.limit)


# -- SQL


def sql(screen: Screen, options: Namespace) -> None:
    from penstock.fold import FoldSql, SqliteSnapshot
    from penstock.fold.artifact.store_detect import kind_at

    kind = kind_at(options.path)
    if kind is not SqliteSnapshot:
        raise Failure(f"{options.path}: SQL is for folds in SQLite, and this is in {kind.backend}")
    with FoldSql.open(options.path) as asked:
        names = asked.columns(options.statement)
        rows = asked.query(options.statement)
    documents = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
    shown = [[_shown(value) for value in row] for row in rows]
    numbers = [isinstance(value, int | float) for value in (rows[0] if rows else names)]
    headings = [f">{name}" if right else name for name, right in zip(names, numbers, strict=True)]
    title = f"{show_count(len(rows))} row{'' if len(rows) == 1 else 's'}"
    screen.answer(documents, TableListing(title, headings, shown))


def _plain(value: Any) -> Any:
    """Convert a cell to JSON: bytes as text or base64."""
    return payload_document(value)["data"] if isinstance(value, bytes) else value


def _shown(value: Any) -> str:
    if value is None:
        return NOTHING
    return payload_text(value) if isinstance(value, bytes) else str(value)


# -- summary


def described(fold: SnapshotReader, path: Path) -> dict[str, Any]:
    """Return the properties of a fold as a document."""
    from penstock.fold.artifact.store_detect import bytes_at, kind_at

    return {
        "path": str(path),
        "backend": kind_at(path).backend,
        "cursor": fold.cursor.rank,
        "entries": fold.count(),
        "bytes": bytes_at(path),
        "identity": fold.meta.identity,
        "scope": list(fold.meta.scope),
        "seen_evicting": fold.meta.seen_evicting,
    }


def facts(document: dict[str, Any]) -> Facts:
    """Return the same properties as a block for display."""
    rows = [
        ("state", document.get("state", "")),
        ("backend", document["backend"]),
        ("revision", show_count(document["cursor"])),
        ("lag", show_count(document["lag"]) if "lag" in document else ""),
        ("entries", show_count(document["entries"])),
        ("size", show_bytes(document["bytes"])),
        ("of", document["identity"]),
        ("prefixes", ", ".join(prefix or "all" for prefix in document["scope"])),
        ("bucket drops values", show_yes(document["seen_evicting"])),
        ("digest", document.get("digest", "")),
        ("error", document.get("error", "")),
    ]
    return Facts(f"Fold {document['path']}", rows)


# -- the append log, record by record


def dump(screen: Screen, options: Namespace) -> None:
    """Print every record with its offset and checksum; raise Failure if the end is damaged."""
    from penstock.fold import AppendLogSnapshot
    from penstock.fold.artifact.store_detect import kind_at
    from penstock.fold.store import pgss

    path = Path(options.path)
    kind = kind_at(path)
    if kind is not AppendLogSnapshot:
        raise Failure(f"{path}: this is a fold in {kind.backend}, not an append log")
    data = path.read_bytes()
    pgss.check_header(data, str(path))
    for offset, record, wrong in _records(data):
        if record is not None:
            screen.item(*_described_record(data, offset, record))
        elif wrong:
            raise Failure(f"{path}: {wrong} at byte {offset} of {len(data)}")


Record = tuple[int, str, bytes, bytes, bool]


def _records(data: bytes) -> Iterator[tuple[int, Record | None, str]]:
    """Yield each record with its offset; finally the fault at the end, if any."""
    from penstock.fold.store import log_scan, pgss

    offset = len(pgss.HEADER)
    while True:
        found, end, verdict = log_scan.read_records(data, offset, 1)
        if not found:
            wrong = {log_scan.END: "", log_scan.TORN: "torn"}
            yield offset, None, wrong.get(verdict, "damaged, or not a record")
            return
        yield offset, found[0], ""
        offset = end


def _described_record(data: bytes, offset: int, record: Record) -> tuple[dict[str, Any], str]:
    from penstock.fold import VersionToken, WatchCursor
    from penstock.fold.store import pgss

    kind, key, value, version, evicting = record
    word = {pgss.PUT: "put", pgss.DELETE: "delete", pgss.CURSOR: "cursor"}[kind]
    crc = int.from_bytes(data[offset : offset + CHECKSUM_BYTES], "little")
    place = {"offset": offset, "crc": f"{crc:08x}", "record": word}
    if kind == pgss.CURSOR:
        at = show_version(WatchCursor(version))
        document = {**place, "cursor": at, "seen_evicting": evicting}
        return document, f"{offset:>10} {crc:08x} {word} {at}"
    token = show_version(VersionToken(version[VERSION_LENGTH_BYTES:]))
    document = {**place, "key": key, "version": token}
    document |= payload_document(value) if kind == pgss.PUT else {}
    text = f"{offset:>10} {crc:08x} {word} {key} @ {token}"
    text += f": {payload_text(value)}" if kind == pgss.PUT else ""
    return document, printable(text)
