"""The argument parser of every command: errors are one line that begins with `penstock:`.

The line comes first and names the command; the usage follows it. For a mistyped action or option it
suggests the nearest one that exists. `penstock serve` takes the reference's flags and has its own
parser (`server/config/flag_parser.py`).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from penstock.cli.cli_errors import EXIT_USAGE, error_line, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` with the errors of this command line."""

    def error(self, message: str) -> NoReturn:
        print(error_line(self.prog, message), file=sys.stderr)
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        options, extra = self.parse_known_args(args, namespace)
        for word in extra:
            if word.startswith("-"):
                self.error(unknown("option", word.partition("=")[0], self._all_options()))
            self.error(f'too many words: "{word}" has no meaning here')
        return options

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(unknown("action", str(value), action.choices))
        super()._check_value(action, value)

    def _all_options(self) -> list[str]:
        """Return the options of this parser and of the parsers of its actions."""
        return [
            name
            for parser in (self, *self._below())
            for action in parser._actions
            for name in action.option_strings
        ]

    def _below(self) -> Iterator[argparse.ArgumentParser]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()
