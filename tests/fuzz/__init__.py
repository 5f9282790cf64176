"""Fuzzers: of the client protocol (`tests.fuzz`) and of JetStream (`tests.fuzz.operations`).

Pytest finds the modules beside this folder by itself. A fuzzer that is started from the command
line finds them because this file adds their folder to the path.
"""

import sys
from pathlib import Path

SUPPORT = str(Path(__file__).parents[1])
if SUPPORT not in sys.path:
    sys.path.append(SUPPORT)
