"""Subject transforms: rewrite subjects that match one pattern to a destination.

The tokens of a destination may be functions of what the source's wildcards matched:
`{{wildcard(1)}}` or `$1`, `{{partition(10,1,2)}}`, `{{split(1,-)}}` and so on. Creating a
`Transform` checks source and destination once and raises `TransformFault` with the reference's
texts. Applying a transform cannot fail and only handles strings.

Positions and lengths count bytes, as in the reference. The caller passes the random source; without
one, `{{random(n)}}` counts round-robin.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, FORBIDDEN, SEPARATOR, tokenise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Piece = Callable[[list[str]], str]
    Draw = Callable[[int], int]

INT32_MAX: Final = 2**31 - 1
SHARED_MAX: Final = 8_192
"""Transforms that are cached for callers that build the same again; about a kilobyte each."""

BAD_SUBJECT: Final = "invalid subject"
_BAD: Final = "invalid mapping destination"
_INVALID: Final = f"{_BAD}: invalid transform"
_UNKNOWN: Final = f"{_BAD}: unknown function"
_OUT_OF_RANGE: Final = f"{_BAD}: wildcard index out of range"
_TOO_FEW: Final = f"{_BAD}: not enough arguments passed to the function"
_TOO_MANY: Final = f"{_BAD}: too many arguments passed to the function"
_BAD_ARGUMENT: Final = f"{_BAD}: function argument is invalid or in the wrong format"
_ONLY_WILDCARD: Final = (
    f"{_BAD}: the only mapping function allowed for import transforms is {{{{Wildcard()}}}}"
)
_UNUSED: Final = f"{_BAD}: not using all of the token wildcard(s)"

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_COMMA: Final = re.compile(r",\s*")


def _call(name: str) -> re.Pattern[str]:
    """Return a pattern for calls of a function; each word of its name may be capitalised."""
    letters = "".join(f"[{part[0]}{part[0].upper()}]{part[1:]}" for part in name.split("_"))
    return re.compile(rf"\{{\{{\s*{letters}\s*\((.*)\)\s*\}}\}}")


#: In the order in which the reference tries them.
_CALLS: Final = {
    name: _call(name)
    for name in (
        "wildcard", "partition", "split_from_left", "split_from_right", "slice_from_left",
        "slice_from_right", "right", "left", "split", "random",
    )
}  # fmt: skip


CALL_STARTS: Final = "{$"
"""First characters of a token that is not literal."""


class TransformFault(ValueError):
    """Source or destination is invalid; the message gives the reason."""


class _Function(NamedTuple):
    """One parsed token of a destination. `name` is empty for a literal token."""

    token: str
    name: str = ""
    indexes: tuple[int, ...] = ()
    number: int = -1
    text: str = ""


class Transform:
    """Rewrites subjects that match `src` to `dest`."""

    def __init__(
        self, src: str, dest: str, *, strict: bool = False, draw: Draw | None = None
    ) -> None:
        """Check and compile; `strict` allows only reversible transforms, as imports need them.

        An empty source means `>`. `draw(n)` returns a number below n.
        """
        self.src: Final = src or ANY_TAIL
        self.dest: Final = dest
        sources = _usable(self.src)
        targets = _usable(dest)
        if (
            sources is None
            or targets is None
            or ANY_TOKEN in targets
            or (ANY_TAIL in sources) != (ANY_TAIL in targets)
        ):
            raise TransformFault(BAD_SUBJECT)
        functions = _bound(sources, targets, strict)
        if strict:
            _check_all_used(dest, sources, functions)
        self._sources: Final = sources
        self._takes_all: Final = self.src == ANY_TAIL
        self._changes_nothing: Final = self._takes_all and dest == ANY_TAIL
        self._has_tail: Final = targets[-1] == ANY_TAIL
        self._turn: Final = itertools.count()
        self._draw: Final = draw or self._take_turns
        self._pieces: Final = [self._piece(function) for function in functions]

    def match(self, subject: str) -> str | None:
        """Return the transformed subject, or None if it does not match the source."""
        if self._changes_nothing:
            return subject
        tokens = tokenise(subject)
        if not self._matches(tokens):
            return None
        return self._transformed(tokens)

    def _matches(self, tokens: list[str]) -> bool:
        if "" in tokens or ANY_TOKEN in tokens or ANY_TAIL in tokens:
            return False
        if self._takes_all:
            return True
        sources = self._sources
        if sources[-1] == ANY_TAIL:
            if len(tokens) < len(sources):
                return False
            sources = sources[:-1]
        elif len(tokens) != len(sources):
            return False
        return all(want in (ANY_TOKEN, token) for token, want in zip(tokens, sources, strict=False))

    def _transformed(self, tokens: list[str]) -> str:
        made = [piece(tokens) for piece in self._pieces]
        if self._has_tail:
            made += tokens[len(self._sources) - 1 :]
        return SEPARATOR.join(made)

    def _piece(self, function: _Function) -> Piece:
        """Return the function that produces one token of the result."""
        if not function.name:
            return lambda _: function.token
        if function.name == "random":
            return lambda _: str(self._draw(abs(function.number)) if function.number else 0)
        if function.name == "partition":
            return lambda tokens: _partition(function, tokens)
        cut = _CUTS[function.name]
        at = function.indexes[0]
        return lambda tokens: cut(tokens[at], function) if at < len(tokens) else ""

    def _take_turns(self, ceiling: int) -> int:
        return next(self._turn) % ceiling


def check_mapping(src: str, dest: str) -> None:
    """Raise `TransformFault` unless a stream may use this mapping; `dest` may be empty."""
    if not dest:
        return
    ended = False
    for token in tokenise(dest):
        if not token or ended:
            raise TransformFault(_INVALID + (f" in {token}" if token else ""))
        if _is_call(token):
            if not any(call.search(token) for call in _CALLS.values()):
                raise TransformFault(f"{_UNKNOWN} in {token}")
        elif token == ANY_TAIL:
            ended = True
        elif not FORBIDDEN.isdisjoint(token):
            raise TransformFault(_INVALID)
    shared_transform(src, dest)


def shared_transform(src: str, dest: str) -> Transform:
    """Return a cached transform, so that checks, plans and source readers build it once.

    A transform that draws numbers has a counter and is not shared.
    """
    return Transform(src, dest) if "andom" in dest else _shared(src, dest)


@lru_cache(maxsize=SHARED_MAX)
def _shared(src: str, dest: str) -> Transform:
    return Transform(src, dest)


# -- reading destinations


def _usable(subject: str) -> list[str] | None:
    """Return the tokens, or None for an invalid subject. Does not check for blanks."""
    tokens = tokenise(subject)
    return None if "" in tokens or ANY_TAIL in tokens[:-1] else tokens


def _bound(sources: list[str], targets: list[str], strict: bool) -> list[_Function]:
    """Return the destination's functions, with wildcard numbers resolved to source positions."""
    at = {
        number: position
        for number, position in enumerate(
            (position for position, token in enumerate(sources) if token == ANY_TOKEN), 1
        )
    }
    is_literal = not at and ANY_TAIL not in sources
    functions = []
    for token in targets:
        if token[0] not in CALL_STARTS:  # most tokens, and there may be thousands of transforms
            functions.append(_Function(token))
            continue
        function = _read(token)
        if function.name and strict and function.name != "wildcard" and not is_literal:
            raise TransformFault(f"{_ONLY_WILDCARD} in {token}")
        if is_literal:
            if function.name not in ("", "random", "partition"):
                raise TransformFault(f"{_OUT_OF_RANGE} in {token}")
            function = function._replace(indexes=())
        for index in function.indexes:
            if index > len(at):
                raise TransformFault(f"{_OUT_OF_RANGE} in {token}: [{index}]")
        # As in the reference, an index below 1 means the first token.
        positions = tuple(at.get(index, 0) for index in function.indexes)
        functions.append(function._replace(indexes=positions))
    return [function for function in functions if function.token != ANY_TAIL]


def _check_all_used(dest: str, sources: list[str], functions: Sequence[_Function]) -> None:
    used = sum(len(function.indexes) for function in functions)
    if used < sources.count(ANY_TOKEN):
        raise TransformFault(f"{_UNUSED} in {dest}")


def _is_call(token: str) -> bool:
    return len(token) > len("{{}}") and token.startswith("{{") and token.endswith("}}")


def _read(token: str) -> _Function:
    """Parse one token of a destination."""
    if len(token) > 1 and token[0] == "$":
        number = _integer(token[1:])
        return _Function(token) if number is None else _Function(token, "wildcard", (number,))
    if not _is_call(token):
        return _Function(token)
    for name, call in _CALLS.items():
        found = call.search(token)
        if found is not None:
            return _READERS.get(name, _read_cut)(token, name, _COMMA.split(found[1]))
    raise TransformFault(f"{_UNKNOWN} in {token}")


def _read_wildcard(token: str, name: str, args: list[str]) -> _Function:
    if args == [""]:
        raise TransformFault(f"{_TOO_FEW} in {token}")
    if len(args) > 1:
        raise TransformFault(f"{_TOO_MANY} in {token}")
    return _Function(token, name, (_argument(token, args[0]),))


def _read_partition(token: str, name: str, args: list[str]) -> _Function:
    number = _argument(token, args[0], most=INT32_MAX)
    return _Function(token, name, tuple(_argument(token, arg) for arg in args[1:]), number)


def _read_random(token: str, name: str, args: list[str]) -> _Function:
    if len(args) > 1:
        raise TransformFault(f"{_TOO_FEW} in {token}")
    return _Function(token, name, (), _argument(token, args[0], most=INT32_MAX))


def _read_split(token: str, name: str, args: list[str]) -> _Function:
    _check_two(token, args)
    index = _argument(token, args[0])
    if " " in args[1] or SEPARATOR in args[1]:
        raise TransformFault(f"{_BAD_ARGUMENT} in {token}")
    return _Function(token, name, (index,), text=args[1])


def _read_cut(token: str, name: str, args: list[str]) -> _Function:
    _check_two(token, args)
    index = _argument(token, args[0])
    number = _argument(token, args[1], most=INT32_MAX)
    return _Function(token, name, (index,), number)


_READERS: Final = {
    "wildcard": _read_wildcard,
    "partition": _read_partition,
    "random": _read_random,
    "split": _read_split,
}


def _check_two(token: str, args: list[str]) -> None:
    if len(args) < 2:
        raise TransformFault(f"{_TOO_FEW} in {token}")
    if len(args) > 2:
        raise TransformFault(f"{_TOO_MANY} in {token}")


def _argument(token: str, text: str, most: int = 2**63 - 1) -> int:
    number = _integer(text.strip(" "))
    if number is None or number > most:
        raise TransformFault(f"{_BAD_ARGUMENT} in {token}")
    return number


def _integer(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


# -- producing tokens


def _partition(function: _Function, tokens: list[str]) -> str:
    key = "".join(tokens[at] for at in function.indexes)
    if not function.indexes:
        key = SEPARATOR.join(tokens)
    buckets = function.number & 0xFFFF_FFFF
    return str(fnv1a(key.encode("utf-8", "surrogateescape")) % buckets) if buckets else "0"


def fnv1a(key: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return hashed


def _wildcard(token: str, function: _Function) -> str:
    return token


def _split(token: str, function: _Function) -> str:
    if not function.text:
        return SEPARATOR.join(token)
    parts = token.split(function.text)
    made = ""
    for at, part in enumerate(parts):
        made += part
        if at < len(parts) - 1 and parts[at + 1] and not (at == 0 and not part):
            made += SEPARATOR
    return made


def _at_cuts(token: str, cuts: Callable[[int], list[int]]) -> str:
    """Return the token split at the byte positions that `cuts` returns for its length."""
    raw = token.encode("utf-8", "surrogateescape")
    bounds = [0, *cuts(len(raw)), len(raw)]
    parts = [raw[start:stop] for start, stop in itertools.pairwise(bounds)]
    return b".".join(parts).decode("utf-8", "surrogateescape")


def _cut_at(position: Callable[[int, int], int]) -> Callable[[str, _Function], str]:
    """Return a function that splits once, if the position is inside the token."""

    def cut(token: str, function: _Function) -> str:
        size = function.number
        return _at_cuts(token, lambda n: [position(n, size)] if 0 < size < n else [])

    return cut


def _slice_from_left(token: str, function: _Function) -> str:
    size = function.number
    return _at_cuts(token, lambda n: list(range(size, n, size)) if 0 < size < n else [])


def _slice_from_right(token: str, function: _Function) -> str:
    size = function.number
    return _at_cuts(token, lambda n: list(range(n % size or size, n, size)) if 0 < size < n else [])


def _left(token: str, function: _Function) -> str:
    raw = token.encode("utf-8", "surrogateescape")
    kept = raw[: function.number] if 0 < function.number < len(raw) else raw
    return kept.decode("utf-8", "surrogateescape")


def _right(token: str, function: _Function) -> str:
    raw = token.encode("utf-8", "surrogateescape")
    kept = raw[-function.number :] if 0 < function.number < len(raw) else raw
    return kept.decode("utf-8", "surrogateescape")


_CUTS: Final[dict[str, Callable[[str, _Function], str]]] = {
    "wildcard": _wildcard,
    "split": _split,
    "split_from_left": _cut_at(lambda n, size: size),
    "split_from_right": _cut_at(lambda n, size: n - size),
    "slice_from_left": _slice_from_left,
    "slice_from_right": _slice_from_right,
    "left": _left,
    "right": _right,
}
