"""Where a published artifact lies, and the two rules that keep what is published whole.

The pointer is one small object: the bytes of the newest artifact's manifest, from which the name of
its payload follows. It never goes back (`newer_than`), and a payload that could still become its
target is never deleted (`prunable`). Both are decided here on values alone, so that a model can try
every order of events; whoever reads and writes the objects keeps to what is said here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.fold.artifact.atomic_dir import new_hasher
from penstock.fold.artifact.manifest import Manifest, decode_manifest
from penstock.fold.errors import ArtifactInvalid

if TYPE_CHECKING:
    from penstock.kv.kv_types import WatchCursor

POINTER_BYTES_MAX = 1024 * 1024
DIGEST_BYTES = 8
"""How much of a manifest's BLAKE3 is in the name of its payload."""
#: What other implementations write as it is; anything else they would write percent-encoded.
_KEY = re.compile(r"[\w!$&'()+,\-.:;=@ ]+(/[\w!$&'()+,\-.:;=@ ]+)*", re.ASCII)
#: A payload, or what a killed upload left beside where one was to be.
_PAYLOAD = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}\.tar([.#][^/]*)?")


class Published(Struct, frozen=True):
    """The artifact is now the newest: its payload is there and the pointer names it."""


class Superseded(Struct, frozen=True):
    """A newer artifact is published, and stays so. Nothing is lost: others were faster."""

    cursor: WatchCursor
    """That of the newer one."""


PublishOutcome = Published | Superseded


def check_key(key: str) -> str:
    """The key as it is; ValueError if it does not name the same objects everywhere."""
    parts = key.split("/")
    if not _KEY.fullmatch(key) or any(part in (".", "..") for part in parts):
        raise ValueError(f"{key!r} cannot be the key of an artifact: plain names joined by '/'")
    return key


def pointer_path(key: str) -> str:
    return f"{check_key(key)}.manifest.json"


def payloads_directory(key: str) -> str:
    return f"{check_key(key)}.payloads"


def payload_path(key: str, pointer: bytes) -> str:
    """Where the payload of the artifact with this manifest lies."""
    return f"{payloads_directory(key)}/{payload_name(pointer)}"


def payload_name(pointer: bytes) -> str:
    hasher = new_hasher()
    hasher.update(pointer)
    digest = hasher.digest(length=DIGEST_BYTES).hex()
    return f"{decode_manifest(pointer).cursor.rank:016x}-{digest}.tar"


def published(pointer: bytes | None) -> Manifest | None:
    """What the pointer names; None if there is none, or if nobody can read it."""
    if pointer is None:
        return None
    try:
        return decode_manifest(pointer)
    except ArtifactInvalid:
        return None


def newer_than(pointer: bytes | None, ours: WatchCursor) -> WatchCursor | None:
    """The cursor that forbids to publish ours, or None if the pointer may be replaced.

    One that cannot be read may be: a damaged object must not end all publishing.
    """
    there = published(pointer)
    if there is None or there.cursor.rank <= ours.rank:
        return None
    return there.cursor


def prunable(name: str, pointer: bytes | None, *, age: float, grace: float) -> bool:
    """Whether the payload of this name can be deleted.

    Only one of a rank strictly below the pointer's can: it would be refused if it were published
    now, and is not what the pointer names. `grace` is for those who read the pointer a while ago
    and are still fetching.
    """
    there = published(pointer)
    found = _PAYLOAD.fullmatch(name)
    if there is None or found is None or age < grace:
        return False
    return int(found[1], 16) < there.cursor.rank
