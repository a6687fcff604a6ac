"""Recovery: after a killed worker, a lost answer or a late create, each item is paid once."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.job import SYSTEM
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import Conflict, RuleBroken, StoreDown
from holdfast.store import Tx
from holdfast_llm.batch.group import name_of
from holdfast_llm.batch.lease import BatchLost
from holdfast_llm.batch.maintenance import SQL as MAINTENANCE
from holdfast_llm.provider.adapter import BatchPhase, Capabilities, Lookup
from holdfast_llm.provider.reply import FailureKind
from holdfast_llm.provider.request import Request
from holdfast_llm.settings import BatchSettings, ProviderSettings
from tests.batch.outgoing import ROUTE, Died, Outgoing, another, set_out
from tests.batch.scripted import Act, Lose, Refuse, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.rows import requeue
from tests.story import ORG, by_hand, events, look, timeline

SUBMITTING = [
    Point.CLAIMED,
    Point.PREPARED,
    Point.UPLOADED,
    Point.UPLOAD_RECORDED,
    Point.CREATING_RECORDED,
    Point.CREATED,
    Point.CREATE_RECORDED,
]
RECOVERING = [
    Point.SCANNED,
    Point.FENCED,
    Point.FENCE_RECORDED,
    Point.STEPPED_BACK,
    Point.UPLOADED,
    Point.UPLOAD_RECORDED,
    Point.CREATING_RECORDED,
    Point.CREATED,
    Point.CREATE_RECORDED,
]
NAMELESS = Capabilities(lookup=Lookup.COUNT, has_input_file=False)


@pytest.fixture
def out(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock)


def assert_paid_once(out: Outgoing, *texts: str) -> None:
    """Run until no work is left: each text was executed exactly once."""
    out.provider.complete()
    assert out.provider.paid == Counter(dict.fromkeys(texts, 1))
    assert {row["state"] for row in out.jobs} == {"batch_submitted"}
    assert [row["state"] for row in out.batches if row["state"] != "released"] == ["submitted"]
    open_items = [row for row in out.items if row["is_open"] == 1]
    assert len(open_items) == len(texts)


# -- a killed worker


@pytest.mark.parametrize("point", SUBMITTING)
def test_a_worker_that_dies_anywhere_leaves_something_that_the_next_run_resolves(
    out: Outgoing, point: Point
) -> None:
    out.enqueue("one", "two", "three")

    assert out.die(point)
    out.settle_down()

    assert_paid_once(out, "one", "two", "three")
    assert len(out.provider.live) == 1


@pytest.mark.parametrize(
    ("first", "later"),
    [
        *((Point.CREATED, later) for later in SUBMITTING[1:]),
        (Point.PREPARED, Point.UPLOADED),
        (Point.PREPARED, Point.CREATED),
        (Point.CREATING_RECORDED, Point.PREPARED),
        (Point.CREATING_RECORDED, Point.CREATING_RECORDED),
    ],
)
def test_the_worker_that_comes_to_help_may_die_as_well(
    out: Outgoing, first: Point, later: Point
) -> None:
    out.enqueue("one", "two")

    assert out.die(first)
    for _ in range(6):
        out.later(minutes=10)
        if out.die(later, owner="helper"):
            break
    out.settle_down()

    assert_paid_once(out, "one", "two")


@pytest.mark.parametrize("point", RECOVERING)
def test_a_recovery_that_dies_anywhere_is_taken_up_by_the_next(out: Outgoing, point: Point) -> None:
    out.enqueue("one", "two")
    out.provider.script("create", Lose())
    out.submit()

    died = False
    for _ in range(8):
        out.later(minutes=6)
        died = died or out.die(point, owner="helper")
    out.settle_down()

    assert died
    assert_paid_once(out, "one", "two")


@pytest.mark.parametrize("point", [Point.BACK_RECORDED, Point.BACK_GROUP_RECORDED])
def test_a_worker_that_dies_while_it_gives_back_leaves_a_batch_that_is_never_sent(
    out: Outgoing, point: Point
) -> None:
    jobs = out.enqueue("one", "two", "three")
    out.provider.script("create", Refuse(FailureKind.CAPACITY, "token_limit_exceeded"))

    assert out.die(point)
    marked = out.batch
    out.later(minutes=6)
    out.recover()

    assert (marked["state"], marked["error_code"]) == ("prepared", "token_limit_exceeded")
    assert out.batch["state"] == "released"
    assert out.states(jobs) == Counter(queued=3)
    assert [out.job(job).attempt_count for job in jobs] == [0, 0, 0]
    assert out.provider.live == []
    out.settle_down()
    assert_paid_once(out, "one", "two", "three")


def test_a_job_whose_batch_may_exist_is_not_stale_however_long_its_lease_is_over(
    out: Outgoing,
) -> None:
    jobs = out.enqueue("one")
    assert out.die(Point.CREATED)
    out.later(days=2)

    assert rescue_jobs(out.hf.store, limit=100, find=MAINTENANCE.find_stale) == []
    assert rescue_jobs(out.hf.store, limit=100, dead_worker_id="dead") == []
    assert out.states(jobs) == Counter(processing=1)


def test_claims_without_an_item_are_rescued_and_count_as_an_attempt(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    assert out.die(Point.CLAIMED)
    out.later(hours=1)
    rescue_jobs(out.hf.store, limit=100, find=MAINTENANCE.find_stale)

    assert out.job(jobs[0]).last_error == "stale_claim_requeued"
    assert out.job(jobs[0]).attempt_count == 1


# -- a lost answer


def test_a_batch_whose_answer_was_lost_is_adopted(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two")
    out.provider.script("create", Lose(accepted=True))

    out.submit()
    unsure = out.batch["state"]
    out.later(minutes=2)
    out.submit()

    assert unsure == "creating"
    assert out.changes() == ["adopted"]
    assert out.provider.calls["create"] == 1
    assert out.states(jobs) == Counter(batch_submitted=2)
    assert timeline(out.hf, jobs[0])[-1] == "job.submitted"
    assert_paid_once(out, "one", "two")


def test_a_create_that_never_arrived_is_done_again_only_behind_a_fence(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()

    steps = []
    for minutes in (10, 6, 1, 2):
        out.later(minutes=minutes)
        out.submit()
        row = out.batch
        steps.append((row["state"], row["create_attempt"], row["fenced_at"] is not None))

    assert steps == [
        ("creating", 1, False),
        ("creating", 1, True),
        ("creating", 1, True),
        ("submitted", 2, False),
    ]
    first, second = sorted(out.provider.files.values(), key=lambda file: file.id)
    assert first.deleted_at is not None
    assert second.deleted_at is None
    assert (first.name[-1], second.name[-1]) == ("1", "2")
    assert out.changes() == ["fenced", "submitted"]
    assert_paid_once(out, "one")


@pytest.mark.parametrize("minutes", [1, 14, 16, 17, 18, 67])
def test_a_create_that_is_executed_late_is_never_paid_beside_another(
    out: Outgoing, minutes: int
) -> None:
    out.enqueue("one", "two")
    out.provider.script("create", Lose(later=timedelta(minutes=minutes)))
    out.submit()

    out.settle_down(minutes=1)
    out.later(hours=6)
    out.submit(owner="afterwards")

    assert len(out.provider.live) == 1
    assert_paid_once(out, "one", "two")


def test_a_batch_that_turns_up_late_is_adopted_before_it_is_sent_again(out: Outgoing) -> None:
    """It was abandoned and released; later the listing shows it."""
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    gave_up = False
    while not gave_up:
        out.later(minutes=6)
        gave_up = out.die(Point.STEPPED_BACK, owner="recovery")
    late = out.provider._make_batch(ROUTE, name_of(out.batch["id"], 1, "main"), None, b"")

    out.later(minutes=10)
    out.recover()

    assert (out.batch["state"], out.batch["provider_batch_id"]) == ("submitted", late.id)
    assert out.provider.calls["create"] == 1


@pytest.mark.parametrize("seconds", [30, 110])
def test_a_listing_that_lags_hides_nothing_for_longer_than_the_wait(
    out: Outgoing, seconds: int
) -> None:
    out.provider.list_lag = timedelta(seconds=seconds)
    out.enqueue("one")
    # It is executed just before the fence, and visible only some time after it.
    out.provider.script("create", Lose(later=timedelta(minutes=15)))
    out.submit()

    out.settle_down(minutes=0.5)

    assert_paid_once(out, "one")


def test_a_listing_without_our_key_is_read_by_the_input_file(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    seen = type(out.provider)._provider_batch
    monkeypatch.setattr(
        type(out.provider),
        "_provider_batch",
        lambda self, batch: replace(seen(self, batch), key=None, attempt=None, environment=None),
    )
    out.later(minutes=2)
    out.submit()

    assert out.changes() == ["adopted"]
    assert_paid_once(out, "one")


def test_foreign_batches_are_not_touched(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    account = out.accounts.for_route(ROUTE)
    stranger = out.provider._make_batch(ROUTE, None, None, b"")  # type: ignore[arg-type]

    out.settle_down()

    assert account.key == out.batch["account"]
    assert out.batch["provider_batch_id"] != stranger.id
    assert stranger.cancels == 0


def test_a_batch_with_another_key_is_not_adopted(out: Outgoing) -> None:
    """Another deployment may use the same account."""
    out.enqueue("one")
    out.provider.script("create", Lose(later=timedelta(days=9)))
    out.submit()
    other = name_of(out.hf.ids.new(), 1, "main")
    stranger = out.provider._make_batch(ROUTE, other, None, b"")

    out.later(minutes=2)
    out.recover()

    assert (out.batch["state"], out.batch["provider_batch_id"]) == ("creating", None)
    assert stranger.cancels == 0


def test_a_batch_that_failed_by_itself_is_the_collectors(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    (made,) = out.provider.batches.values()
    made.phase, made.status = BatchPhase.FAILED, "failed"
    out.later(minutes=2)
    out.submit()

    assert out.batch["state"] == "submitted"
    assert out.batch["provider_batch_id"] == made.id
    assert out.provider.calls["create"] == 1


def test_a_listing_that_cannot_be_read_changes_nothing_until_it_can(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    out.provider.script("scan", Lose(), Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401))
    for _ in range(2):
        out.later(hours=1)
        out.submit()
        assert out.batch["state"] == "creating"
    out.later(minutes=2)
    out.submit()

    assert_paid_once(out, "one")


def test_an_input_that_cannot_be_deleted_is_no_fence(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    out.provider.script("delete_file", Lose(), Lose())
    for _ in range(2):
        out.later(minutes=20)
        out.submit()
        assert out.batch["fenced_at"] is None
        assert out.provider.calls["create"] == 1
    out.settle_down()

    assert_paid_once(out, "one")


def test_a_commit_that_is_lost_after_the_create_is_found_again(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.enqueue("one")
    store = out.hf.store

    def fail(point: Point) -> None:
        if point is Point.CREATED:

            def down(work: object) -> None:
                raise StoreDown("the database is away")

            monkeypatch.setattr(store, "write", down)

    with pytest.raises(StoreDown):
        out.submit(dies_at=fail)
    monkeypatch.undo()
    out.settle_down()

    assert_paid_once(out, "one")


# -- two workers and one batch


def test_a_worker_that_slept_between_its_commit_and_its_create_does_not_send_it(
    out: Outgoing,
) -> None:
    out.enqueue("one")
    other = another(out)

    def sleep(point: Point) -> None:
        if point is Point.CREATING_RECORDED:
            other.settle_down()

    out.submit(owner="sleeper", dies_at=sleep)
    other.hf.close()

    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one")


def test_a_submitter_that_lost_the_batch_before_its_create_does_not_send_it(out: Outgoing) -> None:
    """No time has passed: only the fence shows that another worker holds the batch."""
    out.enqueue("one")

    def lose(point: Point) -> None:
        if point is Point.CREATING_RECORDED:
            by_hand(out.hf.store, "UPDATE holdfast.provider_batch SET fence = fence + 1")

    out.submit(dies_at=lose)

    assert out.provider.calls["create"] == 0
    assert out.batch["state"] == "creating"


def test_a_submitter_that_lost_the_batch_during_its_upload_does_not_record_it(
    out: Outgoing,
) -> None:
    """The next worker may have uploaded the input already, under another id."""
    out.enqueue("one")

    def lose(point: Point) -> None:
        if point is Point.UPLOADED:
            by_hand(out.hf.store, "UPDATE holdfast.provider_batch SET fence = fence + 1")

    out.submit(dies_at=lose)

    assert (out.batch["state"], out.batch["input_file_id"]) == ("prepared", None)


def test_a_worker_that_slept_alone_does_not_submit_an_expired_batch(out: Outgoing) -> None:
    out.enqueue("one")

    def sleep(point: Point) -> None:
        if point is Point.CREATING_RECORDED:
            out.later(minutes=2)

    out.submit(owner="sleeper", dies_at=sleep)
    sent = out.provider.calls["create"]
    out.settle_down()

    assert sent == 0
    assert_paid_once(out, "one")


def test_a_create_that_leaves_after_the_fence_has_nothing_to_run(out: Outgoing) -> None:
    """The request takes so long that another worker has created the batch again."""
    out.enqueue("one", "two")
    other = another(out)
    out.provider.script("create", Act(other.settle_down))

    out.submit(owner="sleeper")
    other.hf.close()

    assert out.provider.calls["create"] == 2
    assert Counter(made.phase for made in out.provider.batches.values()) == Counter(
        {BatchPhase.RUNNING: 1, BatchPhase.FAILED: 1}
    )
    assert "zombie_batch" in out.alerts()
    assert_paid_once(out, "one", "two")


def test_who_made_the_batch_may_say_so_although_its_lease_is_over(out: Outgoing) -> None:
    """The answer arrives while another worker waits for it: a known id needs no scan."""
    out.enqueue("one")
    other = another(out)

    def meanwhile() -> None:
        out.later(minutes=10)
        other.recover(owner="impatient")

    out.provider.script("create", Act(meanwhile))
    out.submit(owner="slow")
    looked = other.provider.calls["scan"]
    other.hf.close()

    assert looked > 0
    assert out.batch["state"] == "submitted"
    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one")


@pytest.mark.both_databases
def test_two_recoveries_at_once_adopt_a_batch_once(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    other = another(out)
    out.later(minutes=2)
    both = threading.Barrier(2)
    tallies: list[Counter[str]] = []
    failed: list[BaseException] = []

    def recover(worker: Outgoing, owner: str) -> None:
        try:
            both.wait(10)
            tallies.append(worker.recover(owner=owner).done)
        except BaseException as exc:
            failed.append(exc)

    threads = [
        threading.Thread(target=recover, args=(worker, owner))
        for worker, owner in ((out, "left"), (other, "right"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    other.hf.close()

    assert failed == []
    assert sum(tally["adopted"] for tally in tallies) == 1
    assert timeline(out.hf, jobs[0]).count("job.submitted") == 1
    assert_paid_once(out, "one", "two")


def test_a_worker_whose_lease_was_taken_writes_nothing_more(out: Outgoing) -> None:
    """At each step, a worker thaws after another one has taken the batch."""
    out.enqueue("one")
    leases = out.service().leases
    assert out.die(Point.PREPARED)
    out.later(minutes=6)
    mine = leases.take_to_send("slow")
    out.later(minutes=6)
    theirs = leases.take_to_send("quick")

    assert mine is not None
    assert theirs is not None
    assert theirs.fence == mine.fence + 1
    with pytest.raises(BatchLost):
        leases.hold(mine)
    assert leases.hold(theirs).state == "prepared"


@pytest.mark.parametrize("point", SUBMITTING[1:-1])
def test_a_submitter_that_loses_its_batch_anywhere_lets_go_of_it(
    out: Outgoing, point: Point
) -> None:
    """The worker freezes at the point for hours, others finish the work, and then it continues."""
    out.enqueue("one", "two")
    other = another(out)

    def freeze(at: Point) -> None:
        if at is point:
            other.settle_down()

    out.submit(owner="frozen", dies_at=freeze, max_runtime_seconds=86_400)
    other.hf.close()

    assert_paid_once(out, "one", "two")


def test_a_page_that_comes_after_the_batch_was_lost_begins_another(out: Outgoing) -> None:
    out.hf.enqueue_many(
        "text.shout", [{"text": f"text {number}"} for number in range(600)], org_id=ORG
    )
    other = another(out)
    pages = 0

    def freeze(point: Point) -> None:
        nonlocal pages
        if point is Point.PREPARED:
            pages += 1
            if pages == 1:
                out.later(minutes=10)
                other.recover(owner="quick")

    out.submit(owner="frozen", dies_at=freeze, max_runtime_seconds=86_400)
    other.hf.close()
    out.provider.complete()

    assert sorted(row["items"] for row in out.batches) == [100, 500]
    assert len(out.provider.paid) == 600
    assert out.provider.double_paid() == {}


def test_a_job_that_was_taken_from_under_its_batch_is_not_sent_by_it(out: Outgoing) -> None:
    """Only a manual change of the database can cause that. The check before the create finds it."""
    jobs = out.enqueue("taken", "kept")

    def take(point: Point) -> None:
        if point is Point.UPLOAD_RECORDED:
            requeue(out.hf.store, jobs[0].id)

    out.submit(dies_at=take)

    assert out.sent_texts() == [["kept"]]
    assert out.provider.calls["create"] == 1
    assert len(out.provider.standing_files) == 1
    assert [row["state"] for row in out.items] == ["released", "open"]
    out.submit()
    out.provider.complete()
    assert out.provider.paid == Counter(taken=1, kept=1)


@pytest.mark.both_databases
def test_the_database_refuses_a_second_open_item_for_a_unit(out: Outgoing) -> None:
    out.enqueue("one")
    out.submit()

    with pytest.raises(RuleBroken, match="batch_item"):
        by_hand(
            out.hf.store,
            "INSERT INTO holdfast.batch_item (batch_id, batch_item_index, org_id, job_id, job_type,"
            " execution_mode, unit, attempt, lease_token, custom_id, echo, group_key, input_tokens,"
            " created_at) SELECT batch_id, 7, org_id, job_id, job_type, execution_mode, unit,"
            " attempt, lease_token, 'other', echo, group_key, input_tokens, created_at"
            " FROM holdfast.batch_item",
        )


# -- repeated failures


def test_a_create_that_stays_without_an_answer_releases_its_jobs_without_an_attempt(
    out: Outgoing,
) -> None:
    (job,) = out.enqueue("one")
    out.provider.script("create", *(Lose() for _ in range(5)))
    out.submit()
    for _ in range(80):
        out.later(minutes=5)
        out.submit()

    first, second = out.batches
    assert (first["state"], second["state"]) == ("released", "submitted")
    assert first["create_attempt"] == out.hf.settings.batch.max_rounds
    assert out.alerts() == ["create_unanswered"]
    assert out.job(job).attempt_count == 0
    assert_paid_once(out, "one")


def test_a_provider_that_never_answers_is_abandoned_after_some_hours(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    out.provider.script("scan", *(Lose() for _ in range(30)))
    for _ in range(13):
        out.later(minutes=30)
        out.submit()

    assert out.batch["state"] == "quarantined"
    assert out.batch["error_code"] == "not_answered"
    assert len(out.provider.live) == 1


def quarantined(out: Outgoing) -> str:
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    out.provider.script("scan", *(Lose() for _ in range(30)))
    for _ in range(13):
        out.later(minutes=30)
        out.submit()
    out.provider._steps.clear()
    assert out.batch["state"] == "quarantined"
    return str(out.batch["id"])


def test_nothing_but_a_person_takes_a_batch_out_of_quarantine(out: Outgoing) -> None:
    out.enqueue("one")
    quarantined(out)
    for _ in range(20):
        out.later(hours=1)
        rescue_jobs(out.hf.store, limit=10, find=MAINTENANCE.find_stale)
        out.submit()

    assert out.batch["state"] == "quarantined"
    assert out.provider.calls["create"] == 1


def test_a_person_may_adopt_what_is_in_quarantine(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    batch_id = quarantined(out)
    (made,) = out.provider.live

    out.service().recovery.adopt_quarantined(batch_id, made.id, actor=SYSTEM)

    assert out.states(jobs) == Counter(batch_submitted=1)
    assert_paid_once(out, "one")
    with pytest.raises(Conflict):
        out.service().recovery.adopt_quarantined(batch_id, made.id, actor=SYSTEM)


def test_a_person_may_say_that_it_does_not_exist(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    batch_id = quarantined(out)

    out.service().recovery.release_quarantined(batch_id, actor=SYSTEM)

    assert out.states(jobs) == Counter(queued=1)
    assert out.job(jobs[0]).attempt_count == 0
    assert json.loads(events(out.hf, jobs[0])[-1]["detail"])["reason"] == "operator"
    assert out.batch["state"] == "released"


def test_a_name_that_another_batch_has_is_not_adopted_and_the_try_leaves_nothing(
    out: Outgoing,
) -> None:
    jobs = out.enqueue("one")
    batch_id = quarantined(out)
    out.enqueue("two")
    out.submit()
    (other,) = [row["provider_batch_id"] for row in out.batches if row["state"] == "submitted"]
    decided: list[Tx] = []

    with pytest.raises(Conflict, match="another Holdfast batch has that provider batch id"):
        out.service().recovery.adopt_quarantined(
            batch_id, other, actor=SYSTEM, decided=decided.append
        )
    assert decided == []
    out.service().recovery.release_quarantined(batch_id, actor=SYSTEM, decided=decided.append)

    assert len(decided) == 1
    assert out.states(jobs) == Counter(queued=1)


def test_what_a_released_batch_may_have_cost_is_in_the_ledger(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two")
    out.submit()
    by_hand(out.hf.store, "UPDATE holdfast.provider_batch SET state = 'quarantined'")
    batch_id = str(out.batch["id"])

    out.service().recovery.release_quarantined(batch_id, actor=SYSTEM)

    assert out.states(jobs) == Counter(queued=2)
    rows = look(out.hf.store, "SELECT * FROM holdfast.provider_call ORDER BY batch_item_index")
    assert [(row["kind"], row["job_id"]) for row in rows] == [("unknown", job.id) for job in jobs]
    assert {row["provider_batch_id"] for row in rows} == {out.batch["provider_batch_id"]}


@pytest.mark.parametrize("edited", ["edited", "two"])
def test_a_text_that_changes_before_it_is_sent_is_rendered_again_and_sent_once(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """Longer than before, or of the same length."""
    out = set_out(hf, clock, capabilities=NAMELESS)
    jobs = out.enqueue("one")
    texts = iter(["one", "one", edited])
    built: list[str] = []

    def request(item: Any) -> Request:
        built.append(next(texts, edited))
        return Request((built[-1],))

    monkeypatch.setattr(out.work, "request", request)

    out.submit()

    assert out.states(jobs) == Counter(batch_submitted=1)
    assert out.sent_texts() == [[edited]]
    # For the first batch and its create, then once more for each.
    assert built == ["one", "one", edited, edited, edited]
    assert out.provider.calls["create"] == 1


def test_a_request_that_is_another_one_each_time_ends_as_its_jobs_own_failure(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = set_out(hf, clock, capabilities=NAMELESS)
    (job,) = out.enqueue("one")
    texts = map(str, itertools.count())
    monkeypatch.setattr(out.work, "request", lambda item: Request((next(texts),)))

    out.submit()

    assert (out.job(job).state, out.job(job).attempt_count) == ("queued", 1)
    assert out.batch["state"] == "released"
    assert out.provider.calls["create"] == 0


def test_a_second_batch_with_our_name_is_canceled_and_its_cost_is_written_down(
    out: Outgoing,
) -> None:
    """A provider that runs a deleted file breaks the assumption of the fence."""
    out.enqueue("one")
    out.provider.script("create", Lose(later=timedelta(hours=2)))
    out.submit()
    for file in out.provider.files.values():
        file.deleted_at = None
    out.settle_down()
    kept = out.batch["provider_batch_id"]
    for file in out.provider.files.values():
        file.deleted_at = None
    out.later(hours=2)
    out.submit(owner="sweep")
    zombie = next(made for made in out.provider.batches.values() if made.id != kept)
    out.submit(owner="again")

    assert zombie.phase is BatchPhase.CANCELED
    assert zombie.cancels == 1
    assert out.provider.batches[kept].cancels == 0
    assert set(out.alerts()) == {"zombie_batch"}
    rows = look(out.hf.store, "SELECT * FROM holdfast.provider_call")
    assert [(row["kind"], row["provider_batch_id"]) for row in rows] == [("orphan", zombie.id)]


def test_of_two_batches_with_our_name_the_one_that_is_paid_for_is_kept(out: Outgoing) -> None:
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    (first,) = out.provider.live
    second = out.provider._make_batch(ROUTE, first.name, first.file_id, b"")  # type: ignore[arg-type]
    out.provider.complete(second.id)
    out.later(minutes=2)
    out.submit()

    assert out.batch["provider_batch_id"] == second.id
    assert first.phase is BatchPhase.CANCELED
    assert out.alerts() == ["zombie_batch"]


def test_an_input_that_was_left_behind_is_deleted_in_the_end(out: Outgoing) -> None:
    """A worker uploads after it lost the batch, and the file is not recorded."""
    out.enqueue("one")
    other = another(out)
    out.provider.script("upload", Act(other.settle_down))
    out.submit(owner="slow")
    other.hf.close()
    left = len(out.provider.standing_files)
    by_hand(
        out.hf.store,
        "UPDATE holdfast.batch_item SET state = 'succeeded', is_open = 0, recorded_at = created_at",
    )
    for state in ("'ended'", "'collected', collected_at = created_at"):
        by_hand(out.hf.store, f"UPDATE holdfast.provider_batch SET state = {state}")
    kept = out.batch["input_file_id"]
    out.provider.files[kept].deleted_at = out.clock.now()
    by_hand(out.hf.store, "UPDATE holdfast.provider_batch SET files_deleted_at = created_at")
    out.later(hours=2)
    out.submit(owner="sweep")

    assert left == 2
    assert out.provider.standing_files == []
    assert out.batch["strays"] == 0


def test_a_batch_whose_account_is_gone_waits_and_then_goes_back(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    assert out.die(Point.PREPARED)
    out.accounts.missing = {out.accounts.for_route(ROUTE).key}
    out.later(minutes=10)
    out.recover()
    waiting = out.batch["state"]
    out.later(hours=7)
    out.recover()

    assert waiting == "prepared"
    assert out.batch["state"] == "released"
    assert out.states(jobs) == Counter(queued=1)


def test_a_batch_of_an_unknown_job_type_waits_and_is_then_released(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    assert out.die(Point.PREPARED)
    handler = out.hf.registry.handlers.pop("text.shout")
    out.later(minutes=10)
    out.recover()
    waiting = out.batch["state"]
    out.later(hours=2)
    out.recover()
    out.hf.registry.handlers["text.shout"] = handler

    assert waiting == "prepared"
    assert out.states(jobs) == Counter(queued=1)
    assert out.job(jobs[0]).attempt_count == 0


def test_one_bad_batch_never_blocks_another(out: Outgoing) -> None:
    out.enqueue("german")
    out.enqueue("spanish", route=replace(ROUTE, target_locale="es"))

    def explode() -> None:
        raise ZeroDivisionError

    out.provider.script("upload", Act(explode))
    out.submit()

    assert sorted(row["state"] for row in out.batches) == ["prepared", "submitted"]
    out.settle_down()
    out.provider.complete()
    assert out.provider.paid == Counter(german=1, spanish=1)


# -- a file that cannot be deleted


@pytest.mark.req("P-13")
def test_where_files_cannot_be_deleted_a_create_is_made_again_when_the_listing_does_not_show_it(
    hf: Holdfast, clock: FakeClock
) -> None:
    out = set_out(hf, clock, capabilities=Capabilities(can_delete_file=False))
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    for _ in range(3):
        out.later(minutes=15)
        out.submit()
    assert (out.batch["state"], out.provider.calls["create"]) == ("creating", 1)

    out.later(minutes=16)
    out.submit()

    assert out.provider.calls["create"] == 2
    assert out.provider.calls["delete_file"] == 0
    assert_paid_once(out, "one")


# -- neither a key nor a file


@pytest.fixture
def nameless(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock, capabilities=NAMELESS)


def test_without_a_key_a_batch_is_matched_by_its_time_and_number(nameless: Outgoing) -> None:
    out = nameless
    out.enqueue("one", "two")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    foreign = out.provider._make_batch(ROUTE, None, None, b"")  # type: ignore[arg-type]
    out.later(minutes=2)
    out.submit()

    assert out.batch["state"] == "submitted"
    assert out.batch["provider_batch_id"] != foreign.id
    assert_paid_once(out, "one", "two")


def test_without_a_key_one_create_is_under_way_at_a_time(nameless: Outgoing) -> None:
    out = nameless
    out.enqueue("german")
    (spanish,) = out.enqueue("spanish", route=replace(ROUTE, target_locale="es"))
    out.provider.script("create", Lose(accepted=True))

    out.submit()

    assert out.provider.calls["create"] == 1
    assert sorted(row["state"] for row in out.batches) == ["creating", "released"]
    assert out.job(spanish).attempt_count == 0
    out.settle_down()
    out.provider.complete()
    assert out.provider.paid == Counter(german=1, spanish=1)


def test_without_a_key_two_candidates_are_a_persons_to_choose(nameless: Outgoing) -> None:
    out = nameless
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    (made,) = out.provider.live
    out.provider._make_batch(ROUTE, None, None, made.data)  # type: ignore[arg-type]
    out.later(minutes=2)
    out.submit()

    assert out.batch["state"] == "quarantined"
    assert out.batch["error_code"] == "several_candidates"
    assert out.provider.calls["create"] == 1


def test_without_a_key_a_batch_of_ours_is_no_candidate_for_another(nameless: Outgoing) -> None:
    out = nameless
    out.enqueue("one")
    out.submit()
    out.enqueue("two")
    out.provider.script("create", Lose())
    out.submit()
    out.later(minutes=2)
    out.submit()

    assert sorted(row["state"] for row in out.batches) == ["creating", "submitted"]


@pytest.mark.req("P-13")
def test_without_a_key_what_the_listing_does_not_show_for_an_hour_is_created_again(
    nameless: Outgoing,
) -> None:
    out = nameless
    (job,) = out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    out.later(minutes=50)
    out.submit()
    assert (out.batch["state"], out.provider.calls["create"]) == ("creating", 1)

    out.later(minutes=15)
    out.submit()

    assert out.provider.calls["create"] == 2
    assert out.job(job).attempt_count == 0
    assert out.alerts() == []
    assert_paid_once(out, "one")


REFUSALS = [409, 500, 503, 529]
STRANGERS_BODY = {"model": "m", "input": ["theirs"]}
STRANGERS_LINE = json.dumps({"custom_id": "theirs", "body": STRANGERS_BODY}).encode() + b"\n"


@pytest.mark.req("P-13")
@pytest.mark.parametrize("status", REFUSALS)
def test_without_a_key_an_error_that_the_provider_answered_is_tried_again_within_minutes(
    nameless: Outgoing, status: int
) -> None:
    out = nameless
    (job,) = out.enqueue("one")
    out.provider.script("create", Lose(reason=f"status_{status}", status=status))
    out.submit()
    out.later(minutes=10)
    out.submit()
    assert (out.batch["state"], out.provider.calls["create"]) == ("creating", 1)

    out.later(minutes=10)
    out.submit()

    assert out.provider.calls["create"] == 2
    assert out.job(job).attempt_count == 0
    assert_paid_once(out, "one")


@pytest.mark.req("P-13")
@pytest.mark.parametrize(("status", "lag"), [(409, 0), (500, 5), (503, 14), (529, 14)])
def test_without_a_key_a_batch_that_was_made_behind_an_error_is_found_and_paid_once(
    nameless: Outgoing, status: int, lag: int
) -> None:
    out = nameless
    out.provider.list_lag = timedelta(minutes=lag)
    out.enqueue("one", "two")
    out.provider.script("create", Lose(accepted=True, reason=f"status_{status}", status=status))
    out.submit()

    out.settle_down(minutes=1)

    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one", "two")


def test_without_a_key_a_batch_whose_lines_are_anothers_is_not_adopted(
    nameless: Outgoing,
) -> None:
    out = nameless
    out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    stranger = out.provider._make_batch(ROUTE, None, None, STRANGERS_LINE)  # type: ignore[arg-type]
    out.provider.complete()
    out.later(minutes=2)
    out.submit()
    assert out.batch["state"] == "creating"

    out.later(minutes=70)
    out.submit()

    assert out.provider.calls["create"] == 2
    assert out.batch["state"] == "submitted"
    assert out.batch["provider_batch_id"] != stranger.id


def test_without_a_key_an_ended_batch_is_distinguished_from_a_foreign_one_by_its_lines(
    nameless: Outgoing,
) -> None:
    out = nameless
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    (made,) = out.provider.live
    out.provider._make_batch(ROUTE, None, None, STRANGERS_LINE)  # type: ignore[arg-type]
    out.provider.complete()
    out.later(minutes=2)
    out.submit()

    assert (out.batch["state"], out.batch["provider_batch_id"]) == ("submitted", made.id)
    assert out.provider.calls["create"] == 1


def test_without_a_key_a_batch_that_does_not_say_how_many_items_it_has_proves_nothing(
    nameless: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = nameless
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    scan = ScriptedProvider.scan

    def vague(provider: ScriptedProvider, client: Any, since: datetime) -> Any:
        for seen in scan(provider, client, since):
            yield replace(seen, total=None, created_at=None)

    monkeypatch.setattr(ScriptedProvider, "scan", vague)
    out.submit()
    out.later(hours=2)
    out.submit()

    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one")


# -- outcomes that cannot be determined


def accepting(out: Outgoing, **settings: Any) -> Outgoing:
    """The same with an account that has these settings."""
    own = ProviderSettings(base_url="https://api.openai.com/v1", **settings)
    out.hf.settings = replace(out.hf.settings, providers={ROUTE.provider: own})
    out.hf.batch.accounts = out.accounts
    return out


UNLISTED = Capabilities(lookup=Lookup.NONE, has_input_file=False)


@pytest.mark.req("P-13")
def test_without_a_listing_a_lost_create_is_held(hf: Holdfast, clock: FakeClock) -> None:
    out = set_out(hf, clock, capabilities=UNLISTED)
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    for _ in range(15):
        out.later(hours=2)
        out.submit()

    assert (out.batch["state"], out.batch["error_code"]) == ("quarantined", "no_listing")
    assert (out.provider.calls["create"], out.provider.calls["scan"]) == (1, 0)


def test_an_account_that_accepts_the_risk_releases_a_held_batch_after_its_time(
    hf: Holdfast, clock: FakeClock
) -> None:
    out = set_out(hf, clock, capabilities=UNLISTED)
    accepting(out, on_ambiguous="release_after", release_after_seconds=6 * 3600.0)
    (job,) = out.enqueue("one")
    out.provider.script("create", Lose())
    out.submit()
    for _ in range(11):
        out.later(minutes=30)
        out.submit()
    assert (out.batch["state"], out.provider.calls["create"]) == ("quarantined", 1)

    for _ in range(4):
        out.later(minutes=30)
        out.submit()

    assert out.provider.calls["create"] == 2
    assert out.job(job).attempt_count == 0
    assert out.alerts() == ["quarantined", "unknown_call"]
    assert_paid_once(out, "one")


def test_a_held_batch_that_turns_up_before_its_time_is_over_is_adopted(nameless: Outgoing) -> None:
    out = accepting(nameless, on_ambiguous="release_after", release_after_seconds=6 * 3600.0)
    out.enqueue("one")
    out.provider.script("create", Lose(accepted=True))
    out.submit()
    (made,) = out.provider.live
    other = out.provider._make_batch(ROUTE, None, None, made.data)  # type: ignore[arg-type]
    out.later(minutes=2)
    out.submit()
    assert out.batch["error_code"] == "several_candidates"

    out.provider.batches.pop(other.id)
    for _ in range(13):
        out.later(minutes=30)
        out.submit()

    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one")


def test_without_a_key_a_deployment_may_choose_to_wait(nameless: Outgoing) -> None:
    out = nameless
    out.hf.settings = replace(out.hf.settings, batch=BatchSettings(on_ambiguous="wait"))
    out.hf.batch.accounts = out.accounts
    out.enqueue("one")
    out.provider.script("create", Lose(later=timedelta(hours=3)))
    out.submit()
    for _ in range(10):
        out.later(minutes=30)
        out.submit()

    assert out.batch["state"] == "submitted"
    assert out.provider.calls["create"] == 1
    assert_paid_once(out, "one")


@pytest.mark.parametrize("point", SUBMITTING)
def test_without_a_key_a_worker_may_die_anywhere_all_the_same(
    nameless: Outgoing, point: Point
) -> None:
    out = nameless
    out.enqueue("one", "two")
    died = out.die(point)
    for _ in range(15):
        out.later(minutes=10)
        rescue_jobs(out.hf.store, limit=100, find=MAINTENANCE.find_stale)
        out.submit()
    out.provider.complete()

    # There is nothing to upload.
    assert died == (point not in (Point.UPLOADED, Point.UPLOAD_RECORDED))
    assert out.provider.double_paid() == {}
    assert out.batches[-1]["state"] == "submitted"


def test_a_second_run_of_the_same_transaction_writes_nothing_twice(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer was lost is run again."""
    jobs = out.enqueue("one", "two")
    store = out.hf.store
    write = store.write

    def twice(work: object) -> object:
        write(work)  # type: ignore[arg-type]
        return write(work)  # type: ignore[arg-type]

    def doubled(point: Point) -> None:
        if point is Point.CLAIMED:
            monkeypatch.setattr(store, "write", twice)

    out.submit(dies_at=doubled)
    monkeypatch.undo()

    assert out.provider.calls["create"] == 1
    assert [timeline(out.hf, job).count("job.submitted") for job in jobs] == [1, 1]
    assert_paid_once(out, "one", "two")


def test_a_worker_that_dies_in_the_commit_before_the_create_sent_nothing(out: Outgoing) -> None:
    out.enqueue("one")
    with pytest.raises(Died):
        out.submit(dies_at=Point.UPLOAD_RECORDED)

    assert out.provider.calls["create"] == 0
    assert out.batch["create_attempt"] == 0


def test_the_tries_of_a_batch_are_numbered_before_they_are_made(out: Outgoing) -> None:
    out.enqueue("one")
    numbers = []

    def look_at(point: Point) -> None:
        if point is Point.CREATING_RECORDED:
            numbers.append((out.batch["state"], out.batch["create_attempt"]))
            assert out.provider.calls["create"] == 0

    out.submit(dies_at=look_at)

    assert numbers == [("creating", 1)]
