"""The way of a rewrite job: what is batched with what, and the order in which things happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast_rewrite.detect import Detected
from holdfast_rewrite.enums import Level
from holdfast_rewrite.lexicon import Lexicon
from tests.apps.planted import REWRITE, Planted, Stage, set_stage
from tests.story import look


@pytest.mark.req("E-03")
def test_what_may_wait_goes_in_batches_of_one_kind_and_not_before_its_time(stage: Stage) -> None:
    alike = [stage.plant(f"Please be quiet, number {number}.") for number in range(3)]
    apart = stage.plant("Please be quiet.", target="de")
    later = stage.plant("Please be quiet, but not yet.", delay=timedelta(hours=1))

    stage.submit()

    batches = look(
        stage.store,
        "SELECT batch_id, count(*) AS n, min(batch_group_key) AS first, max(batch_group_key) AS"
        " last FROM holdfast.rewrite_job WHERE batch_id IS NOT NULL GROUP BY batch_id ORDER BY n",
    )
    assert [row["n"] for row in batches] == [1, len(alike)]
    assert all(row["first"] == row["last"] for row in batches)
    assert batches[0]["first"] != batches[1]["first"]
    assert stage.job(apart).state == "batch_submitted"
    assert stage.job(later).state == "queued"


@pytest.mark.req("C-07")
@pytest.mark.parametrize("mode", ["batch", "async"])
def test_every_rewrite_goes_the_same_way_in_the_same_order(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    seen: list[tuple[str, str, bool]] = []
    under_way: list[Planted] = []

    def note(what: str) -> None:
        """Each step, and the state of the job after it with its output."""
        found = (what, str(stage.job(under_way[0]).state), bool(stage.outputs()))
        if found not in seen:
            seen.append(found)

    class Telling:
        def detect(self, text: str) -> Detected:
            note("language")
            return Detected("en", Level.HIGH)

    check = Lexicon.check

    def telling(self: Lexicon, text: str) -> Any:
        note("lexicon")
        return check(self, text)

    def answer(_: Any) -> dict[str, str]:
        note("provider")
        return {"rewritten_text": REWRITE, "output_language": "en"}

    monkeypatch.setattr(Lexicon, "check", telling)
    stage = set_stage(hf, clock, Telling())
    under_way.append(stage.plant(mode=mode))
    if mode == "batch":
        stage.answer(answer)
    else:
        stage.say(answer)
        hf.worker().run_once()

    # A call of its own is under way until its answer is judged; a batch's job stays handed over.
    state = "batch_submitted" if mode == "batch" else "processing"
    assert seen == [
        ("provider", state, False),
        ("language", state, False),
        ("lexicon", state, False),
    ]
    names = [event["name"] for event in job_events(hf, under_way[0])]
    expected = ["job.enqueued", "job.started", "job.succeeded"]
    assert [name for name in names if name in expected] == expected
    (record,) = look(hf.store, "SELECT * FROM holdfast.rewrite_job")
    assert record["status"] == "completed"
    assert (record["provider_batch_id"] is not None) == (mode == "batch")
    assert len(stage.outputs()) == 1


def job_events(hf: Holdfast, planted: Planted) -> list[Any]:
    return look(
        hf.store,
        "SELECT name FROM holdfast.job_event WHERE job_id = :id ORDER BY id",
        id=planted.job_id,
    )
