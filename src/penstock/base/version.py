"""This server's version, and the reference version that it is compatible with.

Clients enable features by the version a server reports, so INFO and /varz carry the reference's
version; ours has its own field.
"""

VERSION = "0.1.0"
REFERENCE_VERSION = "2.15.1"
REFERENCE_API_LEVEL = 5
PROTOCOL = 1
