"""A command that needs a missing package fails with one line that names the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.cli.cli_errors import LIBRARY_MISSING, SPARK_MISSING, describe_error

pytestmark = pytest.mark.sockets

BLOCKED = """
import sys
sys.modules["pyspark"] = None
from penstock.cli.main import main
sys.argv[:1] = ["penstock", "pipeline"]
sys.exit(main())
"""
JOBS = [
    ("archive", "S", "place"),
    ("replay", "place", "S"),
    ("fold", "bucket", "place"),
    ("verify", "--stream", "S", "--archive", "place"),
    ("profile", "S"),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job[0])
def test_job_without_spark_names_what_to_install(job: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *job], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(SPARK_MISSING)
    assert "Traceback" not in done.stderr


def test_missing_module_of_our_own_is_bug() -> None:
    assert describe_error(ModuleNotFoundError(name="nats.errors")) == LIBRARY_MISSING
    assert describe_error(ModuleNotFoundError(name="penstock.nothing")) is None
