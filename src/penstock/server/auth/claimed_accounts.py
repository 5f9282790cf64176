"""Convert the signed claims of accounts into the options of configured accounts.

The rest of the server therefore need not know where an account comes from. Parts that an account
may not or cannot have (an import without its export or without the exporter's permission, an
invalid mapping) are omitted with a warning, as in the reference; the rest of the account works.
Pure: the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.broker.import_resolver import Shares, tolerate
from penstock.broker.share_values import (
    RESPONSE_THRESHOLD_NS_DEFAULT,
    Destination,
    Export,
    Import,
    Mapping,
    ResponseKind,
    ShareKind,
)
from penstock.broker.subject_mappings import WHOLE, MappingFault, Mappings
from penstock.server.auth.claim_rules import activation_faults, is_revoked
from penstock.server.auth.claims import ActivationClaims, StorageClaim, decode
from penstock.server.config.options import (
    AccountConnectionLimits,
    AccountOptions,
    JetStreamAccountLimits,
)
from penstock.subjects.match import is_subset
from penstock.subjects.tokens import has_wildcard, is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Mapping as MappingOf

    from penstock.server.auth.claims import (
        AccountBounds,
        AccountClaims,
        ClaimedExport,
        ClaimedImport,
        ClaimedTrace,
    )

UNLIMITED: Final = -1
_RESPONSES: Final = {
    "": ResponseKind.SINGLETON,
    "Singleton": ResponseKind.SINGLETON,
    "Stream": ResponseKind.STREAM,
    "Chunked": ResponseKind.CHUNKED,
}


class ClaimedAccounts:
    """The options of all claimed accounts, and warnings about omitted parts."""

    def __init__(self, accounts: MappingOf[str, AccountClaims], now_s: float) -> None:
        self._claims = accounts
        self._now_s = now_s
        self.warnings: list[str] = []
        self.expiries_s: list[int] = [
            claims.about.expires_s for claims in accounts.values() if claims.about.expires_s
        ]
        """Expiry times of accounts and activations."""
        self.options = self._shared([self._options(name) for name in accounts])

    def _options(self, name: str) -> AccountOptions:
        claims = self._claims[name]
        exports = [_export(one) for one in claims.exports if is_valid_subject(one.subject)]
        imports = [_import(one) for one in claims.imports if self._has_leave(name, one)]
        dest, sampling = _trace(claims.trace)
        return AccountOptions(
            name=name,
            limits=_limits(claims.limits),
            jetstream=_storage(claims.limits),
            exports=tuple(exports),
            imports=tuple(imports),
            mappings=tuple(self._mappings(name)),
            trace_dest=dest,
            trace_sampling=sampling,
        )

    def _shared(self, accounts: list[AccountOptions]) -> tuple[AccountOptions, ...]:
        shares, faults = tolerate(Shares(one.name, one.exports, one.imports) for one in accounts)
        self.warnings += [f"account {name}: {fault}" for name, fault in faults]
        return tuple(
            replace(
                one,
                exports=tuple(shares[one.name].exports),
                imports=tuple(shares[one.name].imports),
            )
            for one in accounts
        )

    def _mappings(self, name: str) -> list[Mapping]:
        found = []
        for subject, weighted in self._claims[name].mappings.items():
            mapping = Mapping(
                subject=subject,
                destinations=tuple(
                    Destination(subject=one.subject, weight=one.weight or 100, cluster=one.cluster)
                    for one in weighted
                ),
            )
            try:
                Mappings([mapping], draw=lambda _: 0)
            except MappingFault as fault:
                self.warnings.append(f'account {name}: mapping of "{subject}": {fault}')
            else:
                found.append(mapping)
        return found

    # -- permission to import

    def _has_leave(self, importer: str, wanted: ClaimedImport) -> bool:
        """Return whether the import is permitted.

        An export may require an activation: a token in which the exporter names the importer.
        """
        exporter = self._claims.get(wanted.account)
        if exporter is None:
            self.warnings.append(f"account {importer}: no account {wanted.account} to import from")
            return False
        theirs = wanted.their_subject
        asking = [
            export
            for export in exporter.exports
            if export.token_req and export.type == wanted.type and is_subset(theirs, export.subject)
        ]
        if asking and not self._is_activated(importer, wanted, exporter, asking[0]):
            self.warnings.append(f"account {importer}: import of {wanted.subject} not authorized")
            return False
        return True

    def _is_activated(
        self,
        importer: str,
        wanted: ClaimedImport,
        exporter: AccountClaims,
        export: ClaimedExport,
    ) -> bool:
        """Return whether a valid activation exists; `claim_rules` has matched token and import."""
        if not wanted.token:
            return False
        leave = decode(wanted.token, ActivationClaims)
        about = leave.about
        is_theirs = not leave.issuer_account or (
            leave.issuer_account == wanted.account
            and about.issuer in (wanted.account, *exporter.scopes)
        )
        if about.expires_s:
            self.expiries_s.append(about.expires_s)
        is_over = bool(about.expires_s) and about.expires_s <= self._now_s
        return (
            is_theirs
            and not is_over
            and not activation_faults(leave, self._now_s)
            and not is_revoked(export.revocations, importer, about.issued_s)
        )


def _trace(trace: ClaimedTrace | None) -> tuple[str, int]:
    """Return destination and percentage; an invalid or wildcard destination becomes ""."""
    if trace is None or not is_valid_subject(trace.dest) or has_wildcard(trace.dest):
        return "", WHOLE
    return trace.dest, trace.sampling if 1 <= trace.sampling <= WHOLE else WHOLE


def _export(export: ClaimedExport) -> Export:
    return Export(
        kind=ShareKind(export.type),
        subject=export.subject,
        response=_RESPONSES[export.response_type],
        threshold_ns=export.response_threshold or RESPONSE_THRESHOLD_NS_DEFAULT,
        account_position=export.account_token_position,
        allow_trace=export.allow_trace and export.type == ShareKind.SERVICE.value,
    )


def _import(wanted: ClaimedImport) -> Import:
    kind = ShareKind(wanted.type)
    theirs = wanted.their_subject
    if kind is ShareKind.SERVICE:
        here = wanted.local_subject or wanted.subject
        return Import(
            kind=kind, account=wanted.account, subject=theirs, to=here, share=wanted.share
        )
    return Import(
        kind=kind,
        account=wanted.account,
        subject=theirs,
        to=wanted.local_subject,
        prefix="" if wanted.local_subject else wanted.to,
        allow_trace=wanted.allow_trace,
    )


def _limits(bounds: AccountBounds) -> AccountConnectionLimits:
    return AccountConnectionLimits(
        max_connections=bounds.conn,
        max_subscriptions=bounds.subs,
        max_payload=bounds.payload,
        max_leafnodes=bounds.leaf,
    )


def _storage(bounds: AccountBounds) -> JetStreamAccountLimits | None:
    """Return the JetStream limits; None if neither the account nor any tier has storage."""
    tiers = bounds.tiered_limits
    if not any(one.mem_storage or one.disk_storage for one in (tiers.values() or (bounds,))):
        return None
    if tiers:
        return JetStreamAccountLimits(tiers={name: _room(one) for name, one in tiers.items()})
    return _room(bounds)


def _room(given: StorageClaim) -> JetStreamAccountLimits:
    return JetStreamAccountLimits(
        max_memory=given.mem_storage,
        max_storage=given.disk_storage,
        max_streams=given.streams,
        max_consumers=given.consumer,
        max_ack_pending=_positive(given.max_ack_pending),
        memory_max_stream_bytes=_positive(given.mem_max_stream_bytes),
        storage_max_stream_bytes=_positive(given.disk_max_stream_bytes),
        max_bytes_required=given.max_bytes_required,
    )


def _positive(value: int) -> int:
    return value if value > 0 else UNLIMITED
