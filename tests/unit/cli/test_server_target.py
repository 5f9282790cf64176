"""Which server a command goes to and as whom: one place decides, and secrets are never shown."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from penstock.cli.server_target import HIDDEN, ServerTarget, resolve, without_secrets
from support.cli import command_line

if TYPE_CHECKING:
    from support.cli import Cli

__all__ = ["command_line"]


def options(**given: str) -> Namespace:
    return Namespace(**{"context": "", **given})


@pytest.fixture
def context(command_line: Cli) -> Cli:
    """A selected context with a login."""
    command_line.done(
        *("context", "add", "prod", "-s", "nats://prod:4222", "--user", "amy"),
        *("--password", "hush", "--domain", "hub"),
    )
    return command_line


@pytest.mark.usefixtures("command_line")
def test_without_anything_it_is_usual_address() -> None:
    assert resolve(options(), {}).urls == ["nats://127.0.0.1:4222"]


@pytest.mark.usefixtures("context")
def test_selected_context_is_taken_when_nothing_else_is_reported() -> None:
    target = resolve(options(), {})
    assert (target.server, target.user, target.domain) == ("nats://prod:4222", "amy", "hub")


@pytest.mark.usefixtures("context")
def test_server_named_otherwise_gets_nothing_of_selected_context() -> None:
    assert resolve(options(server="other"), {}) == ServerTarget(server="other")
    assert resolve(options(), {"NATS_URL": "other"}) == ServerTarget(server="other")


@pytest.mark.usefixtures("context")
def test_context_by_name_goes_before_environment() -> None:
    environment = {"NATS_URL": "other", "NATS_TOKEN": "t"}
    target = resolve(options(context="prod"), environment)
    assert (target.server, target.token) == ("nats://prod:4222", "")


@pytest.mark.usefixtures("context")
def test_credentials_come_from_one_place_only() -> None:
    target = resolve(options(context="prod", token="mine"), {})
    assert (target.token, target.user, target.password) == ("mine", "", "")


@pytest.mark.usefixtures("command_line")
def test_line_goes_before_environment() -> None:
    environment = {"NATS_URL": "a", "NATS_USER": "u", "NATS_CA": "ca.pem"}
    target = resolve(options(server="b", user="v"), environment)
    assert (target.server, target.user, target.tlsca) == ("b", "v", "ca.pem")


def test_several_servers_may_be_given_with_or_without_scheme() -> None:
    assert ServerTarget(server="a:1, tls://b:2").urls == ["nats://a:1", "tls://b:2"]


def test_addresses_are_shown_without_passwords() -> None:
    assert without_secrets("nats://amy:hush@h:1,h:2") == f"nats://{HIDDEN}@h:1,h:2"
    assert without_secrets("tok@h:1") == f"nats://{HIDDEN}@h:1"


def test_target_shows_no_secret() -> None:
    target = ServerTarget(server="nats://a:hush@h", password="hush", token="hush", user="a")
    assert "hush" not in repr(target.shown())
    assert "password='hush'" not in repr(target)
    assert target.shown()["password"] == HIDDEN
