"""What the documentation says is true: its examples run, its links and tests exist, its tables
match the code.

A page's files (`conf NAME` blocks) are written into a directory with certificates; its programs
and shell lines then run there, each as a process of its own. Nothing is said here of prose.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.bench.comparison import Comparison, Effort, Series
from penstock.bench.load_result import Result
from penstock.bench.probes.figures import Figure
from penstock.bench.report import comparison_json, figures_json
from penstock.bench.sample_stats import Latency
from penstock.bench.scenarios import STANDARD
from penstock.cli.command_list import PLACES, declared
from penstock.cli.command_spec import Noun, parser_of
from penstock.server.config.command_line import parse_command_line
from penstock.server.config.config_reader import read_config
from penstock.server.config.options import Options
from support.certs import shared_authority

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/*.md")])
RUN_SECONDS_MAX = 240
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST_PATH = re.compile(r"`(tests/[\w/.-]+)(?:::(\w+))?`")
BOUND = re.compile(r"^\| `([A-Z_]+)` \| ([\d,]+)[^|]* \| `([\w/.]+)` \|", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the word behind it, its text."""

    page: Path
    number: int
    language: str
    word: str
    text: str

    @property
    def label(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}"


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text())
    return [Block(page, number, *parts) for number, parts in enumerate(found, 1)]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(language: str) -> list[object]:
    return [pytest.param(one, id=one.label) for one in BLOCKS if one.language == language]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's examples run: certificates are there, as its reader would have them."""
    authority = shared_authority()
    authority.server().write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(page: Path, directory: Path) -> None:
    for block in blocks_of(page):
        if block.language == "conf":
            (directory / block.word).write_text(block.text)


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- examples


@pytest.mark.sockets
@pytest.mark.parametrize("block", blocks("python"))
def test_program_in_docs_runs(block: Block, workdir: Path) -> None:
    write_files(block.page, workdir)
    program = workdir / "test_program.py"
    program.write_text(block.text)
    command = [sys.executable, "-W", "error", str(program)]
    if block.word == "pytest":
        command[3:3] = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(
        command,
        cwd=workdir,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", blocks("conf"))
def test_configuration_in_docs_is_accepted(block: Block, workdir: Path) -> None:
    assert block.word, "a configuration needs the name of its file"
    write_files(block.page, workdir)
    assert read_config(block.word, {}).warnings == ()


@pytest.mark.parametrize("block", blocks("sh"))
def test_command_in_docs_is_understood(block: Block, workdir: Path) -> None:
    (workdir / "server.conf").write_text("port: 4222\n")
    write_files(block.page, workdir)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["penstock", "serve"]:
            parse_command_line(words[2:], {})
        elif words[:1] == ["penstock"] and words[1] in PLACES:
            understand(words[1:])
        elif words[:1] == ["make"]:
            assert words[1] in targets


def understand(words: list[str]) -> None:
    """A command line for a server can be parsed; files it reads are made up."""
    found = declared(words[0])
    command = found.find(words[1]) if isinstance(found, Noun) else found
    assert command is not None, words
    rest = words[2:] if isinstance(found, Noun) else words[1:]
    if "--config" in rest:
        Path(rest[rest.index("--config") + 1]).write_text("{}")
    parser_of(command, words[0]).parse_args(rest)


# -- references


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if fragment:
            assert fragment in anchors(file), target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    for path, name in TEST_PATH.findall(page.read_text()):
        file = ROOT / path
        assert file.exists(), path
        if name:
            assert f"def {name}(" in file.read_text(), f"{path}::{name}"


def test_every_yes_in_compatibility_names_test() -> None:
    rows = [
        line
        for line in (DOCS / "compatibility.md").read_text().splitlines()
        if line.startswith("|") and re.search(r"\| yes\b", line)
    ]
    assert rows
    for row in rows:
        assert TEST_PATH.search(row), row


ATTACKERS = (
    "client before login",
    "client after login",
    "tenant",
    "stolen disk",
    "stolen operator key",
    "poisoned artifact",
    "reachable monitoring port",
)


def test_every_row_of_threat_model_names_test() -> None:
    rows = [
        line for line in (DOCS / "security.md").read_text().splitlines() if line.startswith("| **")
    ]
    for attacker, row in zip(ATTACKERS, rows, strict=True):
        assert row.startswith(f"| **{attacker}**")
        assert TEST_PATH.search(row), row


def test_every_wanted_difference_is_reported() -> None:
    import tomllib

    file = ROOT / "tests" / "contract" / "server" / "differences.toml"
    told = (DOCS / "compatibility.md").read_text()
    for name in tomllib.loads(file.read_text()):
        assert f"`{name}`" in told, name


def test_every_page_of_docs_can_be_reached_from_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in LINK.findall(page.read_text()):
            name = target.partition("#")[0]
            if name and "://" not in name:
                waiting.append((page.parent / name).resolve())
    assert {page for page in PAGES if page.is_relative_to(DOCS)} <= seen


# -- tables that must match the code


def test_options_page_is_fresh() -> None:
    reference = tool("reference")
    assert reference.PAGE.read_text() == reference.page(), "run `make reference`"


def test_pages_of_api_are_fresh() -> None:
    reference = tool("api_reference")
    for name, text in reference.pages().items():
        assert (reference.DIRECTORY / name).read_text() == text, "run `make reference`"


def test_page_of_command_line_is_fresh() -> None:
    reference = tool("cli_reference")
    assert reference.PAGE.read_text() == reference.page(), "run `make reference`"


def test_page_of_spark_options_is_fresh() -> None:
    reference = tool("spark_reference")
    assert reference.PAGE.read_text() == reference.page(), "run `make reference`"


def test_every_extra_is_on_page_of_installing() -> None:
    import tomllib

    page = (DOCS / "how-to" / "install.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in project["optional-dependencies"]:
        assert f"| `{name}` |" in page, name


def test_every_option_is_on_options_page() -> None:
    page = (DOCS / "reference" / "options.md").read_text()
    for name in Options.__struct_fields__:
        assert f"| `{name}` |" in page


def test_bounds_have_values_architecture_page_reports() -> None:
    rows = BOUND.findall((DOCS / "architecture.md").read_text())
    assert rows
    for name, value, file in rows:
        assert constants(ROOT / "src" / "penstock" / file).get(name) == int(
            value.replace(",", "")
        ), f"{file}: {name}"


def test_every_bound_of_compiled_modules_is_on_architecture_page() -> None:
    told = {(file, name) for name, _, file in BOUND.findall((DOCS / "architecture.md").read_text())}
    package = ROOT / "src" / "penstock"
    for layer in ("wire", "subjects", "broker", "server"):
        for module in sorted((package / layer).rglob("*.pyx")):
            file = str(module.relative_to(package))
            for name in constants(module):
                if not name.startswith("SUBSCRIBE_"):  # verdicts, not bounds
                    assert (file, name) in told, f"{file}: {name}"


def constants(module: Path) -> dict[str, int]:
    """Named numbers of a module, plain or compiled."""
    found = re.findall(
        r"^(?:    |cdef int64_t )?([A-Z][A-Z_]+)(?:: Final)? = ([\d_ *]+?) *(?:#.*)?$",
        module.read_text(),
        re.MULTILINE,
    )
    return {name: product(text) for name, text in found}


def product(text: str) -> int:
    value = 1
    for factor in text.split("*"):
        number = ast.literal_eval(factor.strip())
        assert isinstance(number, int)
        value *= number
    return value


# -- the benchmark page


def series(label: str, *, seconds: float, mib: int, p50_ns: int, failures: list[str]) -> Series:
    latency = Latency(p50_ns, 2000, 3000, 4000)
    result = Result("x", 1000, 1000, 128, seconds, 0.5, mib << 20, latency)
    return Series(label, STANDARD[0], [result], failures)


def test_benchmark_page_shows_losses_and_failures() -> None:
    page_tool = tool("benchmark_page")
    ours = series("penstock", seconds=2.0, mib=30, p50_ns=2000, failures=["lost a message"])
    theirs = series("nats-server", seconds=1.0, mib=20, p50_ns=1000, failures=[])
    content = page_tool.json.loads(comparison_json([Comparison(ours, theirs)], Effort()))
    page = page_tool.with_comparison((DOCS / "benchmarks.md").read_text(), content)
    assert f"- {STANDARD[0].title}: rate 0.50 ×" in page
    assert f"- {STANDARD[0].title}: peak memory 30.0 MiB, reference 20.0 MiB" in page
    assert f"- {STANDARD[0].title}: p50 2 µs, reference 1 µs" in page
    assert f"- {STANDARD[0].title}: a run of penstock failed: lost a message" in page
    assert f"| {STANDARD[0].title} | nats-server | 1 | 2 | 3 | 4 |" in page
    assert page_tool.with_comparison(page, content) == page


def test_benchmark_page_has_section_for_streams() -> None:
    page_tool = tool("benchmark_page")
    ours = series("penstock", seconds=1.0, mib=20, p50_ns=1000, failures=[])
    content = page_tool.json.loads(comparison_json([Comparison(ours, ours)], Effort()))
    before = (DOCS / "benchmarks.md").read_text()
    page = page_tool.with_comparison(before, content, page_tool.JETSTREAM)
    section = page.partition("## Streams and buckets")[2]
    assert f"| {STANDARD[0].title} | penstock | 1 | 2 | 3 | 4 |" in section
    assert f"stores on {content['machine']['filesystem']}" in section
    assert page.partition("## Streams and buckets")[0] == before.partition("## Streams")[0]


def test_benchmark_page_shows_stalls_above_bar() -> None:
    row = {"operation": "purge", "ours_ms": [60.0], "bar_ms": 50.0, "passes": False}
    never = {"operation": "list", "ours_ms": [1.0], "bar_ms": float("inf"), "passes": True}
    content = {
        "when": "now",
        "machine": "one",
        "python": "3.11",
        "rounds": 1,
        "rows": [
            row | {"reference_ms": [2.0]},
            never | {"reference_ms": [float("inf")]},
        ],
    }
    text = tool("benchmark_page").stalls_text(content)
    assert "1 of 2 operations within the bar" in text
    assert "| purge | 60.0 | 2.0 | 50 | **above** |" in text
    assert "| list | 1.0 | no answer | – |  |" in text


def test_benchmark_page_takes_probes() -> None:
    page_tool = tool("benchmark_page")
    figures = {"penstock": [Figure("memory", 2048, "bytes")], "other": [Figure("memory", None)]}
    content = page_tool.json.loads(figures_json("idle connections", figures))
    text = page_tool.replace_between(
        (DOCS / "benchmarks.md").read_text(), "probes", page_tool.probes_text([content])
    )
    assert "| memory | 2.0 KiB | – |" in text
