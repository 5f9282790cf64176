"""Generates the API pages of docs/reference from the declarations in `penstock.api`.

It writes one page for stream options, one for consumer options and one for errors. All content
comes from the code: names, types, defaults, descriptions and marks from the structs, the errors
from the catalogue. A test fails when a page is outdated. Run it with `make reference`.
"""

from __future__ import annotations

import inspect
import typing
from enum import StrEnum
from pathlib import Path

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from penstock.api import consumer_config, refusals, stream_config
from penstock.api.json_codec import bare, marks_of
from penstock.api.refusals import CATALOGUE, ApiError

DIRECTORY = Path(__file__).parent.parent / "docs" / "reference"

STREAM_STRUCTS: tuple[type[Struct], ...] = (
    stream_config.StreamConfig,
    stream_config.StreamSource,
    stream_config.External,
    stream_config.SourceConsumer,
    stream_config.SubjectTransform,
    stream_config.Republish,
    stream_config.Placement,
    stream_config.ConsumerLimits,
)
CONSUMER_STRUCTS: tuple[type[Struct], ...] = (consumer_config.ConsumerConfig,)

#: Names of integer types for the reader; types not listed here are plain numbers.
NUMBERS = {"time.Duration": "nanoseconds", "time.Time": "time"}

STREAM_HEAD = """\
# Stream configuration

<!-- Made by tools/api_reference.py from the declarations in src/penstock/api/stream_config.py.
     Do not edit: run `make reference`. -->

What a client sends to `$JS.API.STREAM.CREATE.<name>` and `$JS.API.STREAM.UPDATE.<name>`, in the
order in which the server writes it. Times are RFC 3339 text. "Fixed" marks what an update cannot
change; other fields may have rules of their own. "Level" is the API level a server must have to
know the field. A default of 0 often means that the server fills it in: limits become -1, which is
none. What is refused, and how, is in [the errors](api-errors.md).
"""
CONSUMER_HEAD = """\
# Consumer configuration

<!-- Made by tools/api_reference.py from the declarations in src/penstock/api/consumer_config.py.
     Do not edit: run `make reference`. -->

What a client sends as `config` to `$JS.API.CONSUMER.CREATE.<stream>.<name>`, in the order in
which the server writes it. Times are RFC 3339 text. "Fixed" marks what an update cannot change.
"Level" is the API level a server must have to know the field. What is refused, and how, is in
[the errors](api-errors.md).
"""
ERRORS_HEAD = """\
# Errors of the JetStream API

<!-- Made by tools/api_reference.py from the catalogue in src/penstock/api/refusals.py.
     Do not edit: run `make reference`. -->

Every refusal has an HTTP-like code, an error code that programs should look at, and words for
people. Names are those in the code: `penstock.api.refusals`. What stands in braces depends on the
request. Not every error can occur in every server: some belong to clusters.
"""


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "stream-config.md": _page(STREAM_HEAD, STREAM_STRUCTS),
        "consumer-config.md": _page(CONSUMER_HEAD, CONSUMER_STRUCTS),
        "api-errors.md": _errors(),
    }


def _page(head: str, structs: tuple[type[Struct], ...]) -> str:
    parts = [head, *(_section(struct) for struct in structs)]
    parts += [_choices(choice) for choice in _enums(structs)]
    return "\n".join(parts)


def _section(struct: type[Struct]) -> str:
    hints = typing.get_type_hints(struct, include_extras=True)
    rows = [["field", "type", "default", "meaning", "update", "level"], ["---"] * 6]
    for field in fields(struct):
        marks = marks_of(hints[field.name])
        rows.append(
            [
                f"`{field.name}`",
                _type_text(hints[field.name]),
                _default_text(field.default),
                _escaped(marks.get("doc", "")),
                "fixed" if "fixed" in marks else "",
                str(marks.get("since", "")),
            ]
        )
    return f"## {struct.__name__}\n\n{inspect.getdoc(struct)}\n\n{_table(rows)}"


def _choices(choice: type[StrEnum]) -> str:
    words = ", ".join(f"`{member.value}`" for member in choice)
    return f"## {choice.__name__}\n\n{inspect.getdoc(choice)}\n\nOne of {words}.\n"


def _enums(structs: tuple[type[Struct], ...]) -> list[type[StrEnum]]:
    """Return every enum in these structs, in order of appearance."""
    found: dict[type[StrEnum], None] = {}
    for struct in structs:
        for hint in typing.get_type_hints(struct, include_extras=True).values():
            kind, _ = bare(hint)
            if isinstance(kind, type) and issubclass(kind, StrEnum):
                found[kind] = None
    return list(found)


def _type_text(hint: object) -> str:
    kind, wire = bare(hint)
    args = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return f"list of {_type_text(args[0])}"
    if typing.get_origin(kind) is dict:
        return f"map of {_type_text(args[1])}"
    if kind in (int, str, bool):
        plain = {int: "number", str: "text", bool: "boolean"}[kind]
        return NUMBERS.get(wire, plain)
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _default_text(value: object) -> str:
    if value is NODEFAULT or value in (None, (), ""):
        return ""
    if isinstance(value, Struct):
        return "its defaults"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _errors() -> str:
    names = {id(entry): name for name, entry in vars(refusals).items()}
    rows = [["error code", "code", "name", "description"], ["---"] * 4]
    for err_code, entry in CATALOGUE.items():
        text = entry.description if isinstance(entry, ApiError) else entry.text
        rows.append([str(err_code), str(entry.code), f"`{names[id(entry)]}`", _escaped(text)])
    return f"{ERRORS_HEAD}\n{_table(rows)}"


def _escaped(text: str) -> str:
    return text.replace("<", "\\<").replace("|", "\\|").replace("*", "\\*")


def _table(rows: list[list[str]]) -> str:
    cells = [[f" {cell} " if cell else " " for cell in row] for row in rows]
    return "".join(f"|{'|'.join(row)}|\n" for row in cells)


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
