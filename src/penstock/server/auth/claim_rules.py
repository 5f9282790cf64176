"""Faults in claims, in the reference's words: times, subjects, networks, limits.

A claim with any fault counts as missing: the user is refused, the account does not exist. Pure
functions: the time is an argument. `trust_chain` checks the signers.
"""

from __future__ import annotations

import ipaddress
import re
import zoneinfo
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from penstock.base.nkeys import KeyKind, is_public
from penstock.server.auth.claims import (
    EVERYBODY,
    NO_LIMIT,
    ActivationClaims,
    ClaimsFault,
    decode,
)
from penstock.subjects.match import is_subset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.auth.claims import (
        About,
        AccountClaims,
        ClaimedExport,
        ClaimedImport,
        Grants,
        Hours,
        Licence,
        UserClaims,
        Weighted,
    )

KINDS: Final = ("stream", "service")
RESPONSE_TYPES: Final = ("", "Singleton", "Stream", "Chunked")
WEIGHT_MAX: Final = 100
_REFERENCE = re.compile(r"\$[0-9]+")


def user_faults(claims: UserClaims, now_s: float) -> list[str]:
    faults = [*_time_faults(claims.about, now_s), *_licence_faults(claims.licence)]
    if claims.issuer_account and not is_public(claims.issuer_account, KeyKind.ACCOUNT):
        faults.append("account_id is not an account public key")
    return faults


def account_faults(claims: AccountClaims, now_s: float) -> list[str]:
    return [
        *_time_faults(claims.about, now_s),
        *(fault for one in claims.imports for fault in _import_faults(one, claims.about.subject)),
        *(fault for one in claims.exports for fault in _export_faults(one)),
        *_overlap_faults(claims.exports),
        *_grant_faults(claims.default_permissions),
        *(
            fault
            for subject, destinations in claims.mappings.items()
            for fault in _mapping_faults(subject, destinations)
        ),
        *_bound_faults(claims),
        *(
            f'"{key}" is not a valid account signing key'
            for key in claims.scopes
            if not is_public(key, KeyKind.ACCOUNT)
        ),
    ]


def activation_faults(claims: ActivationClaims, now_s: float) -> list[str]:
    return [*_time_faults(claims.about, now_s), *_leave_faults(claims)]


def is_revoked(revocations: dict[str, int], key: str, issued_s: int) -> bool:
    """Return whether claims issued to a key at `issued_s` have been revoked."""
    since = [revocations[one] for one in (key, EVERYBODY) if one in revocations]
    return any(since_s >= issued_s for since_s in since)


def source_allowed(sources: tuple[str, ...], ip: str) -> bool:
    """Return whether a user may connect from an address; no sources means any address."""
    if not sources:
        return True
    try:
        address = ipaddress.ip_address(ip)
        return any(address in ipaddress.ip_network(one, strict=False) for one in sources)
    except ValueError:
        return False


def open_for_s(licence: Licence, now_s: float) -> float | None:
    """Return how long the user may stay by its connect times; 0: no limit, None: not now."""
    if not licence.times:
        return 0.0
    zone = zoneinfo.ZoneInfo(licence.times_location) if licence.times_location else None
    now = datetime.fromtimestamp(now_s, zone)
    left = [one for hours in licence.times if (one := _left_s(hours, now)) is not None]
    return max(left, default=None)


def _left_s(hours: Hours, now: datetime) -> float | None:
    start = datetime.combine(now.date(), _hour(hours.start), now.tzinfo)
    end = datetime.combine(now.date(), _hour(hours.end), now.tzinfo)
    if start > end and now >= end:  # the range spans midnight, which is still ahead
        end += timedelta(days=1)
    elif start > end:
        start -= timedelta(days=1)
    return (end - now).total_seconds() if start < now < end else None


def _hour(text: str) -> time:
    return datetime.strptime(text, "%H:%M:%S").time()


def _time_faults(about: About, now_s: float) -> Iterator[str]:
    if 0 < about.expires_s < int(now_s):
        yield "claim is expired"
    if about.not_before_s > int(now_s):
        yield "claim is not yet valid"


def _licence_faults(licence: Licence) -> Iterator[str]:
    yield from _grant_faults(licence)
    for network in licence.src:
        if not _is_network(network):
            yield f'invalid cidr "{network}" in user src limits'
    for hours in licence.times:
        if not (_is_hour(hours.start) and _is_hour(hours.end)):
            yield "time ranges must have a start and an end as hh:mm:ss"
    if licence.times_location and not _is_zone(licence.times_location):
        yield "could not parse iana time zone by name"


def _grant_faults(grants: Grants) -> Iterator[str]:
    for subject in (*grants.sub.allow, *grants.sub.deny):
        parts = subject.split(" ")
        if len(parts) > 2:
            yield f'Permission Subject "{subject}" contains too many spaces'
        for part in parts[:2]:
            yield from _subject_faults(part)
    for subject in (*grants.pub.allow, *grants.pub.deny):
        if " " in subject:
            yield f'Permission Subject "{subject}" is not allowed to contain queue'
        yield from _subject_faults(subject)


def _subject_faults(subject: str) -> Iterator[str]:
    if not subject:
        yield "subject cannot be empty"
    elif " " in subject:
        yield f'subject "{subject}" cannot have spaces'
    elif subject.startswith(".") or subject.endswith("."):
        yield f'subject "{subject}" cannot start or end with a `.`'
    elif ".." in subject:
        yield f'subject "{subject}" cannot contain consecutive `.`'


def _export_faults(export: ClaimedExport) -> Iterator[str]:
    if export.type not in KINDS:
        yield f'invalid export type: "{export.type}"'
    is_service = export.type == "service"
    if export.response_type not in (RESPONSE_TYPES if is_service else ("",)):
        yield f'invalid response type for {export.type}: "{export.response_type}"'
    if export.response_threshold < 0 or (export.response_threshold and not is_service):
        yield "response threshold only valid for services"
    if export.service_latency is not None and not is_service:
        yield "latency tracking only permitted for services"
    yield from _subject_faults(export.subject)
    position = export.account_token_position
    tokens = export.subject.split(".")
    if position and (position > len(tokens) or tokens[position - 1] != "*"):
        yield f"Account Token Position {position} must match a * in: {export.subject}"


def _overlap_faults(exports: tuple[ClaimedExport, ...]) -> Iterator[str]:
    for one in exports:
        for other in exports:
            alike = one is not other and one.type == other.type
            if alike and one.subject and is_subset(one.subject, other.subject):
                yield f'{one.type} export subject "{other.subject}" already exports "{one.subject}"'


def _leave_faults(claims: ActivationClaims) -> Iterator[str]:
    yield from _subject_faults(claims.subject)
    if claims.kind not in KINDS:
        yield "invalid import type"
    if claims.issuer_account and not is_public(claims.issuer_account, KeyKind.ACCOUNT):
        yield "account_id is not an account public key"


def _import_faults(wanted: ClaimedImport, importer: str) -> Iterator[str]:
    if wanted.type not in KINDS:
        yield f'invalid import type: "{wanted.type}"'
    if not wanted.account:
        yield "account to import from is not specified"
    if wanted.share and wanted.type != "service":
        yield f'sharing information is only valid for services: "{wanted.subject}"'
    yield from _subject_faults(wanted.subject)
    if wanted.local_subject:
        yield from _renaming_faults(wanted.local_subject, wanted.subject)
        if wanted.to:
            yield "Local Subject replaces To"
    if wanted.token:
        yield from _token_faults(wanted, importer)


def _token_faults(wanted: ClaimedImport, importer: str) -> Iterator[str]:
    try:
        leave = decode(wanted.token, ActivationClaims)
    except ClaimsFault:
        yield f'import "{wanted.subject}" contains an invalid activation token'
        return
    if wanted.account not in (leave.about.issuer, leave.issuer_account):
        yield f'activation token doesn\'t match account for import "{wanted.subject}"'
    if leave.about.subject != importer:
        yield f'activation token doesn\'t match account it is being included in, "{wanted.subject}"'
    if leave.kind != wanted.type:
        yield f"mismatch between token import type {leave.kind} and type of import {wanted.type}"
    yield from _leave_faults(leave)
    if leave.subject and not is_subset(wanted.their_subject, leave.subject):
        yield f'activation token import subject "{leave.subject}" doesn\'t match import'


def _renaming_faults(local: str, subject: str) -> Iterator[str]:
    yield from _subject_faults(local)
    if (local.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        yield "both, renaming subject and subject, need to end or not end in >"
    wildcards = subject.split(".").count("*")
    tokens = local.split(".")
    references = [token for token in tokens if _REFERENCE.fullmatch(token)]
    if any(int(token[1:]) > wildcards for token in references):
        yield f'a reference in "{local}" names a * in "{subject}" that does not exist'
    if tokens.count("*") + len(references) != wildcards:
        yield "subject does not contain enough * or reference wildcards $[0-9]"


def _mapping_faults(subject: str, destinations: tuple[Weighted, ...]) -> Iterator[str]:
    yield from _subject_faults(subject)
    totals: dict[str, int] = {}
    for one in destinations:
        yield from _subject_faults(one.subject)
        totals[one.cluster] = totals.get(one.cluster, 0) + (one.weight or WEIGHT_MAX)
    if any(total > WEIGHT_MAX for total in totals.values()):
        yield f'Mapping "{subject}" exceeds 100% among all of it\'s weighted to mappings'


def _bound_faults(claims: AccountClaims) -> Iterator[str]:
    limits = claims.limits
    if "" in limits.tiered_limits:
        yield 'Tiered JetStream Limits can not contain a blank "" tier name'
    if limits.imports != NO_LIMIT and len(claims.imports) > limits.imports:
        yield "the account contains more imports than allowed by the operator"
    if limits.exports == NO_LIMIT:
        return
    if len(claims.exports) > limits.exports:
        yield "the account contains more exports than allowed by the operator"
    wild = any({"*", ">"} & set(one.subject.split(".")) for one in claims.exports)
    if wild and not limits.wildcards:
        yield "the account contains wildcard exports that are not allowed by the operator"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _is_hour(text: str) -> bool:
    try:
        _hour(text)
    except ValueError:
        return False
    return True


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
