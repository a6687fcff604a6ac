"""Send messages from the caller's transaction, and recover when a provider's answer is lost.

The simulator plays the providers, and the clock is fake. Postmark supports lookups, so Holdfast
finds out whether the message was accepted. SMTP does not, so the delivery is held for an operator.
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
    _ = hf.store  # Opening the store creates the tables, outside the caller's transaction.

    def shipped_message(order: int, channel: str, address: str) -> OutgoingMessage:
        text = Content("Shipped", f"Your order {order} is on its way.")
        return OutgoingMessage(f"order:{order}", f"customer:{order}", 1, channel, address, text)

    # The order and its messages commit in one transaction.
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute("CREATE TABLE shop_order (id integer PRIMARY KEY, state text)")
        shop.execute("INSERT INTO shop_order VALUES (7, 'shipped'), (8, 'shipped')")
        deliveries = hf.outbox.post(
            [
                shipped_message(7, "postmark", "ada@example.com"),
                shipped_message(8, "mail", "ben@example.com"),
            ],
            org_id=SHOP,
            conn=shop,
        )

    # Both providers accept the message, then drop the connection.
    for provider in ("postmark", "smtp"):
        simulator.faults.add("accept_then_drop", provider=provider)
    for _ in range(4):
        hf.worker().run_once()
        clock.advance(minutes=10)

    for delivery in hf.outbox.find([one.id for one in deliveries], org_id=SHOP):
        accepted = sum(sent.token == delivery.token for sent in simulator.messages.accepted)
        print(
            f"{delivery.recipient} by {delivery.channel}: {delivery.state}, "
            f"tried {delivery.attempts}, taken {accepted}"
        )

print(f"See them with: holdfast --db sqlite:///{path} deliveries list --all")
