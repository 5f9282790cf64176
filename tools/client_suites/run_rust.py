"""Run compiled Rust tests one by one and write what became of each.

    cargo test --no-run 2> build.log
    run_rust.py build.log out.json --path DIR_WITH_NATS_SERVER

The log names the binaries. Each test gets a process and a network of its own (`unshare -n`):
the ports of these suites are fixed, and many of them are the same. A test that fails is tried once
more, as in run_go.py. Start it in the directory of the crate; `--tests` picks names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TEST_SECONDS_MAX = 180  # one test of async-nats sleeps for 100
PARALLEL_TESTS = 2
# Servers end with the test that started them, also where it is killed.
ALONE = [
    "unshare",
    "-n",
    "-p",
    "-f",
    "--kill-child",
    "sh",
    "-c",
    'ip link set lo up; exec "$@"',
    "alone",
]
EXECUTABLE = re.compile(r"Executable (?:unittests )?(\S+) \((\S+)\)")


def run_one(binary: str, name: str, environment: dict[str, str]) -> tuple[str, str]:
    """What became of a test, and its output."""
    command = [*ALONE, binary, "--exact", name, "--nocapture"]
    # Directories are named after process ids, which start again in each namespace.
    with tempfile.TemporaryDirectory(prefix="rust-suite-") as scratch:
        try:
            done = subprocess.run(
                command,
                env=environment | {"TMPDIR": scratch},
                capture_output=True,
                text=True,
                timeout=TEST_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as late:
            return "failed", f"not done after {TEST_SECONDS_MAX} s\n{late.stdout!r}{late.stderr!r}"
    output = done.stdout + done.stderr
    if done.returncode:
        return "failed", output
    return ("skipped" if " 1 ignored;" in output else "passed"), output


def names_of(binary: str, environment: dict[str, str]) -> list[str]:
    listed = subprocess.run(
        [binary, "--list", "--format", "terse"], env=environment, capture_output=True, text=True
    )
    return [line.removesuffix(": test") for line in listed.stdout.splitlines() if ": test" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_log", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--path", required=True, help="directory that holds nats-server")
    parser.add_argument("--tests", default=".", help="regular expression of file::name")
    parser.add_argument("--after", type=Path, help="results of an earlier run")
    parser.add_argument("--jobs", type=int, default=PARALLEL_TESTS)
    asked = parser.parse_args()
    environment = os.environ | {
        "PATH": f"{Path(asked.path).resolve()}:{os.environ['PATH']}",
        "CARGO_MANIFEST_DIR": os.getcwd(),
    }
    earlier = json.loads(asked.after.read_text()) if asked.after else {}
    wanted = [
        (binary, name, title)
        for source, binary in EXECUTABLE.findall(asked.build_log.read_text())
        for name in names_of(binary, environment)
        if re.search(asked.tests, title := f"{Path(source).stem}::{name}")
        and earlier.get(title, "failed") == "failed"
    ]
    logs = asked.out.with_suffix("")
    logs.mkdir(exist_ok=True, parents=True)

    def settle(case: tuple[str, str, str]) -> tuple[str, str]:
        binary, name, title = case
        for _ in range(2):
            state, output = run_one(binary, name, environment)
            if state != "failed":
                break
            (logs / f"{title}.log").write_text(output)
        print(state, title, flush=True)
        return title, state

    with ThreadPoolExecutor(asked.jobs) as pool:
        results = dict(pool.map(settle, wanted))
    asked.out.write_text(json.dumps(earlier | results, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
