"""A message in the caller's own transaction, and a provider that keeps its answers to itself.

The providers are the simulator's, and the clock is a fake one. Postmark can be asked what it has,
so a lost answer costs one question. A mail server cannot: what nobody knows waits for a person.
"""

import os
import sqlite3
import tempfile
from contextlib import closing

from holdfast import ChannelSettings, Content, FakeClock, Holdfast, OutgoingMessage, Settings
from holdfast_simulator import Simulator

SHOP = "0198c0de-0000-7000-8000-00000000000a"

os.environ["SIMULATED_KEY"] = "not-a-real-key"
path = f"{tempfile.mkdtemp()}/work.db"
clock = FakeClock()
simulator = Simulator(clock=clock)

with simulator:
    channels = {
        "postmark": ChannelSettings(
            kind="postmark",
            base_url=simulator.url("postmark"),
            credential_env="SIMULATED_KEY",
            sender="Shop <post@example.com>",
            allow_private=True,
        ),
        "mail": ChannelSettings(
            kind="smtp",
            host=simulator.smtp.host,
            port=simulator.smtp.port,
            security="none",
            sender="Shop <post@example.com>",
            allow_private=True,
        ),
    }
    hf = Holdfast(settings=Settings(db=f"sqlite:///{path}", channels=channels), clock=clock)
    _ = hf.store  # Opening it makes the tables, outside of anybody's transaction.

    def shipped(order: int, channel: str, address: str) -> OutgoingMessage:
        text = Content("Shipped", f"Your order {order} is on its way.")
        return OutgoingMessage(f"order:{order}", f"customer:{order}", 1, channel, address, text)

    # The order and what is said about it are one transaction: both are there, or neither.
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute("CREATE TABLE shop_order (id integer PRIMARY KEY, state text)")
        shop.execute("INSERT INTO shop_order VALUES (7, 'shipped'), (8, 'shipped')")
        told = hf.outbox.post(
            [
                shipped(7, "postmark", "ada@example.com"),
                shipped(8, "mail", "ben@example.com"),
            ],
            org_id=SHOP,
            conn=shop,
        )

    # Both take the message, and then the line breaks.
    for provider in ("postmark", "smtp"):
        simulator.faults.add("accept_then_drop", provider=provider)
    for _ in range(4):
        hf.worker().run_once()
        clock.advance(minutes=10)

    for one in hf.outbox.find([delivery.id for delivery in told], org_id=SHOP):
        taken = sum(letter.token == one.token for letter in simulator.messages.accepted)
        print(f"{one.recipient} by {one.channel}: {one.state}, tried {one.attempts}, taken {taken}")

print(f"See them with: holdfast --db sqlite:///{path} deliveries list --all")
