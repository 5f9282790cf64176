"""The users of a configuration, compiled for lookup.

A user name or nkey belongs to one user of one account, whichever block contains it. Permissions are
compiled once and shared by all connections of the user. The table is immutable: a reload builds a
new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.nkeys import KeyKind, is_public
from penstock.broker.permissions import compile_permissions
from penstock.server.auth.login_values import GLOBAL_ACCOUNT, Accepted
from penstock.server.auth.secret_compare import is_bcrypt
from penstock.server.auth.x509_names import parse_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.permission_values import Permissions
    from penstock.server.auth.login_values import Attribute, DistinguishedName, PeerCertificate
    from penstock.server.config.options import Options, UserOptions


class AuthConfigError(ValueError):
    """The configured users contradict each other."""


@dataclass(frozen=True, slots=True)
class User:
    """One way to log in, and the resulting user."""

    accepted: Accepted
    password: str = field(default="", repr=False)
    connection_types: frozenset[str] = frozenset()

    def may_use(self, connection_type: str) -> bool:
        """Return whether the user may log in over this type of connection."""
        return not self.connection_types or connection_type in self.connection_types


class UserTable:
    """Users by name and by nkey."""

    __slots__ = ("_names", "by_name", "by_nkey", "decoy_hash")

    def __init__(self, options: Options) -> None:
        self.by_name: dict[str, User] = {}
        self.by_nkey: dict[str, User] = {}
        for user, account, default in _configured(options):
            self._add(user, account, default)
        self._names: list[tuple[DistinguishedName, User]] | None = None
        self.decoy_hash = next((u.password for u in self if is_bcrypt(u.password)), "")
        """A user's bcrypt hash, to spend the same time on unknown users; empty if there is none."""

    def __iter__(self) -> Iterator[User]:
        return iter((*self.by_name.values(), *self.by_nkey.values()))

    def __bool__(self) -> bool:
        return bool(self.by_name or self.by_nkey)

    def find(self, name: str) -> User | None:
        """Return the user with this name or nkey."""
        return self.by_name.get(name) or self.by_nkey.get(name)

    def find_by_certificate(
        self, certificate: PeerCertificate, connection_type: str
    ) -> User | None:
        """Return the user of a certificate: by alternative name first, then by subject."""
        candidates = (
            *certificate.emails,
            *certificate.dns_names,
            *certificate.uris,
            certificate.subject,
        )
        for name in candidates:
            user = self.by_name.get(name)
            if user is not None and user.may_use(connection_type):
                return user
        return self._find_by_subject(certificate, connection_type)

    def _find_by_subject(self, certificate: PeerCertificate, connection_type: str) -> User | None:
        """Compare names part by part: first in the certificate's order, then in any order."""
        named = [(name, user) for name, user in self._parsed() if user.may_use(connection_type)]
        for name, user in named:
            if name == certificate.name:
                return user
        wanted = _any_order(certificate.name)
        return next((user for name, user in named if _any_order(name) == wanted), None)

    def _parsed(self) -> list[tuple[DistinguishedName, User]]:
        if self._names is None:
            pairs = ((parse_name(name), user) for name, user in self.by_name.items())
            self._names = [(name, user) for name, user in pairs if name is not None]
        return self._names

    def _add(self, user: UserOptions, account: str, default: Permissions | None) -> None:
        if user.nkey and not is_public(user.nkey, KeyKind.USER):
            raise AuthConfigError("Not a valid public nkey for a user")
        name = user.nkey or user.user
        if not name:
            raise AuthConfigError("User entry requires a user")
        if self.find(name) is not None:
            raise AuthConfigError(f'Duplicate {"nkey" if user.nkey else "user"} "{name}" detected')
        permissions = user.permissions or default
        compiled = None if permissions is None else compile_permissions(permissions)
        table = self.by_nkey if user.nkey else self.by_name
        table[name] = User(
            accepted=Accepted(name, user.account or account, compiled),
            password=user.password,
            connection_types=frozenset(kind.upper() for kind in user.allowed_connection_types),
        )


def _any_order(name: DistinguishedName) -> list[list[Attribute]]:
    return sorted(sorted(part) for part in name)


def _configured(options: Options) -> Iterator[tuple[UserOptions, str, Permissions | None]]:
    authorization = options.authorization
    for user in authorization.users:
        yield user, GLOBAL_ACCOUNT, authorization.default_permissions
    for account in options.accounts:
        for user in account.users:
            yield user, account.name, account.default_permissions
