"""Shortcuts: the faster paths for plain messages, and the configuration fields that forbid them.

A plain message has no header key that the server interprets. Each field of a stream or consumer
configuration declares what it means for the shortcuts, with exactly one mark: `ALLOWS` (no shortcut
depends on it), `ENFORCED` (every shortcut that it concerns enforces it) or `forbids(...)`.
Invariant: a field without a mark raises when its module is imported, so that no shortcut can ignore
a new field. `ShortcutRules` evaluates the marks; the code that takes a shortcut calls it when a
configuration changes, not for each message.
"""

import enum
from typing import Final, get_type_hints

from msgspec import Meta, Struct

MARK: Final = "shortcuts"


class Shortcut(enum.Flag):
    """A faster path with the same result as the general one."""

    LANE = enum.auto()
    """The publish lane stores messages in C."""
    COPY = enum.auto()
    """The source lane stores messages of a mirror or source in C."""
    STAGE = enum.auto()
    """The publish lane packs the messages of an atomic batch, without checks."""
    PLAN = enum.auto()
    """`Stream.plan` creates the entry without running the checks."""
    APPLY = enum.auto()
    """The applier appends the message and does nothing else."""
    TIMELESS = enum.auto()
    """Storing the message cannot create a deadline."""
    RUN = enum.auto()
    """A consumer delivers runs of messages in C."""
    REQUEST = enum.auto()
    """A consumer serves pull requests in their order, without further checks."""
    ACK = enum.auto()
    """The ack lane collects plain acks in C."""


STORING: Final = Shortcut.LANE | Shortcut.COPY | Shortcut.STAGE
"""The shortcuts that store messages in C: they neither check nor change a message."""


def forbids(shortcuts: Shortcut, *values: object) -> Meta:
    """Mark a field that forbids shortcuts while it has one of these values.

    Without values: while it differs from its default.
    """
    return Meta(extra={MARK: (shortcuts, values)})


#: No shortcut depends on the field.
ALLOWS: Final = Meta(extra={MARK: (Shortcut(0), ())})
#: Every shortcut that the field concerns enforces it.
ENFORCED: Final = Meta(extra={MARK: (Shortcut(0), ())})


class ShortcutRules:
    """The marks of one configuration type. Raises TypeError if a field has no mark."""

    def __init__(self, kind: type[Struct]) -> None:
        hints = get_type_hints(kind, include_extras=True)
        defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
        self._rules: list[tuple[str, Shortcut, tuple[object, ...], object]] = []
        for name in kind.__struct_fields__:
            shortcuts, values = _mark_of(kind, name, hints[name])
            if shortcuts:
                self._rules.append((name, shortcuts, values, defaults[name]))

    def forbidden(self, cfg: Struct) -> Shortcut:
        """Return the shortcuts that a configuration forbids."""
        found = Shortcut(0)
        for name, shortcuts, values, default in self._rules:
            value = getattr(cfg, name)
            if value in values if values else value != default:
                found |= shortcuts
        return found

    def allow(self, cfg: Struct, shortcut: Shortcut) -> bool:
        """Return whether a configuration allows a shortcut."""
        return not self.forbidden(cfg) & shortcut


def _mark_of(kind: type[Struct], name: str, hint: object) -> tuple[Shortcut, tuple[object, ...]]:
    extras = [getattr(meta, "extra", None) or {} for meta in getattr(hint, "__metadata__", ())]
    marks = [extra[MARK] for extra in extras if MARK in extra]
    if len(marks) != 1:
        raise TypeError(f"{kind.__name__}.{name} needs exactly one of ALLOWS, ENFORCED, forbids()")
    shortcuts, values = marks[0]
    return shortcuts, values
