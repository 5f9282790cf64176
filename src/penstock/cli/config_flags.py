"""Command-line flags for configurations, derived from the API declarations.

Each field of `StreamConfig` or `ConsumerConfig` becomes a flag with the field's description, so
that a new field needs no work here. Fields that were not given are not sent: the server fills them
in, and a server that does not know a field never receives it. `--config` reads a whole
configuration from a file; flags override it. This module does not repeat checks of the server.
"""

from __future__ import annotations

import argparse
import typing
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import fields

from penstock.api.json_codec import bare, marks_of
from penstock.cli.argument_values import document, duration, moment, pair, size, whole
from penstock.cli.command_spec import Argument, argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.api.api_client import Document

GROUP: Final = "configuration"
DEST: Final = "config:"
#: Integer fields that are sizes, so that users may write 64KiB.
SIZES: Final = frozenset({"max_bytes", "max_msg_size"})
#: Set by the command itself, or internal.
LEFT_OUT: Final = frozenset(
    {"name", "durable_name", "direct", "sourcing", "pause_until", "preferred"}
)
SHORTER: Final = {"num_replicas": "replicas", "sources": "source", "subjects": "subject"}
SERVERS_OWN: Final = "_nats."

CONFIG: Final = argument(
    "--config",
    type=document,
    default={},
    metavar="FILE",
    help="take the configuration from a JSON file; - reads standard input",
)


def config_arguments(kind: type[Struct], *, editing: bool = False) -> tuple[Argument, ...]:
    """Return a flag for each field; when editing, omit fields that cannot be changed."""
    return (CONFIG, *_flags(kind, (), editing=editing))


def _flags(kind: type[Struct], path: tuple[str, ...], *, editing: bool) -> Iterator[Argument]:
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        marks = marks_of(hints[field.name])
        if field.name in LEFT_OUT or (editing and "fixed" in marks):
            continue
        yield from _flag(hints[field.name], (*path, field.name), marks.get("doc", ""), editing)


def _flag(hint: object, path: tuple[str, ...], doc: str, editing: bool) -> Iterator[Argument]:
    inner, _ = bare(hint)
    if isinstance(inner, type) and issubclass(inner, Struct):
        if "name" in inner.__struct_fields__:
            yield _argument(path, doc, (*path, "name"), metavar="NAME")
        yield from _flags(inner, path, editing=editing) if len(path) == 1 else ()
        return
    settings = _settings(hint, path[-1])
    if settings is not None:
        yield _argument(path, doc, path, **settings)


def _argument(
    spelled: tuple[str, ...], doc: str, path: tuple[str, ...], **settings: Any
) -> Argument:
    words = (SHORTER.get(word, word) for word in spelled)
    flag = "--" + "-".join(words).replace("_", "-")
    prose = f"{doc[:1].lower()}{doc[1:]}".rstrip(".").replace("%", "%%").replace("`", "")
    prose += "; may be repeated" if settings.get("action") == "append" else ""
    dest = DEST + ".".join(path)
    return argument(flag, group=GROUP, dest=dest, default=argparse.SUPPRESS, help=prose, **settings)


def _settings(hint: object, name: str) -> dict[str, Any] | None:
    """Return the `argparse` settings for a field of this type; None if only a file can set it."""
    kind, wire = bare(hint)
    args = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return _repeated(args[0], name)
    if typing.get_origin(kind) is dict:
        return {"action": "append", "type": pair, "metavar": "KEY=VALUE"}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"choices": [member.value for member in kind]}
    if kind is str:
        return {"metavar": "TEXT"}
    by_wire = {"time.Duration": (duration, "DURATION"), "time.Time": (moment, "TIME")}
    reads, metavar = by_wire.get(wire) or ((size, "SIZE") if name in SIZES else (whole, "N"))
    return {"type": reads, "metavar": metavar}


def _repeated(inner: object, name: str) -> dict[str, Any] | None:
    kind, _ = bare(inner)
    if isinstance(kind, type) and issubclass(kind, Struct):
        if name != "sources":
            return None
        return {"action": "append", "type": _source, "metavar": "NAME"}
    settings = _settings(inner, name)
    return None if settings is None else {**settings, "action": "append"}


def _source(text: str) -> dict[str, str]:
    return {"name": text}


# -- given values


def config_given(options: argparse.Namespace) -> Document:
    """Return the configuration of file and flags; flags override the file."""
    given: Document = {}
    for dest, value in vars(options).items():
        if dest.startswith(DEST):
            _place(given, dest.removeprefix(DEST).split("."), value)
    return merged(options.config, given)


def _place(target: Document, path: list[str], value: Any) -> None:
    for word in path[:-1]:
        target = target.setdefault(word, {})
    is_map = isinstance(value, list) and value and isinstance(value[0], tuple)
    target[path[-1]] = dict(value) if is_map else value


def merged(below: Document, above: Document) -> Document:
    """Merge one configuration over another: maps member by member, other values as a whole."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both and old is not None else value
    return result


def sendable(config: Document) -> Document:
    """Return a configuration from the server in the form that can be sent back."""
    kept = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if not key.startswith(SERVERS_OWN)
    }
    rest = {key: value for key, value in config.items() if key != "metadata"}
    return {**rest, "metadata": kept} if kept else rest


def differences(old: Document, new: Document) -> list[tuple[str, str, str]]:
    """Return what an edit changes: field, before, after."""
    import json

    def shown(config: Document, key: str) -> str:
        return json.dumps(config[key], ensure_ascii=False) if key in config else ""

    keys = [*old, *(key for key in new if key not in old)]
    return [(key, shown(old, key), shown(new, key)) for key in keys if old.get(key) != new.get(key)]
