"""The server that the fuzzer of operations torments: a process with a store that outlives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 60.0
HARM: Final = re.compile(
    rb"Traceback|exception|internal (error|failure)|Unhandled|runtime error:|Sanitizer|Fatal Python"
    rb"|not served",
    re.IGNORECASE,
)
CONFIG: Final = """
jetstream {{ store_dir: "{store}", max_memory_store: 1GB, max_file_store: 4GB }}
"""


class Harm(Exception):
    """The server did what it must never do."""


class ServerProcess:
    """Starts and ends the server, and reads its log for signs of harm."""

    def __init__(self, directory: Path, *, sanitized: bool = False) -> None:
        self.directory = directory
        self.log_path = directory / "server.log"
        self._read_to = 0
        config = directory / "server.conf"
        config.write_text(CONFIG.format(store=directory / "store"))
        runner = [str(ROOT / "tools" / "sanitized.py"), "run"] if sanitized else []
        interpreter = [sys.executable, "-m", "penstock", "serve"]
        self._command = [
            *([sys.executable, *runner] if sanitized else []),
            *interpreter,
            *("-c", str(config), "-a", "127.0.0.1", "-p", "-1", "-m", "-1"),
            *("--ports_file_dir", str(directory)),
        ]
        self.port = 0
        self._monitor = ""
        self.start()

    def start(self) -> float:
        """Start the server and return how long it took until it listened."""
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=os.environ | {"PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        path = self.directory / f"nats-server_{self.process.pid}.ports"
        while not self._has_ports(path):
            if self.process.poll() is not None:
                raise Harm(f"the server did not start: exit code {self.process.returncode}")
            if time.monotonic() - began > START_SECONDS:
                raise Harm(f"the server did not start within {START_SECONDS} s")
            time.sleep(0.01)
        return time.monotonic() - began

    def _has_ports(self, path: Path) -> bool:
        try:
            ports = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        self.port = int(ports["nats"][0].rpartition(":")[2])
        self._monitor = ports["monitoring"][0]
        return True

    def stop(self) -> None:
        """End the server in an orderly way."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.abort()
            raise Harm(f"the server did not stop within {STOP_SECONDS} s") from None
        if code not in (0, 1):  # the reference ends with 1 after SIGTERM
            raise Harm(f"the server ended with exit code {code}")

    def abort(self) -> None:
        """End the server so that the log shows where it was."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        """Raise Harm if the server has ended or its log has a sign of harm."""
        found = HARM.search(self._new_log())
        if found is not None:
            raise Harm(f"the log has {found[0].decode()!r}")
        if self.process.poll() is not None:
            raise Harm(f"the server has ended with exit code {self.process.returncode}")

    def check_log(self) -> None:
        found = HARM.search(self._new_log())
        if found is not None:
            raise Harm(f"the log has {found[0].decode()!r}")

    def check_health(self) -> None:
        """Raise Harm if the server says that it cannot serve a stream."""
        try:
            with urllib.request.urlopen(f"{self._monitor}/healthz", timeout=60) as page:
                page.read()
        except urllib.error.HTTPError as refused:
            raise Harm(f"/healthz: {refused.code} {refused.read()[:500]!r}") from None

    def _new_log(self) -> bytes:
        with self.log_path.open("rb") as log:
            log.seek(self._read_to)
            text = log.read()
        end = text.rfind(b"\n") + 1
        self._read_to += end
        return text[:end]

    def log_tail(self, size: int = 6000) -> str:
        return self.log_path.read_bytes()[-size:].decode(errors="replace")
