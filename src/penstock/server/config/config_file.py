"""Parser of the configuration language: text to a tree of values with positions.

The language is a superset of JSON: keys need no quotes, `=`, `:` or a blank separates key and
value, a newline, `,` or `;` ends a value, `#` and `//` start comments, `include FILE` merges
another file, and `$NAME` refers to an earlier key (innermost map first) or to the environment.

Invariants: every value has its file, line and column; the only error is `ConfigError`, whatever the
text contains; nesting and includes are bounded. `config_reader` interprets the keys.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from penstock.server.config.config_scanner import (
    BLANKS,
    INCLUDE_NAME,
    KEY,
    NEWLINES,
    SPACE,
    ConfigError,
    ConfigScanner,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ConfigError", "Node", "Plain", "Tree", "digest", "parse_file", "parse_text"]

NESTING_MAX = 100
INCLUDE_DEPTH_MAX = 32
FILE_BYTES_MAX = 64 * 1024 * 1024

Plain: TypeAlias = "str | int | float | bool | datetime | list[Node] | dict[str, Node]"
Tree: TypeAlias = "dict[str, Node]"


class Node(Struct):
    """One value and its position: that of its key in a map, that of its start in a list."""

    value: Plain
    file: str
    line: int
    column: int
    used_as_variable: bool = False

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def parse_file(path: str, environ: Mapping[str, str]) -> Tree:
    """Read and parse a file with all its includes."""
    return _parse_file(path, environ, ())


def parse_text(text: str, environ: Mapping[str, str], *, file: str = "") -> Tree:
    """Parse `text` as if it were `file`; includes are relative to that file."""
    return _Parser(text, file, environ, (file,)).document()


def digest(tree: Tree) -> str:
    """Return the reference's digest: that of the values as JSON, whatever the file's layout."""
    canonical = _json(tree)
    for char in "<>&\u2028\u2029":
        canonical = canonical.replace(char, f"\\u{ord(char):04x}")
    return "sha256:" + hashlib.sha256(canonical.encode() + b"\n").hexdigest()


_SEPARATORS = frozenset("=:")
_QUOTES = frozenset("\"'")
_OPENERS = _QUOTES | frozenset("{[(")
_TOP_VALUE_ENDS = NEWLINES | frozenset(";,}")
_MAP_VALUE_ENDS = NEWLINES | frozenset(";,/")
_ARRAY_VALUE_ENDS = NEWLINES | frozenset(",/")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_BCRYPT = "$2a$"
_ENV_KEY = "pk"
_NOT_INCLUDABLE = {
    "[": "start of an array",
    "{": "start of a map",
    "(": "start of a block",
    "\\": "escape sequence",
    "\r": "new line",
    "\n": "new line",
    **dict.fromkeys("-0123456789", "start of a number"),
}


def _parse_file(path: str, environ: Mapping[str, str], parents: Sequence[str]) -> Tree:
    try:
        with open(path, "rb") as source:
            raw = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        verb = "read" if isinstance(error, IsADirectoryError) else "open"
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{verb} {path}: {reason}") from None
    except ValueError as error:  # the name contains a NUL
        raise ConfigError(f"open {path!r}: {error}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"Parse error on line {line}: 'Invalid UTF-8'") from None
    return _Parser(text, path, environ, (*parents, path)).document()


class _Parser(ConfigScanner):
    """Recursive-descent parser of one text."""

    def __init__(
        self, text: str, file: str, environ: Mapping[str, str], parents: Sequence[str]
    ) -> None:
        super().__init__(text)
        self._file = file
        self._environ = environ
        self._parents = parents
        self._scopes: list[Tree] = []
        self._depth = 0
        self._open_blocks = 0

    def document(self) -> Tree:
        root: Tree = {}
        self._scopes.append(root)
        while True:
            self.skip_space_and_comments()
            char = self.peek()
            if not char:
                return root
            if char == "{":
                self._open_blocks += 1
                self.pos += 1
            elif char == "}" and self._open_blocks:
                self._open_blocks -= 1
                self.pos += 1
            elif char == "/":
                raise self.fail("Unexpected EOF.")
            elif self._entry(root, in_map=False):
                self._end_of_top_value()
            else:
                return root

    def _end_of_top_value(self) -> None:
        self.skip(BLANKS)
        while self.peek() == "/" and not self.text.startswith("//", self.pos):
            self.pos += 1  # a single slash counts as a blank
            self.skip(BLANKS)
        self.skip_comment()
        char = self.peek()
        # After a value, a document in braces must continue; one without braces may end.
        if char not in _TOP_VALUE_ENDS and (char or self._open_blocks):
            level = "block-level" if self._open_blocks else "top-level"
            raise self.fail(
                f"Expected a {level} value to end with a new line, comment or EOF, "
                f"but got '{char}' instead."
            )
        if char == "}":
            self._open_blocks = max(self._open_blocks - 1, 0)
        self.pos += len(char)

    def _entry(self, scope: Tree, *, in_map: bool) -> bool:
        """Parse one key with its value, or an include; return False at the end of the text."""
        char = self.peek()
        if char in _SEPARATORS:
            raise self.fail(f"Unexpected key separator '{char}'{'.' if in_map else ''}")
        quote = char if char in _QUOTES else ""
        self.pos += len(quote)
        start = self.pos
        key = self._quoted_key(quote, in_map=in_map) if quote else self._bare_key(in_map=in_map)
        after = self.peek()
        if not quote and key.lower() == "include" and after and after not in _SEPARATORS:
            self._include(scope)
            return True
        self.skip(SPACE)
        if not self.peek() and not in_map:
            return self._dangling_key(key)
        if self.peek() in _SEPARATORS:
            self.pos += 1
        value = self._map_value() if in_map else self._value()
        scope[key] = self._node(value, start)
        return True

    def _dangling_key(self, key: str) -> bool:
        # A closing brace alone at the end is the end of a JSON document.
        if key == "}":
            return False
        line, column = self.line_and_column(self.pos)
        raise ConfigError(f"config is invalid ({self._file}:{line}:{column})")

    def _bare_key(self, *, in_map: bool) -> str:
        start = self.pos
        self.pos += 1
        self.skip(KEY)
        if in_map and not self.peek():
            raise self.fail("Unexpected EOF processing map key.")
        return self.text[start : self.pos]

    def _quoted_key(self, quote: str, *, in_map: bool) -> str:
        if not in_map:
            return self.up_to(quote, "Unexpected EOF.")
        kind = "double quoted" if quote == '"' else "quoted"
        return self.up_to(quote, f"Unexpected EOF processing {kind} map key.")

    def _map(self) -> Tree:
        scope: Tree = {}
        self._enter()
        self._scopes.append(scope)
        while True:
            self.skip_space_and_comments()
            self.pos += self.peek() == "/"  # a single slash is skipped
            char = self.peek()
            if char == "]":
                raise self.fail("Unexpected array end ']' processing map.")
            if not char:
                raise self.fail("Unexpected EOF processing map.")
            if char == "}":
                break
            self._entry(scope, in_map=True)
            if not self._more("}", _MAP_VALUE_ENDS, 'Expected a map value terminator "," or a map'):
                break
        self.pos += 1
        self._scopes.pop()
        self._depth -= 1
        return scope

    def _map_value(self) -> Plain:
        self.skip(SPACE)
        if self.peek() == ",":
            raise self.fail('Unexpected map value terminator ",".')
        if self.peek() == "}":
            raise self.fail("Expected value but found end of map")
        return self._value()

    def _array(self) -> list[Node]:
        items: list[Node] = []
        self._enter()
        complaint = 'Expected an array value terminator "," or an array'
        while True:
            self.skip_space_and_comments()
            char = self.peek()
            if char in (",", "/"):
                raise self.fail("Unexpected array value terminator ','.")
            if char == "]":
                break
            start = self.pos + (char in _QUOTES)
            items.append(self._node(self._value(), start))
            if not self._more("]", _ARRAY_VALUE_ENDS, complaint):
                break
        self.pos += 1
        self._depth -= 1
        return items

    def _more(self, closer: str, ends: frozenset[str], complaint: str) -> bool:
        """After a value, return True if another may follow, False at the closing bracket."""
        self.skip(BLANKS)
        self.skip_comment()
        char = self.peek()
        if char == closer:
            return False
        if char not in ends:
            raise self.fail(f"{complaint} terminator \"{closer}\", but got '{char}' instead.")
        self.pos += 1
        return True

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self.fail(f"Nested deeper than {NESTING_MAX} levels")

    def _value(self) -> Plain:
        self.skip(BLANKS)
        char = self.peek()
        if "0" <= char <= "9" or char == "-":
            return self.number()
        if char == ".":
            raise self.fail("Floats must start with a digit")
        if char in NEWLINES:
            raise self.fail("Expected value but found new line")
        if char not in _OPENERS:
            return self._word()
        self.pos += 1
        if char == "{":
            return self._map()
        if char == "[":
            return self._array()
        if char == '"':
            return self.quoted()
        return self.block() if char == "(" else self.up_to("'", "Unexpected EOF.")

    def _word(self) -> Plain:
        start = self.pos
        text, plain = self.bare()
        if plain and text.startswith("$"):
            return self._variable(text, start)
        return _BOOLEANS.get(text.lower(), text) if plain else text

    def _variable(self, reference: str, start: int) -> Plain:
        if reference.startswith(_BCRYPT):
            return reference
        name = reference[1:]
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name].used_as_variable = True
                return scope[name].value
        text = self._environ.get(name)
        line, _ = self.line_and_column(start)
        complaint = f"variable reference for '{name}' on line {line}"
        if text is None:
            raise ConfigError(f"{complaint} can not be found")
        # Remove the name from the environment of its own text, so that it cannot refer to itself.
        others = {key: value for key, value in self._environ.items() if key != name}
        try:
            return parse_text(f"{_ENV_KEY}={text}", others)[_ENV_KEY].value
        except ConfigError as error:
            raise ConfigError(f"{complaint} could not be parsed: {error}") from None

    def _include(self, scope: Tree) -> None:
        self.skip(BLANKS)
        name = self._include_name()
        # As in the reference, a name with a leading slash is also relative to the including file.
        path = os.path.normpath(os.path.join(os.path.dirname(self._file), name.lstrip("/")))
        try:
            if path in (os.path.normpath(parent) for parent in self._parents):
                raise ConfigError("the file includes itself")
            if len(self._parents) >= INCLUDE_DEPTH_MAX:
                raise ConfigError(f"includes are nested deeper than {INCLUDE_DEPTH_MAX}")
            scope.update(_parse_file(path, self._environ, self._parents))
        except ConfigError as error:
            raise ConfigError(f"error parsing include file '{name}', {error}") from None

    def _include_name(self) -> str:
        char = self.peek()
        if char in _NOT_INCLUDABLE:
            raise self.fail(f"Expected include value but found {_NOT_INCLUDABLE[char]}")
        if char in _QUOTES:
            self.pos += 1
            return self.up_to(char, "Unexpected EOF.")
        name = self.take(INCLUDE_NAME)
        self.pos += self.peek() == "'"  # a quote ends the name and is dropped
        return name

    def _node(self, value: Plain, start: int) -> Node:
        line, column = self.line_and_column(start)
        return Node(value=value, file=self._file, line=line, column=column)


def _json(value: Plain) -> str:
    """Encode as compact JSON with sorted keys; numbers and times are formatted as in Go."""
    if isinstance(value, dict):
        keys = sorted(value)
        members = (f"{json.dumps(k, ensure_ascii=False)}:{_json(value[k].value)}" for k in keys)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json(node.value) for node in value) + "]"
    if isinstance(value, datetime):
        return f'"{value:%Y-%m-%dT%H:%M:%SZ}"'
    if isinstance(value, float):
        return _json_float(value)
    return json.dumps(value, ensure_ascii=False)


def _json_float(value: float) -> str:
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"
