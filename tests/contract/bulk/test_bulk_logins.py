"""Every way to prove who one is, to both servers, in the clear and encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.base import nkeys
from penstock.bulk import AccessDenied, Address, BulkReader, ConnectFailed, Credentials, Refused

if TYPE_CHECKING:
    from support.servers import Starter
    from support.tls import Certificates

SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(range(32)))
STORE = 'jetstream { store_dir: "store" }\n'


async def is_let_in(reader: BulkReader) -> bool:
    """Whether the server answers us, if only that there is no such stream."""
    with pytest.raises(Refused):
        await reader.stream_state("NOSUCH")
    return True


async def test_user_and_password_of_url(start: Starter) -> None:
    server = start(STORE + "authorization { user: amy, password: sesame }")
    where = server.url.removeprefix("nats://")
    assert await is_let_in(BulkReader.to(f"nats://amy:sesame@{where}"))
    with pytest.raises(AccessDenied) as denied:
        await BulkReader.to(f"nats://amy:wrong@{where}").stream_state("S")
    assert "wrong" not in str(denied.value)


async def test_token(start: Starter) -> None:
    server = start(STORE + "authorization { token: sesame }")
    reader = BulkReader.to(server.url, credentials=Credentials(token="sesame"))
    assert await is_let_in(reader)
    with pytest.raises(AccessDenied):
        await BulkReader.to(server.url).stream_state("S")


async def test_nkey(start: Starter) -> None:
    public = nkeys.public_from_seed(SEED)
    server = start(STORE + f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
    assert await is_let_in(BulkReader.to(server.url, credentials=Credentials(seed=SEED)))
    with pytest.raises(AccessDenied):
        await BulkReader.to(server.url).stream_state("S")


async def test_tls_is_used_where_server_requires_it(
    start: Starter, certificates: Certificates
) -> None:
    server = start(STORE + certificates.block())
    context = certificates.context()
    assert await is_let_in(BulkReader.to(server.url, tls=context))
    with pytest.raises(ConnectFailed, match="certificate"):
        await BulkReader.to(server.url).stream_state("S")


async def test_required_tls_fails_on_server_without_it(start: Starter) -> None:
    server = start(STORE)
    reader = BulkReader.to(f"tls://amy:sesame@127.0.0.1:{server.port}")
    with pytest.raises(ConnectFailed):
        await reader.stream_state("S")


async def test_next_server_is_tried(start: Starter) -> None:
    server = start(STORE)
    assert await is_let_in(BulkReader.to(f"nats://127.0.0.1:1,{server.url}"))
    assert Address("127.0.0.1", 1) == BulkReader.to("127.0.0.1:1").dialling.addresses[0]
