"""Modules, classes and folders are named and sized by the rules of CONTRIBUTING.md.

A module is a noun with a unique basename, a class name is unique, and a folder holds one idea. Each
rule is a function that lists what breaks it, and is tried on an example that does.
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
#: Each layer may have one of these.
SHARED_BASENAMES = {"contract", "errors", "options"}
#: Nouns that end like a gerund.
NOUNS_IN_ING = {"ack_pending", "query_string"}
FOLDER_MODULES_MAX = 23
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)


def gerunds(paths: Iterable[Path]) -> list[str]:
    found = [path for path in paths if path.stem.endswith("ing")]
    return [str(path) for path in found if path.stem not in NOUNS_IN_ING]


def repeated(named: Iterable[tuple[str, Path]]) -> dict[str, set[str]]:
    """Return the names that several paths have; a `.py` and a `.pyx` of one name are two."""
    places: dict[str, set[str]] = defaultdict(set)
    for name, path in named:
        places[name].add(str(path))
    return {name: where for name, where in places.items() if len(where) > 1}


def large_folders(paths: Iterable[Path]) -> dict[str, int]:
    sizes: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        sizes[str(path.parent)].add(path.stem)
    return {name: len(stems) for name, stems in sizes.items() if len(stems) > FOLDER_MODULES_MAX}


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


def test_no_module_is_named_by_gerund() -> None:
    assert gerunds(MODULES) == []


def test_basenames_of_modules_are_unique() -> None:
    found = repeated((path.stem, path) for path in MODULES)
    assert set(found) <= SHARED_BASENAMES, found


def test_class_names_are_unique() -> None:
    assert repeated(one for path in MODULES for one in classes(path, path.read_text())) == {}


def test_folders_are_small() -> None:
    assert large_folders(MODULES) == {}
