"""Submitting a review: the caller's key, the gate, and requests that are refused."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from holdfast import FakeClock, Forbidden, Holdfast, InvalidJob, State
from holdfast.document import decode
from holdfast.engine.audit import subject_id
from holdfast_review.enums import Answer, ReviewProgress, progress_of
from holdfast_review.failure import InvalidReview, ReviewNotFound
from holdfast_review.model import Recipient, Source, read_version
from holdfast_review.reviews import Reviews
from tests.apps_review.bench import ANN, BEN, SOURCE, Bench
from tests.engine.faulty import Died, FaultyStore
from tests.story import ORG, OTHER_ORG, look, make_holdfast


def count(hf: Holdfast, table: str) -> int:
    found: int = look(hf.store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"]
    return found


def told(hf: Holdfast, review_id: str) -> list[tuple[str, Any]]:
    rows = look(
        hf.store,
        "SELECT name, detail FROM holdfast.job_event WHERE job_id = :id ORDER BY id",
        id=subject_id(f"review:{review_id}"),
    )
    return [(row["name"], decode(row["detail"])) for row in rows]


@pytest.mark.req("I-10")
def test_a_review_and_its_job_are_made_together_under_the_callers_key(bench: Bench) -> None:
    asked = bench.submit(3, "push-1", to=[ANN, BEN])

    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    assert (asked.answer, asked.created, asked.differs) == (Answer.CREATED, True, False)
    assert (asked.review.word, asked.review.review_version) == (ReviewProgress.IN_PROGRESS, 3)
    assert (job.job_type, job.queue, job.stage) == ("review.process", "q:default", "fetch")
    assert job.payload == {"review_id": asked.review.review_id}
    assert job.record["idempotency_key"] == asked.review.idempotency_key
    assert [name for name, _ in told(bench.hf, asked.review.review_id)] == ["review.submitted"]


@pytest.mark.req("I-10")
def test_a_review_without_a_usable_key_is_refused_and_nothing_is_written(bench: Bench) -> None:
    keys: list[Any] = ["", "  ", None, "a\nb", "k" * 501, 7]
    for key in keys:
        with pytest.raises(InvalidReview) as refused:
            bench.submit(1, key)
        assert list(refused.value.fields) == ["idempotency_key"]

    assert [count(bench.hf, name) for name in ("job", "review", "changelist")] == [0, 0, 0]


@pytest.mark.req("I-12")
def test_a_known_key_answers_with_the_original_job_and_makes_no_second(bench: Bench) -> None:
    first = bench.submit(1, "k1")

    again = bench.submit(1, "k1")

    assert (again.answer, again.differs) == (Answer.SAME_KEY, False)
    assert again.review == first.review
    assert (count(bench.hf, "job"), count(bench.hf, "review")) == (1, 1)


@pytest.mark.req("I-12")
def test_a_known_key_with_other_content_is_reported_and_audited_and_not_executed(
    bench: Bench,
) -> None:
    first = bench.submit(1, "k1")
    others: list[dict[str, Any]] = [
        {"version": 2},
        {"changelist": "cl-2"},
        {"to": [BEN]},
        {"source": Source.git("/srv/git/shop", "ffff")},
        {"version": 2, "rerun": True},
    ]
    for number, other in enumerate(others, 1):
        again = bench.submit(**{"version": 1, "key": "k1", **other})

        assert (again.answer, again.differs) == (Answer.SAME_KEY, True), other
        assert again.review.job_id == first.review.job_id
        names = [name for name, _ in told(bench.hf, first.review.review_id)]
        assert names == ["review.submitted"] + ["review.duplicate_differs"] * number
        last = told(bench.hf, first.review.review_id)[-1][1]
        assert last["asked_version"] == other.get("version", 1)
    assert "example.org" not in str(told(bench.hf, first.review.review_id))
    assert [count(bench.hf, name) for name in ("job", "review", "changelist")] == [1, 1, 1]


@pytest.mark.req("I-12")
def test_the_same_key_of_two_tenants_makes_two_reviews(bench: Bench) -> None:
    mine = bench.submit(1, "k1")
    theirs = bench.submit(1, "k1", org_id=OTHER_ORG)

    assert theirs.created
    assert mine.review.job_id != theirs.review.job_id
    with pytest.raises(ReviewNotFound):
        bench.reviews.find(mine.review.review_id, org_id=OTHER_ORG)


def test_a_key_of_another_tenant_in_full_form_is_refused(bench: Bench) -> None:
    theirs = bench.submit(1, "k1", org_id=OTHER_ORG).review.idempotency_key

    with pytest.raises(InvalidJob, match="another tenant"):
        bench.submit(1, theirs)


@pytest.mark.req("I-12", "I-18")
def test_a_submission_whose_answer_was_lost_is_found_by_its_key(bench: Bench) -> None:
    inner = bench.hf.store
    bench.hf.use_store(FaultyStore(inner).die_after_commit())
    with pytest.raises(Died):
        bench.submit(1, "k1")
    bench.hf.use_store(inner)

    again = bench.submit(1, "k1")

    assert (again.answer, count(bench.hf, "job")) == (Answer.SAME_KEY, 1)


@pytest.mark.req("I-18")
def test_a_submission_that_dies_before_its_commit_leaves_nothing(bench: Bench) -> None:
    inner = bench.hf.store
    bench.hf.use_store(FaultyStore(inner).die_before_commit())
    with pytest.raises(Died):
        bench.submit(1, "k1")
    bench.hf.use_store(inner)

    tables = ("job", "review", "changelist", "review_recipient")
    assert [count(bench.hf, name) for name in tables] == [0, 0, 0, 0]
    assert bench.submit(1, "k1").created


@pytest.mark.req("I-12")
@pytest.mark.parametrize(
    ("keys", "changelists"),
    [
        (("k1", "k1"), ("cl-1", "cl-1")),
        (("k1", "k2"), ("cl-1", "cl-1")),
        (("k1", "k1"), ("cl-1", "cl-2")),
    ],
    ids=["same key", "two keys", "same key, other change"],
)
def test_the_same_version_asked_for_twice_at_once_is_one_review(
    url: str, keys: tuple[str, str], changelists: tuple[str, str]
) -> None:
    barrier = threading.Barrier(2)
    found: list[Any] = [None, None]

    def ask(at: int) -> None:
        hf = make_holdfast(url, FakeClock())
        # Two processes do not make the same ids.
        hf.ids._rng = random.Random(at)
        try:
            reviews = Reviews(hf, fetch=lambda job, review: {})
            _ = hf.store
            barrier.wait(10)
            found[at] = reviews.submit(changelists[at], 1, keys[at], org_id=ORG, source=SOURCE)
        finally:
            hf.close()

    threads = [threading.Thread(target=ask, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert all(found), "both were answered"
    assert sorted(one.created for one in found) == [False, True]
    assert len({one.review.job_id for one in found}) == 1


def test_bad_input_is_refused_with_every_bad_field_and_none_of_its_values(bench: Bench) -> None:
    wrong: list[tuple[dict[str, Any], set[str]]] = [
        ({"version": 0}, {"review_version"}),
        ({"version": "v0"}, {"review_version"}),
        ({"version": "3.1"}, {"review_version"}),
        ({"version": True}, {"review_version"}),
        ({"version": 2**31}, {"review_version"}),
        ({"changelist": "a\r\nBcc: x"}, {"changelist_id"}),
        ({"changelist": ""}, {"changelist_id"}),
        ({"org_id": "me"}, {"org_id"}),
        ({"source": "main"}, {"source"}),
        ({"source": Source.posted("text")}, {"patch"}),  # type: ignore[arg-type]
        ({"source": Source.git("", "")}, {"source.repository", "source.head"}),
        ({"to": [Recipient("a\nb", "post", "x")]}, {"recipients[0].name"}),
        ({"to": [Recipient("a", "post", "x\r\nBcc: y")]}, {"recipients[0].address"}),
        ({"to": [Recipient("a", "No channel", "x")]}, {"recipients[0].channel"}),
        ({"to": [ANN, ANN]}, {"recipients[1].name"}),
        ({"version": 0, "changelist": ""}, {"review_version", "changelist_id"}),
    ]
    for given, fields in wrong:
        with pytest.raises(InvalidReview) as refused:
            bench.submit(**given)

        assert set(refused.value.fields) == fields
        assert "Bcc" not in str(refused.value)
    assert (count(bench.hf, "job"), count(bench.hf, "review")) == (0, 0)


def test_a_version_may_be_written_with_a_v() -> None:
    bad: dict[str, str] = {}

    assert [read_version(value, bad) for value in (3, "3", "v3")] == [3, 3, 3]
    assert not bad


@pytest.mark.req("J-38")
@pytest.mark.parametrize(
    ("state", "attempts", "word"),
    [
        (State.QUEUED, 0, ReviewProgress.IN_PROGRESS),
        (State.QUEUED, 1, ReviewProgress.RETRYABLE_FAILED),
        (State.PROCESSING, 0, ReviewProgress.IN_PROGRESS),
        (State.PROCESSING, 3, ReviewProgress.IN_PROGRESS),
        (State.BATCH_SUBMITTED, 1, ReviewProgress.IN_PROGRESS),
        (State.COMPLETED, 2, ReviewProgress.SUCCEEDED),
        (State.FAILED, 5, ReviewProgress.FAILED),
        (State.CANCELED, 0, None),
    ],
)
def test_the_outward_word_follows_from_the_state_of_the_job(
    state: State, attempts: int, word: ReviewProgress | None
) -> None:
    assert progress_of(state, attempts) is word
    assert progress_of(State.FAILED, attempts, is_retried=True) is ReviewProgress.RETRYABLE_FAILED


def test_a_job_may_not_submit_for_another_tenant(bench: Bench) -> None:
    seen: list[Exception] = []

    @bench.hf.job("asks.elsewhere")
    def ask(job: Any, payload: Any) -> None:
        try:
            bench.submit(1, "k1", org_id=OTHER_ORG)
        except Forbidden as exc:
            seen.append(exc)

    bench.hf.enqueue("asks.elsewhere", {}, org_id=ORG)
    bench.work()

    assert len(seen) == 1
    assert count(bench.hf, "review") == 0


def test_a_job_that_no_submission_made_does_nothing(bench: Bench) -> None:
    asked = bench.submit(1, "k1")
    stray = bench.hf.enqueue(
        "review.process", {"review_id": asked.review.review_id}, org_id=ORG, idempotency_key="x"
    )
    nothing = bench.hf.enqueue("review.process", {"review_id": "?"}, org_id=ORG)

    bench.work_out()

    jobs = [bench.hf.get(one.id, org_id=ORG) for one in (stray, nothing)]
    assert [job.error_class for job in jobs] == ["REVIEW_UNFIT", "REVIEW_UNFIT"]
    assert bench.calls == {"fetch": 1, "llm": 1}
    assert bench.again(asked).word is ReviewProgress.SUCCEEDED


def test_a_posted_patch_is_known_again_by_its_bytes(bench: Bench) -> None:
    patch = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    sources = [bench.reviews.store_patch(patch, org_id=ORG) for _ in range(2)]

    first, *others = (
        bench.submit(1, "k1", source=source) for source in (*sources, Source.posted(patch))
    )

    assert sources[0].artifact_id != sources[1].artifact_id
    assert first.created
    assert [(one.created, one.differs) for one in others] == [(False, False)] * 2
