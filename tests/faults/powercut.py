"""Real power cuts: a store on ext4 on a loop device, and the image of what had reached the device.

Run as a program inside a mount namespace of its own (`unshare --mount`), as root. A victim writes
to the mounted file system and is killed; the backing file is copied before anything is unmounted,
so that the copy has what a power cut would leave, by the file system's own rules. The copy is
mounted, its journal replayed, and the store in it is held against the ledger; then life goes on in
the copy. Prints one JSON line: cuts, acknowledged, wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a program, tests are not on the path

from faults.ledger import Ledger, Victims, victims
from faults.victim import Task

IMAGE_BYTES = 64 << 20
LIVES_OF_A_DISK = 10
ACKS_MAX = 40


def command(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")


class Machine:
    """A file system in a file, with a mount point."""

    def __init__(self, place: Path) -> None:
        self.image = place / "disk"
        self.copy = place / "disk.copy"
        self.mount = place / "mount"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        command("mkfs.ext4", "-q", "-F", self.image)

    def switch_on(self) -> None:
        command("mount", "-o", "loop", self.image, self.mount)

    def cut(self) -> None:
        """What has reached the device is all that is left; the rest never happened."""
        command("cp", "--sparse=always", self.image, self.copy)
        command("umount", self.mount)
        self.copy.replace(self.image)

    def switch_off(self) -> None:
        command("umount", self.mount)


def one_cut(machine: Machine, making: Victims, ledger: Ledger, task: Task, acks: int) -> list[str]:
    """A life, the cut, and what is wrong with the store that is left."""
    machine.switch_on()
    making.live_and_die(task, ledger, acks)
    machine.cut()
    machine.switch_on()
    wrong = ledger.check(task.directory)
    machine.switch_off()
    return wrong


def main(place: Path, cuts: int, honest: bool) -> dict[str, object]:
    chance = Random(cuts)
    wrong: list[str] = []
    acknowledged = 0
    with victims() as making:
        for life in range(cuts):
            if life % LIVES_OF_A_DISK == 0:
                there = place / f"machine{life}"
                there.mkdir()
                machine, ledger = Machine(there), Ledger()
            task = Task(str(machine.mount / "store"), life, honest=honest)
            before = len(ledger.life_of)
            wrong += one_cut(machine, making, ledger, task, chance.randrange(1, ACKS_MAX))
            acknowledged += len(ledger.life_of) - before
            if wrong:
                break
    return {"cuts": life + 1, "acknowledged": acknowledged, "wrong": wrong}


if __name__ == "__main__":
    answer = main(Path(sys.argv[1]), int(sys.argv[2]), honest=sys.argv[3:] != ["dishonest"])
    print(json.dumps(answer))
