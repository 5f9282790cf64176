"""The only error type of the load generator.

Every failure of a run (refused connection, -ERR, lost connection, deadline, server that does not
start) reaches the command line as this type, with a text for people.
"""


class BenchError(Exception):
    """A run could not be completed; the text names the failure and the affected role or server."""
