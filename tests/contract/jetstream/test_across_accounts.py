"""JetStream of another account: its API, its messages and its streams, as imports give them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.assets import JetStream

    Login = Callable[[str], JetStream]

CONFIG = """
jetstream { store_dir: store }
accounts {
  SHOP {
    jetstream: enabled
    users [ { user: shop, password: pwd } ]
    exports [
      { service: "$JS.API.>", response_type: stream }
      { service: "$JS.ACK.>" }
      { service: "$JS.FC.>" }
      { service: "order.*" }
      { stream: "deliver.>" }
      { stream: "price.*" }
    ]
  }
  GUEST {
    users [ { user: guest, password: pwd } ]
    imports [
      { service: { account: SHOP, subject: "$JS.API.>" }, to: "shop.api.>" }
      { service: { account: SHOP, subject: "$JS.ACK.>" } }
      { service: { account: SHOP, subject: "order.*" }, to: "buy.*" }
      { stream: { account: SHOP, subject: "deliver.>" } }
    ]
  }
  FRIEND {
    users [ { user: friend, password: pwd } ]
    imports [
      { service: { account: SHOP, subject: "$JS.API.>" }, to: "shop.api.>", share: true }
    ]
  }
  BRANCH {
    jetstream: enabled
    users [ { user: branch, password: pwd } ]
    imports [
      { service: { account: SHOP, subject: "$JS.API.>" }, to: "shop.api.>" }
      { service: { account: SHOP, subject: "$JS.FC.>" } }
      { stream: { account: SHOP, subject: "deliver.>" } }
      { stream: { account: SHOP, subject: "price.*" }, prefix: "shop" }
    ]
  }
  PLAIN {
    users [ { user: plain, password: pwd } ]
    imports [ { service: { account: SHOP, subject: "$JS.API.>" } } ]
  }
}
"""
COUNT = 20


def orders(login: Login, count: int = COUNT) -> JetStream:
    shop = login("shop")
    shop.done("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["order.*"]})
    for n in range(count):
        shop.publish_ack(f"order.{n}", b"%d" % n)
    return shop


def ask(client: JetStream, api: str, body: object = None) -> Any:
    return client.request(f"shop.api.{api}", body).json


def test_api_replies_under_imported_subject(login: Login) -> None:
    orders(login)
    guest = login("guest")
    assert ask(guest, "STREAM.NAMES")["streams"] == ["ORDERS"]
    assert ask(guest, "STREAM.INFO.ORDERS")["state"]["messages"] == COUNT
    assert ask(guest, "STREAM.INFO.NONE")["error"]["err_code"] == 10059


@pytest.mark.parametrize(("user", "is_shared"), [("guest", False), ("friend", True)])
def test_audit_names_foreign_requester_as_far_as_it_is_shared(
    login: Login, user: str, is_shared: bool
) -> None:
    shop = orders(login, 0)
    audits = shop.subscribe("$JS.EVENT.ADVISORY.API")
    shop.fence()
    asker = login(user)
    ask(asker, "STREAM.INFO.ORDERS")
    client = audits.next().json["client"]
    told = {"acc", "svc", "rtt", "server"}
    if is_shared:
        told |= {"start", "host", "id", "user", "kind", "client_type"}
        assert (client["user"], client["id"]) == (user, asker.info["client_id"])
    assert set(client) == told
    assert (client["acc"], client["svc"]) == (user.upper(), "SHOP")


def test_publish_through_service_is_acknowledged(login: Login) -> None:
    shop = orders(login, 0)
    answer = login("guest").publish_ack("buy.bread", b"2")
    assert (answer["stream"], answer["seq"]) == ("ORDERS", 1)
    stored = shop.done("STREAM.MSG.GET.ORDERS", {"seq": 1})["message"]
    assert stored["subject"] == "order.bread"


def test_pull_brings_all_messages_of_batch_under_their_own_subjects(login: Login) -> None:
    orders(login)
    guest = login("guest")
    config = {"durable_name": "D", "ack_policy": "explicit"}
    ask(guest, "CONSUMER.CREATE.ORDERS.D", {"stream_name": "ORDERS", "config": config})
    inbox = guest.subscribe()
    body = json.dumps({"batch": COUNT, "expires": 5_000_000_000}).encode()
    guest.publish("shop.api.CONSUMER.MSG.NEXT.ORDERS.D", body, reply=inbox.subject)
    messages = inbox.take(COUNT)
    assert [message.payload for message in messages] == [b"%d" % n for n in range(COUNT)]
    assert messages[0].subject == "order.0"
    assert all(message.reply.startswith("$JS.ACK.ORDERS.D.") for message in messages)
    for message in messages:
        assert guest.request(message.reply, b"+ACK").payload == b""
    assert ask(guest, "CONSUMER.INFO.ORDERS.D")["num_ack_pending"] == 0


def test_pull_ends_when_requester_unsubscribes(login: Login) -> None:
    shop = orders(login, 0)
    guest = login("guest")
    config = {"durable_name": "D", "ack_policy": "explicit"}
    shop.done("CONSUMER.CREATE.ORDERS.D", {"stream_name": "ORDERS", "config": config})
    inbox = guest.subscribe()
    guest.publish("shop.api.CONSUMER.MSG.NEXT.ORDERS.D", b"", reply=inbox.subject)
    guest.fence()
    inbox.close()
    guest.fence()
    shop.publish_ack("order.late")
    assert shop.done("CONSUMER.INFO.ORDERS.D")["num_pending"] == 1


def test_push_consumer_delivers_to_imported_subject(login: Login) -> None:
    shop = orders(login)
    guest = login("guest")
    arriving = guest.subscribe("deliver.guest")
    guest.fence()
    config = {"durable_name": "P", "ack_policy": "explicit", "deliver_subject": "deliver.guest"}
    shop.done("CONSUMER.CREATE.ORDERS.P", {"stream_name": "ORDERS", "config": config})
    messages = arriving.take(COUNT)
    assert [message.subject for message in messages] == [f"order.{n}" for n in range(COUNT)]
    assert guest.request(messages[-1].reply, b"+ACK").payload == b""
    assert shop.done("CONSUMER.INFO.ORDERS.P")["push_bound"]


def test_stream_captures_imported_messages(login: Login) -> None:
    branch, shop = login("branch"), login("shop")
    branch.done("STREAM.CREATE.PRICES", {"name": "PRICES", "subjects": ["shop.price.*"]})
    shop.publish("price.bread", b"3")
    shop.fence()
    branch.fence()
    found = branch.done("STREAM.MSG.GET.PRICES", {"last_by_subj": "shop.price.bread"})
    assert found["message"]["data"] == "Mw=="
    branch.done("STREAM.DELETE.PRICES")
    shop.publish("price.bread", b"4")
    shop.fence()


@pytest.mark.parametrize("copy", ["mirror", "source"])
def test_stream_sources_from_another_account(login: Login, copy: str) -> None:
    orders(login)
    branch = login("branch")
    origin = {"name": "ORDERS", "external": {"api": "shop.api", "deliver": "deliver.branch"}}
    config = {"name": "COPY", "mirror": origin} if copy == "mirror" else {"name": "COPY"}
    if copy == "source":
        config["sources"] = [origin]
    branch.done("STREAM.CREATE.COPY", config)

    def has_all() -> bool:
        state = branch.done("STREAM.INFO.COPY")["state"]
        return bool(state["messages"] == COUNT)

    branch.read_until(has_all, "all messages")


def test_account_may_import_api_under_its_own_name(login: Login) -> None:
    orders(login)
    plain = login("plain")
    assert plain.done("STREAM.NAMES")["streams"] == ["ORDERS"]
    assert plain.done("INFO")["streams"] == 1
