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


def extension(source: Path) -> Extension:
    module = ".".join(source.relative_to("src").with_suffix("").parts)
    return Extension(module, [str(source)], extra_compile_args=FLAGS)


def extensions() -> list[Extension]:
    """None if they lie in the source tree already: pip would compile them again, one by one."""
    if os.environ.get("PENSTOCK_COMPILED_IN_PLACE"):
        return []
    return cythonize(
        [extension(source) for source in SOURCES],
        include_path=["src"],
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
    )


setup(ext_modules=extensions())
