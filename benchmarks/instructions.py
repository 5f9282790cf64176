"""Instructions that a server executes for each message of `penstock bench`, counted by callgrind.

    python -m benchmarks.instructions                                  # this tree
    python -m benchmarks.instructions --ours-cmd '.venv/bin/penstock serve' \\
        --base-cmd '../before/.venv/bin/penstock serve'                # before and after a change

The rows are the scenarios of `penstock bench --compare`, core and `--jetstream`. The counts cover
what the process executes, not the kernel. Most rows repeat within 2 % on a busy machine, so they
show changes of the fast path that CPU times hide in noise. The server is much slower under
callgrind, and so is its clock (`slow_clock.c`): budgets and timers take effect as often as outside.
Rows with a sync per message repeat less well. Compare a build with itself first.
Needs valgrind and gcc. A scenario runs once to warm up; then it runs with counting on.
"""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import deadline_after
from penstock.bench.load_result import Load
from penstock.bench.measurement import run_load
from penstock.bench.scenarios import STANDARD, RequestReply, Scenario, jetstream_setting
from penstock.bench.server_process import ServerCommand, running

MESSAGES = 20_000
SINGLE_MESSAGES = 2_000
"""How many are sent where the client waits for each reply."""
WARM_UP_MESSAGES = 500
RUN_S = 300.0
SLOW_CLOCK = Path(__file__).with_name("slow_clock.c")
VALGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes")


class InstructionMeter:
    """Counts the instructions of a process between each two calls; returns the sum so far."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        self._is_counting = False

    def __call__(self) -> float:
        self._is_counting = not self._is_counting
        for flags in (["--instr=on"],) if self._is_counting else (["--dump"], ["--instr=off"]):
            command = ["callgrind_control", *flags, str(self._pid)]
            subprocess.run(command, check=True, capture_output=True)
        # The server may have started processes; their files have other pids.
        dumps = self._folder.glob(f"callgrind.{self._pid}*")
        return sum(instructions(path.read_text(errors="replace")) for path in dumps)


def instructions(dump: str) -> int:
    """Return the sum that a file of callgrind ends with; 0 while it is not complete."""
    sums = [line.split()[1] for line in dump.splitlines() if line.startswith("totals:")]
    return int(sums[-1]) if sums else 0


def message_count(scenario: Scenario, messages: int) -> int:
    waits = isinstance(scenario, RequestReply) or getattr(scenario, "window", 0) == 1
    return min(messages, SINGLE_MESSAGES) if waits else messages


def count_instructions(
    command: ServerCommand, scenario: Scenario, messages: int, keep: Path | None
) -> float:
    """Return the instructions of a fresh server per message of the scenario."""
    with tempfile.TemporaryDirectory(prefix="penstock-instructions-") as name:
        folder = Path(name)
        clock = folder / "slow_clock.so"
        build = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(clock), str(SLOW_CLOCK)]
        subprocess.run(build, check=True)
        # A command such as `env NAME=VALUE penstock serve` executes the server.
        env = ("env", f"LD_PRELOAD={clock}")
        argv = (*VALGRIND, f"--callgrind-out-file={folder}/callgrind.%p", *env, *command.argv)
        wrapped = ServerCommand(command.label, argv)
        with running(wrapped, jetstream_setting(scenario)) as server:
            meter = InstructionMeter(server.pid, folder)
            loads = [
                Load(server.endpoint, count, cost, deadline_after(RUN_S))
                for count, cost in ((WARM_UP_MESSAGES, float), (messages, meter))
            ]
            counted = [run_load(scenario, load) for load in loads][-1]
        if keep is not None:
            for path in folder.glob("callgrind.*.1"):
                shutil.copy(path, keep / f"{scenario.name}.{command.label}.callgrind")
    return counted.cpu_seconds / counted.messages


def arguments_of_command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="scenarios by name")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--ours-cmd", default=f"{shlex.quote(sys.executable)} -m penstock serve")
    parser.add_argument("--base-cmd", help="another build of the server, to compare with")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the profiles for callgrind_annotate"
    )
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of_command_line()
    if not shutil.which("callgrind_control"):
        print("instructions: valgrind is not installed", file=sys.stderr)
        return 2
    commands = [ServerCommand("ours", tuple(shlex.split(arguments.ours_cmd)))]
    if arguments.base_cmd:
        commands.append(ServerCommand("base", tuple(shlex.split(arguments.base_cmd))))
    print(f"{'scenario':40}" + "".join(f"{each.label:>10}" for each in commands) + "   ours/base")
    failed = 0
    for scenario in STANDARD:
        if not fnmatch.fnmatch(scenario.name, arguments.only):
            continue
        count = message_count(scenario, arguments.messages)
        try:
            costs = [count_instructions(each, scenario, count, arguments.keep) for each in commands]
        except BenchError as error:
            print(f"instructions: {scenario.name}: {error}", file=sys.stderr)
            failed = 1
            continue
        ratio = f"{costs[0] / costs[-1]:12.3f}" if len(costs) > 1 else ""
        print(
            f"{scenario.name:40}" + "".join(f"{each:10.0f}" for each in costs) + ratio, flush=True
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
