"""Modules, classes and folders are named and sized by the rules of CONTRIBUTING.md.

A module is a noun with a unique basename, a class name is unique, and a folder holds one idea. The
name of a test is a fact in plain words. Each rule is a function that lists what breaks it, and is
tried on an example that does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
MODULES = sorted(
    path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyx") and path.stem[:2] != "__"
)
OTHER_FOLDERS = ("tests", "tools", "benchmarks", "examples")
OTHERS = sorted(path for folder in OTHER_FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = [path for path in OTHERS if path.stem.startswith("test_")]
SUPPORT = [path for path in OTHERS if path.is_relative_to(ROOT / "tests") and path not in TESTS]
#: Each layer may have one of these.
SHARED_BASENAMES = {"contract", "errors", "options"}
#: Nouns that end like a gerund.
NOUNS_IN_ING = {"ack_pending", "query_string", "packaging"}
FOLDER_MODULES_MAX = 23
#: Tests are found by name more than by folder, and pytest wants one conftest.py in each.
TEST_FOLDER_MODULES_MAX = 60
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
VAGUE = re.compile(
    r"_(a|an|nobody|somebody|anybody|whoever|anew|gone|told|tells|heard|hears|said|settle[sd]?)(?=_|$)"
    r"|^test_(the|what|who|whoever)_"
)


def gerunds(paths: Iterable[Path]) -> list[str]:
    found = [path for path in paths if path.stem.endswith("ing")]
    return [str(path) for path in found if path.stem.removeprefix("test_") not in NOUNS_IN_ING]


def repeated(named: Iterable[tuple[str, Path]]) -> dict[str, set[str]]:
    """Return the names that several paths have; a `.py` and a `.pyx` of one name are two."""
    places: dict[str, set[str]] = defaultdict(set)
    for name, path in named:
        places[name].add(str(path))
    return {name: where for name, where in places.items() if len(where) > 1}


def large_folders(paths: Iterable[Path], most: int = FOLDER_MODULES_MAX) -> dict[str, int]:
    sizes: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        sizes[str(path.parent)].add(path.stem)
    return {name: len(stems) for name, stems in sizes.items() if len(stems) > most}


def vague(text: str) -> list[str]:
    """Return the names of tests that hide who does what."""
    return [name for name in TEST.findall(text) if VAGUE.search(name)]


def classes(path: Path, text: str) -> list[tuple[str, Path]]:
    return [(name, path) for name in CLASS.findall(text)]


def test_names_that_break_rule_are_found() -> None:
    one, other = Path("store/writing.py"), Path("fold/writing.pyx")
    assert len(MODULES) > 100
    assert gerunds([one, Path("consumers/ack_pending.py")]) == [str(one)]
    assert repeated([(one.stem, one), (other.stem, other), ("single", one)]) == {
        "writing": {str(one), str(other)}
    }
    declared = classes(one, "class A:\n    pass\n") + classes(other, "cdef class A:\n    pass\n")
    assert set(repeated(declared)) == {"A"}
    many = [Path("store") / f"module{number}.py" for number in range(FOLDER_MODULES_MAX + 1)]
    assert large_folders(many) == {"store": FOLDER_MODULES_MAX + 1}
    assert large_folders(many[1:]) == {}
    text = (
        "def test_pause_lasts(): ...\nasync def test_a_pause(): ...\ndef test_what_is_told(): ...\n"
    )
    assert vague(text) == ["test_a_pause", "test_what_is_told"]


def test_no_module_is_named_by_gerund() -> None:
    assert gerunds(MODULES) == []


def test_basenames_of_modules_are_unique() -> None:
    found = repeated((path.stem, path) for path in MODULES)
    assert set(found) <= SHARED_BASENAMES, found


def test_class_names_are_unique() -> None:
    assert repeated(one for path in MODULES for one in classes(path, path.read_text())) == {}


def test_folders_are_small() -> None:
    assert large_folders(MODULES) == {}
    assert large_folders(OTHERS, TEST_FOLDER_MODULES_MAX) == {}


def test_no_other_module_is_named_by_gerund() -> None:
    assert gerunds(OTHERS) == []


def test_basenames_of_tests_and_their_support_are_unique() -> None:
    suites = [path for path in TESTS if "unit" not in path.parts]
    support = [path for path in SUPPORT if path.stem not in ("conftest", "__init__", "__main__")]
    assert repeated((path.stem, path) for path in [*suites, *support]) == {}


def test_names_of_tests_are_plain() -> None:
    found = {str(path): vague(path.read_text()) for path in TESTS}
    assert {path: names for path, names in found.items() if names} == {}
