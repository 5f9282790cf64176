"""The label of a client in log lines: address and client id, then program, account and user.

The fields and their order are the reference's, because log tools parse them. A label contains no
secret: a token is shown as "token" or redacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.text import go_quoted

if TYPE_CHECKING:
    from penstock.server.auth.login_values import ConnectionType
    from penstock.server.net.connect_info import ConnectOptions
    from penstock.server.system.server_accounts import Account


def connection_label(
    kind: ConnectionType, address: tuple[str, int], cid: int, proxied_ip: str = ""
) -> str:
    """Return the label of a connection whose client has not logged in yet.

    `proxied_ip` is the client's own address if a proxy before the server reports one.
    """
    host, port = address
    where = f"{_bracketed(host)}:{port}"
    if proxied_ip:
        where = f"{_bracketed(proxied_ip)}/{where}"
    return f"{where} - {'wid' if kind == 'WEBSOCKET' else 'cid'}:{cid}"


def client_label(connection: str, connect: ConnectOptions, account: Account, user: str) -> str:
    """Return the label of a client that has logged in; `user` is the accepted user name."""
    version = f"v{connect.version}" if connect.version else ""
    program = ":".join(part for part in (version, connect.lang, connect.name) if part)
    parts = [connection]
    if program:
        parts.append(go_quoted(program))
    who = _user_label(connect, user)
    if who:
        parts.append(go_quoted(f"{_account_label(account)}/{who}"))
    return " - ".join(parts)


def user_claim(connect: ConnectOptions, user: str = "") -> str:
    """Return the user that the client claims to be, without any secret; "" without a claim.

    `user` is the public key in the JWT, after the JWT was accepted.
    """
    if connect.nkey:
        return f"Nkey {go_quoted(connect.nkey)}"
    if connect.user:
        return f"User {go_quoted(connect.user)}"
    if connect.jwt:
        return f"JWT User {go_quoted(user)}" if user else ""
    return 'Token "[REDACTED]"' if connect.auth_token else ""


def _user_label(connect: ConnectOptions, user: str) -> str:
    if connect.nkey:
        return f"nkey:{connect.nkey}"
    if connect.user:
        return f"user:{connect.user}"
    if connect.jwt:
        return f"jwt:{user}"
    if connect.auth_token:
        return "token"
    return f"user:{user}" if user else ""


def _account_label(account: Account) -> str:
    return f"{account.name}/{account.claimed_name}" if account.claimed_name else account.name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
