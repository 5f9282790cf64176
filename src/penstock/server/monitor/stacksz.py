"""/stacksz: the current stack of every thread of the process, as text.

It contains only names of files and functions, and lines; never the value of a variable.
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
