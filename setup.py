"""Builds the compiled data plane; everything else is declared in pyproject.toml.

Portable flags only: a wheel built here must run on any machine of its architecture.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("src").glob("penstock/**/*.pyx"))
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}


#: Without what a debugger needs, which Python's own flags ask for: a fifth of the time to compile,
#: and most of the size.
FLAGS = ["-O2", "-fno-semantic-interposition", "-g0"]


#: For `make asan`: reports name the line of the `.pyx`, and one report does not hide the next.
SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g1"]
IS_SANITIZED = bool(os.environ.get("PENSTOCK_SANITIZED"))


def extension(source: Path) -> Extension:
    module = ".".join(source.relative_to("src").with_suffix("").parts)
    return Extension(
        module,
        [str(source)],
        extra_compile_args=SANITIZERS if IS_SANITIZED else FLAGS,
        extra_link_args=SANITIZERS[:1] if IS_SANITIZED else [],
    )


def extensions() -> list[Extension]:
    """None if they lie in the source tree already: pip would compile them again, one by one."""
    if os.environ.get("PENSTOCK_COMPILED_IN_PLACE"):
        return []
    return cythonize(
        [extension(source) for source in SOURCES],
        include_path=["src"],
        compiler_directives=DIRECTIVES | {"boundscheck": IS_SANITIZED},
        build_dir="build/asan/cython" if IS_SANITIZED else "build/cython",
        emit_linenums=IS_SANITIZED,
        nthreads=os.cpu_count() or 1,
    )


setup(ext_modules=extensions())
