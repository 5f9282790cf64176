"""Runs one long step of the setup and reports progress.

    python tools/step.py --usually 90 "compile the data plane" -- COMMAND ...

Prints one line when the step begins, one every few seconds while it runs, and one when it ends,
with the duration. The command's own output is shown only if it fails; the exit code is the
command's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time

EVERY_SECONDS = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a step of the set-up and show progress.")
    parser.add_argument("title", help="what the step does")
    parser.add_argument("--usually", type=int, default=0, help="how many seconds it usually takes")
    parser.add_argument("--every", type=float, default=EVERY_SECONDS, help="seconds between lines")
    parser.add_argument("command", nargs="+", help="what to run, after --")
    given = parser.parse_args()
    usually = f" (usually about {given.usually} s)" if given.usually else ""
    say(f"{given.title}{usually}")
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        code = run(given.command, output.fileno(), given, begun)
        took = round(time.monotonic() - begun)
        if code:
            output.seek(0)
            sys.stderr.buffer.write(output.read())
            say(f"{given.title}: failed with code {code} after {took} s")
        else:
            say(f"{given.title}: done in {took} s")
    return code


def run(command: list[str], output: int, given: argparse.Namespace, begun: float) -> int:
    """Run the command and report periodically that it still runs; return its exit code."""
    child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    while True:
        try:
            return child.wait(given.every)
        except subprocess.TimeoutExpired:
            say(f"{given.title}: {round(time.monotonic() - begun)} s so far")


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
