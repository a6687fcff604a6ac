"""The mail act of ``holdfast demo``: two providers accept a message and lose the answer.

Imported by the demo only, where Holdfast is installed. The clock is a fake one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast import ChannelSettings, Content, FakeClock, Holdfast, OutgoingMessage, Settings
from holdfast_simulator.messages import Taken
from holdfast_simulator.simulator import Simulator

if TYPE_CHECKING:
    from holdfast.demo.acts import ActReport
    from holdfast.outbox.delivery import Delivery
    from holdfast.outbox.intend import Intended

SHOP = "0198c0de-0000-7000-8000-00000000000a"
SENDER = "Shop <post@example.com>"
# One customer each, with a word that nobody else may read.
CUSTOMERS = {"postmark": ("ada@example.com", "marzipan"), "smtp": ("ben@example.com", "nougat")}


def run(report: ActReport) -> None:
    """Send through every provider, lose each answer, and count what arrived."""
    os.environ["SIMULATED_KEY"] = "not-a-real-key"
    clock = FakeClock()
    with Simulator(clock=clock) as simulator:
        channels = _channels(simulator)
        settings = Settings(db=f"sqlite:///{report.folder}/mail.db", channels=channels)
        hf = Holdfast(settings=settings, clock=clock)
        try:
            posted = _post(hf, list(channels))
            report.say(
                f"One message for each provider is stored in the outbox: {', '.join(channels)}."
            )
            for channel in channels:
                simulator.faults.add("accept_then_drop", provider=channel)
            for _ in range(4):
                hf.worker().run_once()
                clock.advance(minutes=10)
            found = hf.outbox.find([delivery.id for delivery in posted], org_id=SHOP)
        finally:
            hf.close()
        _report(report, found, simulator)


def _channels(simulator: Simulator) -> dict[str, ChannelSettings]:
    mail = ChannelSettings(
        kind="smtp",
        host=simulator.smtp.host,
        port=simulator.smtp.port,
        security="none",
        sender=SENDER,
        allow_private=True,
    )
    # Channels over HTTP need the extra "channels" of holdfast-jobs.
    if find_spec("httpcore2") is None:
        return {"smtp": mail}
    postmark = ChannelSettings(
        kind="postmark",
        base_url=simulator.url("postmark"),
        credential_env="SIMULATED_KEY",
        sender=SENDER,
        allow_private=True,
    )
    return {"postmark": postmark, "smtp": mail}


def _post(hf: Holdfast, channels: Sequence[str]) -> Sequence[Intended]:
    """Store one message for each channel in the outbox."""
    messages = []
    for number, channel in enumerate(channels):
        address, word = CUSTOMERS[channel]
        content = Content("Shipped", f"Your order of {word} is on its way.")
        messages.append(
            OutgoingMessage(f"order:{number}", f"customer:{number}", 1, channel, address, content)
        )
    return hf.outbox.post(messages, org_id=SHOP)


def _report(report: ActReport, found: Sequence[Delivery], simulator: Simulator) -> None:
    accepted = simulator.messages.accepted
    by_token = {
        one.token: [taken for taken in accepted if taken.token == one.token] for one in found
    }
    report.say("Each provider accepted its message; each answer was lost.")
    for one in found:
        effect = (
            "a lookup found the message, so it was not sent again"
            if one.state == "sent"
            else "no lookup exists, the delivery is held for an operator"
        )
        report.say(f"{one.channel}: {effect}.")
    states = [str(one.state) for one in found]
    known = [one for one in found if one.state in ("sent", "held") and by_token[one.token]]
    report.count("messages", len(found), "stored in the outbox")
    report.count("accepted", len(accepted), "by the simulated providers, each answer lost")
    report.count("sent", states.count("sent"), "confirmed by a lookup")
    report.count("held", states.count("held"), "for an operator; the provider has no lookup")
    report.count("lost", len(found) - len(known), "neither sent nor held, or not accepted")
    report.count("doubled", len(simulator.messages.accepted_twice()), "accepted more than once")
    report.count("leaked", sum(map(_is_leaked, accepted)), "received by another customer")
    report.require("the mail server's delivery is held", "held" in states)
    report.require("every answer was lost", len(accepted) == len(found))


def _is_leaked(taken: Taken) -> bool:
    words = dict(CUSTOMERS.values())
    return words.get(taken.address) not in taken.letter.text.split()
