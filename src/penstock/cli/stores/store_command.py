"""`penstock store`: inspect and repair the files of streams while no server runs.

`inspect` shows the contents, `verify` reads every byte and reports damage, `repair` drops damaged
data and keeps the replaced files aside, `compact` frees the space of removed messages, and `rekey`
encrypts everything again with new keys.

The exit code is 0 if all is well, 1 if damage was found (or remains after a repair), 2 for a wrong
command line, 3 if the files cannot be used (a server holds them, the key is wrong, nothing is
there), 130 when interrupted. Errors are one plain line on standard error.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.argument_parser import Parser
from penstock.cli.cli_errors import error_line
from penstock.cli.stores import store_repair, store_tables
from penstock.cli.stores.store_findings import Finding, examine
from penstock.jetstream.account.store_scan import find_places, held
from penstock.store.errors import Locked, StoreError
from penstock.store.filestore import FileStore
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import SALT_BYTES
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from rich.console import Console

    from penstock.jetstream.account.store_scan import StoreLocation

EXIT_OK, EXIT_DAMAGED, EXIT_USAGE, EXIT_UNUSABLE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
READING: Final = ("inspect", "verify")
"""Actions that only read."""
NAME: Final = "penstock store"
KEY_VARIABLE: Final = "PENSTOCK_STORE_KEY"
KEY_BYTES_MAX: Final = 4096
PLAIN_COLUMNS: Final = 160
"""Width of tables if the width of a line is unknown."""

Result = dict[str, Any]


class Unusable(Exception):
    """Why the files cannot be used, as text for the operator."""


def run(argv: list[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    try:
        return _carry_out(options)
    except (Unusable, StoreError) as error:
        print(error_line(NAME, str(error)), file=sys.stderr)
        return EXIT_UNUSABLE
    except BrokenPipeError:
        raise
    except OSError as error:
        print(error_line(NAME, f"{error.filename}: {error.strerror}"), file=sys.stderr)
        return EXIT_UNUSABLE
    except KeyboardInterrupt:
        print(error_line(NAME, "interrupted"), file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> Parser:
    parser = Parser(
        prog=NAME,
        description="Look into the files of streams while no server runs, and put them right.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("inspect", "show blocks, counts, sequences and subjects"),
        ("verify", "read every byte and report what is damaged; exit code 1 if anything is"),
        ("repair", "leave damage behind; what is replaced is kept aside"),
        ("compact", "give back the space of removed messages"),
        ("rekey", "encrypt every message again under a new data key, and destroy the old files"),
    ):
        one = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        one.add_argument("directory", type=Path, help="a store, a stream, or all below")
        one.add_argument("--json", action="store_true", help="print JSON instead of tables")
        one.add_argument(
            "--key-file",
            type=Path,
            metavar="FILE",
            help=f"the key of encrypted stores; else it is taken from {KEY_VARIABLE}",
        )
        if name == "rekey":
            one.add_argument(
                "--new-key-file",
                type=Path,
                metavar="FILE",
                help="the key from now on, which the server must then be given; else as before",
            )
    return parser


def _carry_out(options: argparse.Namespace) -> int:
    if not options.directory.is_dir():
        finished = store_repair.finish_swap(options.directory)
        if not finished:
            raise Unusable(f"{options.directory} is not a directory")
    places = find_places(options.directory)
    if not places:
        raise Unusable(f"there is no store in or below {options.directory}")
    _allow_open_files()
    try:
        with held(places, alone=options.action not in READING):
            return _act(options, places)
    except Locked as lock:
        raise Unusable(
            f"{lock.path} is held by a running server, or by a penstock store that changes it: "
            "stop it first"
        ) from None


def _allow_open_files() -> None:
    """Raise the limit of open files: a lock needs a descriptor, one per stream."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _act(options: argparse.Namespace, places: list[StoreLocation]) -> int:
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_COLUMNS
    console = Console(stderr=options.json, highlight=False, width=width)
    findings = [Finding(place) for place in places]
    _examine_all(findings, _open_options(options), console)
    return ACTIONS[options.action](options, findings, console)


def _open_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options for opening stores: the key, if one was given."""
    if options.key_file is not None:
        return _keyed(_secret_in(options.key_file))
    return _keyed(os.environ.get(KEY_VARIABLE, ""))


def _secret_in(path: Path) -> str:
    try:
        return path.read_text()[:KEY_BYTES_MAX].strip()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None


def _keyed(secret: str) -> dict[str, Any]:
    if not secret:
        return {}
    from penstock.store.format.encryption import ServerKey

    return {"key": ServerKey(secret)}


def _examine_all(findings: list[Finding], options: dict[str, Any], console: Console) -> None:
    total = sum(
        path.stat().st_size for one in findings for path in one.place.messages.glob("*.blk")
    )
    steps = (read for one in findings for read in examine(one, options))
    _with_progress("reading", total, steps, console)


def _with_progress(title: str, total: int, steps: Iterable[int], console: Console) -> None:
    """Run the steps, each worth its part of the total; show a bar on a terminal only."""
    if not sys.stderr.isatty():
        for _ in steps:
            pass
        return
    from rich.console import Console as Bar
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Bar(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total or None)
        for step in steps:
            progress.advance(task, step)


# -- actions


def _inspect(options: argparse.Namespace, findings: list[Finding], console: Console) -> int:
    if options.json:
        print(store_tables.as_json("inspect", findings, [{}] * len(findings)))
        return EXIT_OK
    store_tables.show_summary(console, findings)
    for finding in findings:
        store_tables.show_blocks(console, finding)
        store_tables.show_subjects(console, finding)
    store_tables.show_problems(console, findings)
    return EXIT_UNUSABLE if any(finding.failure for finding in findings) else EXIT_OK


def _verify(options: argparse.Namespace, findings: list[Finding], console: Console) -> int:
    if options.json:
        print(store_tables.as_json("verify", findings, [{}] * len(findings)))
    else:
        store_tables.show_summary(console, findings)
        store_tables.show_problems(console, findings)
    return _verdict(findings)


def _verdict(findings: list[Finding]) -> int:
    if any(finding.problems() for finding in findings):
        return EXIT_DAMAGED
    return EXIT_UNUSABLE if any(finding.failure for finding in findings) else EXIT_OK


def _repair(options: argparse.Namespace, findings: list[Finding], console: Console) -> int:
    _refuse_failures(findings)
    given = _open_options(options)
    results = [_repair_one(finding, given, console) for finding in findings]
    if options.json:
        print(store_tables.as_json("repair", findings, results))
    else:
        store_tables.show_problems(console, findings)
        for finding, result in zip(findings, results, strict=True):
            _show_repaired(console, finding, result)
    return EXIT_DAMAGED if any(result["left"] for result in results) else EXIT_OK


def _refuse_failures(findings: list[Finding]) -> None:
    for finding in findings:
        if finding.failure:
            raise Unusable(finding.failure)


def _repair_one(finding: Finding, given: dict[str, Any], console: Console) -> Result:
    kept: list[str] = []
    if finding.messages_damaged():
        if finding.report is None:  # no header is valid: the stream is unknown
            return {"repaired": False, "aside": [], "left": finding.problems()}
        steps = store_repair.rebuild_messages(finding, given | _as_stored(finding))
        _with_progress("copying", finding.report.state.msgs, _differences(steps), console)
        kept += [str(path) for path in store_repair.asides(finding.place.messages)[-1:]]
    kept += store_repair.repair_consumers(finding)
    kept += store_repair.repair_meta(finding)
    after = Finding(finding.place)
    for _ in examine(after, given):
        pass
    return {"repaired": bool(kept), "aside": kept, "left": after.problems()}


def _as_stored(finding: Finding) -> dict[str, Any]:
    """Return the compression for rewritten blocks: the one they have."""
    compressed = any(block.compressed for block in finding.blocks)
    return {"compression": BlockCompression.ZSTD} if compressed else {}


def _differences(counts: Iterable[int]) -> Iterable[int]:
    before = 0
    for count in counts:
        yield count - before
        before = count


def _show_repaired(console: Console, finding: Finding, result: Result) -> None:
    shown = finding.place.shown
    if result["left"]:
        console.print(f"[red]not repaired[/] {shown}: {'; '.join(result['left'])}", soft_wrap=True)
    elif result["repaired"]:
        console.print(f"[green]repaired[/] {shown}; what was there before is kept:")
        for path in result["aside"]:
            console.print(f"  {path}", soft_wrap=True)
    else:
        console.print(f"[green]sound[/] {shown}: nothing to repair")


def _refuse_damage(findings: list[Finding]) -> None:
    _refuse_failures(findings)
    damaged = [finding.place.shown for finding in findings if finding.problems()]
    if damaged:
        raise Unusable(f"{damaged[0]} is damaged: repair it first, or restore it")


def _compact(options: argparse.Namespace, findings: list[Finding], console: Console) -> int:
    _refuse_damage(findings)
    results = [_compact_one(finding, _open_options(options)) for finding in findings]
    if options.json:
        print(store_tables.as_json("compact", findings, results))
        return EXIT_OK
    for finding, result in zip(findings, results, strict=True):
        before, after = result["bytes_before"], result["bytes_after"]
        console.print(
            f"{finding.place.shown}: {before:,} bytes before, {after:,} after, "
            f"{result['rewritten']} blocks rewritten",
            soft_wrap=True,
        )
    return EXIT_OK


def _compact_one(finding: Finding, given: dict[str, Any]) -> Result:
    before = _bytes_on_disk(finding)
    disk = RealDisk.at(finding.place.messages)
    rewritten = 0
    try:
        how = given | _as_stored(finding)
        store = FileStore.open(disk, incarnation=finding.incarnation, noise=os.urandom, **how)
        while (work := store.pending_compaction()) is not None:
            work.run()
            store.compacted(work)
            rewritten += 1
        store.close()
    finally:
        disk.close()
    return {
        "rewritten": rewritten,
        "bytes_before": before,
        "bytes_after": _bytes_on_disk(finding),
    }


def _rekey(options: argparse.Namespace, findings: list[Finding], console: Console) -> int:
    _refuse_damage(findings)
    given = _open_options(options)
    new_options = (
        given if options.new_key_file is None else _keyed(_secret_in(options.new_key_file))
    )
    if not new_options:
        raise Unusable("there is no key to encrypt with: give one with --new-key-file")
    # One salt for all streams: deriving a key is slow, and a server does it once per salt.
    new_options = new_options | {"key_salt": os.urandom(SALT_BYTES)}
    results = [_rekey_one(finding, given, new_options, console) for finding in findings]
    if options.json:
        print(store_tables.as_json("rekey", findings, results))
        return EXIT_OK
    for finding, result in zip(findings, results, strict=True):
        console.print(
            f"[green]encrypted again[/] {finding.place.shown}: {result['messages']:,} messages",
            soft_wrap=True,
        )
    return EXIT_OK


def _rekey_one(
    finding: Finding, given: dict[str, Any], new_options: dict[str, Any], console: Console
) -> Result:
    assert finding.report is not None  # otherwise it was refused as damaged
    messages = finding.report.state.msgs
    steps = store_repair.rebuild_messages(finding, given | _as_stored(finding), new_options)
    _with_progress("encrypting", messages, _differences(steps), console)
    store_repair.destroy(store_repair.asides(finding.place.messages)[-1])
    return {"messages": messages}


def _bytes_on_disk(finding: Finding) -> int:
    return sum(path.stat().st_size for path in finding.place.messages.iterdir())


ACTIONS: Final[dict[str, Callable[[argparse.Namespace, list[Finding], Console], int]]] = {
    "inspect": _inspect,
    "verify": _verify,
    "repair": _repair,
    "compact": _compact,
    "rekey": _rekey,
}
