"""The log: Python's logging under the name `penstock`, in the reference's line format.

An embedding program configures the logger like any other. The standalone server writes
`[PID] YYYY/MM/DD hh:mm:ss.uuuuuu [INF] text` to stderr or a file, which tools and test suites
parse. Control characters are escaped, so that a peer cannot forge a line.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.server.file_modes import LOG_FILE_MODE, opener

if TYPE_CHECKING:
    from io import TextIOWrapper

    from penstock.server.config.options import Options

TRACE: Final = 5
FATAL: Final = logging.CRITICAL
log: Final = logging.getLogger("penstock")

_TAGS: Final = {
    TRACE: "TRC",
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    FATAL: "FTL",
}
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code != 9}


class ReferenceFormatter(logging.Formatter):
    """Formats one entry as one line, as the reference does."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._stamped = options.logtime or options.logtime_utc
        self._zone = UTC if options.logtime_utc else None

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}: {self.formatException(record.exc_info)}"
        text = text.translate(_CONTROL).encode("utf-8", "backslashreplace").decode()
        when = ""
        if self._stamped:
            moment = datetime.fromtimestamp(record.created, self._zone)
            when = moment.strftime(" %Y/%m/%d %H:%M:%S.%f")
        return f"[{os.getpid()}]{when} [{_TAGS.get(record.levelno, 'INF')}] {text}"


class LogOutput:
    """The log output of the standalone server: stderr, or a file that can be reopened."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._handler = _make_handler(options)
        log.addHandler(self._handler)
        log.propagate = False
        self.set_level(options)

    def set_level(self, options: Options) -> None:
        level = logging.INFO
        if options.debug:
            level = logging.DEBUG
        if options.trace:
            level = TRACE
        log.setLevel(level)

    def reopen(self) -> None:
        """Reopen the log file after log rotation has moved it."""
        if self._options.log_file:
            self.close()
            self._handler = _make_handler(self._options)
            log.addHandler(self._handler)
            log.info("File log re-opened")

    def close(self) -> None:
        log.removeHandler(self._handler)
        self._handler.close()


class _LogFile(logging.FileHandler):
    """A log file that other users of the machine cannot read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=opener(LOG_FILE_MODE))


class _RotatedLogFile(_LogFile, logging.handlers.RotatingFileHandler):
    """The same, rotated when it reaches its size limit."""


def _make_handler(options: Options) -> logging.Handler:
    handler: logging.Handler
    if not options.log_file:
        handler = logging.StreamHandler(sys.stderr)
    elif options.log_size_limit > 0:
        handler = _RotatedLogFile(
            options.log_file,
            maxBytes=options.log_size_limit,
            backupCount=options.logfile_max_num or 1000,
            encoding="utf-8",
        )
    else:
        handler = _LogFile(options.log_file, encoding="utf-8")
    handler.setFormatter(ReferenceFormatter(options))
    return handler
