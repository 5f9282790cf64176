"""Generates docs/reference/options.md from the declarations of the options.

All content comes from the code: names, types, defaults and descriptions from the structs, groups
from the comments between the fields, and the mark of a fixed option from the reload rules. A test
fails when the page is outdated. Run it with `make reference`.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from penstock.base.durations import format_duration
from penstock.broker import permission_values, share_values
from penstock.server.config import options as declared
from penstock.server.config.reload_rules import FIXED

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"

GROUPED_FROM = 10_000  # digits are grouped from here on; a port number is not

#: In reading order.
STRUCTS: tuple[type[Struct], ...] = (
    declared.Authorization,
    declared.CalloutOptions,
    declared.UserOptions,
    permission_values.Permissions,
    permission_values.SubjectPermission,
    permission_values.ResponsePermission,
    declared.AccountOptions,
    declared.AccountConnectionLimits,
    declared.TokenDirectory,
    share_values.Export,
    share_values.Import,
    share_values.Mapping,
    share_values.Destination,
    declared.JetStreamOptions,
    declared.JetStreamLimits,
    declared.BatchOptions,
    declared.JetStreamAccountLimits,
    declared.TlsOptions,
    declared.WebsocketOptions,
    declared.ListenOnly,
)
#: Fixed as well, but checked by separate rules in `config.reload_rules`.
PARTLY_FIXED = {"websocket": "but its `tls`", "cluster": "host, port", "leafnodes": "host, port"}

HEAD = """\
# Options reference

<!-- Made by tools/reference.py from the declarations in src/penstock/server/config/options.py.
     Do not edit: run `make reference`. -->

Every option, as an embedding program writes it: `penstock.Server(max_payload=65_536)`.

In a configuration file the key has the same name without `_ns`, and a duration is text with a
unit: `ping_interval: "30s"` sets `ping_interval_ns`. Sizes may carry a suffix there: `64KB`. The
file also takes the reference's other spellings (`max_conn`, `logfile`, ...). Flags are listed by
`penstock serve --help`; they override the file.

"Fixed" marks what a reload cannot change: a file that changes it is refused as a whole, and the
server goes on as it was. What is accepted but has no effect yet is described in
[compatibility](../compatibility.md#accepted-without-effect).
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, _section(declared.Options)]
    parts += [_section(struct) for struct in STRUCTS]
    return "\n".join(parts)


def _section(struct: type[Struct]) -> str:
    text = f"## {struct.__name__}\n\n{inspect.getdoc(struct)}\n"
    groups = _groups(struct)
    by_name = {field.name: field for field in fields(struct)}
    for title, names in groups.items():
        heading = f"\n### {title}\n" if title else ""
        text += heading + "\n" + _table(struct, [by_name[name] for name in names])
    return text


def _groups(struct: type[Struct]) -> dict[str, list[str]]:
    """Return field names, grouped by the comment above them."""
    groups: dict[str, list[str]] = {}
    title = ""
    for line in inspect.getsource(struct).splitlines():
        comment = re.fullmatch(r"    # ([A-Z][\w ]*)", line)
        field = re.match(r"    (\w+): ", line)
        if comment:
            title = comment[1]
        elif field and field[1] in struct.__struct_fields__:
            groups.setdefault(title, []).append(field[1])
    return groups


def _table(struct: type[Struct], members: list[FieldInfo]) -> str:
    told = struct is declared.Options
    documented = any(_prose(field) for field in members)
    headings = ["option", "type", "default"]
    headings += ["meaning"] if documented else []
    headings += ["on reload"] if told else []
    rows = [headings, ["---"] * len(headings)]
    for field in members:
        row = [f"`{field.name}`", _type_text(field), _default_text(field)]
        row += [_prose(field)] if documented else []
        row += [_reload_text(field.name)] if told else []
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def _reload_text(name: str) -> str:
    if name in FIXED:
        return "fixed"
    return f"fixed: {PARTLY_FIXED[name]}" if name in PARTLY_FIXED else ""


def _prose(field: FieldInfo) -> str:
    for meta in getattr(field.type, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.description:
            return meta.description.replace("<", "\\<")
    return ""


def _type_text(field: FieldInfo) -> str:
    if field.name.endswith("_ns"):
        return "nanoseconds"
    kind = field.type
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return _kind_text(kind)


def _kind_text(kind: object) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind_text(arg) for arg in args)
    if origin is tuple:
        return f"tuple of {_kind_text(args[0])}"
    if origin is Mapping:
        return "mapping"
    if kind is type(None):
        return "None"
    name = getattr(kind, "__name__", str(kind))
    return f"[{name}](#{name.lower()})" if isinstance(kind, type(Struct)) else f"`{name}`"


def _default_text(field: FieldInfo) -> str:
    value: object = field.default
    if value is NODEFAULT:
        value = None if field.default_factory is NODEFAULT else field.default_factory()
        if value is None:
            return "required"
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, Struct):
        return "its defaults"
    if field.name.endswith("_ns") and isinstance(value, int):
        return f"{value:_} ({format_duration(value)})" if value else "0"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}" if value >= GROUPED_FROM else str(value)
    return f"`{value!r}`"


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
