"""The Python client people use, nats-py, against our server and against the reference."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import signal
from typing import TYPE_CHECKING, Any

import pytest
from nats.aio.client import Client
from nats.errors import (
    Error,
    MaxPayloadError,
    NoRespondersError,
    TimeoutError,
)

from support.nkeys import public_nkey, signed
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from nats.aio.msg import Msg

    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter
    from support.tls import Certificates

MESSAGES = 200
SEED = bytes(range(32))


# The client leaves the sockets of refused and lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Its litter is swept here, where the warning is expected, not in some later test."""
    yield
    gc.collect()


@contextlib.asynccontextmanager
async def _client(server: ServerUnderTest, **options: Any) -> AsyncIterator[Client]:
    client = Client()
    await client.connect(server.url, **{"allow_reconnect": False, **options})
    try:
        yield client
    finally:
        await client.close()


async def _settled(client: Client) -> None:
    """All that the client has sent is processed: its flush may overtake what it still buffers."""
    inbox = client.new_inbox()
    echo = await client.subscribe(inbox, max_msgs=1)
    await client.publish(inbox, b"")
    await echo.next_msg(PATIENCE_SECONDS)


async def _answered(client: Client) -> None:
    """The same for a client without echo: a request without responders gets a reply."""
    with pytest.raises(NoRespondersError):
        await client.request("nobody.home", b"", PATIENCE_SECONDS)


async def _refused(server: ServerUnderTest, **options: Any) -> None:
    client = Client()
    with pytest.raises(Error, match="Authorization Violation"):
        await client.connect(server.url, allow_reconnect=False, error_cb=_ignore, **options)
    await client.close()


async def test_message_arrives(server: ServerUnderTest) -> None:
    async with _client(server) as client:
        subscription = await client.subscribe("greet.*")
        await client.publish("greet.joe", b"hello", reply="answers")
        msg = await subscription.next_msg(PATIENCE_SECONDS)
        assert (msg.subject, msg.reply, msg.data) == ("greet.joe", "answers", b"hello")


async def test_many_messages_arrive_in_order(server: ServerUnderTest) -> None:
    async with _client(server) as publisher, _client(server) as subscriber:
        subscription = await subscriber.subscribe("many")
        await _settled(subscriber)
        for n in range(MESSAGES):
            await publisher.publish("many", str(n).encode())
        seen = [int((await subscription.next_msg(PATIENCE_SECONDS)).data) for _ in range(MESSAGES)]
        assert seen == list(range(MESSAGES))


async def test_queue_group_shares_messages(server: ServerUnderTest) -> None:
    done = asyncio.Event()
    shares: list[list[int]] = [[], [], []]
    async with _client(server) as client:
        for share in shares:

            async def work(msg: Msg, share: list[int] = share) -> None:
                share.append(int(msg.data))
                if sum(map(len, shares)) == MESSAGES:
                    done.set()

            await client.subscribe("work", queue="crew", cb=work)
        for n in range(MESSAGES):
            await client.publish("work", str(n).encode())
        await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
    assert sorted(n for share in shares for n in share) == list(range(MESSAGES))
    assert all(shares)


@pytest.mark.parametrize("old_style", [False, True], ids=["shared inbox", "own inbox"])
async def test_request_gets_reply(server: ServerUnderTest, old_style: bool) -> None:
    async with _client(server) as client:

        async def answer(msg: Msg) -> None:
            await msg.respond(msg.data.upper())

        await client.subscribe("upper", cb=answer)
        reply = await client.request("upper", b"hello", PATIENCE_SECONDS, old_style=old_style)
        assert reply.data == b"HELLO"


async def test_concurrent_requests_get_their_own_replies(server: ServerUnderTest) -> None:
    async with _client(server) as service, _client(server) as client:

        async def answer(msg: Msg) -> None:
            await msg.respond(b"re:" + msg.data)

        await service.subscribe("echo", cb=answer)
        await _settled(service)
        asked = [str(n).encode() for n in range(100)]
        answers = await asyncio.gather(
            *(client.request("echo", q, PATIENCE_SECONDS) for q in asked)
        )
        assert [a.data for a in answers] == [b"re:" + q for q in asked]


async def test_one_request_may_get_many_replies(server: ServerUnderTest) -> None:
    async with _client(server) as client:

        async def answer(msg: Msg) -> None:
            for n in range(5):
                await client.publish(msg.reply, str(n).encode())

        await client.subscribe("count", cb=answer)
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox, max_msgs=5)
        await client.publish("count", b"", reply=inbox)
        seen = [(await answers.next_msg(PATIENCE_SECONDS)).data for _ in range(5)]
        assert seen == [b"0", b"1", b"2", b"3", b"4"]


async def test_request_without_responders_fails_at_once(server: ServerUnderTest) -> None:
    async with _client(server) as client:
        with pytest.raises(NoRespondersError):
            await client.request("nobody.home", b"", PATIENCE_SECONDS)


async def test_headers_arrive(server: ServerUnderTest) -> None:
    async with _client(server) as client:
        subscription = await client.subscribe("with.headers")
        await client.publish("with.headers", b"body", headers={"Colour": "green", "Size": "7"})
        msg = await subscription.next_msg(PATIENCE_SECONDS)
        assert msg.headers == {"Colour": "green", "Size": "7"}
        assert msg.data == b"body"


async def test_auto_unsubscribe_stops_after_count(server: ServerUnderTest) -> None:
    async with _client(server) as client:
        subscription = await client.subscribe("few")
        await subscription.unsubscribe(limit=2)
        for n in range(5):
            await client.publish("few", str(n).encode())
        seen = [(await subscription.next_msg(PATIENCE_SECONDS)).data for _ in range(2)]
        await _settled(client)
        assert seen == [b"0", b"1"]
        assert subscription.pending_msgs == 0


async def test_drain_delivers_messages_in_flight(server: ServerUnderTest) -> None:
    seen: list[bytes] = []
    async with _client(server) as publisher:
        drained = Client()
        await drained.connect(server.url)

        async def slowly(msg: Msg) -> None:
            await asyncio.sleep(0)
            seen.append(msg.data)

        await drained.subscribe("drained", cb=slowly)
        await _settled(drained)
        for n in range(MESSAGES):
            await publisher.publish("drained", str(n).encode())
        await _settled(publisher)
        await asyncio.wait_for(drained.drain(), PATIENCE_SECONDS)
        assert drained.is_closed
    assert seen == [str(n).encode() for n in range(MESSAGES)]


async def test_without_echo_own_messages_are_not_delivered(server: ServerUnderTest) -> None:
    async with _client(server, no_echo=True) as client:
        subscription = await client.subscribe("echoed")
        await client.publish("echoed", b"mine")
        await _answered(client)
        async with _client(server) as other:
            await other.publish("echoed", b"theirs")
            assert (await subscription.next_msg(PATIENCE_SECONDS)).data == b"theirs"


async def test_verbose_and_pedantic_clients_work(server: ServerUnderTest) -> None:
    async with _client(server, verbose=True, pedantic=True) as client:
        subscription = await client.subscribe("said")
        await client.publish("said", b"x")
        assert (await subscription.next_msg(PATIENCE_SECONDS)).data == b"x"


async def test_client_learns_payload_limit(
    pool: ServerPool, implementation: Implementation
) -> None:
    async with _client(pool.get(implementation, "max_payload: 64\n")) as client:
        assert client.max_payload == 64
        with pytest.raises(MaxPayloadError):
            await client.publish("big", b"x" * 65)


async def test_client_keeps_its_subscriptions_over_restart(start: Starter) -> None:
    server = start()
    back = asyncio.Event()

    async def reconnected() -> None:
        back.set()

    options = {
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.01,
        "reconnected_cb": reconnected,
        "error_cb": _ignore,
    }
    async with _client(server, **options) as client:
        subscription = await client.subscribe("again")
        await _settled(client)
        await asyncio.to_thread(server.restart)
        await asyncio.wait_for(back.wait(), PATIENCE_SECONDS)
        await client.publish("again", b"still here")
        assert (await subscription.next_msg(PATIENCE_SECONDS)).data == b"still here"


async def _ignore(_: Exception) -> None:
    return


async def test_client_is_notified_of_lame_duck_mode(start: Starter) -> None:
    server = start()
    retired = asyncio.Event()

    async def told() -> None:
        retired.set()

    async with _client(server, lame_duck_mode_cb=told) as client:
        await _settled(client)
        server.send_signal(signal.SIGUSR2)
        await asyncio.wait_for(retired.wait(), PATIENCE_SECONDS)


async def test_refused_publish_is_reported(
    pool: ServerPool, implementation: Implementation
) -> None:
    user = '{user: amy, password: a, permissions: {publish: "mine"}}'
    server = pool.get(implementation, f"authorization {{ users: [ {user} ] }}\n")
    reported: asyncio.Queue[Exception] = asyncio.Queue()
    async with _client(server, user="amy", password="a", error_cb=reported.put) as client:
        await client.publish("theirs", b"")
        error = await asyncio.wait_for(reported.get(), PATIENCE_SECONDS)
        assert "permissions violation for publish" in str(error).lower()


async def test_login_by_token(pool: ServerPool, implementation: Implementation) -> None:
    server = pool.get(implementation, "authorization { token: s3cret }\n")
    async with _client(server, token="s3cret") as client:
        await _settled(client)
    await _refused(server, token="wrong")


async def test_login_by_user_and_password(pool: ServerPool, implementation: Implementation) -> None:
    server = pool.get(implementation, "authorization { user: bob, password: b }\n")
    async with _client(server, user="bob", password="b") as client:
        await _settled(client)
    await _refused(server, user="bob", password="wrong")
    await _refused(server)


async def test_login_by_nkey(pool: ServerPool, implementation: Implementation) -> None:
    nkey = public_nkey(SEED)
    server = pool.get(implementation, f"authorization {{ users: [ {{nkey: {nkey}}} ] }}\n")

    def sign(nonce: str) -> bytes:
        return base64.b64encode(signed(SEED, nonce))

    client = Client()
    client._public_nkey = nkey
    await client.connect(server.url, allow_reconnect=False, signature_cb=sign)
    await _settled(client)
    await client.close()
    await _refused(server)


async def test_tls(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    server = pool.get(implementation, certificates.block())
    options = {"tls": certificates.context(), "tls_hostname": "localhost"}
    async with _client(server, **options) as client:
        subscription = await client.subscribe("sealed")
        await client.publish("sealed", b"x" * 100_000)
        assert len((await subscription.next_msg(PATIENCE_SECONDS)).data) == 100_000


async def test_tls_before_greeting(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    server = pool.get(implementation, certificates.block("handshake_first: true"))
    options = {
        "tls": certificates.context(),
        "tls_hostname": "localhost",
        "tls_handshake_first": True,
    }
    async with _client(server, **options) as client:
        await _settled(client)


async def test_client_certificate(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    server = pool.get(implementation, certificates.verifying("verify: true"))
    context = certificates.context(certificates.with_email)
    async with _client(server, tls=context, tls_hostname="localhost") as client:
        await _settled(client)


async def test_request_without_reply_times_out(server: ServerUnderTest) -> None:
    async with _client(server) as client:
        await client.subscribe("silent")
        with pytest.raises(TimeoutError):
            await client.request("silent", b"", timeout=0.05)
