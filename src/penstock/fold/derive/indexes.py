"""Secondary indexes: map terms computed from entries to keys, updated in every commit.

    by_region = Index("region", lambda entry: json.loads(entry.value)["region"])
    store.attach(by_region)
    for entry in by_region.find(store, "eu"): ...

The function receives an entry and returns a term, several terms, or None. It must be deterministic,
because the rows of a removed entry are found by calling it again on the old entry. If the function
changes, change `version`, and the index is rebuilt. If it raises, the entry has no terms and is
counted as a failure.

    index <name>\\0 <term>\\0 <key>   one empty row per term and key
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.fold.store.contract import PAGE_ENTRIES
from penstock.fold.store.extensions import EntryChange, Extension
from penstock.fold.store.value_record import decode_key
from penstock.kv.kv_types import KvEntry, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.fold.store.contract import SnapshotReader

    TermsOf = Callable[[KvEntry], "str | Iterable[str] | None"]

TERM_BYTES_MAX = 256
NAME_BYTES_MAX = 64
TERMS_PER_ENTRY_MAX = 256

log = logging.getLogger(__name__)


class Index(Extension):
    """One index; attach it to a store, then query it with the store or any reader."""

    def __init__(self, name: str, terms: TermsOf, *, version: int = 1) -> None:
        super().__init__()
        if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"an index is named in 1 to {NAME_BYTES_MAX} bytes, without zeros")
        self.name = f"index {name}"
        self.failures = 0
        """Number of entries for which the function raised or returned invalid terms."""
        self._terms = terms
        self._version = version

    @property
    def stamp(self) -> bytes:
        return b"%d" % self._version

    # -- queries

    def keys(self, store: SnapshotReader, term: str, *, after: str | None = None) -> Iterator[str]:
        """Yield the keys of the entries with a term, in ascending order."""
        self.check_in(store)
        head = term.encode() + b"\0"
        start = head if after is None else head + after.encode()
        for row, _ in self.rows(store, start):
            if not row.startswith(head):
                return
            yield decode_key(row[len(head) :])

    def find(
        self, store: SnapshotReader, term: str, *, after: str | None = None
    ) -> Iterator[KvEntry]:
        """Yield the entries with a term, in ascending key order, read a page at a time."""
        page: list[str] = []
        for key in self.keys(store, term, after=after):
            page.append(key)
            if len(page) == PAGE_ENTRIES:
                yield from _present(store, page)
                page = []
        yield from _present(store, page)

    def terms(
        self, store: SnapshotReader, start: str = "", stop: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield (term, key) pairs from `start` up to but not including `stop`, in order."""
        self.check_in(store)
        for row, _ in self.rows(store, start.encode()):
            term, _, key = row.partition(b"\0")
            if stop is not None and term >= stop.encode():
                return
            yield decode_key(term), decode_key(key)

    # -- Extension methods

    def plan(self, change: EntryChange) -> None:
        for key, update in change.after.items():
            before = self._rows_of(change.before[key])
            after: set[bytes] = set()
            if update.op is Op.PUT:
                after = self._rows_of(KvEntry(key, update.value, update.version))
            change.side.update(dict.fromkeys(before - after))
            change.side.update(dict.fromkeys(after - before, b""))

    def built(self, store: SnapshotReader) -> Iterator[tuple[bytes, bytes]]:
        for entry in store.range():
            for row in self._rows_of(entry):
                yield row, b""

    def _rows_of(self, entry: KvEntry | None) -> set[bytes]:
        if entry is None:
            return set()
        try:
            terms = [raw for raw in map(str.encode, _listed(self._terms(entry)))]
            if len(terms) > TERMS_PER_ENTRY_MAX:
                raise ValueError(f"{len(terms)} terms, not at most {TERMS_PER_ENTRY_MAX}")
            if any(len(raw) > TERM_BYTES_MAX or b"\0" in raw for raw in terms):
                raise ValueError("a term that is too long or has a zero in it")
        except Exception:
            self._failed(entry.key)
            return set()
        key = entry.key.encode()
        return {self.prefix + raw + b"\0" + key for raw in terms}

    def _failed(self, key: str) -> None:
        if not self.failures:
            log.exception("%s: an entry is left out, the first key=%s", self.name, key)
        self.failures += 1


def _listed(terms: str | Iterable[str] | None) -> Iterable[str]:
    if terms is None:
        return ()
    return (terms,) if isinstance(terms, str) else terms


def _present(store: SnapshotReader, keys: list[str]) -> list[KvEntry]:
    return [entry for entry in store.get_many(keys) if entry is not None]
