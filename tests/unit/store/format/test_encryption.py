"""Key records open with their server key only; frame keys are never shared by two writers."""

from __future__ import annotations

import hashlib
import struct
from itertools import combinations

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.record_codec import checksum
from penstock.store.format import encryption
from penstock.store.format.encryption import (
    KEY_NUMBER_MAX,
    KEY_RECORD_BYTES,
    Cipher,
    DamagedKeyRecord,
    DataKey,
    FrameCipher,
    NotAuthentic,
    ServerKey,
    WrongKey,
    expand,
    open_data_key,
    seal_data_key,
)

SALT, NONCE = b"salt" * 4, b"nonce-nonce!"
SECRET = bytes(range(32))
STREAM, INCARNATION = "$G/ORDERS", 77
CIPHERS = [Cipher.AES_256_GCM, Cipher.CHACHA20_POLY1305]
# Derived from once for the whole module: that is meant to be slow.
SERVER, OTHER = ServerKey("a phrase, not a key"), ServerKey(b"\xff\x00 bytes")


def record(cipher: Cipher = Cipher.AES_256_GCM, number: int = 1) -> bytes:
    key = DataKey(SECRET, cipher, number)
    return seal_data_key(key, SERVER, STREAM, INCARNATION, salt=SALT, nonce=NONCE)


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def checked_again(data: bytes) -> bytes:
    """The record with a checksum that fits, as a forger would leave it."""
    return data[:-8] + struct.pack("<Q", checksum(data[:-8]))


# ------------------------------------------------------------------------ key record


@pytest.mark.parametrize("cipher", CIPHERS)
@given(secret=st.binary(min_size=32, max_size=32), number=st.integers(1, KEY_NUMBER_MAX))
def test_data_key_comes_back_with_its_number_and_cipher(
    cipher: Cipher, secret: bytes, number: int
) -> None:
    key = DataKey(secret, cipher, number)
    sealed = seal_data_key(key, SERVER, STREAM, INCARNATION, salt=SALT, nonce=NONCE)
    assert len(sealed) == KEY_RECORD_BYTES
    assert secret not in sealed
    assert open_data_key(sealed, [SERVER], STREAM, INCARNATION) == (key, 0, SALT)


def test_another_server_key_is_refused_as_wrong_not_as_damage() -> None:
    with pytest.raises(WrongKey, match="another server key"):
        open_data_key(record(), [OTHER], STREAM, INCARNATION)
    with pytest.raises(WrongKey):
        open_data_key(record(), [], STREAM, INCARNATION)


def test_former_key_opens_and_is_reported_as_former() -> None:
    opened = open_data_key(record(), [OTHER, SERVER], STREAM, INCARNATION)
    assert (opened.key.secret, opened.opened_by) == (SECRET, 1)


def test_key_record_of_another_stream_or_incarnation_does_not_open() -> None:
    with pytest.raises(WrongKey):
        open_data_key(record(), [SERVER], "$G/OTHER", INCARNATION)
    with pytest.raises(DamagedKeyRecord, match="another incarnation"):
        open_data_key(record(), [SERVER], STREAM, INCARNATION + 1)


def test_every_flipped_bit_is_damage_not_wrong_key() -> None:
    whole = record()
    for bit in range(len(whole) * 8):
        with pytest.raises(DamagedKeyRecord):
            open_data_key(flipped(whole, bit), [SERVER], STREAM, INCARNATION)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_no_field_can_be_forged_without_server_key(
    cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(secret: bytes, *, salt: bytes, **_: int) -> bytes:
        return hashlib.sha256(secret + salt).digest()

    # A flipped salt would be derived from again, slowly, 128 times.
    monkeypatch.setattr(hashlib, "scrypt", quick)
    server = ServerKey("quick")
    key = DataKey(SECRET, cipher, 1)
    whole = seal_data_key(key, server, STREAM, INCARNATION, salt=SALT, nonce=NONCE)
    for bit in range((len(whole) - 8) * 8):
        with pytest.raises((DamagedKeyRecord, WrongKey)):
            open_data_key(checked_again(flipped(whole, bit)), [server], STREAM, INCARNATION)


def test_every_truncation_and_extension_is_damage() -> None:
    whole = record()
    for data in [*(whole[:end] for end in range(len(whole))), whole + b"\0"]:
        with pytest.raises(DamagedKeyRecord):
            open_data_key(data, [SERVER], STREAM, INCARNATION)


def test_new_server_key_takes_over_data_key_and_old_one_loses_it() -> None:
    key = open_data_key(record(number=3), [SERVER], STREAM, INCARNATION).key
    anew = seal_data_key(key, OTHER, STREAM, INCARNATION, salt=SALT, nonce=NONCE[::-1])
    assert open_data_key(anew, [OTHER], STREAM, INCARNATION).key == DataKey(SECRET, number=3)
    with pytest.raises(WrongKey):
        open_data_key(anew, [SERVER], STREAM, INCARNATION)


# ------------------------------------------------------------------------ derivation


def test_slow_derivation_runs_once_per_salt_however_many_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    salts: list[bytes] = []

    def counted(secret: bytes, *, salt: bytes, **_: int) -> bytes:
        salts.append(salt)
        return hashlib.sha256(secret + salt).digest()

    monkeypatch.setattr(hashlib, "scrypt", counted)
    server = ServerKey("key")
    wrapping = {server.wrapping_key(SALT, f"$G/{n}", n) for n in range(50)}
    assert len(wrapping) == 50
    assert salts == [SALT]
    for n in range(3 * encryption.ROOTS_MAX):
        server.wrapping_key(struct.pack("<16s", b"%d" % n), STREAM, 1)
    assert len(server._roots) == encryption.ROOTS_MAX


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_expanding_is_that_of_standard(key: bytes, info: bytes) -> None:
    assert expand(key, info) == HKDFExpand(SHA256(), 32, info).derive(key)


def test_root_is_scrypt_of_secret_whether_text_or_bytes() -> None:
    text, raw = ServerKey("gräte"), ServerKey("gräte".encode())
    assert text.wrapping_key(SALT, STREAM, 1) == raw.wrapping_key(SALT, STREAM, 1)
    assert text.wrapping_key(SALT, STREAM, 1) != SERVER.wrapping_key(SALT, STREAM, 1)


def test_empty_or_ill_formed_key_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        ServerKey("")
    with pytest.raises(ValueError, match="32 bytes"):
        DataKey(b"short")
    with pytest.raises(ValueError, match="cipher and a number"):
        DataKey(SECRET, Cipher.NONE)
    with pytest.raises(ValueError, match="cipher and a number"):
        DataKey(SECRET, number=KEY_NUMBER_MAX + 1)
    with pytest.raises(ValueError, match="length"):
        seal_data_key(DataKey(SECRET), SERVER, STREAM, 1, salt=b"", nonce=NONCE)


def test_secrets_do_not_show_when_printed() -> None:
    assert "secret" not in repr(DataKey(SECRET))
    assert "phrase" not in repr(SERVER)


# ------------------------------------------------------------------------ frames


def key_stream(cipher: Cipher, incarnation: int, block: int, salt: int, number: int) -> bytes:
    """What a frame's bytes are combined with: zeros encrypt to it."""
    frames = FrameCipher(DataKey(SECRET, cipher), incarnation, block, salt)
    return frames.seal(number, bytes(64), b"")[:64]


def test_no_two_frames_of_different_place_writer_or_number_share_key_stream() -> None:
    streams = [
        key_stream(cipher, incarnation, block, salt, number)
        for cipher in CIPHERS
        for incarnation in (1, 2)
        for block in (1, 2)
        for salt in (1, 2)
        for number in (0, 1, 2)
    ]
    assert all(a != b for a, b in combinations(streams, 2))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_frame_opens_only_as_it_was_sealed(cipher: Cipher) -> None:
    frames = FrameCipher(DataKey(SECRET, cipher), 1, 2, 3)
    sealed = frames.seal(7, b"plain", b"bound")
    assert frames.open(7, sealed, b"bound") == b"plain"
    wrong = [(8, sealed, b"bound"), (7, sealed, b"bounds"), (7, sealed[:-1], b"bound")]
    wrong += [(7, flipped(sealed, bit), b"bound") for bit in range(len(sealed) * 8)]
    wrong += [(7, b"", b"bound")]
    for number, data, bound in wrong:
        with pytest.raises(NotAuthentic):
            frames.open(number, data, bound)
