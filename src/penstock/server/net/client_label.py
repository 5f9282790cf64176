"""How a log line names a client: its address and number, then its program, account and user.

The words and their order are the reference's, because log tools parse them. A label holds no
secret: a token is only mentioned.
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

    `proxied_ip` is the client's own address if a proxy in front of the server reports one.
    """
    host, port = address
    where = f"{_bracketed(host)}:{port}"
    if proxied_ip:
        where = f"{_bracketed(proxied_ip)}/{where}"
    return f"{where} - {'wid' if kind == 'WEBSOCKET' else 'cid'}:{cid}"


def client_label(connection: str, said: ConnectOptions, account: Account, user: str) -> str:
    """Return the label of a client that has logged in; `user` is the name it was accepted under."""
    version = f"v{said.version}" if said.version else ""
    program = ":".join(part for part in (version, said.lang, said.name) if part)
    parts = [connection]
    if program:
        parts.append(go_quoted(program))
    who = _user_label(said, user)
    if who:
        parts.append(go_quoted(f"{_account_label(account)}/{who}"))
    return " - ".join(parts)


def user_claim(said: ConnectOptions, user: str = "") -> str:
    """Return who the client says it is, without any secret; "" if it says nothing.

    `user` is the key in the JWT, once the JWT has been accepted.
    """
    if said.nkey:
        return f"Nkey {go_quoted(said.nkey)}"
    if said.user:
        return f"User {go_quoted(said.user)}"
    if said.jwt:
        return f"JWT User {go_quoted(user)}" if user else ""
    return 'Token "[REDACTED]"' if said.auth_token else ""


def _user_label(said: ConnectOptions, user: str) -> str:
    if said.nkey:
        return f"nkey:{said.nkey}"
    if said.user:
        return f"user:{said.user}"
    if said.jwt:
        return f"jwt:{user}"
    if said.auth_token:
        return "token"
    return f"user:{user}" if user else ""


def _account_label(account: Account) -> str:
    return f"{account.name}/{account.claimed_name}" if account.claimed_name else account.name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
