"""Texts and names of reviews are erased on request, and when their retention ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import State
from holdfast_review import erase as erasing
from holdfast_review import notify as notifying
from holdfast_review import show
from holdfast_review.failure import InvalidReview, ReviewNotFound
from holdfast_review.model import Recipient
from tests.apps_review.bench import ANN, BEN, Bench, wait_for_a_lock
from tests.apps_review.office import Office, commit
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install
from tests.operate.letters import operator, replay
from tests.story import ORG, OTHER_ORG, look

SAID = (
    "finding",
    "review_recipient",
    "review_part",
    "delivery",
    "delivery_attempt",
    "in_app_notification",
)
WHY = {"org_id": ORG, "reason": "asked for on 3 March"}


def left(bench: Bench | Office) -> dict[str, int]:
    counts = {}
    for name in SAID:
        (row,) = look(bench.hf.store, f"SELECT count(*) AS n FROM holdfast.{name}")
        if row["n"]:
            counts[name] = row["n"]
    return counts


def everything(office: Office) -> str:
    """The contents of the database and of the files, except for the audit."""
    names = ("review", "job", "job_stage", "job_event", "dead_letter", "artifact", *SAID)
    rows: list[Any] = [look(office.hf.store, f"SELECT * FROM holdfast.{name}") for name in names]
    files = [file.read_bytes() for file in stored(office.home)]
    return f"{rows} {files}"


def stored(home: Path) -> list[Path]:
    return [file for file in (home / "artifacts").rglob("*") if file.is_file()]


def test_nothing_is_left_of_what_an_erased_changelist_said(office: Office) -> None:
    commit(office.repository, cart="return eval(items)\n")
    office.submit(recipients=[ANN, Recipient("cy", "in_app", "cy")])
    office.work_out()
    office.reviews.rerun("cl-1", 2, "k2", org_id=ORG)
    office.work_out()
    before = everything(office)
    assert office.count("in_app_notification") == 2
    assert all(word in before for word in ("eval runs", "ann@example.org", "return eval(items)"))

    erased = office.reviews.erase("cl-1", **WHY)

    assert (erased.reviews, erased.findings, erased.recipients) == (2, 2, 4)
    assert (erased.deliveries, erased.left_over) == (4, 0)
    assert erased.files >= 2
    after = everything(office)
    assert left(office) == {}
    assert not any(word in after for word in ("eval runs", "@example.org", "return eval", "1 crit"))
    shown = office.reviews.find_version("cl-1", 2, org_id=ORG)
    assert (shown.review.word, shown.review.is_erased, shown.findings) == ("succeeded", True, ())
    # The gate still has the keys: no recipient gets a second message.
    assert (
        office.reviews.submit("cl-1", 2, "k9", org_id=ORG, source=shown.review.source).created
        is False
    )
    assert office.reviews.erase("cl-1", **WHY).reviews == 0


def test_a_patch_that_was_posted_goes_with_its_review(office: Office) -> None:
    patch = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+whatever\n"
    office.submit(source=office.reviews.store_patch(patch, org_id=ORG))

    erased = office.reviews.erase("cl-1", **WHY)
    office.work_out()

    assert (erased.reviews, erased.files, stored(office.home)) == (1, 1, [])
    (job,) = look(office.hf.store, "SELECT state FROM holdfast.job")
    assert (job["state"], office.mails) == ("canceled", [])


def test_who_wants_to_erase_says_why_and_whose(bench: Bench) -> None:
    bench.submit()

    with pytest.raises(InvalidReview, match="reason"):
        bench.reviews.erase("cl-1", org_id=ORG, reason=" ")
    with pytest.raises(ReviewNotFound):
        bench.reviews.erase("cl-1", org_id=OTHER_ORG, reason="asked for")
    assert not bench.reviews.find_version("cl-1", org_id=ORG).review.is_erased


@pytest.mark.parametrize("full_restart", [False, True])
def test_a_dead_letter_of_an_erased_review_has_no_text(bench: Bench, full_restart: bool) -> None:
    bench.channel.script("refused")
    asked = bench.submit(to=[ANN, BEN])
    bench.work_out()
    sent = len(bench.channel.sends)
    bench.reviews.erase("cl-1", **WHY)

    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    replay(operator(bench.hf), job, full_restart=full_restart)
    bench.work_out()

    again = bench.again(asked)
    assert (again.state, again.is_erased) == (State.FAILED, True)
    assert bench.hf.get(again.job_id, org_id=ORG).error_class == "REVIEW_ERASED"
    assert (len(bench.channel.sends), left(bench)) == (sent, {})
    assert bench.calls == {"fetch": 1, "llm": 1}


def test_an_erasure_between_two_stages_leaves_no_findings(bench: Bench) -> None:
    real = bench.reviews._criticise_change

    def erase_then_say(*given: Any) -> Any:
        # The worker still runs the job, and may store a result.
        assert bench.reviews.erase("cl-1", **WHY).left_over == 1
        return real(*given)

    bench.reviews._criticise_change = erase_then_say
    asked = bench.submit()
    bench.work_out()
    assert bench.reviews.erase("cl-1", **WHY).left_over == 0

    assert bench.again(asked).word != "succeeded"
    assert (bench.channel.sends, left(bench)) == ([], {})


def test_an_erasure_during_notification_is_not_a_success(bench: Bench) -> None:
    def erase(reached: Point) -> None:
        if reached is Point.AFTER_INTENT:
            stop()
            bench.reviews.erase("cl-1", **WHY)

    stop = install(bench.hf, Point, erase)
    asked = bench.submit()
    bench.work_out()

    assert bench.again(asked).word != "succeeded"
    assert (bench.channel.sends, left(bench)) == ([], {})


# SQLite has one writer at a time.
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("first", ["notify", "erase"])
def test_an_erasure_at_the_very_moment_of_telling_leaves_nothing(
    bench: Bench, url: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bench.submit(to=[ANN, BEN])
    eraser = threading.Thread(target=lambda: bench.reviews.erase("cl-1", **WHY))
    begun = threading.Event()

    def wait_for_the_other() -> None:
        """Keep our transaction open until the other one waits for it."""
        begun.set()
        wait_for_a_lock(url)

    intend, read, forget = notifying._intend, show.read_findings, erasing.forget_reviews
    if first == "notify":

        def read_slowly(*given: Any) -> Any:
            if not begun.is_set():
                eraser.start()
                wait_for_the_other()
            return read(*given)

        monkeypatch.setattr(show, "read_findings", read_slowly)
    else:

        def intend_late(*given: Any) -> None:
            eraser.start()
            assert begun.wait(20)
            intend(*given)

        def forget_slowly(*given: Any) -> Any:
            counts = forget(*given)
            wait_for_the_other()
            return counts

        monkeypatch.setattr(notifying, "_intend", intend_late)
        monkeypatch.setattr(erasing, "forget_reviews", forget_slowly)
    bench.work_out()
    eraser.join(30)

    assert begun.is_set()
    if first == "erase":
        assert (bench.again(asked).word == "succeeded", bench.channel.sends) == (False, [])
    else:
        # The message in flight is taken by another call.
        bench.reviews.erase("cl-1", **WHY)
    assert left(bench) == {}


def test_a_person_who_leaves_is_in_no_review_and_holds_none_back(bench: Bench) -> None:
    told = bench.succeed(to=[ANN, BEN])
    waiting = bench.submit(1, "k2", changelist="cl-2", to=[ANN, BEN])

    erased = bench.reviews.erase_recipient("ann", **WHY)
    bench.work_out()

    assert (erased.recipients, erased.deliveries) == (2, 1)
    assert (bench.again(told).word, bench.again(waiting).word) == ("succeeded", "succeeded")
    names = look(bench.hf.store, "SELECT DISTINCT recipient FROM holdfast.review_recipient")
    assert [row["recipient"] for row in names] == ["ben"]
    addresses = look(bench.hf.store, "SELECT DISTINCT address FROM holdfast.delivery")
    assert [row["address"] for row in addresses] == ["ben@example.org"]


def test_what_ended_long_ago_is_forgotten_and_what_is_under_way_is_not(bench: Bench) -> None:
    old = bench.succeed()
    bench.clock.advance(days=364)
    bench.succeed(1, "k2", changelist="cl-2")
    bench.submit(1, "k3", changelist="cl-3")
    bench.clock.advance(days=2)

    report = bench.hf.runs.trigger("review_retention", actor="user:ann", role="admin", reason="now")
    again = bench.hf.runs.trigger("review_retention", actor="user:ann", role="admin", reason="now")

    assert (report.outcome, again.outcome) == ("done", "skipped")
    assert bench.again(old).is_erased
    kept = [bench.reviews.find_version(name, org_id=ORG) for name in ("cl-2", "cl-3")]
    assert [one.review.is_erased for one in kept] == [False, False]
    assert (len(kept[0].findings), len(kept[1].recipients)) == (2, 1)


def test_a_rerun_asks_for_recipients_whose_addresses_are_gone(bench: Bench) -> None:
    bench.succeed(to=[ANN])
    bench.hf.outbox.erase("ann", org_id=ORG)

    with pytest.raises(InvalidReview, match="not all addresses of version 1 are kept"):
        bench.reviews.rerun("cl-1", 2, "k2", org_id=ORG)
