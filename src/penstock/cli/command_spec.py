"""Declaration and execution of commands.

A `Noun` has `Command`s; a command has a word, a summary, arguments and an implementation. The
parser, the help texts and the reference page are derived from these. The arguments of a command are
built only when it is chosen, so that help is fast. `carry_out` turns a command line into an exit
code: errors become one line on standard error, and an interrupt ends a streaming command
successfully.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.cli.argument_parser import Parser
from penstock.cli.argument_values import positive, positive_duration
from penstock.cli.cli_errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    Failure,
    Misuse,
    describe_error,
    error_line,
    unknown,
)
from penstock.cli.output import Screen

ANSWER_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Argument:
    """Settings of one `argparse` argument; help shows the arguments of a group together."""

    names: tuple[str, ...]
    settings: dict[str, Any]
    group: str = ""


def argument(*names: str, group: str = "", **settings: Any) -> Argument:
    """Declare an argument with the parameters of `argparse`."""
    return Argument(names, settings, group)


if TYPE_CHECKING:
    from penstock.cli.command_session import CommandSession

Online = Callable[["CommandSession", argparse.Namespace], Coroutine[Any, Any, None]]
Local = Callable[[Screen, argparse.Namespace], None]
Declared = Callable[[], Sequence[Argument]]


def no_arguments() -> tuple[Argument, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Command:
    """One command: it needs a server (`online`) or only this machine (`local`)."""

    name: str
    summary: str
    arguments: Declared = no_arguments
    online: Online | None = None
    local: Local | None = None
    #: It runs until its limits are reached or the user stops it.
    streams: bool = False

    def all_arguments(self) -> tuple[Argument, ...]:
        """Return its own arguments and those of every command of its type."""
        own = (*self.arguments(), JSON)
        if self.online is None:
            return own
        bounds = STREAMING if self.streams else (TIMEOUT,)
        return (*own, *bounds, *connection_arguments())


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of commands about one kind of object."""

    name: str
    summary: str
    commands: tuple[Command, ...]

    def find(self, word: str) -> Command | None:
        return next((one for one in self.commands if one.name == word), None)


JSON: Final = argument("--json", action="store_true", help="print JSON instead of tables")
TIMEOUT: Final = argument(
    "--timeout",
    type=positive_duration,
    default=ANSWER_SECONDS * SECOND_NS,
    metavar="DURATION",
    help=f"how long to wait for an answer (default: {ANSWER_SECONDS}s)",
)
STREAMING: Final = (
    argument("--count", type=positive, metavar="N", help="stop after so many"),
    argument(
        "--timeout",
        type=positive_duration,
        metavar="DURATION",
        help="stop after so long; with --count, fewer by then is a failure",
    ),
)


def connection_arguments(*, of_a_context: bool = False) -> tuple[Argument, ...]:
    """Return the arguments that select the server and the login."""
    group = "connection"

    def text(*names: str, metavar: str, help: str) -> Argument:
        return argument(*names, group=group, default="", metavar=metavar, help=help)

    chosen = () if of_a_context else (text("--context", metavar="NAME", help="take a context"),)
    return (
        text("-s", "--server", metavar="URL", help="server or servers, with commas (NATS_URL)"),
        *chosen,
        text("--creds", metavar="FILE", help="user credentials (NATS_CREDS)"),
        text("--nkey", metavar="FILE", help="seed of a user nkey (NATS_NKEY)"),
        text("--user", metavar="NAME", help="user (NATS_USER)"),
        text("--password", metavar="TEXT", help="password (NATS_PASSWORD)"),
        text("--token", metavar="TEXT", help="token (NATS_TOKEN)"),
        text("--tlsca", metavar="FILE", help="certificates to trust (NATS_CA)"),
        text("--tlscert", metavar="FILE", help="certificate to show (NATS_CERT)"),
        text("--tlskey", metavar="FILE", help="its key (NATS_KEY)"),
        argument(
            "--tlsfirst",
            group=group,
            action="store_const",
            const="yes",
            default="",
            help="start with TLS, before the server sends INFO",
        ),
        text("--domain", metavar="NAME", help="JetStream domain"),
        text("--inbox-prefix", metavar="SUBJECT", help="where answers go, instead of _INBOX"),
    )


# -- parsing


def parser_of(command: Command, name: str) -> Parser:
    """Return the parser of one command, called `name` in its help."""
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    arguments = command.all_arguments()
    parser = Parser(
        prog=name, usage=usage_of(name, arguments), description=summary, allow_abbrev=False
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in arguments:
        place: argparse._ActionsContainer = parser
        if one.group:
            place = groups.setdefault(one.group, parser.add_argument_group(one.group))
        place.add_argument(*one.names, **one.settings)
    return parser


def usage_of(name: str, arguments: Sequence[Argument]) -> str:
    """Return the usage line: positional arguments, optional ones in brackets."""
    words = [name, "[OPTIONS]"]
    for one in arguments:
        if one.names[0].startswith("-"):
            continue
        word = one.names[0].upper()
        many = {"?": f"[{word}]", "+": f"{word} [{word} ...]"}
        words.append(many.get(one.settings.get("nargs", ""), word))
    return " ".join(words)


def noun_help(noun: Noun) -> str:
    """Return the text of `penstock NOUN --help`."""
    width = max(len(one.name) for one in noun.commands)
    lines = [f"    {one.name:{width}}   {one.summary}" for one in noun.commands]
    return "\n".join(
        (
            f"Usage: penstock {noun.name} ACTION [ARGUMENTS]",
            "",
            f"{noun.summary[0].upper()}{noun.summary[1:]}.",
            "",
            *lines,
            "",
            f"`penstock {noun.name} ACTION --help` describes one action.",
        )
    )


def run_noun(noun: Noun, argv: list[str]) -> int:
    """Run `penstock NOUN ...` and return the exit code."""
    command = noun.find(argv[0]) if argv else None
    if command is not None:
        return carry_out(command, f"penstock {noun.name} {command.name}", argv[1:])
    if argv and argv[0] in ("-h", "--help", "help"):
        print(noun_help(noun))
        return EXIT_OK
    name = f"penstock {noun.name}"
    text = "an action is missing"
    if argv:
        text = unknown("action", argv[0], (one.name for one in noun.commands))
    print(error_line(name, f"{text}; see {name} --help"), file=sys.stderr)
    return EXIT_USAGE


def carry_out(command: Command, name: str, argv: list[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        options = parser_of(command, name).parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    try:
        _perform(command, options)
    except KeyboardInterrupt:
        print(error_line(name, "interrupted"), file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        text = describe_error(error)
        if text is None:
            raise
        print(error_line(name, text), file=sys.stderr)
        return error.exit_code if isinstance(error, Failure) else Failure.exit_code
    return EXIT_OK


def _perform(command: Command, options: argparse.Namespace) -> None:
    screen = Screen(as_json=options.json)
    if command.local is not None:
        command.local(screen, options)
        return
    import asyncio

    from penstock.cli.command_session import hold

    assert command.online is not None
    asyncio.run(hold(command.online, screen, options, streams=command.streams))


def confirm(question: str, options: argparse.Namespace) -> None:
    """Ask before data is lost; without a terminal only `--force` confirms."""
    if options.force:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{question} Say --force to mean it")
    # The event loop's handler waits until a task reacts; a prompt must end at once.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    finally:
        signal.signal(signal.SIGINT, before)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed")


FORCE: Final = argument("-f", "--force", action="store_true", help="do not ask first")
