"""Every command that connects to servers, by its word, and the module that declares it.

Help and the reference page need the words without loading the modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from penstock.cli.command_spec import Command, Noun

#: Word: module and name in the module.
PLACES: Final = {
    "pub": ("commands.message_commands", "PUB"),
    "sub": ("commands.message_commands", "SUB"),
    "req": ("commands.message_commands", "REQ"),
    "reply": ("commands.message_commands", "REPLY"),
    "stream": ("commands.stream_command", "NOUN"),
    "consumer": ("commands.consumer_command", "NOUN"),
    "kv": ("commands.kv_command", "NOUN"),
    "object": ("commands.object_command", "NOUN"),
    "fold": ("folds.fold_command", "NOUN"),
    "pipeline": ("commands.pipeline_command", "NOUN"),
    "account": ("commands.server_command", "ACCOUNT"),
    "server": ("commands.server_command", "SERVER"),
    "context": ("commands.context_command", "NOUN"),
}


def declared(word: str) -> Noun | Command:
    """Return the declaration of a word."""
    module, name = PLACES[word]
    found = getattr(import_module(f"penstock.cli.{module}"), name)
    assert isinstance(found, Noun | Command)
    return found


def run(word: str, argv: list[str]) -> int:
    """Run `penstock WORD ...` and return the exit code."""
    from penstock.cli.command_spec import carry_out, run_noun

    found = declared(word)
    if isinstance(found, Noun):
        return run_noun(found, argv)
    return carry_out(found, f"penstock {word}", argv)
