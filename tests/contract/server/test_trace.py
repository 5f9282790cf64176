"""The trace: what passes in both directions, told to the log when asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import ServerUnderTest, Starter


def _traced(server: ServerUnderTest, sent: str) -> list[str]:
    with Wire(server.address) as wire:
        wire.connect(headers=True)
        wire.send(f"SUB foo 1\r\n{sent}UNSUB 1\r\n")
        wire.send("PING\r\n")
        while wire.line() != "PONG":
            pass
        server.wait_for_log(r"<<- \[UNSUB 1\]")
    lines = re.findall(r"\[TRC\].* - (<<-|->>) (.*)", server.log)
    return [f"{way} {text}" for way, text in lines if "foo" in text or "PAYLOAD" in text]


def test_messages_are_traced_in_both_directions(start: Starter) -> None:
    assert _traced(start("trace: true\n"), "PUB foo 5\r\nhello\r\n") == [
        "<<- [SUB foo 1]",
        "<<- [PUB foo 5]",
        '<<- MSG_PAYLOAD: ["hello"]',
        "->> [MSG foo 1 5]",
        '->> MSG_PAYLOAD: ["hello"]',
    ]


def test_long_payloads_are_cut_in_trace(start: Starter) -> None:
    server = start("trace: true\nmax_traced_msg_len: 3\n")
    assert '<<- MSG_PAYLOAD: ["hel..."]' in _traced(server, "PUB foo 5\r\nhello\r\n")


def test_secrets_are_not_traced(start: Starter) -> None:
    server = start("trace: true\nauthorization { token: hush }\n")
    with Wire(server.address) as wire:
        wire.connect(auth_token="hush")
        server.wait_for_log(r"<<- \[CONNECT")
    assert "hush" not in server.log
