"""A digest of the contents of a fold; equal folds have equal digests on every store.

    digest = sum over all entries of BLAKE3(key length: u16le | key | value record), modulo 2^256

The value record is version length, version, value. The sum does not depend on order, so a change
subtracts the term of the old entry and adds that of the new one. The digest detects accidental
differences; it does not protect against attackers.

Folds are rarely at the same cursor. So the digest is also recorded at every revision that is a
multiple of `CHECKPOINT_REVISIONS`, and the last `CHECKPOINTS_MAX` records are kept. Only exact
states are recorded: a bucket that keeps one value per key may drop a message before the fold reads
it, and the fold is then exact again only when nothing is left to read. Updates out of order belong
to a repair, which discards the recorded digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.fold.errors import FoldStoreError
from penstock.fold.store.extensions import Behind, EntryChange, Extension
from penstock.fold.store.value_record import encode_key
from penstock.kv.kv_types import Op, Scope
from penstock.kv.resume_check import is_same_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blake3 import blake3

    from penstock.fold.store.contract import SnapshotReader
    from penstock.fold.store.fold_meta import SnapshotMeta
    from penstock.kv.kv_types import KvEntry, KvUpdate

CHECKPOINT_REVISIONS = 1_000
CHECKPOINTS_MAX = 64
DIGEST_BYTES = 32
FORMAT = b"1"
_MODULUS = 1 << (8 * DIGEST_BYTES)
_EMPTY = "0" * (2 * DIGEST_BYTES)


class _DigestState(msgspec.Struct):
    """The state stored with the entries."""

    digest: str = _EMPTY
    revision: int = 0
    is_exact: bool = False
    checkpoints: dict[int, str] = {}


class DigestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one fold, for comparison with another."""

    identity: str = ""
    scope: tuple[str, ...] = ()
    keep: str = ""
    """The name of the `Keep` rule; folds with different rules are not comparable."""
    revision: int = 0
    digest: str = ""
    is_exact: bool = False
    """The digest is that of the bucket at this revision, not of an intermediate state."""
    checkpoints: dict[int, str] = {}

    def exact(self) -> dict[int, str]:
        """Return the exact digests by revision."""
        if not self.is_exact:
            return self.checkpoints
        return {**self.checkpoints, self.revision: self.digest}


class FoldComparison(msgspec.Struct, frozen=True):
    """The result of a comparison at `revision`; `agree` is None if nothing could be compared."""

    agree: bool | None
    revision: int = 0
    reason: str = ""


class Terms:
    """Computes the terms of entries; imports BLAKE3 on demand."""

    def __init__(self) -> None:
        try:
            from blake3 import blake3
        except ImportError as error:
            raise FoldStoreError(
                "digests need the blake3 package: install penstock[fold]"
            ) from error
        self._hash: Callable[[bytes], blake3] = blake3

    def of(self, key: str, version: bytes, value: bytes) -> int:
        raw = encode_key(key)
        head = len(raw).to_bytes(2, "little") + raw + bytes((len(version),))
        return int.from_bytes(self._hash(head + version + value).digest(), "big")

    def of_entry(self, entry: KvEntry | None) -> int:
        return 0 if entry is None else self.of(entry.key, entry.version.raw, entry.value)

    def of_update(self, update: KvUpdate) -> int:
        if update.op is not Op.PUT:
            return 0
        return self.of(update.key, update.version.raw, update.value)


def digest_of(store: SnapshotReader, *, prefixes: tuple[str, ...] = ("",)) -> str:
    """Return the digest of a store by reading it; FoldStoreError if it changed meanwhile."""
    terms, cursor = Terms(), store.cursor
    total = sum(terms.of_entry(one) for prefix in prefixes for one in store.range(prefix))
    if store.cursor != cursor:
        raise FoldStoreError("the store changed while its digest was made", cursor=cursor)
    return as_hex(total)


def as_hex(total: int) -> str:
    return (total % _MODULUS).to_bytes(DIGEST_BYTES, "big").hex()


def _may_be_same(one: str, other: str) -> bool:
    """Return whether two identities can be of one log; one of them may lack the incarnation."""
    return is_same_log(one, other) or is_same_log(other, one)


def compare(one: DigestReport, other: DigestReport) -> FoldComparison:
    """Compare two folds at the newest revision that both know exactly."""
    if one.scope != other.scope:
        return FoldComparison(None, reason="they hold different scopes")
    if one.keep != other.keep:
        return FoldComparison(None, reason="they have different keep rules")
    if one.identity and other.identity and not _may_be_same(one.identity, other.identity):
        return FoldComparison(None, reason="they are of different logs")
    noted, others = one.exact(), other.exact()
    if not noted.keys() & others.keys():
        return FoldComparison(None, reason="they know no common revision")
    revision = max(noted.keys() & others.keys())
    return FoldComparison(noted[revision] == others[revision], revision)


class FoldDigest(Extension):
    """Maintains the digest of the store it is attached to."""

    name = "digest"

    def __init__(self) -> None:
        super().__init__()
        self._terms = Terms()
        self._state = _DigestState()
        self._planned = self._state
        self._meta: SnapshotMeta | None = None

    @property
    def stamp(self) -> bytes:
        return FORMAT

    @property
    def value(self) -> str:
        """The digest of the store; raises `Behind` after a bulk load until `finish_load` ran."""
        if not self.is_current:
            raise Behind("the digest is behind a bulk load")
        return self._state.digest

    def report(self) -> DigestReport:
        """Return the report for other nodes; without a digest while the extension is behind."""
        meta, state = self._meta, self._state
        origin = (
            DigestReport()
            if meta is None
            else DigestReport(identity=meta.identity, scope=meta.scope, keep=meta.keep)
        )
        if not self.is_current:
            return origin
        return msgspec.structs.replace(
            origin,
            revision=state.revision,
            digest=state.digest,
            is_exact=state.is_exact,
            checkpoints=dict(state.checkpoints),
        )

    def verify(self, store: SnapshotReader) -> bool:
        """Read the whole store and return whether it matches the digest.

        The store must not change meanwhile.
        """
        return digest_of(store) == self.value

    # -- Extension methods

    def plan(self, change: EntryChange) -> None:
        if change.meta is not None:
            self._meta = change.meta
        walk = _Walk(self._state, self._terms, change, is_whole=self._is_whole)
        for update in change.batch:
            walk.step(update)
        self._planned = walk.end(change.cursor.rank, change.pending)
        change.side[self.prefix] = msgspec.msgpack.encode(self._planned)

    def committed(self) -> None:
        self._state = self._planned

    def built(self, store: SnapshotReader) -> Iterator[tuple[bytes, bytes]]:
        self._meta = store.meta
        self._state = _DigestState(digest_of(store), store.cursor.rank)
        yield self.prefix, msgspec.msgpack.encode(self._state)

    def load(self, store: SnapshotReader) -> None:
        self._meta = store.meta
        ((_, raw),) = store.side(self.prefix)
        self._state = msgspec.msgpack.decode(raw, type=_DigestState)

    @property
    def _is_whole(self) -> bool:
        """Whether the fold covers all keys, so that it receives every message of the log and can
        detect a missing one."""
        return self._meta is not None and self._meta.scope == Scope.all().prefixes


class _Walk:
    """Computes the next state from a batch, one update at a time."""

    def __init__(
        self, state: _DigestState, terms: Terms, change: EntryChange, *, is_whole: bool
    ) -> None:
        self._total = int(state.digest, 16)
        self._revision = state.revision
        self._is_exact = state.is_exact
        self._checkpoints = dict(state.checkpoints)
        self._terms = terms
        self._before = change.before
        self._now: dict[str, int] = {}
        self._is_whole = is_whole

    def step(self, update: KvUpdate) -> None:
        revision, key = update.revision, update.key
        if revision <= self._revision:
            self._checkpoints.clear()
            self._is_exact = False
        elif not self._is_whole or revision != self._revision + 1:
            self._is_exact = False
        old = self._now.get(key)
        if old is None:
            old = self._terms.of_entry(self._before[key])
        self._now[key] = new = self._terms.of_update(update)
        self._total += new - old
        if revision >= 0:
            self._revision = revision
        if self._is_exact and revision % CHECKPOINT_REVISIONS == 0:
            self._note(revision)

    def end(self, rank: int, pending: int | None) -> _DigestState:
        """Return the new state. It is exact if nothing is left to read or on a bookmark."""
        if not rank:  # the cursor was dropped, because the log was replaced
            return _DigestState(as_hex(self._total))
        passed_by = not self._now and rank > self._revision
        self._revision = max(self._revision, rank)
        self._is_exact = self._is_exact or pending == 0 or passed_by
        return _DigestState(as_hex(self._total), self._revision, self._is_exact, self._checkpoints)

    def _note(self, revision: int) -> None:
        self._checkpoints[revision] = as_hex(self._total)
        for old in sorted(self._checkpoints)[:-CHECKPOINTS_MAX]:
            del self._checkpoints[old]
