"""Generates docs/reference/spark-options.md from the declarations of the options.

All content comes from the code: names, types, defaults and descriptions from the structs, groups
from the comments between the fields. Options that several formats share are listed once. A test
fails when the page is outdated. Run it with `make reference`.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from pathlib import Path

from msgspec import NODEFAULT, Meta
from msgspec.structs import FieldInfo, fields

from penstock.spark.files.archive_options import ArchiveOptions
from penstock.spark.files.blocks_options import BlocksOptions
from penstock.spark.files.fold_source import FoldOptions
from penstock.spark.kv.kv_options import KvReadOptions, KvWriteOptions
from penstock.spark.options import ConnectionOptions, SparkOptions, is_secret
from penstock.spark.read.source_options import ReadOptions
from penstock.spark.write.sink_options import PublishOptions, SinkOptions

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "spark-options.md"

#: In reading order.
SECTIONS: tuple[tuple[str, type[SparkOptions]], ...] = (
    ("Every connection", ConnectionOptions),
    ("Reading `jetstream`", ReadOptions),
    ("Every sink", PublishOptions),
    ("Writing `jetstream`", SinkOptions),
    ("Reading `jetstream-kv`", KvReadOptions),
    ("Writing `jetstream-kv`", KvWriteOptions),
    ("Reading `penstock-archive`", ArchiveOptions),
    ("Reading `penstock-blocks`", BlocksOptions),
    ("Reading `penstock-fold`", FoldOptions),
)

HEAD = """\
# Spark options reference

<!-- Made by tools/spark_reference.py from the declarations in src/penstock/spark.
     Do not edit: run `make reference`. -->

Options of the formats, as `.option(name, value)` takes them. Names are read in any case; one that
is unknown is refused, with the nearest one that is not. How to use them:
[read streams in Spark](../how-to/spark.md). What is marked as a secret is in no error message and
no `repr`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(_section(title, struct) for title, struct in SECTIONS)])


def _section(title: str, struct: type[SparkOptions]) -> str:
    prose = " ".join((inspect.getdoc(struct) or "").split())
    told = [name for name, other in SECTIONS if other in struct.__mro__[1:]]
    shared = "".join(f" Takes what [{one.lower()}](#{_anchor(one)}) takes, too." for one in told)
    text = f"## {title}\n\n{prose}{shared}\n"
    by_name = {field.name: field for field in fields(struct)}
    for heading, names in _groups(struct).items():
        text += (f"\n### {heading}\n" if heading else "") + "\n"
        text += _table([by_name[name] for name in names])
    return text


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _groups(struct: type[SparkOptions]) -> dict[str, list[str]]:
    """Return the names of the struct's own fields, grouped by the comment above them."""
    groups: dict[str, list[str]] = {}
    title = ""
    own = inspect.get_annotations(struct)
    for line in inspect.getsource(struct).splitlines():
        comment = re.fullmatch(r"    # ([A-Z][\w ]*)", line)
        field = re.match(r"    (\w+): ", line)
        if comment:
            title = comment[1]
        elif field and field[1] in own:
            groups.setdefault(title, []).append(field[1])
    return groups


def _table(members: list[FieldInfo]) -> str:
    rows = [["option", "type", "default", "meaning"], ["---"] * 4]
    rows += [
        [f"`{field.encode_name}`", _type_text(field), _default_text(field), _prose(field)]
        for field in members
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _prose(field: FieldInfo) -> str:
    text = next((meta.description for meta in _metas(field) if meta.description), "")
    return text + (" A secret." if is_secret(field) else "")


def _metas(field: FieldInfo) -> list[Meta]:
    # msgspec merges several Meta of a field, or keeps them separate: the last one takes precedence.
    found = getattr(field.type, "__metadata__", ())
    return [one for one in reversed(found) if isinstance(one, Meta)]


def _type_text(field: FieldInfo) -> str:
    kind = field.type
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{one}`" for one in typing.get_args(kind))
    if isinstance(kind, enum.EnumType):
        return " or ".join(f"`{one.value}`" for one in kind)
    if field.encode_name.endswith("Ms"):
        return "milliseconds"
    return {int: "number", bool: "boolean", str: "text"}.get(kind, str(kind))


def _default_text(field: FieldInfo) -> str:
    value = field.default
    if value is NODEFAULT:
        return "required"
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else ""


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
