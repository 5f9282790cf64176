"""The command line as such: every word has help, nothing heavy is loaded for it, exit codes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from penstock.cli.api_calls import checked_name
from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.command_list import PLACES, declared
from penstock.cli.command_spec import Command, Noun, confirm, parser_of
from penstock.cli.main import CLIENTS, HELP
from penstock.cli.stream_reader import ReadMessage
from support.cli import command_line

if TYPE_CHECKING:
    from support.cli import Cli

__all__ = ["command_line"]

HEAVY = {"nats", "rich", "cryptography", "asyncio", "msgspec", "argparse"}


def every_command() -> list[tuple[str, Command]]:
    found = []
    for word in PLACES:
        one = declared(word)
        if isinstance(one, Noun):
            found += [(f"{word} {command.name}", command) for command in one.commands]
        else:
            found.append((word, one))
    return found


COMMANDS = every_command()


def loaded_by(*arguments: str) -> set[str]:
    """The packages a command line has loaded when it ends."""
    program = (
        "import sys; from penstock.cli.main import main; main();"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.sockets
def test_help_loads_nothing_heavy() -> None:
    assert not HEAVY & loaded_by("--help")


@pytest.mark.sockets
@pytest.mark.parametrize("word", ["stream", "kv"])
def test_help_of_noun_does_not_load_client_library(word: str) -> None:
    assert not {"nats", "rich", "cryptography"} & loaded_by(word, "--help")


def test_help_names_every_command() -> None:
    assert set(CLIENTS) == set(PLACES)
    for word in PLACES:
        assert f"\n    {word:8}  {declared(word).summary}\n" in HELP, word


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_has_help_json_and_reported_arguments(
    name: str, command: Command, command_line: Cli
) -> None:
    ran = command_line.done(*name.split(), "--help")
    assert ran.out.startswith(f"usage: penstock {name} [OPTIONS]")
    for action in parser_of(command, name)._actions:
        assert action.help, action.dest
    assert "--json" in ran.out
    assert (command.online is not None) <= ("--server" in ran.out and "--context" in ran.out)
    assert command.streams <= ("--count" in ran.out and "--timeout" in ran.out)


@pytest.mark.parametrize(
    "words", [["nonsense"], ["stream"], ["stream", "nonsense"], ["pub"], ["pub", "a", "--nonsense"]]
)
def test_wrong_command_line_ends_with_2(words: list[str], command_line: Cli) -> None:
    ran = command_line(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["sotre"], '"sotre"; did you mean "store"?'),
        (["stream", "inof"], '"inof"; did you mean "info"?'),
        (["store", "verfy", "x"], '"verfy"; did you mean "verify"?'),
        (["store", "verify", "x", "--jsno"], '"--jsno"; did you mean "--json"?'),
        (["pub", "a", "b", "--pasword=hush"], '"--pasword"; did you mean "--password"?'),
        (["bench", "--comapre"], '"--comapre"; did you mean "--compare"?'),
        (["stream", "zzzzzz"], '"zzzzzz"; see'),
        (["zzzzzz"], '"zzzzzz"; see'),
    ],
)
def test_mistyped_word_is_named_with_nearest_one(
    words: list[str], named: str, command_line: Cli
) -> None:
    ran = command_line(*words)
    first = ran.err.splitlines()[0]
    assert ran.code == 2
    assert first.startswith("penstock: ")
    assert named in first
    assert "hush" not in ran.err


@pytest.mark.sockets
@pytest.mark.parametrize(
    "words",
    [
        ["serve", "-nonsense"],
        ["serve", "-c", "missing"],
        ["serve", "extra"],
        ["serve", "-sl", "nonsense"],
        ["serve", "-sl", "reload=missing"],
        ["store", "verify", "missing"],
        ["store"],
        ["bench", "--rounds", "0"],
        ["bench", "--url", "nats://127.0.0.1:1"],
        ["stream", "info", "S", "-s", "nats://127.0.0.1:1"],
        ["context", "show", "missing"],
        ["fold", "get", "missing", "key"],
    ],
    ids=" ".join,
)
def test_every_error_begins_with_name_of_program(words: list[str], command_line: Cli) -> None:
    assert command_line(*words).err.startswith("penstock: ")


@pytest.mark.sockets
def test_server_that_is_not_there_is_one_line(command_line: Cli) -> None:
    error = command_line.refused("pub", "a", "b", "-s", "nats://amy:hush@127.0.0.1:1")
    assert error.startswith("penstock: pub: cannot connect to nats://(hidden)@127.0.0.1:1: ")
    assert "hush" not in error


@pytest.mark.parametrize(
    ("answer", "meant"), [("y", True), ("Yes", True), ("", False), ("no", False)]
)
def test_lossy_actions_need_confirmation(
    answer: str, meant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    with contextlib.nullcontext() if meant else pytest.raises(Failure, match="nothing was changed"):
        confirm("Remove it?", Namespace(force=False))


def test_without_terminal_only_force_confirms() -> None:
    confirm("Remove it?", Namespace(force=True))
    with pytest.raises(Misuse, match="--force"):
        confirm("Remove it?", Namespace(force=False))


def test_missing_client_library_is_named(
    command_line: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "nats"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "nats", None)
    assert "pip install nats-py" in command_line.refused("pub", "a", "b")


@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "", "a/b"])
def test_name_that_is_no_token_is_refused_before_it_is_sent(name: str, command_line: Cli) -> None:
    with pytest.raises(Misuse):
        checked_name(name, "stream")


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.S.C.2.30.20.1700000000000000000.5",
        "$JS.ACK.hub.hash.S.C.2.30.20.1700000000000000000.5.x",
    ],
)
def test_delivery_is_read_from_old_and_new_reply_subjects(reply: str) -> None:
    assert ReadMessage.of(reply) == ReadMessage("S", "C", 2, 30, 20, 1_700_000_000_000_000_000, 5)
