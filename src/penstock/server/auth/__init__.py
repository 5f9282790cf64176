"""Authentication: decides whether a client may log in, and as which user."""

from penstock.server.auth.authenticator import Authenticator, Decision
from penstock.server.auth.bcrypt_limits import BCRYPT_CHECKS_MAX, BCRYPT_WAITING_MAX
from penstock.server.auth.certificate_names import read_certificate
from penstock.server.auth.login_values import (
    GLOBAL_ACCOUNT,
    Accepted,
    Login,
    LoginRefused,
    NeedsBcrypt,
    NeedsCallout,
    PeerCertificate,
)
from penstock.server.auth.user_table import AuthConfigError

__all__ = [
    "BCRYPT_CHECKS_MAX",
    "BCRYPT_WAITING_MAX",
    "GLOBAL_ACCOUNT",
    "Accepted",
    "AuthConfigError",
    "Authenticator",
    "Decision",
    "Login",
    "LoginRefused",
    "NeedsBcrypt",
    "NeedsCallout",
    "PeerCertificate",
    "read_certificate",
]
