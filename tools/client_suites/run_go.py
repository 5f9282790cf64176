"""Run a compiled Go test binary test by test and write what became of each.

    go test -c -o suite.bin ./jetstream/test
    run_go.py suite.bin out.json --path DIR_WITH_NATS_SERVER --cwd jetstream/test

Each test gets a process of its own, because a panic in one would take the rest with it. A test
that fails is tried once more: these suites have deadlines of their own, and a busy machine misses
some of them. `--after earlier.json` runs only what did not pass then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TEST_SECONDS_MAX = 180
START_SECONDS_MAX = 20
PARALLEL_TESTS = 2


def run_one(binary: str, name: str, cwd: str, environment: dict[str, str]) -> tuple[str, str]:
    """What became of a test, and its output."""
    command = [binary, "-test.v", "-test.run", f"^{name}$", f"-test.timeout={TEST_SECONDS_MAX}s"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode:
        return "failed", output
    return ("skipped" if re.search(rf"^--- SKIP: {name} ", output, re.M) else "passed"), output


def await_listening(port: int) -> None:
    """Wait for the server the suites dial first."""
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("out", type=Path)
    parser.add_argument("--path", required=True, help="directory that holds nats-server")
    parser.add_argument("--cwd", default=".")
    parser.add_argument("--tests", default=".", help="regular expression of names")
    parser.add_argument("--after", type=Path, help="results of an earlier run")
    parser.add_argument("--jobs", type=int, default=PARALLEL_TESTS)
    asked = parser.parse_args()
    binary = str(Path(asked.binary).resolve())
    environment = os.environ | {"PATH": f"{Path(asked.path).resolve()}:{os.environ['PATH']}"}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    tester = subprocess.Popen(
        ["nats-server", "-a", "127.0.0.1", "-p", str(port)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    environment["TESTER_NATS_URL"] = f"nats://localhost:{port}"
    try:
        await_listening(port)
        run_all(asked, binary, environment)
    finally:
        tester.kill()


def run_all(asked: argparse.Namespace, binary: str, environment: dict[str, str]) -> None:
    """Run what was asked for and write the results, on top of those of an earlier run."""
    listed = subprocess.run(
        [binary, "-test.list", asked.tests],
        cwd=asked.cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    names = [line for line in listed.stdout.splitlines() if line.startswith("Test")]
    earlier = json.loads(asked.after.read_text()) if asked.after else {}
    names = [name for name in names if earlier.get(name, "failed") == "failed"]
    asked.out.with_suffix("").mkdir(exist_ok=True, parents=True)

    def settle(name: str) -> tuple[str, str]:
        for _ in range(2):
            state, output = run_one(binary, name, asked.cwd, environment)
            if state != "failed":
                break
            (asked.out.with_suffix("") / f"{name}.log").write_text(output)
        print(state, name, flush=True)
        return name, state

    with ThreadPoolExecutor(asked.jobs) as pool:
        results = dict(pool.map(settle, names))
    asked.out.write_text(json.dumps(earlier | results, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
