"""JSON codec for all types declared with the marks of `fields`.

Decoding follows the reference: keys match in any case, null means absent, unknown fields are
refused unless `strict` is off, several consecutive values are merged into one, and each error has
the reference's text. Encoding follows it as well: empty fields are omitted unless marked, maps are
sorted, `<`, `>` and `&` are escaped, times are RFC 3339.

The plan of a type is computed once, on first use. Messages on the fast path have their own codecs.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from penstock.api.json_errors import explain, explain_one
from penstock.api.refusals import INVALID_JSON, ApiError
from penstock.api.timestamps import TimeFault, format_time, parse_time
from penstock.base.json_depth import TooDeep, check_nesting

T = TypeVar("T", bound=Struct)

_INTEGERS: Final = {
    "int": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint64": (0, 2**64 - 1),
    "time.Duration": (-(2**63), 2**63 - 1),
}
_TOO_LONG: Final = "number out of range"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_BLANK: Final = re.compile(r"[ \t\r\n]*")
#: Characters that a browser could interpret.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
#: Types that the reference keeps in lists of pointers; its error texts show the pointer.
_POINTED: Final = frozenset(("server.StreamSource",))


class Faulty(Exception):
    """A value that does not fit its field; the message is the reference's text."""


class _Fraction(str):
    """A number that is not an integer, as written."""


class _Decode(NamedTuple):
    """Decoder of one type, and the reference's name of the type."""

    name: str
    read: "Callable[[Any, _Where], Any]"


class _Where(NamedTuple):
    """Path from the root to a value, for messages; and the settings of the decoding."""

    path: tuple[str, ...]
    is_element: bool
    strict: bool
    objects_max: int = sys.maxsize

    def field(self, name: str) -> "_Where":
        return _Where((*self.path, name), False, self.strict, self.objects_max)

    def element(self, index: int) -> "_Where":
        return _Where((*self.path, str(index)), True, self.strict, self.objects_max)


class _Nowhere(_Where):
    """Position of every value in the first attempt, which is faster because it builds no paths."""

    __slots__ = ()

    def field(self, name: str) -> "_Where":
        return self

    def element(self, index: int) -> "_Where":
        return self


class _Field(NamedTuple):
    name: str
    emit: bool
    flat: bool
    decode: _Decode
    empty: object
    encode: "Callable[[Any], Any] | None"


# -- decoding


def decode(kind: type[T], raw: bytes, *, strict: bool = True, objects_max: int = sys.maxsize) -> T:
    """Decode a body, an empty one as all defaults; raise `ApiError` 10025 if it does not fit.

    Decodes one object more than `objects_max` of a list of objects and ignores the rest: for
    requests with longer lists, which the caller refuses.
    """
    values: dict[str, Any] = {}
    try:
        for value in _parse(raw):
            values |= _read_root(kind, value, strict=strict, objects_max=objects_max)
    except Faulty as fault:
        raise INVALID_JSON(err=fault) from None
    return kind(**values)


def _read_root(
    kind: type[Struct], value: object, *, strict: bool, objects_max: int = sys.maxsize
) -> dict[str, Any]:
    """Read a value; only if it does not fit, read it again to find the position of the fault."""
    try:
        return _read_struct(kind, value, _Nowhere(("", ""), False, strict, objects_max))
    except Faulty:
        return _read_struct(kind, value, _Where((_short(kind),), False, strict, objects_max))


def decode_one(kind: type[T], raw: bytes) -> T:
    """Decode a body of exactly one value that may contain unknown fields, as consumers accept."""
    try:
        found = _parse(raw)
    except Faulty as fault:
        if isinstance(fault.__cause__, TooDeep):
            raise INVALID_JSON(err=fault.__cause__) from None
        found = []
    if len(found) != 1:
        raise INVALID_JSON(err=explain_one(raw) or _TOO_LONG)
    try:
        return kind(**_read_root(kind, found[0], strict=False))
    except Faulty as fault:
        raise INVALID_JSON(err=fault) from None


def _parse(raw: bytes) -> list[object]:
    """Return all values of the body, in order."""
    try:
        check_nesting(raw)
    except TooDeep as fault:
        raise Faulty(f"{fault} at offset {fault.offset}") from fault
    text = raw.decode("utf-8", "replace")
    found: list[object] = []
    try:
        at = _skip_blank(text, 0)
        while at < len(text):
            value, at = _PARSER.raw_decode(text, at)
            found.append(value)
            at = _skip_blank(text, at)
    except ValueError:
        # Python also raises ValueError for an integer with too many digits. That is not a syntax
        # error, but no such number fits any field.
        raise Faulty(explain(raw) or _TOO_LONG) from None
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


_PARSER: Final = json.JSONDecoder(parse_float=_Fraction, parse_constant=_refuse_constant)


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _read_struct(kind: type[Struct], value: object, where: _Where) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _misfit(value, where, _long(kind))
    fields = _fields_by_key(kind)
    read: dict[str, Any] = {}
    for key, inner in value.items():
        field = fields.get(key) or fields.get(key.lower())
        if field is not None:
            if inner is not None or field.decode.name == "enum":
                read[field.name] = field.decode.read(inner, where.field(key))
        elif where.strict:
            raise Faulty(f"json: unknown field {_quoted(key)}")
    return read


def _read_nested(kind: type[Struct], value: object, where: _Where) -> Struct:
    return kind(**_read_struct(kind, value, where))


def _read_str(value: object, where: _Where) -> str:
    if not isinstance(value, str) or isinstance(value, _Fraction):
        raise _misfit(value, where, "string")
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


def _read_bool(value: object, where: _Where) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value, where, "bool")
    return value


def _read_int(name: str, value: object, where: _Where) -> int:
    least, most = _INTEGERS[name]
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    if isinstance(value, int | _Fraction) and not isinstance(value, bool):
        raise _misfit(value, where, name, shown=f" {value}")
    raise _misfit(value, where, name)


def _read_time(value: object, where: _Where) -> int:
    if not isinstance(value, str) or isinstance(value, _Fraction):
        raise _misfit(value, where, "time.Time")
    try:
        return parse_time(value)
    except TimeFault as fault:
        raise Faulty(str(fault)) from None


def _read_enum(kind: type[StrEnum], value: object, where: _Where) -> StrEnum:
    if isinstance(value, str) and not isinstance(value, _Fraction):
        with suppress(ValueError):
            return kind(value)
    unknown = getattr(kind, "unknown", None)
    raw = value if isinstance(value, _Fraction) else json.dumps(value, ensure_ascii=False)
    if hasattr(kind, "misread"):
        raise Faulty(f"{kind.misread}: {raw}")
    if unknown is None:
        raise Faulty(f"can not unmarshal {_quoted(raw)}")
    if value is None or isinstance(value, str):
        raise Faulty(unknown)
    raise _misfit(value, _Where(("",), False, where.strict), "string")


def _read_tuple(inner: _Decode, name: str, value: object, where: _Where) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(value, where, name)
    if inner.read is _read_str and all(type(item) is str and item.isascii() for item in value):
        return tuple(value)  # fast path for long lists
    if len(value) > where.objects_max and inner.name not in _ABSENT:
        value = value[: where.objects_max + 1]
    return tuple(
        _ABSENT[inner.name]
        if item is None and inner.name in _ABSENT
        else inner.read(item, where.element(at))
        for at, item in enumerate(value)
    )


def _read_map(inner: _Decode, name: str, value: object, where: _Where) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(value, where, name)
    return {
        key: _ABSENT.get(inner.name) if item is None else inner.read(item, where.field(key))
        for key, item in value.items()
    }


#: What null decodes to inside a list or map.
_ABSENT: Final[Mapping[str, object]] = {"string": "", "bool": False, **dict.fromkeys(_INTEGERS, 0)}


def _misfit(value: object, where: _Where, name: str, shown: str = "") -> Faulty:
    found = {
        str: "string", _Fraction: "number", int: "number", bool: "bool", list: "array",
        dict: "object", NoneType: "null",
    }[type(value)]  # fmt: skip
    if len(where.path) == 1:
        target = "Go value"
    else:
        target = ("" if where.is_element else "Go struct field ") + ".".join(where.path)
    return Faulty(f"json: cannot unmarshal {found}{shown} into {target} of type {name}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# -- encoding


def encode(value: Struct) -> bytes:
    """Encode a value as the reference does."""
    return encode_plain(_write_struct(value))


def encode_plain(plain: object) -> bytes:
    """Encode maps, lists, strings and numbers as the reference does."""
    try:
        text = msgspec.json.encode(plain)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_without_surrogates(plain))
    for unsafe, escape in _ESCAPES:
        text = text.replace(unsafe, escape)
    return text


def _without_surrogates(value: Any) -> Any:
    """Replace surrogates, which stand for bytes that were not UTF-8 and cannot be encoded."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(value[key]) for key in value}
    return value


def _write_struct(value: Struct) -> dict[str, object]:
    written: dict[str, object] = {}
    for field in _fields(type(value)):
        item = getattr(value, field.name)
        if field.flat:
            written |= _write_struct(item) if item is not None else {}
        elif field.emit or (item is not None and item != field.empty):
            # Long items are already encoded, in slices, as `msgspec.Raw`.
            if item is not None and field.encode is not None and type(item) is not msgspec.Raw:
                item = field.encode(item)
            written[field.name] = item
    return written


def _write_error(error: ApiError) -> dict[str, object]:
    return {"code": error.code, "err_code": error.err_code, "description": error.description}


def _write_tuple(inner: "Callable[[Any], Any]", value: tuple[Any, ...]) -> list[Any]:
    return [inner(item) for item in value]


def _write_map(inner: "Callable[[Any], Any] | None", value: dict[str, Any]) -> dict[str, Any]:
    if inner is None:
        return dict(sorted(value.items()))
    return {key: inner(item) for key, item in sorted(value.items())}


# -- plans


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(name, hints[name]) for name in kind.__struct_fields__)


@cache
def _fields_by_key(kind: type[Struct]) -> dict[str, _Field]:
    return {field.name: field for field in _fields(kind)}


def _field(name: str, hint: object) -> _Field:
    marks = marks_of(hint)
    encode_value, empty = _encoder(hint)
    return _Field(name, "emit" in marks, "flat" in marks, _decoder(hint), empty, encode_value)


def marks_of(hint: object) -> dict[str, Any]:
    """Return the marks of a hint, by name; marks on the members of a union do not count."""
    marks: dict[str, Any] = {}
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta):
            marks |= meta.extra or {}
            marks |= {"doc": meta.description} if meta.description else {}
    return marks


def bare(hint: object) -> tuple[Any, str]:
    """Return a hint without None and marks, and the wire type that a mark names, or ""."""
    wire = ""
    while True:
        if hasattr(hint, "__metadata__"):
            wire = marks_of(hint).get("wire", "") or wire
            hint = get_args(hint)[0]
        elif get_origin(hint) in (UnionType, Union):
            (hint,) = (arg for arg in get_args(hint) if arg is not NoneType)
        else:
            return hint, wire


def _short(kind: type) -> str:
    return _long(kind).removeprefix("server.")


def _long(kind: type) -> str:
    return str(getattr(kind, "wire_name", f"server.{kind.__name__}"))


def _decoder(hint: object) -> _Decode:
    kind, wire = bare(hint)
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        inner = _decoder(args[0])
        name = f"[]{'*' if inner.name in _POINTED else ''}{inner.name}"
        return _Decode(name, partial(_read_tuple, inner, name))
    if origin is dict:
        inner = _decoder(args[1])
        name = f"map[string]{inner.name}"
        return _Decode(name, partial(_read_map, inner, name))
    if wire == "time.Time":
        return _Decode(wire, _read_time)
    if kind is int:
        return _Decode(wire or "int", partial(_read_int, wire or "int"))
    if kind is str:
        return _Decode("string", _read_str)
    if kind is bool:
        return _Decode("bool", _read_bool)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Decode("enum", partial(_read_enum, kind))
    if _is_struct(kind):
        return _Decode(_long(kind), partial(_read_nested, kind))
    return _Decode("", _never)


def _never(value: object, where: _Where) -> object:
    raise AssertionError(f"{'.'.join(where.path)} is only written")


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _encoder(hint: object) -> "tuple[Callable[[Any], Any] | None, object]":
    """Return the encoder of a type, None if the value is written as it is, and its empty value."""
    kind, wire = bare(hint)
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        inner, _ = _encoder(args[0])
        return (partial(_write_tuple, inner) if inner else None), ()
    if origin is dict:
        inner, _ = _encoder(args[1])
        return partial(_write_map, inner), {}
    if wire == "time.Time":
        return format_time, None
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str, next(iter(kind))
    if kind is ApiError:
        return _write_error, None
    if _is_struct(kind):
        return _write_struct, None
    return None, kind() if kind in (int, str, bool, bytes) else None
