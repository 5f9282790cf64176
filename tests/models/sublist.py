"""A naive subscription list: a plain list, asked by looking at every entry.

Shares no code with the compiled one: patterns are regular expressions, overlap is looked for by
trying every literal of a tiny world, interest is counted. Entries are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.subjects import matched, matches


@dataclass(eq=False, slots=True)
class Entry:
    """A subscription of the model."""

    subject: str
    queue: str | None


@dataclass
class ListModel:
    entries: list[Entry] = field(default_factory=list)
    watched: dict[tuple[str, str | None], int] = field(default_factory=dict)
    changes: list[tuple[str, str | None, bool]] = field(default_factory=list)
    inserts: int = 0
    removes: int = 0

    def insert(self, entry: Entry) -> None:
        self._note(entry, present=True)
        self.entries.append(entry)
        self.inserts += 1

    def remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self.removes += 1
        self._note(entry, present=False)

    def plain(self, subject: str) -> set[Entry]:
        return {e for e in self.entries if e.queue is None and matches(subject, e.subject)}

    def queues(self, subject: str) -> dict[str, set[Entry]]:
        groups: dict[str, set[Entry]] = {}
        for entry in self.entries:
            if entry.queue is not None and matches(subject, entry.subject):
                groups.setdefault(entry.queue, set()).add(entry)
        return groups

    def overlapping(self, pattern: str) -> set[Entry]:
        return {entry for entry in self.entries if matched(pattern) & matched(entry.subject)}

    def present(self, subject: str, queue: str | None) -> bool:
        return any((e.subject, e.queue) == (subject, queue) for e in self.entries)

    def watch(self, subject: str, queue: str | None) -> bool:
        self.watched[subject, queue] = self.watched.get((subject, queue), 0) + 1
        return self.present(subject, queue)

    def unwatch(self, subject: str, queue: str | None) -> None:
        self.watched[subject, queue] -= 1
        if not self.watched[subject, queue]:
            del self.watched[subject, queue]

    def _note(self, entry: Entry, *, present: bool) -> None:
        """Told when an entry is about to be the first, or was the last, of its kind."""
        key = (entry.subject, entry.queue)
        if key in self.watched and not self.present(*key):
            self.changes.append((*key, present))
