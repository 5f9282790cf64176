"""Who a bulk reader says it is, and what it never shows."""

from __future__ import annotations

import base64
import json

import pytest

from penstock.base import nkeys
from penstock.bulk.login import Address, Credentials, connect_line, split_url, split_urls

SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(range(32)))
FILE = f"""-----BEGIN NATS USER JWT-----
eyJhbGciOi.payload.signature
------END NATS USER JWT------

************************* IMPORTANT *************************

-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""


def said(credentials: Credentials, nonce: str = "") -> dict[str, object]:
    line = connect_line(credentials, nonce, "t")
    assert line.startswith(b"CONNECT ")
    told: dict[str, object] = json.loads(line[len(b"CONNECT ") :])
    return told


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost", Address("localhost")),
        ("nats://h:1", Address("h", 1)),
        ("tls://h", Address("h", tls=True)),
        ("nats://[::1]:7", Address("::1", 7)),
    ],
)
def test_url_names_host_port_and_tls(url: str, address: Address) -> None:
    assert split_url(url) == (address, Credentials())


@pytest.mark.parametrize("url", ["http://h", "nats://", "ws://h"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"server is named|no host"):
        split_url(url)


def test_secrets_of_url_leave_its_address() -> None:
    address, credentials = split_url("nats://amy:p%40ss@h:1")
    assert (str(address), credentials.user, credentials.password) == ("nats://h:1", "amy", "p@ss")
    assert split_url("nats://sesame@h")[1].token == "sesame"


def test_first_credentials_among_several_urls_count() -> None:
    addresses, credentials = split_urls("nats://a, nats://t@b,nats://u:p@c")
    assert [one.host for one in addresses] == ["a", "b", "c"]
    assert credentials.token == "t"


def test_no_secret_is_shown() -> None:
    shown = repr(Credentials("amy", "pass-word", "to-ken", "j-w-t", SEED))
    for secret in ("amy", "pass-word", "to-ken", "j-w-t", SEED):
        assert secret not in shown


def test_password_and_token_go_as_they_are() -> None:
    told = said(Credentials(user="amy", password="p"))
    assert (told["user"], told["pass"], told.get("sig")) == ("amy", "p", None)
    assert said(Credentials(token="t"))["auth_token"] == "t"


def test_nkey_signs_servers_nonce() -> None:
    told = said(Credentials(seed=SEED), "nonce-1")
    public = nkeys.public_from_seed(SEED)
    signature = base64.urlsafe_b64decode(str(told["sig"]) + "==")
    assert told["nkey"] == public
    assert nkeys.verify(public, b"nonce-1", signature)


def test_credentials_file_gives_jwt_and_signature() -> None:
    told = said(Credentials.from_file_text(FILE), "n")
    assert told["jwt"] == "eyJhbGciOi.payload.signature"
    assert "nkey" not in told
    assert "sig" in told


def test_file_without_them_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match="credentials file") as refusal:
        Credentials.from_file_text("my secret")
    assert "secret" not in str(refusal.value)
