"""Files and functions stay small enough to be read, and every module says what it is for.

The marks are hard ones, above what we aim at: about 450 lines a file and 40 a function.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
COMPILED = sorted((ROOT / "src").rglob("*.pyx"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FILE_LINES_MAX = 500
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


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def python_functions(text: str) -> list[tuple[str, int]]:
    """Name and length of each function."""
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def too_long(functions: list[tuple[str, int]]) -> list[str]:
    return [name for name, length in functions if length > FUNCTION_LINES_MAX]


# One test for all files, not one for each: thousands of tests would cost more than what they read.


def test_there_is_something_to_measure() -> None:
    for paths in (SOURCES, COMPILED, TESTS):
        assert len(paths) > 20
    assert too_long(python_functions("def f():\n" + "    pass\n" * FUNCTION_LINES_MAX)) == ["f"]
    assert too_long(cython_functions("cdef f():\n" + "    pass\n" * FUNCTION_LINES_MAX))


def test_python_file_is_read_in_one_sitting() -> None:
    sizes = {shown(path): len(lines_of(path)) for path in [*SOURCES, *TESTS]}
    assert not {name: size for name, size in sizes.items() if size > FILE_LINES_MAX}


def test_compiled_file_is_read_in_one_sitting() -> None:
    for path in COMPILED:
        lines = lines_of(path)
        assert len(lines) <= COMPILED_LINES_MAX, shown(path)
        assert max(map(len, lines)) <= LINE_BYTES_MAX, shown(path)


def test_python_function_fits_on_screen() -> None:
    found = {shown(path): too_long(python_functions(path.read_text())) for path in SOURCES + TESTS}
    assert not {name: functions for name, functions in found.items() if functions}


def test_compiled_function_fits_on_screen() -> None:
    found = {shown(path): too_long(cython_functions(path.read_text())) for path in COMPILED}
    assert not {name: functions for name, functions in found.items() if functions}


def test_module_docstring_exists() -> None:
    texts = {shown(path): path.read_text().strip() for path in SOURCES + COMPILED}
    silent = [name for name, text in texts.items() if text and not text.startswith('"""')]
    assert not silent, "starts with its docstring"


def test_file_is_named_after_what_it_holds() -> None:
    paths = SOURCES + COMPILED + TESTS
    assert not [shown(path) for path in paths if UNTOLD_NAMES.search(path.stem)]
