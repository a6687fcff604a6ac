"""A dead letter that is replayed days later sends no message again that a provider has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, FakeClock, Permanent
from holdfast.operate.refusal import StepRefused
from holdfast_simulator.simulator import Simulator
from tests.operate.letters import operator, replay
from tests.operate.sound import assert_sound
from tests.outbox.carriers import LOCAL, intents
from tests.outbox.post_office import PostOffice
from tests.story import ORG, look


@pytest.mark.req("N-07", "N-10", "N-17")
@pytest.mark.parametrize(
    ("url", "channel", "days", "stands"),
    [
        *(("sqlite", channel, 2, ["sent", "sent"]) for channel in ("postmark", "gateway", *LOCAL)),
        ("postgres", "postmark", 2, ["sent", "sent"]),
        # The receiver deduplicates by token.
        ("sqlite", "webhook", 2, ["sent", "sent"]),
        # If the window has closed and the provider has no lookup, or may have forgotten the token,
        # an operator decides.
        ("sqlite", "resend", 2, ["held", "sent"]),
        ("sqlite", "smtp", 2, ["held", "sent"]),
        ("postgres", "smtp", 2, ["held", "sent"]),
        ("sqlite", "slack", 2, ["held", "sent"]),
        ("sqlite", "postmark", 8, ["held", "sent"]),
    ],
    indirect=["url"],
)
def test_a_replay_days_later_sends_nothing_again_that_was_taken(
    url: str, clock: FakeClock, tmp_path: Path, channel: str, days: int, stands: list[str]
) -> None:
    with (
        Simulator(clock=clock) as sim,
        PostOffice(url, clock, sim, channel, tmp_path) as office,
    ):
        hf, is_mended = office.hf, False

        @hf.job("text.tell")
        def tell(job: Context, payload: Any) -> None:
            intended = hf.outbox.intend(intents(channel, office.place, 2))
            hf.outbox.deliver([one.id for one in intended], org_id=job.org_id)
            if not is_mended:
                raise Permanent

        # The provider accepts both, and the answer to one of them is lost.
        office.fault("accept_then_drop")
        job = hf.enqueue("text.tell", {}, org_id=ORG)
        hf.worker().run_once()
        once, _ = office.taken()
        assert ([fault.fired for fault in office.faults], len(once)) == ([1], 2)
        clock.advance(days=days)

        is_mended = True
        letters = operator(hf, org_id=ORG)
        replay(letters, job)
        hf.worker().run_once()
        office.go_on()

        rows = look(hf.store, "SELECT state FROM holdfast.delivery ORDER BY state")
        assert [row["state"] for row in rows] == stands
        assert office.taken()[0] == once
        assert set(once.values()) == {1}
        assert_sound(hf)


@pytest.mark.req("D-18")
def test_a_replay_is_verified_when_what_it_set_off_is_delivered(
    url: str, clock: FakeClock, tmp_path: Path
) -> None:
    with Simulator(clock=clock) as sim, PostOffice(url, clock, sim, "smtp", tmp_path) as office:
        hf, is_mended = office.hf, False

        @hf.job("text.tell")
        def tell(job: Context, payload: Any) -> None:
            if not is_mended:
                raise Permanent
            hf.outbox.post(intents("smtp", office.place, 1))

        job = hf.enqueue("text.tell", {}, org_id=ORG)
        hf.worker().run_once()
        is_mended = True
        letters = operator(hf, org_id=ORG)
        replay(letters, job)
        hf.worker().run_once(limit=1)
        with pytest.raises(StepRefused, match="1 of its deliveries are not finished"):
            letters.verify_replay(job.id)

        office.go_on()

        letters.verify_replay(job.id)
        (row,) = look(
            hf.store,
            "SELECT {field(detail, deliveries)} AS deliveries FROM holdfast.job_event"
            " WHERE name = 'dead_letter.verified'",
        )
        assert str(row["deliveries"]) == "1"
