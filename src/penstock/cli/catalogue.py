"""Every command that talks to servers, by its word, and the module that declares it.

Help and the reference page need the words without loading what is behind them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from penstock.cli.command import Command, Noun

#: Word, the module of it, the name in the module.
PLACES: Final = {
    "pub": ("messages", "PUB"),
    "sub": ("messages", "SUB"),
    "req": ("messages", "REQ"),
    "reply": ("messages", "REPLY"),
    "stream": ("streams", "NOUN"),
    "consumer": ("consumers", "NOUN"),
    "kv": ("kv", "NOUN"),
    "object": ("objects", "NOUN"),
    "fold": ("fold", "NOUN"),
    "pipeline": ("pipeline", "NOUN"),
    "account": ("servers", "ACCOUNT"),
    "server": ("servers", "SERVER"),
    "context": ("contexts", "NOUN"),
}


def declared(word: str) -> Noun | Command:
    """The declaration behind a word."""
    module, name = PLACES[word]
    found = getattr(import_module(f"penstock.cli.{module}"), name)
    assert isinstance(found, Noun | Command)
    return found


def run(word: str, argv: list[str]) -> int:
    """Carry out `penstock WORD ...` and return the exit code."""
    from penstock.cli.command import carry_out, run_noun

    found = declared(word)
    if isinstance(found, Noun):
        return run_noun(found, argv)
    return carry_out(found, f"penstock {word}", argv)
