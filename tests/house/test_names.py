"""Names and sentences follow the rules of CONTRIBUTING.md, as far as a program can check them.

A module is a noun with a unique basename, a class name is unique, a folder holds one idea, and
prose avoids a short list of words that hide who does what.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
MODULES = sorted(
    path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyx") and path.stem[:2] != "__"
)
#: Each layer may have one of these.
SHARED_BASENAMES = {"contract", "errors", "options"}
#: Nouns that end like a gerund.
NOUNS_IN_ING = {"ack_pending", "query_string"}
FOLDER_MODULES_MAX = 23
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)
AVOIDED = re.compile(
    r"\b(nobody|somebody|whoever|anew|all the same|(?:is|are) gone|(?:is|are) told|shall)\b", re.I
)
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]
    if path.name != "CONTRIBUTING.md"  # lists the words
)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_is_named_by_a_gerund() -> None:
    gerunds = [shown(path) for path in MODULES if path.stem.endswith("ing")]
    assert [path for path in gerunds if Path(path).stem not in NOUNS_IN_ING] == []


def test_basenames_of_modules_are_unique() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        places[path.stem].add(shown(path))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert set(repeated) <= SHARED_BASENAMES, repeated


def test_class_names_are_unique() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for name in CLASS.findall(path.read_text()):
            places[name].add(shown(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_folders_are_small() -> None:
    sizes: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        sizes[shown(path.parent)].add(path.stem)
    large = {name: len(stems) for name, stems in sizes.items() if len(stems) > FOLDER_MODULES_MAX}
    assert large == {}


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string that stands alone: docstrings, and those below fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text


def comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def avoided(prose: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(line, match[0]) for line, part in prose if (match := AVOIDED.search(part))]


def test_module_docstrings_begin_with_a_sentence() -> None:
    wrong = []
    for path in MODULES:
        match = re.match(r'(?:#.*\n|\s)*"""(.*?)"""', path.read_text(), re.DOTALL)
        first = "" if match is None else match[1].split("\n\n")[0].strip()
        if not (first[:1].isupper() or first[:1] in ("`", "/")) or not first.endswith((".", ":")):
            wrong.append((shown(path), first))
    assert wrong == []


def test_prose_in_code_names_the_actor() -> None:
    found = {}
    for path in MODULES:
        text = path.read_text()
        if path.suffix == ".py":
            found[shown(path)] = avoided([*docstrings(ast.parse(text)), *comments(text)])
    assert {path: places for path, places in found.items() if places} == {}


def test_pages_name_the_actor() -> None:
    found = {shown(path): avoided(enumerate(path.read_text().splitlines(), 1)) for path in PAGES}
    assert {path: places for path, places in found.items() if places} == {}
