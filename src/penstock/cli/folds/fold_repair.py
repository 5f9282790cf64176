"""`penstock fold repair`: make a fold equal to its bucket, and keep removed entries aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.api_calls import checked_name
from penstock.cli.cli_errors import Failure
from penstock.cli.commands.bucket_streams import bucket_info
from penstock.cli.folds.fold_copies import meant
from penstock.cli.folds.fold_live import config_of, warnings_shown
from penstock.cli.output import Facts, show_count

if TYPE_CHECKING:
    from argparse import Namespace

    from penstock.cli.command_session import CommandSession


async def repair(session: CommandSession, options: Namespace) -> None:
    from penstock.fold import KEYS_ONLY, Fold
    from penstock.fold.artifact.store_detect import kind_at, open_reader

    await bucket_info(session, options.bucket, f"KV_{checked_name(options.bucket, 'bucket')}")
    with meant():
        kind = kind_at(options.path)
        with open_reader(options.path) as reader:
            prefixes, kept = reader.meta.scope or ("",), reader.meta.keep
        if kept not in ("", KEYS_ONLY.name):
            reason = f"it keeps what {kept!r} of a program returns: call Fold.resync() there"
            raise Failure(f"{options.path}: {reason}")
        fold = Fold.open(
            options.bucket,
            options.path,
            scope=prefixes,
            backend=kind,
            config=config_of(session.target),
            keep=KEYS_ONLY if kept else None,
        )
    with warnings_shown(None):
        async with fold:
            done = await fold.resync()
            document = {
                "path": str(Path(options.path)),
                "bucket": options.bucket,
                "cursor": fold.cursor.rank,
                "entries": fold.count(),
                "removed": done.removed,
                "aside": "" if done.aside is None else str(done.aside),
            }
    rows = [
        ("revision", show_count(document["cursor"])),
        ("entries", show_count(document["entries"])),
        ("removed", show_count(done.removed)),
        ("kept aside in", document["aside"]),
    ]
    session.screen.answer(document, Facts(f"{options.path} is as bucket {options.bucket}", rows))
