"""The `penstock` command: one word per job, each in its own file."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.base.version import REFERENCE_VERSION, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

HELP: Final = f"""\
penstock {VERSION}: a NATS server for Python (protocol of NATS {REFERENCE_VERSION})

Usage: penstock COMMAND [ARGUMENTS]

A server:
    serve     run the server; takes nats-server's flags and configuration files
    store     look into the files of streams, verify, repair, compact them
    bench     measure a NATS server, or compare this one with the reference

Any NATS server:
    pub       publish a message
    sub       show messages as they come
    req       ask, and show the answer
    reply     answer requests
    stream    streams and their messages
    consumer  consumers of a stream and what they deliver
    kv        buckets of keys and values
    object    files of any size in buckets
    fold      local copies of buckets that keep themselves up to date
    pipeline  jobs on Spark over streams, archives and folds
    account   what your account may use, and does
    server    servers and how they are
    context   servers and logins under a name

    version   print the version

`penstock COMMAND --help` describes one command.
"""


def main() -> int:
    """Run the command and return its exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        from penstock.cli.cli_errors import EXIT_USAGE, error_line, unknown

        text = unknown("command", arguments[0], COMMANDS)
        print(error_line("penstock", f"{text}; see penstock --help"), file=sys.stderr)
        return EXIT_USAGE
    try:
        return command(arguments[1:])
    except BrokenPipeError:
        # The reader closed our output; the rest must not be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _serve(arguments: list[str]) -> int:
    from penstock.server.serve_command import run

    return run(arguments)


def _bench(arguments: list[str]) -> int:
    from penstock.cli.commands.bench_command import run

    return run(arguments)


def _store(arguments: list[str]) -> int:
    from penstock.cli.stores.store_command import run

    return run(arguments)


def _client(word: str, arguments: list[str]) -> int:
    from penstock.cli.command_list import run

    return run(word, arguments)


def _version(_arguments: list[str]) -> int:
    print(f"penstock {VERSION} (NATS {REFERENCE_VERSION})")
    return 0


#: Commands that connect to any server; `command_list` knows where each is declared.
CLIENTS: Final = (
    "pub",
    "sub",
    "req",
    "reply",
    "stream",
    "consumer",
    "kv",
    "object",
    "fold",
    "pipeline",
    "account",
    "server",
    "context",
)
COMMANDS: Final[dict[str, Callable[[list[str]], int]]] = {
    "serve": _serve,
    "bench": _bench,
    "store": _store,
    "version": _version,
    "--version": _version,
    **{word: partial(_client, word) for word in CLIENTS},
}
