"""What holds for all tests: no timing, and how they are shared out to several processes.

A file stays together, because its servers and stores are made once per process; all that needs
Spark stays together as well, because starting Spark costs more than most of those tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
SPARK = TESTS / "spark"

# How long an example takes says how busy the machine is, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        group = "spark" if SPARK in item.path.parents else str(item.path.relative_to(TESTS))
        item.add_marker(pytest.mark.xdist_group(group))
