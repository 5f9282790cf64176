"""Docstrings, comments and pages read as CONTRIBUTING.md asks, as far as a program can check it.

A module docstring begins with a sentence, and prose avoids a short list of words that hide who does
what. Checked are the strings and comments of the code, and the pages; of tests the docstrings and
comments, because their other strings are often input.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "tools", "benchmarks", "examples", "packaging")
MODULES = sorted(path for path in (ROOT / "src").rglob("*.py*") if path.suffix in (".py", ".pyx"))
CODE = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
CYTHON = sorted((ROOT / "src").rglob("*.px[dyi]")) + sorted((ROOT / "src").rglob("*.pyi"))
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(page for one in FOLDERS for page in ROOT.glob(f"{one}/**/*.md")),
    ]
    if path.name != "CONTRIBUTING.md"  # lists the words
)
AVOIDED = re.compile(
    r"\b(nobody|somebody|whoever|anew|all the same|(?:is|are) gone|(?:is|are) told|shall)\b", re.I
)
DOCSTRING = re.compile(r'(?:#.*\n|\s)*r?"""(.*?)"""', re.DOTALL)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def strings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string: docstrings, errors, log lines, help."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def prose(path: Path) -> Iterable[tuple[int, str]]:
    """Return the strings and comments of a Python file, or the lines of any other."""
    text = path.read_text()
    if path.suffix == ".py":
        return [*strings(text), *comments(text)]
    return enumerate(text.splitlines(), 1)


def avoided(parts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(line, match[0]) for line, part in parts if (match := AVOIDED.search(part))]


def opening_fault(text: str) -> str | None:
    """Return the first paragraph of a module docstring if it is not a sentence."""
    match = DOCSTRING.match(text)
    first = "" if match is None else match[1].split("\n\n")[0].strip()
    is_begun = first[:1].isupper() or first[:1] in ("`", "/")
    return None if is_begun and first.endswith((".", ":")) else first


def test_prose_that_breaks_rule_is_found() -> None:
    source = '"""Nobody calls this."""\nx = 1  # the block is gone\nlog("the leader is told")\n'
    found = avoided([*strings(source), *comments(source)])
    assert found == [(1, "Nobody"), (3, "is told"), (2, "is gone")]
    assert opening_fault('"""The writer.\n\nMore"""') is None
    assert opening_fault('"""the writer."""') == "the writer."
    assert opening_fault('"""The writer"""') == "The writer"
    assert opening_fault("import os\n") == ""
    assert avoided(docstrings('"""It is told."""\nx = "nobody"\n')) == [(1, "is told")]
    for paths in (MODULES, CODE, CYTHON, PAGES, TESTS):
        assert len(paths) > 20


def test_module_docstrings_begin_with_sentence() -> None:
    texts = {path: path.read_text() for path in MODULES}
    faults = {shown(path): opening_fault(text) for path, text in texts.items() if text.strip()}
    assert {path: first for path, first in faults.items() if first is not None} == {}


def test_prose_names_actor() -> None:
    found = {shown(path): avoided(prose(path)) for path in [*CODE, *CYTHON, *PAGES]}
    assert {path: places for path, places in found.items() if places} == {}


def test_prose_of_tests_names_the_actor() -> None:
    texts = {shown(path): path.read_text() for path in TESTS}
    found = {path: avoided([*docstrings(text), *comments(text)]) for path, text in texts.items()}
    assert {path: places for path, places in found.items() if places} == {}


def test_modules_of_tests_and_tools_begin_with_sentence() -> None:
    texts = {path: path.read_text() for path in [*TESTS, *CODE]}
    faults = {shown(path): opening_fault(text) for path, text in texts.items() if text.strip()}
    assert {path: first for path, first in faults.items() if first is not None} == {}
