"""Why connections end, in the words of /connz."""

from typing import Final

CLIENT_CLOSED: Final = "Client Closed"
AUTHENTICATION_TIMEOUT: Final = "Authentication Timeout"
AUTHENTICATION_FAILURE: Final = "Authentication Failure"
TLS_HANDSHAKE_FAILURE: Final = "TLS Handshake Failure"
STALE_CONNECTION: Final = "Stale Connection"
PROTOCOL_VIOLATION: Final = "Protocol Violation"
BAD_PROTOCOL_VERSION: Final = "Bad Client Protocol Version"
MAX_CONNECTIONS: Final = "Maximum Connections Exceeded"
MAX_ACCOUNT_CONNECTIONS: Final = "Maximum Account Connections Exceeded"
SERVER_SHUTDOWN: Final = "Server Shutdown"
NO_RESPONDERS_NEEDS_HEADERS: Final = "No Responders Requires Headers"
INTERNAL_ERROR: Final = "Internal Error"
KICKED: Final = "Kicked"
CREDENTIALS_REVOKED: Final = "Credentials Revoked"
