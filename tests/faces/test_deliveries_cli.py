"""holdfast deliveries: inspect, and decide what only an operator may decide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    LookupFailed,
    LookupKey,
    LookupResult,
    Sent,
)
from holdfast.channel.message import Message
from holdfast.outbox.delivery import Content, Reason, State
from holdfast.outbox.intend import OutgoingMessage
from holdfast.store import Store
from tests.faces.conftest import Run
from tests.outbox.planted import change, plant_delivery, plant_evidence
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

UNSURE = (("first", "unsure"),)
# The decisions of an operator, and the resulting state of a delivery.
DECISIONS = {"confirm": "sent", "resend": "pending"}


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as made:
        yield made


def planted(hf: Holdfast, state: str, **given: Any) -> str:
    """A delivery that is younger than those before it."""
    assert isinstance(hf.clock, FakeClock)
    hf.clock.advance(seconds=1)
    return plant_delivery(hf, state, **given)


def held(hf: Holdfast, **given: Any) -> str:
    return planted(hf, "held", tries=UNSURE, **given)


def row_of(store: Store, delivery_id: str) -> dict[str, Any]:
    (found,) = look(store, "SELECT * FROM holdfast.delivery WHERE id = :id", id=delivery_id)
    return dict(found)


def actions(store: Store) -> list[tuple[str, str, Any]]:
    rows = look(
        store,
        "SELECT name, actor_id, org_id, detail FROM holdfast.job_event"
        " WHERE name LIKE 'delivery.%' OR name = 'operator.refused' ORDER BY id",
    )
    found = [
        (
            row["name"],
            row["actor_id"],
            json.loads(row["detail"]) if isinstance(row["detail"], str) else row["detail"],
        )
        for row in rows
    ]
    # The action of the operator, and not the set-up of the test.
    return [one for one in found if one[0] != "delivery.intended" and "planted" not in one[2]]


# -- inspection


def test_the_list_shows_what_is_not_over_newest_first(hf: Holdfast, url: str, run: Run) -> None:
    first = held(hf)
    second = planted(hf, "pending")
    sent = planted(hf, "sent", tries=(("first", "accepted"),))

    open_ones = run("deliveries", "list", "--json", db=url).json
    every = run("deliveries", "list", "--all", "--json", db=url).json

    assert [row["id"] for row in open_ones] == [second, first]
    assert [row["id"] for row in every] == [sent, second, first]


def test_the_list_is_narrowed_and_read_page_by_page(hf: Holdfast, url: str, run: Run) -> None:
    mine = held(hf, channel="mail")
    other = held(hf, channel="chat", org_id=OTHER_ORG)
    waiting = planted(hf, "pending", channel="mail")

    def listed(*options: str) -> list[str]:
        return [row["id"] for row in run("deliveries", "list", "--json", *options, db=url).json]

    assert listed("--state", "held") == [other, mine]
    assert listed("--channel", "mail") == [waiting, mine]
    assert listed("--org", OTHER_ORG) == [other]
    assert listed("--limit", "1") == [waiting]
    assert listed("--before", waiting) == [other, mine]


def test_the_list_of_a_job_is_its_own(hf: Holdfast, url: str, run: Run) -> None:
    job_id = hf.ids.new()
    own = held(hf, job_id=job_id)
    held(hf)

    found = run("deliveries", "list", "--job", job_id, "--json", db=url).json

    assert [row["id"] for row in found] == [own]


def test_show_has_every_try_and_every_word_and_no_address(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)
    plant_evidence(hf, delivery_id, "lookup", "several")

    shown = run("deliveries", "show", delivery_id, "--json", db=url)
    plain = run("deliveries", "show", delivery_id, db=url)

    assert shown.json["delivery"]["state"] == "held"
    assert [(one["number"], one["outcome"]) for one in shown.json["attempts"]] == [(1, "unsure")]
    assert [one["verdict"] for one in shown.json["evidence"]] == ["several"]
    assert "unsure" in plain.out
    for ran in (shown, plain, run("deliveries", "list", "--json", db=url)):
        assert "canary" not in ran.out


def test_an_unknown_delivery_is_not_found(hf: Holdfast, url: str, run: Run) -> None:
    for unknown, code in ((hf.ids.new(), 3), ("0fff0fff", 3), ("nonsense", 2)):
        ran = run("deliveries", "show", unknown, db=url)

        assert ran.code == code
        assert "delivery" in ran.err.lower()


def test_another_tenants_delivery_is_not_found_and_the_try_is_audited(
    hf: Holdfast, url: str, run: Run
) -> None:
    delivery_id = held(hf)

    ran = run("deliveries", "resend", delivery_id, "--reason", "mine?", "--org", OTHER_ORG, db=url)

    assert ran.code == 3
    assert row_of(hf.store, delivery_id)["state"] == "held"
    assert [name for name, _, _ in actions(hf.store)] == ["operator.refused"]


# -- decisions


def test_confirm_says_that_it_arrived_and_who_says_so(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)

    ran = run(
        "deliveries", "confirm", delivery_id, "--reason", "Ada has it", "--provider-id", "m-7",
        "--actor", "user:eve", "--json", db=url,
    )  # fmt: skip

    assert (ran.code, ran.json["state"]) == (0, "sent")
    row = row_of(hf.store, delivery_id)
    assert (row["confirmed_by"], row["notification_id"], row["reason"]) == ("user:eve", "m-7", None)
    assert row["notified_at"] is not None
    shown = run("deliveries", "show", delivery_id, "--json", db=url).json
    (word,) = shown["evidence"]
    assert (word["source"], word["verdict"], word["provider_id"]) == (
        "operator", "confirmed", "m-7",
    )  # fmt: skip
    ((name, actor, detail),) = actions(hf.store)
    assert (name, actor) == ("delivery.confirmed", "eve")
    assert (detail["reason"], detail["was"], detail["provider_id"]) == ("Ada has it", "held", "m-7")


class Counting:
    """A channel that accepts and counts every message, and has no lookup."""

    name = "mail"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.taken: list[str] = []

    def send(self, message: Message) -> Sent:
        self.taken.append(message.token)
        return Accepted(f"m-{len(self.taken)}")

    def lookup(self, key: LookupKey) -> LookupResult:
        return LookupFailed("never")


def test_a_confirmed_delivery_is_not_sent(
    hf: Holdfast, url: str, clock: FakeClock, run: Run
) -> None:
    channel = Counting()
    hf.outbox.use(channel)
    delivery_id = held(hf)

    run("deliveries", "confirm", delivery_id, "--reason", "Ada has it", db=url)
    clock.advance(hours=1)
    hf.outbox.deliver([delivery_id], org_id=ORG)
    hf.outbox.reconcile()

    assert channel.taken == []
    assert row_of(hf.store, delivery_id)["state"] == "sent"


def test_resend_sends_once_more_with_that_reason_on_record(
    hf: Holdfast, url: str, run: Run
) -> None:
    channel = Counting()
    hf.outbox.use(channel)
    (intended,) = hf.outbox.intend([_intent()], org_id=ORG)
    _leave_unsure(hf, intended.id)

    ran = run("deliveries", "resend", intended.id, "--reason", "Ada has nothing", "--json", db=url)
    _age(hf, intended.id)
    hf.outbox.deliver([intended.id], org_id=ORG)
    hf.outbox.deliver([intended.id], org_id=ORG)

    assert (ran.code, ran.json["state"]) == (0, "pending")
    assert len(channel.taken) == 1
    (delivery,) = hf.outbox.find([intended.id], org_id=ORG)
    assert (delivery.state, delivery.notification_id) == (State.SENT, "m-1")
    rows = look(hf.store, "SELECT reason FROM holdfast.delivery_attempt ORDER BY number")
    assert [row["reason"] for row in rows] == [Reason.FIRST, Reason.OPERATOR_RESEND]
    resent = [detail for name, _, detail in actions(hf.store) if name == "delivery.resent"]
    assert [detail["reason"] for detail in resent] == ["Ada has nothing"]


def test_a_dropped_delivery_is_not_sent(hf: Holdfast, url: str, clock: FakeClock, run: Run) -> None:
    channel = Counting()
    hf.outbox.use(channel)
    (one,) = hf.outbox.post([_intent()], org_id=ORG)
    other = held(hf)

    for delivery_id, was in ((one.id, "pending"), (other, "held")):
        ran = run("deliveries", "drop", delivery_id, "--reason", "off", "--json", db=url)

        assert (ran.code, ran.json["state"], ran.json["reason"]) == (0, "dropped", "operator")
        name, _, detail = actions(hf.store)[-1]
        assert (name, detail["reason"], detail["was"]) == ("delivery.dropped", "off", was)
    clock.advance(hours=1)
    hf.worker().run_once()
    hf.outbox.reconcile()

    assert channel.taken == []
    (job,) = look(hf.store, "SELECT state FROM holdfast.job")
    assert job["state"] == "completed"


def test_what_is_over_or_under_way_cannot_be_dropped(hf: Holdfast, url: str, run: Run) -> None:
    under_way = planted(hf, "pending")
    change(hf, under_way, "lease_owner = 'w1', lease_expires_at = '2999-01-01T00:00:00.000Z'")
    over = [planted(hf, state, tries=UNSURE) for state in ("sent", "dropped")]
    for delivery_id, says in [(under_way, "a worker is processing it")] + [
        (one, "only what is pending or held or failed can be dropped") for one in over
    ]:
        before = row_of(hf.store, delivery_id)

        ran = run("deliveries", "drop", delivery_id, "--reason", "off", db=url)

        assert ran.code == 1
        assert says in ran.err
        assert row_of(hf.store, delivery_id) == before


def test_what_turns_out_to_be_taken_counts_as_sent_though_it_was_dropped(
    hf: Holdfast, url: str, run: Run
) -> None:
    delivery_id = held(hf)
    run("deliveries", "drop", delivery_id, "--reason", "off", db=url)
    plant_evidence(hf, delivery_id, "late_answer", "taken", provider_id="m-1")

    hf.outbox.reconcile()

    assert row_of(hf.store, delivery_id)["state"] == "sent"


def test_the_list_of_a_job_has_what_it_sends(hf: Holdfast, url: str, run: Run) -> None:
    hf.outbox.use(Counting())
    (one,) = hf.outbox.post([_intent()], org_id=ORG)
    held(hf)
    (job,) = look(hf.store, "SELECT id FROM holdfast.job")

    found = run("deliveries", "list", "--job", str(job["id"]), "--json", db=url).json

    assert [(row["id"], row["deliver_job_id"]) for row in found] == [(one.id, str(job["id"]))]


def test_a_delivery_that_is_not_held_or_failed_is_left_alone(
    hf: Holdfast, url: str, run: Run
) -> None:
    for number, (state, command) in enumerate(product(("pending", "sent"), DECISIONS), 1):
        delivery_id = planted(hf, state, tries=(("first", "accepted"),))
        before = row_of(hf.store, delivery_id)

        ran = run("deliveries", command, delivery_id, "--reason", "why not", db=url)

        assert ran.code == 1
        assert state in ran.err
        assert row_of(hf.store, delivery_id) == before
        assert [name for name, _, _ in actions(hf.store)] == ["operator.refused"] * number


def test_a_failed_delivery_may_be_decided_otherwise(hf: Holdfast, url: str, run: Run) -> None:
    for state, (command, becomes) in product(("failed", "dropped"), DECISIONS.items()):
        delivery_id = planted(hf, state, tries=UNSURE)

        ran = run("deliveries", command, delivery_id, "--reason", "a new address", db=url)

        assert ran.code == 0
        assert row_of(hf.store, delivery_id)["state"] == becomes


def test_what_was_erased_has_nothing_to_resend(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)
    change(hf, delivery_id, "content = NULL")

    ran = run("deliveries", "resend", delivery_id, "--reason", "again", db=url)

    assert ran.code == 1
    assert "erased" in ran.err
    assert row_of(hf.store, delivery_id)["state"] == "held"


def test_what_its_channel_has_after_all_is_not_resent(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)
    plant_evidence(hf, delivery_id, "late_answer", "taken", provider_id="m-1")

    ran = run("deliveries", "resend", delivery_id, "--reason", "again", db=url)

    assert ran.code == 1
    assert "its channel has it after all" in ran.err
    hf.outbox.reconcile()
    stands = row_of(hf.store, delivery_id)
    assert (stands["state"], stands["notification_id"]) == ("sent", "m-1")


def test_a_decision_needs_a_reason(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)

    for command in (*DECISIONS, "drop"):
        assert run("deliveries", command, delivery_id, db=url).code == 2
        assert run("deliveries", command, delivery_id, "--reason", "  ", db=url).code == 1
        assert row_of(hf.store, delivery_id)["state"] == "held"


def test_a_member_looks_and_does_not_decide(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)
    member = ("--role", "member", "--org", ORG)

    assert run("deliveries", "show", delivery_id, *member, db=url).code == 0
    for number, command in enumerate((*DECISIONS, "drop"), 1):
        ran = run("deliveries", command, delivery_id, "--reason", "please", *member, db=url)

        assert ran.code == 1
        assert row_of(hf.store, delivery_id)["state"] == "held"
        assert [name for name, _, _ in actions(hf.store)] == ["operator.refused"] * number


def test_a_sender_still_running_is_fenced_by_a_decision(hf: Holdfast, url: str, run: Run) -> None:
    delivery_id = held(hf)
    fence = row_of(hf.store, delivery_id)["fence"]

    run("deliveries", "confirm", delivery_id, "--reason", "Ada has it", db=url)

    assert row_of(hf.store, delivery_id)["fence"] > fence


# -- lookups


def test_reconcile_is_the_run_of_the_reconciler(hf: Holdfast, url: str, run: Run) -> None:
    ran = run(
        "deliveries", "reconcile", "--reason", "the channel is back", "--json",
        db=url, app="tests.faces.app:hf",
    )  # fmt: skip

    assert ran.code == 0
    assert ran.json["name"] == "outbox_reconciler"


def _intent() -> OutgoingMessage:
    return OutgoingMessage(
        "order:7", "ada", 1, "mail", "ada@example.com", Content("Shipped", "On its way")
    )


def _leave_unsure(hf: Holdfast, delivery_id: str) -> None:
    """A delivery whose only attempt had no answer, on a channel without lookup."""
    by_hand(
        hf.store,
        "INSERT INTO holdfast.delivery_attempt (org_id, delivery_id, number, reason, fence,"
        " worker_id, body_hash, began_at, outcome, ended_at) SELECT org_id, id, 1, 'first', 1,"
        " 'w1', content_hash, {now}, 'unsure', {now} FROM holdfast.delivery WHERE id = :id",
        id=delivery_id,
    )
    change(hf, delivery_id, "attempts = 1, fence = 1, first_sent_at = {now}")
    change(hf, delivery_id, "state = 'held', reason = 'unknown'")


def _age(hf: Holdfast, delivery_id: str) -> None:
    """The command uses the machine's clock; the test has another one."""
    change(hf, delivery_id, "not_before_at = NULL")


def test_the_list_is_narrowed_by_recipient_subject_reason_and_time(
    hf: Holdfast, url: str, run: Run
) -> None:
    ada = held(hf, recipient="ada")
    review = held(hf, subject="review:cl-7")
    assert isinstance(hf.clock, FakeClock)
    hf.clock.advance(hours=1)
    noon = hf.clock.now().isoformat()
    late = held(hf)
    change(hf, late, "reason = 'attempts_spent'")

    def listed(*options: str) -> list[str]:
        return [row["id"] for row in run("deliveries", "list", *options, "--json", db=url).json]

    assert listed("--recipient", "ada") == [ada]
    assert listed("--subject", "review:cl-7") == [review]
    assert listed("--subject", "review:*") == [review]
    assert listed("--reason", "attempts_spent") == [late]
    assert listed("--since", noon) == [late]
    assert listed("--until", noon) == [review, ada]
    assert run("deliveries", "list", "--since", "noon", db=url).code == 2


def test_many_are_decided_by_a_filter_after_a_dry_run(hf: Holdfast, url: str, run: Run) -> None:
    ids = [held(hf), held(hf)]
    other = held(hf, channel="team")
    who = ("--actor", "user:eve", "--org", ORG)
    options = ("--channel", "mail", "--with-reason", "unknown", "--reason", "outage", *who)

    looked = run("deliveries", "resend-all", *options, "--dry-run", db=url)
    assert (looked.code, "2 would be done" in looked.out) == (0, True)
    assert {row_of(hf.store, one)["state"] for one in ids} == {"held"}

    ran = run("deliveries", "resend-all", *options, "--json", db=url)
    assert (ran.code, ran.json["done"]) == (0, 2)
    assert {row_of(hf.store, one)["state"] for one in ids} == {"pending"}
    assert row_of(hf.store, other)["state"] == "held"
    again = run("deliveries", "resend-all", *options, db=url)
    assert again.code == 3
    assert "No delivery fits" in again.err
    assert run("deliveries", "drop-all", "--channel", "team", *who, db=url).code == 2
    dropped = run("deliveries", "drop-all", "--channel", "team", "--reason", "x", *who, db=url)
    assert "1 done" in dropped.out
    assert run("deliveries", "confirm-all", "--reason", "x", *who, db=url).code == 3
