"""What holds for all tests: no timing, and how they are shared out to several processes.

A file stays together, because its servers and stores are made once per process. Files that need the
shared session of Spark form `SPARK_GROUPS` groups: starting a session costs more than most of those
tests, and one group would still run when all other processes are done. What takes longest begins
first, so that no process is left alone with it in the end.

With `--cpu COUNT` the end of a run shows which files took the most CPU time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.socket_guard import SocketGuard

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

TESTS = Path(__file__).parent
FAULTS = TESTS / "faults"
SPARK = TESTS / "spark"
SHARED_SPARK = "spark"
"""The fixture of the session that tests share, and the prefix of their groups."""
SPARK_GROUPS = 2

SPARK_CLASSES = TESTS.parent / "build" / "spark-classes.jsa"
"""What `make test` wrote so that every Java that runs a Spark starts in half the CPU time."""
if SPARK_CLASSES.exists():
    os.environ.setdefault("JAVA_TOOL_OPTIONS", f"-XX:SharedArchiveFile={SPARK_CLASSES}")

# How long an example takes says how busy the machine is, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


LONG = tomllib.loads((TESTS / "long.toml").read_text())


def is_long(item: pytest.Item) -> bool:
    """Whether tests/long.toml lists the test."""
    path = str(item.path.relative_to(TESTS))
    callspec = getattr(item, "callspec", None)
    parameters = [] if callspec is None else callspec.id.split("-")
    return path in LONG or any(f"{path}[{one}]" in LONG for one in parameters)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_long(item):
            item.add_marker(pytest.mark.long)
    if not config.pluginmanager.hasplugin("xdist"):
        return
    shared = spark_groups(Counter(item.path for item in items if SHARED_SPARK in fixtures(item)))
    groups = {item: shared.get(item.path) or str(item.path.relative_to(TESTS)) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("loadgroup", False):
        sizes = Counter(groups.values())
        items.sort(key=lambda item: (turn(item, groups[item]), -sizes[groups[item]], groups[item]))


def spark_groups(tests: Counter[Path]) -> dict[Path, str]:
    """Return a group for each file, so that all groups have about equally many tests."""
    sizes = [0] * SPARK_GROUPS
    found: dict[Path, str] = {}
    for path, count in sorted(tests.items(), key=lambda one: (-one[1], one[0])):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += count
        found[path] = f"{SHARED_SPARK} {smallest + 1}"
    return found


def fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


def turn(item: pytest.Item, group: str) -> int:
    """When a group begins; the fewer processes and lives its tests start, the later."""
    if group.startswith(f"{SHARED_SPARK} "):
        return 0
    if SPARK in item.path.parents or "spark_server" in fixtures(item):
        return 1
    return 2 if FAULTS in item.path.parents else 3


# -- CPU time ------------------------------------------------------------------------------
# Unlike the durations of pytest, CPU time hardly depends on the load of the machine. It counts the
# processes that tests started: those that ended when they were waited for, the others after the
# last test of a file.

CPU = "cpu seconds"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SPENT: Counter[str] = Counter()
before = 0.0
running = 0.0
"""The CPU time of the processes that ran after the last test of the file before."""
is_last = False
"""Whether the test that runs is the last of its file."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SocketGuard())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", type=int, default=0, help="so many files that took the most CPU time")


def ended_seconds() -> float:
    """Return the CPU time of this process and of those it waited for."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(one) for one in whose]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def running_seconds() -> float:
    """Return the CPU time of the processes below this one, and of those that they waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = path.read_text().rpartition(") ")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            spent[pid] = sum(map(int, fields[11:15])) / TICKS_PER_SECOND  # utime to cstime
    below = {os.getpid()}
    for pid in sorted(parents):
        if parents[pid] in below:
            below.add(pid)
    return sum(spent[pid] for pid in below - {os.getpid()})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool, bool]:
    global is_last
    is_last = nextitem is None or nextitem.path != item.path
    return (yield)


def pytest_collection_finish() -> None:
    global before
    # What was collected lives as long as the run: thousands of tests, and every module they import.
    # Each full garbage collection would go through all of it, which takes a fifth of a second.
    gc.collect()
    gc.freeze()
    before = ended_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    global before, running
    report = yield
    if is_last and report.when == "teardown":
        running = running_seconds()
    now = ended_seconds() + running
    report.user_properties.append((CPU, now - before))
    before = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == CPU and isinstance(value, float):
            SPENT[report.nodeid.partition("::")[0]] += value


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    count: int = config.getoption("cpu")
    if count:
        terminalreporter.section(f"CPU seconds, {sum(SPENT.values()):,.0f} in all")
        for path, seconds in SPENT.most_common(count):
            terminalreporter.write_line(f"{seconds:>9,.1f}  {path}")
