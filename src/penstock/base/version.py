"""Which version this is, and which version of the reference server it stands in for.

Clients switch features by the version a server reports, so INFO and /varz carry the reference's;
ours travels in a field of its own.
"""

VERSION = "0.1.0"
REFERENCE_VERSION = "2.15.1"
REFERENCE_API_LEVEL = 5
PROTOCOL = 1
