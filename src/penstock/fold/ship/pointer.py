"""The names of published objects, and the two rules that keep the published artifact complete.

The pointer is one small object: the bytes of the newest artifact's manifest, which determine the
name of its payload. The pointer never moves to an older artifact (`newer_than`), and a payload that
could still become its target is never deleted (`prunable`). Both functions are pure, so that a
model can test every order of events. `ArtifactTransport` reads and writes the objects and must
follow both rules.
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
"""Number of bytes of the manifest's BLAKE3 in the name of its payload."""
#: Characters that other implementations write unchanged; they percent-encode all others.
_KEY = re.compile(r"[\w!$&'()+,\-.:;=@ ]+(/[\w!$&'()+,\-.:;=@ ]+)*", re.ASCII)
#: A payload, or the temporary file of an interrupted upload beside it.
_PAYLOAD = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}\.tar([.#][^/]*)?")


class Published(Struct, frozen=True):
    """The artifact is now the newest: its payload is uploaded and the pointer names it."""


class Superseded(Struct, frozen=True):
    """A newer artifact was already published and stays. This is not an error."""

    cursor: WatchCursor
    """The cursor of the newer artifact."""


PublishOutcome = Published | Superseded


def check_key(key: str) -> str:
    """Return the key; ValueError if implementations would map it to different object names."""
    parts = key.split("/")
    if not _KEY.fullmatch(key) or any(part in (".", "..") for part in parts):
        raise ValueError(f"{key!r} cannot be the key of an artifact: plain names joined by '/'")
    return key


def pointer_path(key: str) -> str:
    return f"{check_key(key)}.manifest.json"


def payloads_directory(key: str) -> str:
    return f"{check_key(key)}.payloads"


def payload_path(key: str, pointer: bytes) -> str:
    """Return the path of the payload for the artifact with this manifest."""
    return f"{payloads_directory(key)}/{payload_name(pointer)}"


def payload_name(pointer: bytes) -> str:
    hasher = new_hasher()
    hasher.update(pointer)
    digest = hasher.digest(length=DIGEST_BYTES).hex()
    return f"{decode_manifest(pointer).cursor.rank:016x}-{digest}.tar"


def published(pointer: bytes | None) -> Manifest | None:
    """Return the manifest in the pointer; None if the pointer is missing or unreadable."""
    if pointer is None:
        return None
    try:
        return decode_manifest(pointer)
    except ArtifactInvalid:
        return None


def newer_than(pointer: bytes | None, ours: WatchCursor) -> WatchCursor | None:
    """Return the newer published cursor that prevents publishing ours, or None.

    An unreadable pointer may be replaced: a damaged object must not block publishing.
    """
    there = published(pointer)
    if there is None or there.cursor.rank <= ours.rank:
        return None
    return there.cursor


def prunable(name: str, pointer: bytes | None, *, age: float, grace: float) -> bool:
    """Return whether the payload with this name can be deleted.

    Its rank must be strictly below the pointer's: such a payload is not the pointer's target, and
    publishing it now would be rejected. `grace` protects readers that read the pointer earlier and
    are still fetching.
    """
    there = published(pointer)
    found = _PAYLOAD.fullmatch(name)
    if there is None or found is None or age < grace:
        return False
    return int(found[1], 16) < there.cursor.rank
