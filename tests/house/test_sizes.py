"""Files and functions stay small enough to be read, and every module says what it is for.

The marks are hard ones, above what we aim at: about 450 lines a file and 40 a function.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
COMPILED = sorted((ROOT / "src").rglob("*.pyx"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FILE_LINES_MAX = 480
#: One compiled file is one unit of inlining, so a little more may stay together.
COMPILED_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
LINE_BYTES_MAX = 110
UNTOLD_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|$)")
CYTHON_DEF = re.compile(r"^( *)(?:cpdef|cdef|def)\b(?! class).*\(")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def cython_functions(text: str) -> list[tuple[str, int]]:
    """Name and length of each function, by indentation."""
    found: list[tuple[str, int]] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        start = CYTHON_DEF.match(line)
        if start is None:
            continue
        depth = len(start[1])
        last = at
        for number in range(at + 1, len(lines)):
            body = lines[number]
            indent = len(body) - len(body.lstrip())
            if body.strip() and indent <= depth and not body.lstrip().startswith((")", "const")):
                break
            if body.strip():
                last = number
        found.append((line.strip(), last - at + 1))
    return found


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=shown)
def test_a_python_file_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", COMPILED, ids=shown)
def test_a_compiled_file_is_read_in_one_sitting(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= COMPILED_LINES_MAX
    assert max(map(len, lines)) <= LINE_BYTES_MAX


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=shown)
def test_a_python_function_fits_on_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno + 1 <= FUNCTION_LINES_MAX, node.name


@pytest.mark.parametrize("path", COMPILED, ids=shown)
def test_a_compiled_function_fits_on_a_screen(path: Path) -> None:
    for name, length in cython_functions(path.read_text()):
        assert length <= FUNCTION_LINES_MAX, name


@pytest.mark.parametrize("path", [*SOURCES, *COMPILED], ids=shown)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text().strip()
    assert not text or text.startswith('"""'), "starts with its docstring"


@pytest.mark.parametrize("path", [*SOURCES, *COMPILED, *TESTS], ids=shown)
def test_a_file_is_named_after_what_it_holds(path: Path) -> None:
    assert not UNTOLD_NAMES.search(path.stem)
