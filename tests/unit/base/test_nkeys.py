"""The text form of nkeys, and signatures. The fixed keys were made by the reference's tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base import nkeys
from penstock.base.nkeys import KeyKind, NkeyError

KEY = st.binary(min_size=32, max_size=32)
KIND = st.sampled_from(list(KeyKind))
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@given(KIND, KEY)
def test_public_key_survives_its_text(kind: KeyKind, key: bytes) -> None:
    text = nkeys.encode_public(kind, key)
    assert len(text) == nkeys.PUBLIC_CHARS
    assert nkeys.decode_public(text, kind) == nkeys.PublicKey(kind, key)


@given(KIND, KEY)
def test_seed_survives_its_text(kind: KeyKind, seed: bytes) -> None:
    text = nkeys.encode_seed(kind, seed)
    assert len(text) == nkeys.SEED_CHARS
    assert nkeys.decode_seed(text) == nkeys.Seed(kind, seed)


@pytest.mark.parametrize(
    ("kind", "letter"),
    [
        (KeyKind.ACCOUNT, "A"),
        (KeyKind.CLUSTER, "C"),
        (KeyKind.SERVER, "N"),
        (KeyKind.OPERATOR, "O"),
        (KeyKind.USER, "U"),
        (KeyKind.CURVE, "X"),
    ],
)
def test_first_letter_is_kind(kind: KeyKind, letter: str) -> None:
    for filling in (b"\x00", b"\xff"):
        assert nkeys.encode_public(kind, filling * 32).startswith(letter)
        assert nkeys.encode_seed(kind, filling * 32).startswith(f"S{letter}")


def test_checksum_is_crc16_as_xmodem_has_it() -> None:
    assert nkeys.crc16(b"123456789") == 0x31C3


def test_published_key_pair_belongs_together() -> None:
    assert nkeys.public_from_seed(SEED) == PUBLIC


@given(st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_changed_character_never_decodes(position: int, letter: str) -> None:
    changed = PUBLIC[:position] + letter + PUBLIC[position + 1 :]
    assert nkeys.is_public(changed, KeyKind.USER) == (changed == PUBLIC)


@given(st.text(max_size=60))
def test_arbitrary_text_is_refused_with_one_error(text: str) -> None:
    for decode in (nkeys.decode_public, nkeys.decode_seed):
        with pytest.raises(NkeyError):
            decode(text)


@pytest.mark.parametrize("text", [PUBLIC.lower(), f"{PUBLIC}=", f" {PUBLIC}", SEED, ""])
def test_only_canonical_spelling_is_public_key(text: str) -> None:
    assert not nkeys.is_public(text, KeyKind.USER)


def test_seed_with_set_spare_bits_is_refused() -> None:
    spare = SEED[:-1] + chr(ord(SEED[-1]) + 1)
    with pytest.raises(NkeyError):
        nkeys.decode_seed(spare)


def test_key_of_another_kind_is_refused_by_name() -> None:
    account = nkeys.encode_public(KeyKind.ACCOUNT, bytes(32))
    with pytest.raises(NkeyError, match="public account key, not user"):
        nkeys.decode_public(account, KeyKind.USER)


def test_unknown_prefix_is_refused() -> None:
    body = b"\x08" + bytes(32)
    text = nkeys._encode(body)
    with pytest.raises(NkeyError, match="unknown kind"):
        nkeys.decode_public(text)


def test_public_key_is_no_seed() -> None:
    with pytest.raises(NkeyError):
        nkeys.decode_seed(PUBLIC)


def test_keys_of_wrong_length_are_not_encoded() -> None:
    with pytest.raises(NkeyError):
        nkeys.encode_public(KeyKind.USER, b"short")


def test_server_id_is_public_server_key() -> None:
    assert nkeys.is_public(nkeys.server_id(bytes(range(32))), KeyKind.SERVER)


@given(st.binary(max_size=40))
def test_signature_verifies_for_its_message_and_no_other(message: bytes) -> None:
    signature = nkeys.sign(SEED, message)
    assert nkeys.verify(PUBLIC, message, signature)
    assert not nkeys.verify(PUBLIC, message + b"x", signature)


@pytest.mark.parametrize("signature", [b"", bytes(63), bytes(64), bytes(65)])
def test_malformed_signature_verifies_nothing(signature: bytes) -> None:
    assert not nkeys.verify(PUBLIC, b"nonce", signature)


def test_malformed_key_verifies_nothing() -> None:
    assert not nkeys.verify("UNONSENSE", b"nonce", nkeys.sign(SEED, b"nonce"))


def test_seed_is_never_shown() -> None:
    shown = repr(nkeys.decode_seed(SEED))
    assert "seed" not in shown.replace("Seed", "")
    with pytest.raises(NkeyError) as refused:
        nkeys.decode_seed(SEED[:-1] + "7")
    assert SEED[4:20] not in str(refused.value)
