"""A directory with the tokens of accounts, one `<account>.jwt` each, as in the reference.

All tokens are also in memory and are read once. A file appears and changes atomically: it is
written under another name, synced and renamed. Callers must not trust a token because it is in the
directory. Files are small and change only through administration, so writes are synchronous.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from penstock.base.nkeys import KeyKind, is_public
from penstock.server.auth.claims import ClaimsFault
from penstock.server.auth.trust_chain import account_claims

SUFFIX: Final = ".jwt"
DELETED_SUFFIX: Final = ".jwt.deleted"
UNFINISHED_SUFFIX: Final = ".jwt.new"
DIRECTORY_MODE: Final = 0o700


class DirectoryFull(Exception):
    """The directory holds its maximum number of accounts."""


class TokenFiles:
    """The files of one directory."""

    def __init__(self, path: str, limit: int = 0) -> None:
        """Open or create the directory and read it; raise OSError."""
        self._path = Path(path).absolute()
        self._limit = limit
        self._path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self.tokens: dict[str, str] = {}
        self.strays: list[str] = []
        """Files named like an account's that contain no account token."""
        for file in sorted(self._path.glob(f"*{SUFFIX}")):
            self._read(file)

    def __str__(self) -> str:
        return str(self._path)

    def _read(self, file: Path) -> None:
        name = file.name.removesuffix(SUFFIX)
        if not is_public(name, KeyKind.ACCOUNT):
            return
        token = file.read_text(errors="replace").strip()
        try:
            account_claims(token)
        except ClaimsFault:
            self.strays.append(file.name)
        else:
            self.tokens[name] = token

    def save(self, name: str, token: str) -> None:
        """Store a token; if it raises DirectoryFull or OSError, the stored token is unchanged."""
        if name not in self.tokens and 0 < self._limit <= len(self.tokens):
            raise DirectoryFull("jwt store is full")
        unfinished = self._path / f"{name}{UNFINISHED_SUFFIX}"
        with unfinished.open("w") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path / f"{name}{SUFFIX}")
        self.tokens[name] = token

    def save_newer(self, name: str, token: str) -> None:
        """Store a token, unless the stored one was issued later."""
        known = self.tokens.get(name)
        if known == token:
            return
        issued_s = account_claims(token).about.issued_s
        if known is None or account_claims(known).about.issued_s <= issued_s:
            self.save(name, token)

    def delete(self, name: str, *, hard: bool) -> None:
        """Delete a token; raise OSError. Deleting a missing token succeeds."""
        file = self._path / f"{name}{SUFFIX}"
        if hard:
            file.unlink(missing_ok=True)
        elif file.exists():
            file.replace(self._path / f"{name}{DELETED_SUFFIX}")
        self.tokens.pop(name, None)
