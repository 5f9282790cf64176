"""What an account uses is what its streams hold, though only those that changed are looked at; and
where streams go on after a power cut."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.stream_config import Storage, StreamSource
from penstock.jetstream.account.asset_recovery import recover_account
from penstock.jetstream.account.policy import Policy
from penstock.store.contract import Appended
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Lose
from support.archives import START_NS, account, publish, stream

if TYPE_CHECKING:
    from penstock.jetstream.account.assets import Assets

STEPS = 200
PAYLOAD_BYTES_MAX = 300


def held(assets: Assets, storage: Storage) -> int:
    """The naive sum."""
    hosts = [each for each in assets if each.stream.cfg.storage is storage]
    return sum(each.stream.store.total_bytes for each in hosts)


@pytest.mark.parametrize("seed", range(5))
def test_used_is_sum_of_what_streams_hold(seed: int) -> None:
    chance, assets = Random(seed), account()
    for step in range(STEPS):
        name = f"S{chance.randrange(6)}"
        host = assets.hosts.get(name)
        if host is None:
            stream(assets, name, storage=Storage.MEMORY)
        elif chance.random() < 0.1:
            assets.drop(host)
            assets.touch(host)  # a late call must not be counted again
        else:
            publish(host, "a", bytes(chance.randrange(PAYLOAD_BYTES_MAX)), at=step)
            assets.touch(host)
        if chance.random() < 0.3:
            assert assets.used(Storage.MEMORY) == held(assets, Storage.MEMORY)
            assert assets.room.memory == held(assets, Storage.MEMORY)
            assert assets.used(Storage.FILE) == 0


def test_only_streams_to_which_something_happened_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assets = account()
    hosts = [stream(assets, f"S{number}", storage=Storage.MEMORY) for number in range(10)]
    assets.used(Storage.MEMORY)
    seen: list[str] = []
    recount = assets.recount
    monkeypatch.setattr(assets, "recount", lambda host: (seen.append(host.name), recount(host)))
    publish(hosts[3], "a", b"x")
    assets.touch(hosts[3])
    assert assets.used(Storage.MEMORY) == held(assets, Storage.MEMORY) > 0
    assert assets.used(Storage.MEMORY) == held(assets, Storage.MEMORY)
    assert seen == ["S3"]


@pytest.mark.parametrize(
    ("name", "config", "goes_on_behind"),
    [("S", {}, 10), ("M", {"mirror": StreamSource(name="O"), "subjects": ()}, 5)],
    ids=["stream", "mirror"],
)
def test_lazy_mirror_asks_again_for_what_power_cut_took(
    name: str, config: dict[str, Any], goes_on_behind: int
) -> None:
    """Others never give out a sequence twice; what a mirror lost, its origin still has."""
    disk = SimDisk()
    store = stream(lazy(account(disk)), name, **config).stream.store
    for number in range(10):
        assert isinstance(store.append("a", b"", b"%d" % number, START_NS + number), Appended)
        if number == 4:
            work = store.pending_sync()
            assert work is not None
            work.run()
            store.synced(work)
    again = lazy(account(disk.crash(Lose())))
    recover_account(again, START_NS)
    state = again.hosts[name].stream.store.state()
    assert state.msgs == 5
    assert (state.last_seq == 5) == (goes_on_behind == 5)
    assert state.last_seq >= goes_on_behind


def lazy(assets: Assets) -> Assets:
    assets.policy = Policy(lazy=True)
    return assets
