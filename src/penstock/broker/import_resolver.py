"""Matches imports with the exports they refer to, and refuses imports without one.

`join` looks at all accounts at once. Invariant: every resolved import has an export that covers it
and that its account may use, its subjects are renamed reversibly, and no chain of imports leads
back to an account it came from. Refusals use the reference's texts. Pure: the configuration and the
claims call it, and `server.system.account_imports` puts the result into effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.share_values import Export, Import, ShareKind
from penstock.subjects.match import collides, is_subset
from penstock.subjects.pattern_rewrite import Renaming
from penstock.subjects.tokens import SEPARATOR, has_wildcard, is_valid_subject, token_at
from penstock.subjects.transform import TransformFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CYCLE_DEPTH_MAX: Final = 1024
"""Accounts visited in one search for a cycle."""

NOT_AUTHORISED: Final = "import not authorized"
BAD_PREFIX: Final = "stream import prefix can not contain wildcard tokens"
DUPLICATE_STREAM: Final = "stream import already exists"
CYCLE: Final = "import forms a cycle"
TOO_DEEP: Final = "search cycle depth exhausted"
INVALID_SUBJECT: Final = "sublist: invalid subject"


class SharingFault(ValueError):
    """An export or import that is invalid; the text gives the reason."""


class Shares(NamedTuple):
    """The exports and imports of one account."""

    account: str
    exports: Sequence[Export]
    imports: Sequence[Import]


class ResolvedImports(NamedTuple):
    """A valid import: subjects of `exporter` under the importer's own names."""

    importer: str
    exporter: str
    renaming: Renaming
    export: Export
    share: bool
    is_traced: bool = False
    """Whether the trace of a message continues in the other account."""


class Sharing(NamedTuple):
    """All imports of a server, in configuration order."""

    streams: tuple[ResolvedImports, ...] = ()
    services: tuple[ResolvedImports, ...] = ()


def join(accounts: Iterable[Shares]) -> Sharing:
    """Resolve all imports. Raises `SharingFault`."""
    by_name = {shares.account: shares for shares in accounts}
    for shares in by_name.values():
        for export in shares.exports:
            _check_export(export, by_name)
    joiner = _Joiner(by_name)
    for name, wanted in _imports_of(by_name):
        joiner.add(name, wanted)
    return Sharing(tuple(joiner.joined[ShareKind.STREAM]), tuple(joiner.joined[ShareKind.SERVICE]))


def tolerate(accounts: Iterable[Shares]) -> tuple[dict[str, Shares], list[tuple[str, str]]]:
    """Return the shares without invalid exports and imports, and the faults as (account,
    reason)."""
    by_name = {shares.account: shares for shares in accounts}
    faults: list[tuple[str, str]] = []
    for name, shares in by_name.items():
        exports = []
        for export in shares.exports:
            try:
                _check_export(export, by_name)
                exports.append(export)
            except SharingFault as fault:
                faults.append((name, str(fault)))
        by_name[name] = shares._replace(exports=exports)
    joiner = _Joiner(by_name)
    imports: dict[str, list[Import]] = {name: [] for name in by_name}
    for name, wanted in _imports_of(by_name):
        try:
            joiner.add(name, wanted)
            imports[name].append(wanted)
        except SharingFault as fault:
            faults.append((name, str(fault)))
    kept = {name: one._replace(imports=imports[name]) for name, one in by_name.items()}
    return kept, faults


def _imports_of(accounts: dict[str, Shares]) -> Iterator[tuple[str, Import]]:
    """Yield all imports with their importers: streams first, then services."""
    for kind in (ShareKind.STREAM, ShareKind.SERVICE):
        for shares in accounts.values():
            for wanted in shares.imports:
                if wanted.kind is kind:
                    yield shares.account, wanted


def _check_export(export: Export, accounts: dict[str, Shares]) -> None:
    kind = export.kind.value
    for name in export.accounts:
        if name not in accounts:
            raise SharingFault(f'"{name}" account not defined for {kind} export')
    if export.account_position and token_at(export.subject, export.account_position) != "*":
        raise SharingFault(f'Error adding {kind} export "{export.subject}": {INVALID_SUBJECT}')


class _Joiner:
    """The imports accepted so far; each must be compatible with those before it."""

    def __init__(self, accounts: dict[str, Shares]) -> None:
        self._accounts = accounts
        self.joined: dict[ShareKind, list[ResolvedImports]] = {
            ShareKind.STREAM: [],
            ShareKind.SERVICE: [],
        }

    def add(self, importer: str, wanted: Import) -> None:
        kind = wanted.kind.value
        if wanted.account not in self._accounts:
            raise SharingFault(f'"{wanted.account}" account not defined for {kind} import')
        try:
            joined = self._join(importer, wanted)
            if wanted.kind is ShareKind.STREAM:
                self._check_stream(joined)
            else:
                self._check_service(joined)
        except (SharingFault, TransformFault) as fault:
            text = f'Error adding {kind} import "{wanted.subject}": {fault}'
            raise SharingFault(text) from None
        self.joined[wanted.kind].append(joined)

    def _join(self, importer: str, wanted: Import) -> ResolvedImports:
        ours = _name_here(wanted)
        is_valid = is_valid_subject(wanted.subject) and is_valid_subject(ours)
        if wanted.kind is ShareKind.SERVICE and not is_valid:
            raise SharingFault(INVALID_SUBJECT)
        export = _export_for(self._accounts[wanted.account].exports, wanted, importer)
        if export is None or not is_valid:
            raise SharingFault(f"{wanted.kind.value} {NOT_AUTHORISED}")
        try:
            renaming = Renaming(wanted.subject, ours)
        except TransformFault as fault:
            raise SharingFault(_no_transform(wanted, ours, fault)) from None
        is_traced = (wanted if wanted.kind is ShareKind.STREAM else export).allow_trace
        return ResolvedImports(importer, wanted.account, renaming, export, wanted.share, is_traced)

    def _check_stream(self, joined: ResolvedImports) -> None:
        theirs, ours = joined.renaming.theirs, joined.renaming.ours
        for subject in (ours, theirs):
            self._check_streams_round(joined.exporter, subject, {joined.importer})
        if any(
            (other.importer, other.exporter, other.renaming.theirs)
            == (joined.importer, joined.exporter, theirs)
            for other in self.joined[ShareKind.STREAM]
        ):
            raise SharingFault(DUPLICATE_STREAM)

    def _check_service(self, joined: ResolvedImports) -> None:
        ours = joined.renaming.ours
        self._check_services_round(joined.exporter, ours, {joined.importer})
        for other in self.joined[ShareKind.SERVICE]:
            same = (other.importer, other.exporter, other.renaming.ours)
            if same == (joined.importer, joined.exporter, ours):
                raise SharingFault(
                    f'duplicate service import subject "{ours}", previously used in import for '
                    f'account "{other.exporter}", subject "{other.renaming.theirs}"'
                )

    # -- cycles

    def _of(self, kind: ShareKind, account: str) -> Iterator[ResolvedImports]:
        return (one for one in self.joined[kind] if one.importer == account)

    def _check_services_round(self, account: str, asked: str, visited: set[str]) -> None:
        """Raise SharingFault if `account` passes the request on to an account visited before."""
        for one in self._of(ShareKind.SERVICE, account):
            if not collides(asked, one.renaming.theirs):
                continue
            ours = one.renaming.ours
            narrower = ours if is_subset(ours, asked) else asked
            self._visit(account, one.exporter, visited)
            self._check_services_round(one.exporter, narrower, visited)

    def _check_streams_round(self, account: str, subject: str, visited: set[str]) -> None:
        exports = self._accounts[account].exports
        if not any(e.kind is ShareKind.STREAM and is_subset(subject, e.subject) for e in exports):
            return
        for one in self._of(ShareKind.STREAM, account):
            ours = one.renaming.ours
            if not collides(subject, ours):
                continue
            narrower = ours if is_subset(ours, subject) else subject
            self._visit(account, one.exporter, visited)
            self._check_streams_round(one.exporter, narrower, visited)

    def _visit(self, account: str, following: str, visited: set[str]) -> None:
        if following in visited:
            raise SharingFault(CYCLE)
        if len(visited) >= CYCLE_DEPTH_MAX:
            raise SharingFault(TOO_DEEP)
        visited.add(account)


def _name_here(wanted: Import) -> str:
    if wanted.kind is ShareKind.STREAM and wanted.prefix:
        if has_wildcard(wanted.prefix) or not is_valid_subject(wanted.prefix.rstrip(SEPARATOR)):
            raise SharingFault(BAD_PREFIX)
        return f"{wanted.prefix.removesuffix(SEPARATOR)}{SEPARATOR}{wanted.subject}"
    return wanted.to or wanted.subject


def _export_for(exports: Sequence[Export], wanted: Import, importer: str) -> Export | None:
    """Return the export of an import: the one with the same subject, else one that covers it."""
    alike = [export for export in exports if export.kind is wanted.kind]
    exact = [export for export in alike if export.subject == wanted.subject]
    covering = [export for export in alike if is_subset(wanted.subject, export.subject)]
    for export in exact or covering[:1]:
        if _may_import(export, wanted, importer):
            return export
    return None


def _may_import(export: Export, wanted: Import, importer: str) -> bool:
    if export.account_position:
        return token_at(wanted.subject, export.account_position) == importer
    return not export.accounts or importer in export.accounts


def _no_transform(wanted: Import, ours: str, fault: TransformFault) -> str:
    kind = wanted.kind.value
    pair = (ours, wanted.subject) if wanted.kind is ShareKind.SERVICE else (wanted.subject, ours)
    return (
        f"failed to create mapping transform for {kind} import subject "
        f'from "{pair[0]}" to "{pair[1]}": {fault}'
    )
