"""The one error of the load generator.

Everything that can go wrong in a run (refused connection, -ERR, lost connection, deadline, server
that does not start) reaches the command line as this type, with a text meant for a person.
"""


class BenchError(Exception):
    """A run could not be completed; the text says what happened and to whom."""
