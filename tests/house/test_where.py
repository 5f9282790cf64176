"""Every module has a unit test at the mirrored path, or a line in tests/where.toml that names the
suite which covers it; and docs/where-to-change.md names only paths that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
UNIT = ROOT / "tests" / "unit"
COVERED = tomllib.loads((ROOT / "tests" / "where.toml").read_text())
PATH = re.compile(r"`((?:[\w-]+/)+[\w.-]+)`")


def modules() -> set[str]:
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyx")]
    names = {str(path.relative_to(PACKAGE).with_suffix("")) for path in files}
    return {name for name in names if not name.split("/")[-1].startswith("__")}


def has_unit_test(module: str) -> bool:
    folder, _, name = module.rpartition("/")
    return any((UNIT / folder).glob(f"test_{name}.py")) or any(
        (UNIT / folder).glob(f"test_{name}_*.py")
    )


def test_every_module_has_test_or_names_its_suite() -> None:
    found = modules()
    without = {name for name in found if not has_unit_test(name)}
    assert without - set(COVERED) == set(), "add a unit test, or a line in tests/where.toml"
    assert set(COVERED) - without == set(), "these have a unit test, or do not exist any more"


def test_suites_that_are_named_exist() -> None:
    assert [suite for suite in COVERED.values() if not (ROOT / suite).exists()] == []


def test_places_to_change_exist() -> None:
    page = (ROOT / "docs" / "where-to-change.md").read_text()
    named = [path for path in PATH.findall(page) if not path.startswith("src/")]
    missing = [
        path for path in named if not (ROOT / path).exists() and not (PACKAGE / path).exists()
    ]
    assert named
    assert missing == []


def test_long_tests_are_listed_with_reason() -> None:
    listed = tomllib.loads((ROOT / "tests" / "long.toml").read_text())
    assert [key for key in listed if not (ROOT / "tests" / key.partition("[")[0]).exists()] == []
    assert [key for key, reason in listed.items() if len(reason) < 20] == []
