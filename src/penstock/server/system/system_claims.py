"""Account claims over the system account: requests that read and change them in operator mode.

Administrators push an account's token to a running server, look one up, list and delete them. With
a token directory all of these work. With a memory resolver only known accounts can be updated,
until the configuration is read again. Requesters are users of the system account. A token that no
trusted operator signed changes nothing.
"""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.base.nkeys import KeyKind, is_public
from penstock.server.auth.claim_rules import account_faults
from penstock.server.auth.claims import ClaimsFault, RequestClaims, decode
from penstock.server.auth.token_directory import DirectoryFull
from penstock.server.auth.trust_chain import account_claims
from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.auth.claims import AccountClaims
    from penstock.server.auth.operator_mode import OperatorMode
    from penstock.server.server_state import ServerState

    Replies = list[bytes | dict[str, Any]]
    Handler = Callable[[str, bytes], Replies]

DONE: Final = 200
FAILED: Final = 500
UPDATED: Final = "jwt updated"
NOT_UPDATED: Final = "jwt update resulted in error"
UNNAMED: Final = "n/a"
UPDATE_SUBJECTS: Final = {"$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE": 3, "$SYS.ACCOUNT.*.CLAIMS.UPDATE": 2}
"""Subject -> index of the token that names the account."""
LOOKUP_SUBJECT: Final = "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"
LOOKUP_TOKEN: Final = 3


class _ClaimFault(Exception):
    """Why a request is refused: what failed, for which account, and why."""

    def __init__(self, what: str, account: str, why: object) -> None:
        super().__init__(str(why))
        self.what = what
        self.account = account


def handlers_of(service: ServerState) -> dict[str, Handler]:
    """Return the subjects of claims requests and their handlers."""
    operator_mode = service.operator_mode
    if operator_mode.trust is None:
        return {}
    if service.options.resolver_directory is None:
        return {
            subject: partial(_update_known, operator_mode, position)
            for subject, position in UPDATE_SUBJECTS.items()
        }
    handlers: dict[str, Handler] = {
        subject: partial(_update, operator_mode, position)
        for subject, position in UPDATE_SUBJECTS.items()
    }
    handlers["$SYS.REQ.CLAIMS.UPDATE"] = partial(_update, operator_mode, None)
    handlers[LOOKUP_SUBJECT] = partial(_look_up, operator_mode)
    handlers["$SYS.REQ.CLAIMS.LIST"] = partial(_list, operator_mode)
    handlers["$SYS.REQ.CLAIMS.PACK"] = partial(_pack, operator_mode)
    handlers["$SYS.REQ.CLAIMS.DELETE"] = partial(_delete, service)
    return handlers


# -- updates


def _update(
    operator_mode: OperatorMode, position: int | None, subject: str, payload: bytes
) -> Replies:
    """Update an account; `position`: the subject token that names it; None: no such token."""
    try:
        claims = _read(payload, UNNAMED)
        name = claims.about.subject
        # Expired claims are accepted: this is how an account is closed.
        faults = account_faults(claims, now_s=0)
        if faults:
            why = f"validation errors: [{' '.join(faults)}]"
            raise _ClaimFault("jwt validation failed", name, why)
        _check_name(claims, subject, position)
        _store(operator_mode, name, claims, payload)
    except _ClaimFault as fault:
        return [_failed(fault)]
    return [_done(UPDATED, name)]


def _update_known(
    operator_mode: OperatorMode, position: int, subject: str, payload: bytes
) -> Replies:
    name = subject.split(".")[position]
    try:
        if not payload:
            raise _ClaimFault("jwt update error", name, "request body is empty")
        claims = _read(payload, name)
        _check_name(claims, subject, position)
        if name not in operator_mode.tokens:
            return [_done("jwt update skipped", name)]
        _store(operator_mode, name, claims, payload)
    except _ClaimFault as fault:
        return [_failed(fault)]
    return [_done(UPDATED, name)]


def _read(payload: bytes, name: str) -> AccountClaims:
    try:
        return account_claims(payload.decode(errors="replace"))
    except ClaimsFault as fault:
        raise _ClaimFault(NOT_UPDATED, name, fault) from fault


def _check_name(claims: AccountClaims, subject: str, position: int | None) -> None:
    if position is not None and claims.about.subject != (name := subject.split(".")[position]):
        raise _ClaimFault(NOT_UPDATED, name, "subject does not match jwt content")


def _store(operator_mode: OperatorMode, name: str, claims: AccountClaims, payload: bytes) -> None:
    assert operator_mode.trust is not None
    distrust = operator_mode.trust.issuer_fault(claims.about.issuer)
    if distrust is not None:
        raise _ClaimFault(NOT_UPDATED, name, distrust)
    try:
        operator_mode.update(name, payload.decode())
    except (DirectoryFull, OSError) as error:
        raise _ClaimFault(NOT_UPDATED, name, error) from error


# -- queries


def _look_up(operator_mode: OperatorMode, subject: str, payload: bytes) -> Replies:
    """Return the account's token; empty if there is none."""
    return [operator_mode.tokens.get(subject.split(".")[LOOKUP_TOKEN], "").encode()]


def _list(operator_mode: OperatorMode, subject: str, payload: bytes) -> Replies:
    return [{"data": list(_current(operator_mode))}]


def _pack(operator_mode: OperatorMode, subject: str, payload: bytes) -> Replies:
    """Return all tokens and an empty message; only the latter if the requester has them all."""
    current = _current(operator_mode)
    if payload == _digest(current.values()):
        return [b""]
    return [*(f"{name}|{token}".encode() for name, token in current.items()), b""]


def _digest(tokens: Any) -> bytes:
    """Return a digest of the tokens that does not depend on their order."""
    mixed = 0
    for token in tokens:
        mixed ^= int.from_bytes(hashlib.sha256(token.encode()).digest(), "big")
    return mixed.to_bytes(hashlib.sha256().digest_size, "big")


def _current(operator_mode: OperatorMode) -> dict[str, str]:
    """Return the tokens that have not expired."""
    now_s = time.time()
    ends = {
        name: account_claims(token).about.expires_s for name, token in operator_mode.tokens.items()
    }
    return {
        name: token
        for name, token in operator_mode.tokens.items()
        if not ends[name] or ends[name] > now_s
    }


# -- deleting


def _delete(service: ServerState, subject: str, payload: bytes) -> Replies:
    """Delete accounts; the request is a token signed by an operator."""
    directory = service.options.resolver_directory
    assert directory is not None
    who = ""
    try:
        request = decode(payload.decode(errors="replace"), RequestClaims)
        who = request.about.subject
        names = _deletable(service, request, may_delete=directory.allow_delete)
        for name in names:
            service.operator_mode.delete(name, hard=directory.hard_delete)
    except (ClaimsFault, OSError) as error:
        return [_failed(_ClaimFault(f"delete accounts request by {who} failed", "", error))]
    return [_done(f"deleted {len(names)} accounts", "")]


def _deletable(service: ServerState, request: RequestClaims, *, may_delete: bool) -> list[str]:
    """Return the accounts that the request names. Raises ClaimsFault."""
    trust = service.operator_mode.trust
    assert trust is not None
    if not may_delete:
        raise ClaimsFault("delete must be enabled in server config")
    if request.about.subject != request.about.issuer:
        raise ClaimsFault("not self signed")
    if not trust.is_operator(request.about.issuer):
        raise ClaimsFault("not trusted")
    names = request.accounts
    if not isinstance(names, list):
        raise ClaimsFault("malformed request")
    for name in names:
        if not isinstance(name, str) or not is_public(name, KeyKind.ACCOUNT):
            raise ClaimsFault("malformed request")
        if name == service.system_account:
            raise ClaimsFault("not allowed to delete system account")
    return names


# -- replies


def _done(message: str, account: str) -> dict[str, Any]:
    log.debug("%s - %s", message, account)
    return {"data": {**_about(account), "code": DONE, "message": message}}


def _failed(fault: _ClaimFault) -> dict[str, Any]:
    shown = f"{fault.what} - {fault}"
    log.error("%s", f"{fault.what} - {fault.account} - {fault}" if fault.account else shown)
    return {"error": {**_about(fault.account), "code": FAILED, "description": shown}}


def _about(account: str) -> dict[str, Any]:
    return {"account": account} if account else {}
