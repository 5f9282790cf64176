"""A fold receives the server options of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.base.nkeys import KeyKind, encode_seed
from penstock.bulk.login import Address, Credentials
from penstock.cli.cli_errors import Misuse
from penstock.cli.folds.fold_live import config_of
from penstock.cli.server_target import ServerTarget

if TYPE_CHECKING:
    from pathlib import Path

HERE = (Address("127.0.0.1"),)


def test_login_is_the_same_everywhere(tmp_path: Path) -> None:
    seed = encode_seed(KeyKind.USER, bytes(range(32)))
    (tmp_path / "nkey").write_text(f"# a comment\n{seed}\n")
    logins = {
        ServerTarget(user="me", password="secret"): Credentials(user="me", password="secret"),
        ServerTarget(token="t"): Credentials(token="t"),
        ServerTarget(nkey=str(tmp_path / "nkey")): Credentials(seed=seed),
        ServerTarget(server="nats://a:b@127.0.0.1"): Credentials(user="a", password="b"),
        ServerTarget(): Credentials(),
    }
    for target, credentials in logins.items():
        config = config_of(target)
        assert (config.addresses, config.credentials) == (HERE, credentials)
        assert config.tls is None


def test_login_that_was_given_counts_before_that_of_address() -> None:
    config = config_of(ServerTarget(server="nats://a:b@127.0.0.1", token="t"))
    assert config.credentials == Credentials(token="t")


def test_domain_inbox_and_tls_are_the_same_everywhere() -> None:
    target = ServerTarget(
        server="tls://127.0.0.1", domain="hub", inbox_prefix="_MINE", tlsfirst="yes"
    )
    config = config_of(target)
    assert (config.domain, config.inbox_prefix, config.tls_first) == ("hub", "_MINE", True)
    assert config.tls is not None
    assert config.addresses[0].tls


def test_address_that_is_none_is_misuse() -> None:
    with pytest.raises(Misuse, match="nats://"):
        config_of(ServerTarget(server="http://127.0.0.1"))
