"""Generates docs/reference/cli.md from the declarations of the commands.

All content comes from the code: names, summaries, arguments and help texts are those of the
declarations that also define the parsers. Arguments common to every command are listed once. A test
fails when the page is outdated. Run it with `make reference`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli.command_list import PLACES, declared
from penstock.cli.command_spec import (
    JSON,
    STREAMING,
    TIMEOUT,
    Argument,
    Command,
    Noun,
    connection_arguments,
    usage_of,
)

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line reference

<!-- Made by tools/cli_reference.py from the declarations in src/penstock/cli.
     Do not edit: run `make reference`. -->

Commands for any NATS server. How to use them:
[the command line](../how-to/command-line.md). `penstock serve` takes nats-server's flags
(`penstock serve --help`), `penstock store` is described in
[check a store](../how-to/check-a-store.md), `penstock bench` in
[benchmarks](../benchmarks.md).

Durations are written like `250ms`, `1h30m` or `7d`, sizes like `4096`, `64KiB` or `1GB` (a suffix
counts in powers of 1024), times like `2026-01-31T12:00:00Z` or, where so long ago is meant, like a
duration.

| exit code | means |
| --- | --- |
| 0 | done; a streaming command was stopped or reached its bounds |
| 1 | it failed: one line on standard error says why, with the API's error code if there is one |
| 2 | the command line is wrong, or `--force` is missing |
| 130 | interrupted |
"""
EVERY = "## What every command takes\n\nThose that ask a server:\n"
STREAMS = "\nThose that go on until they are stopped have, instead of that `--timeout`:\n"


def page() -> str:
    """Return the whole page."""
    told = _table((JSON, TIMEOUT, *connection_arguments()))
    parts = [HEAD, EVERY, told, STREAMS, _table(STREAMING)]
    text = "\n".join(parts)
    for word in PLACES:
        text += "\n" + _section(word)
    return text


def _section(word: str) -> str:
    found = declared(word)
    if isinstance(found, Command):
        return f"## {word}\n\n{_sentence(found.summary)}\n\n{_command(found, f'penstock {word}')}"
    return _noun(found)


def _noun(noun: Noun) -> str:
    text = f"## {noun.name}\n\n{_sentence(noun.summary)}\n"
    for command in noun.commands:
        name = f"{noun.name} {command.name}"
        body = _command(command, f"penstock {name}")
        text += f"\n### {name}\n\n{_sentence(command.summary)}\n\n{body}"
    return text


def _command(command: Command, name: str) -> str:
    arguments = command.arguments()
    streams = " It goes on until it is stopped.\n\n" if command.streams else ""
    usage = f"```text\n{usage_of(name, arguments)}\n```\n"
    table = f"\n{_table(arguments)}" if arguments else ""
    return f"{streams.lstrip()}{usage}{table}"


def _table(arguments: tuple[Argument, ...] | list[Argument]) -> str:
    rows = ["| argument | meaning |\n", "| --- | --- |\n"]
    rows += [f"| {_spelled(one)} | {_meaning(one)} |\n" for one in arguments]
    return "".join(rows)


def _spelled(one: Argument) -> str:
    if not one.names[0].startswith("-"):
        return f"`{one.names[0]}`"
    value = one.settings.get("metavar", "")
    if "choices" in one.settings:
        value = "\\|".join(one.settings["choices"])
    names = list(one.names)
    if one.settings.get("action") is argparse.BooleanOptionalAction:
        names.append(f"--no-{names[0].removeprefix('--')}")
    return ", ".join(f"`{name}`" for name in names) + (f" {value}" if value else "")


def _meaning(one: Argument) -> str:
    text = str(one.settings["help"]).replace("%%", "%")
    return text.replace("<", "\\<").replace("|", "\\|").replace("*", "\\*")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
