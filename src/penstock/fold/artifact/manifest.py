"""MANIFEST.json: the files, backend and cursor of an artifact; and EXTRA.json, its metadata.

The manifest is the last file written to an artifact and the first one read. Artifacts are not
trusted, so any deviation from the format raises ArtifactInvalid. No path in a manifest leads out of
the artifact's `data/`. All functions are pure.
"""

from __future__ import annotations

import binascii
import json
from hashlib import sha256

import msgspec

from penstock.fold.errors import ArtifactInvalid
from penstock.fold.store.log_witnesses import Witness  # noqa: TC001 - msgspec reads it
from penstock.kv.kv_types import TOKEN_BYTES_MAX, WatchCursor

SCHEMA_VERSION = 1
MANIFEST_FILE = "MANIFEST.json"
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
EXTRA_FILE = "EXTRA.json"
EXTRA_BYTES_MAX = 1024 * 1024
PAYLOAD_DIRECTORY = "data"
CHECKSUM = "checksum"
OLDER_FIELDS = frozenset({"entries", "identity", "scope", "seen_evicting"})
"""The fields of EXTRA.json before it had a checksum."""


class ArtifactFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the payload; `path` is relative to the artifact."""

    path: str
    size: int
    blake3: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of MANIFEST.json; fields are in the order they are written."""

    schema_version: int
    backend: str
    backend_version: str
    cursor_hex: str
    created_at_unix: int
    files: list[ArtifactFile]

    @property
    def cursor(self) -> WatchCursor:
        """The cursor of the payload."""
        return WatchCursor(binascii.unhexlify(self.cursor_hex))

    def encode(self) -> bytes:
        return json.dumps(msgspec.to_builtins(self), indent=2, ensure_ascii=False).encode()


class Extra(msgspec.Struct, frozen=True):
    """The content of EXTRA.json: metadata beyond the manifest. Unknown fields are ignored."""

    entries: int | None = None
    identity: str = ""
    scope: tuple[str, ...] = ()
    seen_evicting: bool = False
    losses: int | None = None
    witnesses: tuple[Witness, ...] = ()
    keep: str = ""
    records: int | None = None
    doubt: str = ""


def encode_extra(extra: Extra) -> bytes:
    """Return the bytes of EXTRA.json, with a checksum of all other fields."""
    fields = msgspec.to_builtins(extra)
    return json.dumps({**fields, CHECKSUM: checksum_of(fields)}).encode()


def decode_extra(data: bytes) -> Extra:
    """Decode EXTRA.json; raise ArtifactInvalid if damaged. Older versions have no checksum."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, object])
        checksum = fields.pop(CHECKSUM, None)
        extra = msgspec.convert(fields, Extra)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArtifactInvalid(f"malformed {EXTRA_FILE}: {error}") from error
    is_older = checksum is None and fields.keys() <= OLDER_FIELDS
    if not is_older and checksum != checksum_of(fields):
        raise ArtifactInvalid(f"{EXTRA_FILE} is not what was written")
    return extra


def checksum_of(fields: dict[str, object]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def decode_manifest(data: bytes) -> Manifest:
    """Decode a manifest; raise ArtifactInvalid if it is malformed."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArtifactInvalid(f"malformed manifest: {error}") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise ArtifactInvalid(f"manifest of schema {manifest.schema_version}, not {SCHEMA_VERSION}")
    _check_cursor(manifest.cursor_hex)
    paths = [file.path for file in manifest.files]
    if len(set(paths)) != len(paths):
        raise ArtifactInvalid("the manifest names a file twice")
    for path in paths:
        check_path(path)
    return manifest


def check_path(path: str) -> None:
    """Raise ArtifactInvalid unless this is a plain relative path below `data/`."""
    first, *rest = path.split("/")
    plain = all(part not in ("", ".", "..") for part in rest)
    if first != PAYLOAD_DIRECTORY or not rest or not plain or "\\" in path or "\0" in path:
        raise ArtifactInvalid(f"path {path!r} in the manifest")


def _check_cursor(cursor_hex: str) -> None:
    try:
        raw = binascii.unhexlify(cursor_hex)
    except ValueError as error:
        raise ArtifactInvalid(f"malformed cursor {cursor_hex!r}") from error
    if len(raw) > TOKEN_BYTES_MAX:
        raise ArtifactInvalid(f"a cursor of {len(raw)} bytes")
