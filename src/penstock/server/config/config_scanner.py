"""Scanner of a configuration text: white space, comments, strings and numbers.

`ConfigScanner` is a cursor over one text. It tracks lines and columns and reads every value without
inner structure; `config_file` parses maps, lists, includes and variables. Invariant: the cursor
only moves forward, and the only error is `ConfigError`.

Columns are counted as in the reference: from 0 on the first line, from 1 on all others.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, datetime

from penstock.server.config.quantities import parse_integer

# The language distinguishes blanks within a line from any white space.
_ANY_SPACE = r" \t\n\v\f\r\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SPACE = re.compile(rf"[{_ANY_SPACE}]*")
BLANKS = re.compile(r"[ \t]*")
KEY = re.compile(rf"[^{_ANY_SPACE}=:]*")
INCLUDE_NAME = re.compile(r"[^\r\n;} \t']*")
NEWLINES = frozenset("\r\n")

_COMMENT = re.compile(r"[^\r\n]*")
_BARE = re.compile(r"[^\r\n;,\]} \t'\\]*")
_QUOTED = re.compile(r'[^"\\]*')
_DIGITS = re.compile(r"[0-9]+")
_SUFFIXED = re.compile(r"[0-9]+[kmgtpeKMGTPE][bBiI]*")
_FLOAT = re.compile(r"[0-9]+\.[0-9]+")
_ADDRESS = re.compile(r"[0-9.:\-]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HEX_PAIR = re.compile(r"[0-9A-Fa-f]{2}")
_BLOCK_END = re.compile(r"\n\)(?=\n|\Z)")
# The reference does not include "]" and so refuses `[1]`, which is valid JSON.
_NUMBER_ENDS = frozenset(" \t\r\n;,}]") | {""}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}


class ConfigError(Exception):
    """A configuration that cannot be used; one line of text per fault."""


class ConfigScanner:
    """A cursor: `pos` is the next unread character of `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self._newlines = [found.start() for found in re.finditer("\n", text)]

    def peek(self) -> str:
        """Return the next character; empty at the end."""
        return self.text[self.pos : self.pos + 1]

    def skip(self, pattern: re.Pattern[str]) -> None:
        self.pos = self._end(pattern)

    def take(self, pattern: re.Pattern[str]) -> str:
        start = self.pos
        self.pos = self._end(pattern)
        return self.text[start : self.pos]

    def skip_comment(self) -> bool:
        """Skip a comment up to the newline; return whether there was one."""
        if self.peek() != "#" and not self.text.startswith("//", self.pos):
            return False
        self.skip(_COMMENT)
        return True

    def skip_space_and_comments(self) -> None:
        self.skip(SPACE)
        while self.skip_comment():
            self.skip(SPACE)

    def line_and_column(self, pos: int) -> tuple[int, int]:
        above = bisect_left(self._newlines, pos)
        start = self._newlines[above - 1] if above else 0
        return above + 1, len(self.text[start:pos].encode("utf-8", "replace"))

    def fail(self, text: str) -> ConfigError:
        """Return the error for the text at the cursor."""
        line, _ = self.line_and_column(min(self.pos, len(self.text)))
        return ConfigError(f"Parse error on line {line}: '{text}'")

    def up_to(self, quote: str, complaint: str) -> str:
        """Return the raw text up to `quote`, and skip the quote."""
        end = self.text.find(quote, self.pos)
        if end < 0:
            self.pos = len(self.text)
            raise self.fail(complaint)
        text = self.text[self.pos : end]
        self.pos = end + 1
        return text

    def quoted(self) -> str:
        """Return the rest of a "..." string with escapes resolved."""
        text = self._escaped(_QUOTED)
        if self.peek() != '"':
            raise self.fail("Unexpected EOF.")
        self.pos += 1
        return text

    def bare(self) -> tuple[str, bool]:
        """Return a word without quotes, and whether it may be a variable or a boolean."""
        start = self.pos
        text = self._escaped(_BARE)
        plain = "\\" not in self.text[start : self.pos]
        if self.peek() == "'":  # a quote ends the word and is dropped
            self.pos += 1
            return text, False
        return text, plain

    def block(self) -> str:
        """Return the rest of a ( ... ) string: up to a closing parenthesis alone on its line."""
        found = _BLOCK_END.search(self.text, self.pos)
        if found is None:
            self.pos = len(self.text)
            raise self.fail("Unexpected EOF processing block.")
        text = self.text[self.pos : found.end() - 1]
        self.pos = found.end()
        return text

    def number(self) -> int | float | str | datetime:
        """Read a value that starts with a digit or a minus: number, date, address, or a word."""
        start = self.pos
        negative = self.peek() == "-"
        self.pos += negative
        if not _DIGITS.match(self.text, self.pos):
            raise self.fail(f"Expected a digit but got '{self.peek()}'.")
        digits_end = self._end(_DIGITS)
        after = self.text[digits_end : digits_end + 1]
        if after == "-" and not negative:
            return self._date()
        if after == ".":
            return self._float_or_address(start)
        end = max(digits_end, self._end(_SUFFIXED))
        if self.text[end : end + 1] not in _NUMBER_ENDS and (end > digits_end or not negative):
            return self._word_from(start, digits_end, end)
        self.pos = end
        return self._integer(self.text[start:end])

    def _word_from(self, start: int, digits_end: int, end: int) -> str:
        # The character that ends a number without suffix is part of the word, whatever it is.
        self.pos = end + 1 if end == digits_end else start
        return self.text[start : self.pos] + self.bare()[0]

    def _integer(self, text: str) -> int:
        try:
            number = parse_integer(text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if number is None:
            raise ConfigError(f"expected integer, but got '{text}'")
        return number

    def _float_or_address(self, start: int) -> float | str:
        end = self._end(_FLOAT)
        if end == self.pos:
            self.pos = self._end(_DIGITS) + 1
            raise self.fail(
                f"Floats must have a digit after the '.', but got '{self.peek()}' instead."
            )
        self.pos = end
        if self.peek() == ".":
            self.skip(_ADDRESS)
            return self.text[start : self.pos]
        number = float(self.text[start:end])
        if number in (float("inf"), float("-inf")):
            raise ConfigError(f"float '{self.text[start:end]}' is out of the range")
        return number

    def _date(self) -> datetime:
        text = self.take(_DATE)
        if not text:
            raise self.fail("All ISO8601 dates must be in full Zulu form.")
        try:
            return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise ConfigError(f"expected Zulu formatted DateTime, but got '{text}'") from None

    def _escaped(self, plain: re.Pattern[str]) -> str:
        parts = [self.take(plain)]
        while self.peek() == "\\":
            self.pos += 1
            parts.append(self._escape())
            parts.append(self.take(plain))
        try:  # \xHH writes bytes, which together must be valid UTF-8
            return "".join(parts).encode("utf-8", "surrogateescape").decode()
        except UnicodeError:
            raise self.fail("Invalid UTF-8 in string") from None

    def _escape(self) -> str:
        char = self.peek()
        self.pos += 1
        if char == "x":
            pair = self.take(_HEX_PAIR)
            if not pair:
                got = self.text[self.pos : self.pos + 2]
                raise self.fail(f"Expected two hexadecimal digits after '\\x', but got '{got}'")
            return bytes.fromhex(pair).decode("utf-8", "surrogateescape")
        if char not in _ESCAPES:
            raise self.fail(
                f"Invalid escape character '{char}'. Only the following escape characters "
                'are allowed: \\xXX, \\t, \\n, \\r, \\", \\\\.'
            )
        return _ESCAPES[char]

    def _end(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self.text, self.pos)
        return found.end() if found else self.pos
