"""Format the findings of `penstock store`: tables for people, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from penstock.cli.stores.store_findings import Finding

JSON_VERSION: Final = 1
SUBJECTS_SHOWN: Final = 10


def as_json(action: str, findings: Sequence[Finding], results: Sequence[dict[str, Any]]) -> str:
    """Return all findings and the results of the action as JSON."""
    stores = [_plain(finding) | result for finding, result in zip(findings, results, strict=True)]
    return json.dumps({"version": JSON_VERSION, "action": action, "stores": stores}, indent=1)


def _plain(finding: Finding) -> dict[str, Any]:
    report = finding.report
    state = None if report is None else report.state
    return {
        "path": finding.place.shown,
        "incarnation": finding.incarnation,
        "clean": not finding.problems() and not finding.failure,
        "failure": finding.failure,
        "problems": finding.problems(),
        "notes": finding.notes(),
        "messages": state.msgs if state else 0,
        "bytes": state.bytes if state else 0,
        "first_seq": state.first_seq if state else 0,
        "last_seq": state.last_seq if state else 0,
        "subjects": len(report.subjects) if report else 0,
        "damaged": [list(span) for span in report.damaged] if report else [],
        "blocks": [asdict(block) for block in finding.blocks],
        "unreadable": finding.unreadable,
        "consumers": [asdict(consumer) for consumer in finding.consumers],
    }


def show_summary(console: Console, findings: Sequence[Finding]) -> None:
    """Print one line per stream."""
    from rich.table import Table

    table = Table(title="Streams", title_justify="left")
    for heading in ("store", "messages", "bytes", "sequences", "subjects", "blocks", "on disk"):
        table.add_column(heading, justify="left" if heading == "store" else "right")
    table.add_column("consumers", justify="right")
    table.add_column("state")
    for finding in findings:
        report = finding.report
        state = None if report is None else report.state
        table.add_row(
            finding.place.shown,
            f"{state.msgs:,}" if state else "–",
            _bytes(state.bytes) if state else "–",
            f"{state.first_seq:,} – {state.last_seq:,}" if state else "–",
            f"{len(report.subjects):,}" if report else "–",
            str(len(finding.blocks)),
            _bytes(sum(block.file_bytes for block in finding.blocks)),
            str(len(finding.consumers)),
            _state(finding),
        )
    console.print(table)


def _state(finding: Finding) -> str:
    if finding.problems():
        return "[red]damaged[/]"
    return "[red]not readable[/]" if finding.failure else "[green]sound[/]"


def show_blocks(console: Console, finding: Finding) -> None:
    """Print one line per block of a stream."""
    from rich.table import Table

    if not finding.blocks:
        return
    table = Table(title=f"Blocks of {finding.place.shown}", title_justify="left")
    for heading in ("block", "on disk", "from", "to", "messages", "others"):
        table.add_column(heading, justify="right")
    for heading in ("stored", "state"):
        table.add_column(heading)
    for block in finding.blocks:
        stored = [block.form, *(["compressed"] if block.compressed else [])]
        stored += ["encrypted"] if block.encrypted else []
        table.add_row(
            block.name,
            _bytes(block.file_bytes),
            f"{block.first_seq:,}",
            f"{block.last_seq:,}" if block.last_seq else "–",
            f"{block.messages:,}",
            f"{block.other_records:,}",
            ", ".join(stored),
            "[red]damaged[/]" if block.faults else "sealed" if block.sealed else "open",
        )
    console.print(table)


def show_subjects(console: Console, finding: Finding) -> None:
    """Print the subjects with the most messages."""
    from rich.table import Table

    if finding.report is None or not finding.report.subjects:
        return
    subjects = finding.report.subjects
    most = sorted(subjects.items(), key=lambda item: (-item[1], item[0]))[:SUBJECTS_SHOWN]
    title = f"Subjects of {finding.place.shown}, {len(most)} of {len(subjects):,}"
    table = Table(title=title, title_justify="left")
    table.add_column("subject")
    table.add_column("messages", justify="right")
    for subject, count in most:
        table.add_row(subject, f"{count:,}")
    console.print(table)


def show_problems(console: Console, findings: Sequence[Finding]) -> None:
    """Print failures, damage and remarks."""
    for finding in findings:
        if finding.failure:
            console.print(f"[red]not readable[/] {finding.failure}", soft_wrap=True)
        for line in finding.problems():
            console.print(f"[red]damage[/] {finding.place.shown}: {line}", soft_wrap=True)
        for line in finding.notes():
            console.print(f"[yellow]note[/] {finding.place.shown}: {line}", soft_wrap=True)


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:,.0f} {units[0]}" if units[0] == "B" else f"{size:,.1f} {units[0]}"
