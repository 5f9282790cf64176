"""One command line through the reference and through ours: exit code and error.

The errors are compared without the name of the program, which comes first.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from penstock.server.config.command_line import CheckConfig, UsageError, parse_command_line
from support.patience import PATIENCE_SECONDS
from support.servers import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def reference(argv: Sequence[str], cwd: Path) -> tuple[int, str]:
    """Exit code and stderr of a reference that ends by itself."""
    assert REFERENCE is not None
    ended = subprocess.run(
        [*REFERENCE.command, *argv],
        cwd=cwd,
        env={"NUMBER": "42", "WORD": "word", "LIST": "[ a, b ]", "BAD": "[ a"},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return ended.returncode, _nameless(ended.stderr.decode(errors="replace").strip())


def ours(argv: Sequence[str]) -> tuple[int, str]:
    environ = {"NUMBER": "42", "WORD": "word", "LIST": "[ a, b ]", "BAD": "[ a"}
    try:
        command = parse_command_line(argv, environ)
    except UsageError as error:
        return error.exit_code, error.message
    return 0, _nameless(command.message) if isinstance(command, CheckConfig) else ""


def _nameless(text: str) -> str:
    return text.removeprefix("nats-server: ")
