"""The pages of a fold that is kept up to date by a command."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from typing import Any

import pytest

from penstock.base.units import SECOND_NS
from penstock.cli.cli_errors import Failure
from penstock.cli.folds.fold_http import FoldMonitor, address
from penstock.fold import Fold
from penstock.kv.errors import OperationFailed
from penstock.kv.kv_types import CaughtUp, LogInfo
from support.folds import put
from support.followed_folds import QUICK, ready, until
from support.scripts import Gate, Script, ScriptedBucket

pytestmark = pytest.mark.sockets


def options(**more: Any) -> Namespace:
    given = {"bucket": "b", "http": ("127.0.0.1", 0), "max_lag": None, "max_age": None}
    return Namespace(**(given | more))


async def asked(where: tuple[str, int], request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(*where)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_health_and_metrics_of_fold() -> None:
    gate = Gate()
    script = Script([[put("a", b"1", 3), CaughtUp(), gate, OperationFailed("lost")]])
    monitor = FoldMonitor(options(max_lag=1_000))
    fold = Fold.open(
        ScriptedBucket(script),  # type: ignore[arg-type]
        backend="memory",
        batch=QUICK,
        observers=[monitor.observer],
    )
    async with fold, monitor.serving(fold) as where:
        await ready(fold)
        code, body = await asked(where, b"GET /healthz HTTP/1.1\r\n\r\n")
        told = json.loads(body)
        assert (code, told["status"], told["state"], told["revision"]) == (200, "ok", "live", 3)
        code, body = await asked(where, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert code == 200
        assert b'penstock_fold_state{fold="b",state="live"} 1.0' in body
        assert b'penstock_fold_contact_age_seconds{fold="b"}' in body
        assert await asked(where, b"HEAD /healthz HTTP/1.1\r\n\r\n") == (200, b"")
        assert (await asked(where, b"GET / HTTP/1.1\r\n\r\n"))[0] == 404
        assert (await asked(where, b"POST /healthz HTTP/1.1\r\n\r\n"))[0] == 405
        gate.open()
        await until(lambda: not fold.is_healthy())
        code, body = await asked(where, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (code, json.loads(body)["status"]) == (503, "unavailable")


@pytest.mark.parametrize(
    ("limits", "age", "reason"),
    [
        ({}, 15.5, "no message from the server for 15.5 s"),
        ({"max_age": SECOND_NS}, 1.5, "no message from the server for 1.5 s"),
        ({"max_lag": 1}, 0.0, "6 revisions behind"),
    ],
)
async def test_live_fold_that_is_unhealthy_says_why(
    limits: dict[str, int], age: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogInfo(identity="KV_b@1", first_seq=1, last_seq=9, evicts_current=False)
    script = Script([[put("a", b"1", 3), CaughtUp()]], log)
    monitor = FoldMonitor(options(**limits))
    bucket: Any = ScriptedBucket(script)
    fold = Fold.open(bucket, backend="memory", batch=QUICK, observers=[monitor.observer])
    async with fold, monitor.serving(fold) as where:
        await ready(fold)
        monkeypatch.setattr(Fold, "contact_age", age)
        code, body = await asked(where, b"GET /healthz HTTP/1.1\r\n\r\n")
        told = json.loads(body)
        assert (code, told["state"], told["error"]) == (503, "live", reason)


async def test_port_that_is_taken_is_failure() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    monitor = FoldMonitor(options(http=server.sockets[0].getsockname()))
    fold = Fold.open(ScriptedBucket(Script([[CaughtUp()]])), backend="memory")  # type: ignore[arg-type]
    async with server, fold:
        with pytest.raises(Failure, match="cannot listen"):
            async with monitor.serving(fold):
                pass


def test_address_is_port_or_host_and_port() -> None:
    assert address("9400") == ("127.0.0.1", 9400)
    assert address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert address("[::1]:9400") == ("::1", 9400)
    for text in ("", "host", "host:", "1:99999"):
        with pytest.raises(ValueError):  # noqa: PT011 - the command line says it in its own words
            address(text)
