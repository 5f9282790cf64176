"""Check the options of an embedding program: keywords of `Server` become fields of `Options`.

`Options` itself accepts any value, because the configuration reader has already checked its values.
Keywords come from a program, so this module checks them: an unknown name or a value of the wrong
type raises TypeError, a text that is not a size raises ValueError, and each names the option. Sizes
may be text as in a configuration file ("1MB"), paths may be `pathlib.Path`, and lists may replace
tuples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from penstock.server.config.options import Options
from penstock.server.config.quantities import parse_integer

SIZES: Final = frozenset(
    {
        "log_size_limit",
        "max_control_line",
        "max_payload",
        "max_pending",
        "max_traced_msg_len",
    }
)
"""Options in bytes."""
_WORDS: Final = {int: "an integer", bool: "True or False", str: "text", NoneType: "None"}


def keyword_values(given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords as fields of `Options`; raise TypeError or ValueError with the name."""
    known = _hints(Options)
    values = {}
    for name, value in given.items():
        if name not in known:
            raise TypeError(_unknown(name, known))
        values[name] = _converted(name, value, known[name])
        _check(name, values[name], known[name])
    return values


def check_types(options: Options) -> None:
    """Raise TypeError, with the name of the option, if an option has a value of the wrong type."""
    if not isinstance(options, Options):
        raise TypeError(f"options must be penstock.Options, not {type(options).__name__}")
    _check("", options, Options)


def _unknown(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _converted(name: str, value: object, hint: object) -> object:
    if hint is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if get_origin(hint) is tuple and isinstance(value, list):
        value = tuple(value)
    if name in SIZES and isinstance(value, str):
        size = parse_integer(value)
        if size is None:
            raise ValueError(f"option {name!r}: {value!r} is not a size, such as 65536 or '1MB'")
        value = size
    return value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _check(name: str, value: object, hint: object) -> None:
    """Raise TypeError if the value or a nested value is not of the declared type."""
    fitting = [one for one in _choices(hint) if _fits(value, one)]
    if not fitting:
        shown = type(value).__name__
        raise TypeError(f"option {name!r} must be {_described(hint)}, not {shown}")
    if isinstance(value, Struct):
        for field, declared in _hints(type(value)).items():
            _check(f"{name}.{field}" if name else field, getattr(value, field), declared)
    elif isinstance(value, tuple):
        for place, one in enumerate(value):
            _check(f"{name}[{place}]", one, get_args(fitting[0])[0])


def _choices(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _fits(value: object, hint: object) -> bool:
    origin = get_origin(hint) or hint
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            isinstance(part, str) for pair in value.items() for part in pair
        )
    assert isinstance(origin, type)
    return isinstance(value, origin)


def _described(hint: object) -> str:
    return " or ".join(_described_one(one) for one in _choices(hint))


def _described_one(hint: object) -> str:
    origin = get_origin(hint) or hint
    if origin is tuple:
        return f"a tuple, each item {_described(get_args(hint)[0])}"
    if origin is Mapping:
        return "a mapping of text to text"
    assert isinstance(origin, type)
    if issubclass(origin, Enum | Struct):
        return f"a {origin.__name__}"
    return _WORDS.get(origin, origin.__name__)
