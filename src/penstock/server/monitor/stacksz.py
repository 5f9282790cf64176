"""/stacksz: what every thread of the process is doing right now, as text.

Names of files, functions and lines only: no value of a variable is ever shown.
"""

from __future__ import annotations

import sys
import threading
import traceback

from penstock.server.monitor.page_answers import PageAnswer, text_answer


def stacksz() -> PageAnswer:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"thread {ident} [{names.get(ident, 'not of Python')}]:\n"
        + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return text_answer(200, "\n".join(stacks))
