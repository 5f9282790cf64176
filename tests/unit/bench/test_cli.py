"""The command line: exit codes, plain errors, and a whole small comparison."""

import json
import shlex
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.bench.scenarios import STANDARD
from penstock.bench.server_process import RunningServer, ServerCommand
from penstock.cli.commands.bench_command import run

pytestmark = pytest.mark.sockets


@pytest.mark.parametrize(
    "argv",
    [
        ["--scenario", "nothing-like-it"],
        ["--rounds", "0"],
        ["--seconds", "-1"],
        ["--url", "http://h"],
        ["--chart", "a.svg"],
        ["--compare", "--pid", "1"],
        ["--scenario", "kv-put-lazy"],
        ["--subscriptions", "5", "--stalled-subscriber"],
    ],
    ids=shlex.join,
)
def test_wrong_command_line_exits_with_2_and_reports_why(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert capsys.readouterr().err.startswith("penstock: bench: ")


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [scenario.name for scenario in STANDARD]


def test_server_that_is_not_there_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert run(["--url", f"nats://127.0.0.1:{port}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_program_that_cannot_be_started_is_one_error(
    reference: ServerCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--compare", "--ours-cmd", "/nowhere/server", "--reference-cmd", reference.argv[0]]
    assert run(argv) == 1
    assert "cannot start /nowhere/server" in capsys.readouterr().err


def test_running_server_is_surveyed_into_json(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    url, pid = f"nats://{server.endpoint}", str(server.pid)
    argv = ["--url", url, "--pid", pid, "--scenario", "1-1-16B", "--scenario", "request-1"]
    assert run([*argv, "--rounds", "1", "--seconds", "0.02", "--json", str(out)]) == 0
    names = [scenario["name"] for scenario in json.loads(out.read_text())["scenarios"]]
    assert names == ["1-1-16B", "request-1"]
    assert "1 → 1 · 16 B" in capsys.readouterr().out


def test_comparison_of_reference_with_itself_fills_table_json_and_chart(
    reference: ServerCommand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, chart = tmp_path / "out.json", tmp_path / "out.svg"
    argv = ["--compare", "--ours-cmd", reference.argv[0], "--reference-cmd", reference.argv[0]]
    argv += ["--scenario", "publish-16B", "--rounds", "1", "--seconds", "0.02"]
    assert run([*argv, "--json", str(out), "--chart", str(chart)]) == 0
    (scenario,) = json.loads(out.read_text())["scenarios"]
    assert scenario["rate_ratio"] > 0
    assert len(scenario["reference"]["runs"]) == 1
    ElementTree.parse(chart)
    assert "publish only · 16 B" in capsys.readouterr().out


def test_jetstream_scenarios_are_compared_on_servers_that_persist(
    reference: ServerCommand, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    argv = ["--compare", "--ours-cmd", reference.argv[0], "--reference-cmd", reference.argv[0]]
    argv += ["--scenario", "js-publish-sync-file-always", "--rounds", "1", "--seconds", "0.02"]
    assert run([*argv, "--json", str(out)]) == 0
    document = json.loads(out.read_text())
    (scenario,) = document["scenarios"]
    assert scenario["ours"]["latency"]["p50_ns"] > 0
    assert document["machine"]["filesystem"] != "unknown"


def test_probe_compares_both_servers(
    reference: ServerCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--compare", "--ours-cmd", reference.argv[0], "--reference-cmd", reference.argv[0]]
    assert run([*argv, "--idle-connections", "20"]) == 0
    assert "connections open" in capsys.readouterr().out
