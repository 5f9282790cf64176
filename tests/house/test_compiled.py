"""Compiled modules and their stubs agree."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
COMPILED = sorted(SOURCE.rglob("*.pyx"))
STUBS = sorted(SOURCE.rglob("*.pyi"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imported_by_python() -> set[str]:
    """Modules that Python files of ours, or tests, import names from."""
    named: set[str] = set()
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        named |= set(re.findall(r"^\s*from (penstock[\w.]*) import", path.read_text(), re.M))
        for package, names in re.findall(
            r"^\s*from (penstock[\w.]*) import ([\w, ]+)$", path.read_text(), re.M
        ):
            named |= {f"{package}.{name.strip()}" for name in names.split(",")}
    return named


@pytest.mark.parametrize("path", COMPILED, ids=module_of)
def test_compiled_module_that_python_imports_has_stub(path: Path) -> None:
    if module_of(path) in imported_by_python():
        assert path.with_suffix(".pyi").exists()


@pytest.mark.parametrize("path", STUBS, ids=module_of)
def test_stub_names_only_what_is_there(path: Path) -> None:
    module = importlib.import_module(module_of(path))
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            assert hasattr(module, node.name), node.name
        elif isinstance(node, ast.ClassDef) and not is_only_a_type(node):
            check_class(getattr(module, node.name), node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert hasattr(module, node.target.id), node.target.id


def is_only_a_type(node: ast.ClassDef) -> bool:
    """A protocol of the stub alone, for type checkers."""
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def check_class(there: type, told: ast.ClassDef) -> None:
    for node in told.body:
        if isinstance(node, ast.FunctionDef):
            assert hasattr(there, node.name), f"{told.name}.{node.name}"
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert hasattr(there, node.target.id), f"{told.name}.{node.target.id}"


@pytest.mark.parametrize("path", COMPILED, ids=module_of)
def test_compiled_module_is_built_from_this_source(path: Path) -> None:
    module = importlib.import_module(module_of(path))
    assert module.__file__ is not None
    assert Path(module.__file__).suffix == ".so"
