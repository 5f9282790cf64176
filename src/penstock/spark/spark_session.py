"""Create a Spark session with working defaults: Java, this Python in the workers, loopback, no UI.

It sets JAVA_HOME to a Java that works, and PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON and SPARK_LOCAL_IP
only if unset, before the JVM starts and reads them. An active session is reused. Spark discovers
the formats itself, because the workers run on this Python.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local"
LOOPBACK: Final = "127.0.0.1"
#: Starts in two thirds of the time, computes at half the speed: for tests and short programs.
LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
}
#: Redacted from plans, descriptions and event logs; Spark's defaults cover `url` and `password`
#: only.
REDACTION: Final = {
    "spark.sql.redaction.options.regex": "(?i)url|password|token|creds|nkeyseed|secret",
    "spark.sql.redaction.string.regex": (
        r"(?i)(?<=://)[^/@\s,]+@|(?:password|token|creds|nkeyseed)['\"`]?\s*(?:->|=|:|\s)\s*"
        r"(?:'[^']*'|\"[^\"]*\"|[^\s,)}\]]+)"
    ),
}
LOCAL_DEFAULTS: Final = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def session(
    app_name: str = "penstock",
    master: str = "local[*]",
    *,
    light: bool = False,
    **conf: object,
) -> SparkSession:
    """Return a session that knows every Penstock format.

    `conf` holds Spark settings: `session(**{"spark.sql.shuffle.partitions": 2})`. `light` selects a
    JVM that starts fast instead of one that computes fast.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if master.startswith(LOCAL):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.Builder().appName(app_name).master(master)
    for name, value in settings(master, light=light, conf=conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings(master: str, *, light: bool, conf: dict[str, object]) -> dict[str, str]:
    """Return the session settings: the caller's settings override the defaults."""
    found = DEFAULTS | REDACTION
    if master.startswith(LOCAL):
        found |= LOCAL_DEFAULTS
    if light:
        found["spark.driver.extraJavaOptions"] = LIGHT_JAVA
    return found | {name: _text(value) for name, value in conf.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
