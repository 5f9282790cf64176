"""What a client may not hear or say stays so, by whatever detour it tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.peers import Peer
    from support.victims import Victim

USERS = """
authorization {
  users: [
    { user: root, password: root }
    { user: amy, password: amy, permissions: {
        publish: { allow: ["open.>", "_INBOX.>"], deny: ["open.shut.>"] }
        subscribe: {
          allow: ["open.>", "open.* workers", "_INBOX.>"]
          deny: ["open.secret", "*.shut.>"]
        }
    } }
  ]
}
"""
SECRET = b"PUB open.secret 6\r\nsecret\r\n"


@pytest.fixture
def victim(attack: Callable[..., Victim]) -> Victim:
    return attack(USERS, login={"user": "root", "pass": "root"})


@pytest.fixture
def amy(victim: Victim) -> Peer:
    return victim.peer().connect(user="amy", **{"pass": "amy"})


@pytest.mark.parametrize("pattern", ["open.*", "open.>", "open.* workers", "open.* others"])
def test_wildcard_subscription_receives_no_denied_subject(
    victim: Victim, amy: Peer, pattern: str
) -> None:
    with amy, victim.client() as root:
        amy.send(f"SUB {pattern} 1\r\n")
        refusals = [event for event in amy.fence() if isinstance(event, str)]
        for _ in range(3):  # so that a remembered match is used as well
            root.send(SECRET + b"PUB open.door 2\r\nhi\r\n")
            root.fence()
        got = [one.payload for one in amy.deliveries()]
        assert got == ([] if refusals else [b"hi"] * 3)
        assert (pattern == "open.* others") == bool(refusals)


def test_queue_member_without_permission_is_skipped(victim: Victim, amy: Peer) -> None:
    with amy, victim.client() as root:
        amy.send("SUB open.* workers 1\r\n")
        root.send("SUB open.* workers 1\r\n")
        amy.fence()
        root.fence()
        root.send(SECRET * 50)
        assert [one.payload for one in root.deliveries()] == [b"secret"] * 50
        assert amy.deliveries() == []


@pytest.mark.parametrize("subject", ["shut", "open.shut.x", "$SYS.REQ.SERVER.PING", ">", "*"])
def test_denied_publish_is_not_delivered_in_any_spelling(
    victim: Victim, amy: Peer, subject: str
) -> None:
    with amy, victim.client() as root:
        root.send("SUB > 1\r\n")
        root.fence()
        for line in (f"PUB {subject} 1\r\nx\r\n", f"pub\t{subject}  open.reply   1\nx\r\n"):
            amy.send(line)
        assert amy.fence() == [f"-ERR 'Permissions Violation for Publish to \"{subject}\"'"] * 2
        assert root.deliveries() == []


def test_second_connect_as_other_user_drops_all_state(victim: Victim) -> None:
    with victim.client() as peer, victim.client() as root:
        peer.send("SUB open.secret 1\r\n")
        peer.connect(user="amy", **{"pass": "amy"})
        peer.send("SUB open.secret 2\r\n")
        assert peer.fence() == ["-ERR 'Permissions Violation for Subscription to \"open.secret\"'"]
        root.send(SECRET)
        root.fence()
        assert peer.deliveries() == []


@pytest.mark.parametrize("reply", ["_R_.x", "$JS.ACK.a.b.1.2.3.4.5", "_GR_.x"])
def test_client_cannot_publish_in_name_of_server(victim: Victim, reply: str) -> None:
    with victim.client() as peer:
        peer.send(f"SUB a 1\r\nPUB a {reply} 0\r\n\r\n")
        assert peer.fence() == [
            f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'"
        ]


@pytest.mark.parametrize("maximum", ["0", "-1", "999999999", "9999999999", "18446744073709551616"])
def test_unsub_with_invalid_count_ends_subscription(unguarded: Victim, maximum: str) -> None:
    """What is no number of messages left ends the subscription at once, as with the reference."""
    with unguarded.client() as peer:
        peer.send(f"SUB extreme 1\r\nUNSUB 1 {maximum}\r\nPUB extreme 0\r\n\r\n")
        assert len(peer.deliveries()) == (maximum == "999999999")
