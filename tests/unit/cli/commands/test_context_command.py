"""Contexts: kept for their owner only, chosen by name, shown without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cli.commands.context_command import directory
from support.cli import command_line

if TYPE_CHECKING:
    from support.cli import Cli

__all__ = ["command_line"]

SECRETS = ("--password", "hush", "--token", "hush", "--user", "amy")


def add(cli: Cli, name: str, *more: str) -> None:
    cli.done("context", "add", name, "-s", f"nats://{name}:4222", *more)


def test_context_is_kept_and_shown_without_its_secrets(command_line: Cli) -> None:
    add(command_line, "prod", *SECRETS, "--description", "the real one")
    for form in ((), ("--json",)):
        ran = command_line.done("context", "show", "prod", *form)
        assert "hush" not in ran.out + ran.err
        assert "amy" in ran.out
        assert "(hidden)" in ran.out
        assert "hush" not in command_line.done("context", "ls", *form).out


def test_only_its_owner_may_read_context(command_line: Cli) -> None:
    add(command_line, "prod", *SECRETS)
    path = directory() / "prod.json"
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    add(command_line, "prod", "--replace")
    assert path.stat().st_mode & 0o077 == 0


def test_first_context_is_selected_and_another_can_be(command_line: Cli) -> None:
    add(command_line, "one")
    add(command_line, "two")
    listed = command_line.done("context", "ls", "--json").json
    assert [(one["name"], one["selected"]) for one in listed] == [("one", True), ("two", False)]
    command_line.done("context", "select", "two")
    assert command_line.done("context", "show", "--json").json["name"] == "two"


def test_context_is_not_replaced_by_accident(command_line: Cli) -> None:
    add(command_line, "one")
    assert "--replace" in command_line.refused("context", "add", "one")


def test_removed_context_is_selected_no_more(command_line: Cli) -> None:
    add(command_line, "one")
    command_line.done("context", "rm", "one")
    assert command_line.done("context", "ls", "--json").json == []
    assert "no context is selected" in command_line.refused("context", "show")
    assert "no context 'one'" in command_line.refused("context", "rm", "one")


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "a b"])
def test_name_stays_in_its_directory(name: str, command_line: Cli) -> None:
    assert "not a name" in command_line.refused("context", "add", name, code=2)


def test_damaged_context_is_reported_and_its_content_is_not(command_line: Cli) -> None:
    add(command_line, "one")
    (directory() / "one.json").write_text('{"password": "hush"')
    error = command_line.refused("context", "show", "one")
    assert "not a context" in error
    assert "hush" not in error


def test_unknown_context_is_reported_before_anything_is_sent(command_line: Cli) -> None:
    assert "no context 'none'" in command_line.refused("pub", "a", "b", "--context", "none")
