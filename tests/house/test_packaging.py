"""The files of `packaging/` say what the server understands."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock.server.config.command_line import RunServer, parse_command_line
from penstock.server.config.config_reader import read_config

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "penstock.service"
HARDENED = {
    "NoNewPrivileges": "true",
    "ProtectSystem": "strict",
    "ProtectHome": "true",
    "PrivateTmp": "true",
    "PrivateDevices": "true",
    "MemoryDenyWriteExecute": "true",
    "RestrictNamespaces": "true",
    "CapabilityBoundingSet": "",
    "StateDirectory": "penstock",
    "User": "penstock",
}
RATING_MAX = 2.0


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


# -- systemd


def test_unit_gives_server_no_more_than_it_needs() -> None:
    service = unit()
    assert {name: service[name] for name in HARDENED} == HARDENED
    assert int(service["LimitNOFILE"]) >= 65536


def test_commands_of_unit_are_understood(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text((PACKAGING / "server.conf").read_text())
    for name in ("ExecStart", "ExecStartPre"):
        program, word, *flags = unit()[name].split()
        assert (program, word) == ("/opt/penstock/bin/penstock", "serve")
        parse_command_line([str(config) if "/" in flag else flag for flag in flags], {})


def test_unit_waits_longer_than_lame_duck_lasts() -> None:
    options = read_config(str(PACKAGING / "server.conf"), {}).options
    assert unit()["KillSignal"] == "SIGUSR2"
    assert int(unit()["TimeoutStopSec"]) * 10**9 > options.lame_duck_duration_ns


def test_directories_of_configuration_are_those_of_unit() -> None:
    options = read_config(str(PACKAGING / "server.conf"), {}).options
    assert options.store_dir == f"/var/lib/{unit()['StateDirectory']}"
    assert options.log_file.startswith(f"/var/log/{unit()['LogsDirectory']}/")
    assert options.pid_file.startswith(f"/run/{unit()['RuntimeDirectory']}/")


@pytest.mark.sockets
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_unit(tmp_path: Path) -> None:
    copy = tmp_path / "penstock.service"
    copy.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    if "Failed to" in checked.stderr and "bus" in checked.stderr:
        pytest.skip(checked.stderr)
    assert (checked.returncode, checked.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)]
    rated = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"exposure level for \S+: ([\d.]+)", rated.stdout)
    if found is not None:  # older ones cannot rate a file
        assert float(found[1]) <= RATING_MAX


# -- logrotate


def test_logrotate_sample_rotates_log_of_configuration() -> None:
    text = (PACKAGING / "penstock.logrotate").read_text()
    options = read_config(str(PACKAGING / "server.conf"), {}).options
    (path, body) = re.findall(r"^(/\S+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)[0]
    assert path == options.log_file
    assert re.search(r"postrotate\n.*kill -USR1 .*endscript", body, re.DOTALL)
    assert options.pid_file in body
    assert "copytruncate" not in body


# -- container


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (PACKAGING / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_container_runs_server_as_user_without_rights() -> None:
    found = instructions()
    last = [word for word, _ in found].index("FROM", 1)
    final = dict(found[last:])
    assert final["USER"] not in ("0", "root")
    program, word = json.loads(final["ENTRYPOINT"])
    assert (program, word) == ("/opt/penstock/bin/penstock", "serve")
    flags = json.loads(final["CMD"])
    assert flags == ["-c", "/etc/penstock/server.conf"]
    command = parse_command_line(["-c", str(PACKAGING / "container.conf")], {})
    assert isinstance(command, RunServer)
    assert command.options.store_dir == final["VOLUME"]
    assert final["EXPOSE"].split() == [
        str(command.options.port),
        str(command.options.http_port),
    ]
    assert final["STOPSIGNAL"] == "SIGUSR2"


def test_container_installs_nothing_without_hash() -> None:
    steps = [step for word, text in instructions() if word == "RUN" for step in text.split("&&")]
    for step in steps:
        if "pip install" in step:
            assert ("--require-hashes" in step) != ("--no-deps" in step), step


def test_files_container_copies_exist() -> None:
    for word, text in instructions():
        if word == "COPY" and not text.startswith("--from"):
            for name in text.split()[:-1]:
                assert (ROOT / name).exists(), name


def test_container_has_what_server_needs_and_no_more() -> None:
    spec = importlib.util.spec_from_file_location("sr", PACKAGING / "server_requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left, seen = list(project["dependencies"]), set()
    while left:
        asked = Requirement(left.pop())
        name = canonicalize_name(asked.name)
        if (asked.marker is None or asked.marker.evaluate({"extra": ""})) and name not in seen:
            seen.add(name)
            left += requires(name) or []
    assert seen == module.SERVER
    assert seen <= module.entries((ROOT / "requirements" / "dev.lock").read_text()).keys()
