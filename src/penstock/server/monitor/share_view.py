"""Exports, imports and mappings of an account, as /accountz shows them.

The reference lists the services of the system account among the imports of every account. They are
not imports here, so they are not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from penstock.broker.share_values import ResponseKind, ShareKind
from penstock.broker.subject_mappings import WHOLE
from penstock.server.system.server_accounts import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from penstock.broker.share_values import Export, Import, Mapping
    from penstock.server.config.options import Options

RESPONSE_NAMES: Final = {
    ResponseKind.SINGLETON: "Singleton",
    ResponseKind.STREAM: "Streamed",
    ResponseKind.CHUNKED: "Chunked",
}


class ShownExport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str
    type: str
    response_type: str = ""
    approved_accounts: list[str] = []


class ShownImport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str
    account: str
    to: str = ""
    local_subject: str
    type: str
    invalid: bool
    share: bool
    tracking: bool


class ShownDestination(Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str
    weight: int
    cluster: str = ""


class Shown(Struct, frozen=True, kw_only=True):
    """Exports, imports and mappings of one account."""

    mappings: dict[str, list[ShownDestination]] = {}
    exports: list[ShownExport] = []
    imports: list[ShownImport] = []


def shown(options: Options, account: str) -> Shown:
    if account == GLOBAL_ACCOUNT:
        return Shown(mappings=_mappings(options.mappings))
    for one in options.accounts:
        if one.name == account:
            return Shown(
                mappings=_mappings(one.mappings),
                exports=[
                    _export(export)
                    for kind in (ShareKind.SERVICE, ShareKind.STREAM)
                    for export in one.exports
                    if export.kind is kind
                ],
                imports=[
                    _import(taken)
                    for kind in (ShareKind.STREAM, ShareKind.SERVICE)
                    for taken in one.imports
                    if taken.kind is kind
                ],
            )
    return Shown()


def _mappings(mappings: tuple[Mapping, ...]) -> dict[str, list[ShownDestination]]:
    """Return mappings with cumulative weights, as the reference keeps them."""
    made = {}
    for mapping in mappings:
        below = 0
        rows = []
        for one in sorted(mapping.destinations, key=lambda one: one.weight):
            below += one.weight
            rows.append(ShownDestination(subject=one.subject, weight=below, cluster=one.cluster))
        if below < WHOLE and mapping.subject not in (row.subject for row in rows):
            rows.append(ShownDestination(subject=mapping.subject, weight=WHOLE))
        made[mapping.subject] = rows
    return made


def _export(export: Export) -> ShownExport:
    is_service = export.kind is ShareKind.SERVICE
    return ShownExport(
        subject=export.subject,
        type=export.kind.value,
        response_type=RESPONSE_NAMES[export.response] if is_service else "",
        approved_accounts=list(export.accounts),
    )


def _import(taken: Import) -> ShownImport:
    here = taken.to or taken.subject
    if taken.prefix:
        here = f"{taken.prefix.removesuffix('.')}.{taken.subject}"
    return ShownImport(
        subject=taken.subject,
        account=taken.account,
        to=here if taken.kind is ShareKind.SERVICE else "",
        local_subject=here,
        type=taken.kind.value,
        invalid=False,
        share=taken.share,
        tracking=False,
    )
