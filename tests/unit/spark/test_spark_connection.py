"""Options become credentials; a fault is reported with the name of the option."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from penstock.base.nkeys import KeyKind, encode_seed
from penstock.spark.options import ConnectionOptions, OptionError
from penstock.spark.spark_connection import bulk_reader, credentials, dialling, tls_context

if TYPE_CHECKING:
    from pathlib import Path

USER_SEED = encode_seed(KeyKind.USER, bytes(range(32)))
CREDS = f"""-----BEGIN NATS USER JWT-----
header.claims.signature
------END NATS USER JWT------
-----BEGIN USER NKEY SEED-----
{USER_SEED}
------END USER NKEY SEED------
"""


def options(**given: str) -> ConnectionOptions:
    return ConnectionOptions(url="nats://one:1,nats://two:2", **given)  # type: ignore[arg-type]


def test_every_way_to_log_in_works(tmp_path: Path) -> None:
    (tmp_path / "creds").write_text(CREDS)
    (tmp_path / "seed").write_text(f"{USER_SEED}\n")
    for given in (
        {"creds": CREDS},
        {"creds": base64.b64encode(CREDS.encode()).decode()},
        {"creds_file": str(tmp_path / "creds")},
    ):
        assert credentials(options(**given)).jwt == "header.claims.signature"
    for given in ({"nkey_seed": USER_SEED}, {"nkey_seed_file": str(tmp_path / "seed")}):
        assert credentials(options(**given)).seed == USER_SEED
    assert credentials(options(user="a", password="b")).password == "b"
    assert not credentials(options())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"creds": "hush!"}, "option creds: neither the text"),
        ({"creds_file": "/nowhere"}, "option credsFile: No such file"),
        ({"nkey_seed": "hush!"}, "option nkeySeed: nkey"),
        ({"tls_ca": "/nowhere"}, "option tlsCa, tlsCert, tlsKey: No such file"),
    ],
)
def test_fault_is_reported_without_value(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told) as failure:
        dialling(options(**given))
    assert "hush" not in str(failure.value)


def test_tls_only_where_it_is_asked_for() -> None:
    assert tls_context(options()) is None
    assert tls_context(ConnectionOptions(url="nats://a", tls=True)) is not None


def test_reader_knows_servers_prefixes_and_patience() -> None:
    reader = bulk_reader(options(api_prefix="JS.there.API"), consumer_prefix="mine-")
    assert [address.port for address in reader.dialling.addresses] == [1, 2]
    assert reader.api_prefix == "JS.there.API"
    assert reader.consumer_prefix == "mine-"
    assert reader.reconnect_seconds == 60
