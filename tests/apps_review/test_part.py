"""The critic with batch processing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import ConfigError, FakeClock, State, UpstreamDown
from holdfast.config import Settings
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast_llm.settings import ProviderSettings
from holdfast_review.enums import ReviewProgress
from holdfast_review.settings import ReviewSettings
from holdfast_simulator import Simulator
from tests.apps_review.office import Model, Office, commit
from tests.operate.letters import operator, replay
from tests.story import ORG, look


@pytest.fixture
def office(url: str, clock: FakeClock, tmp_path: Path, simulator: Simulator) -> Iterator[Office]:
    made = Office(url, clock, tmp_path, simulator, mode="batch")
    made.reviews._criticise_change.part_chars = 100  # type: ignore[attr-defined]
    sync_schedules(made.hf)
    yield made
    made.hf.close()


def change(office: Office, files: int = 3) -> None:
    lines = "x = 1\nreturn eval(items)\ny = 2\n"
    commit(office.repository, **{f"file{at}": lines for at in range(files)})


def let_pass(office: Office, *, hours: int = 2) -> None:
    """Let the dispatcher and the workers run the due jobs every half an hour."""
    for _ in range(2 * hours):
        dispatch_once(office.hf)
        office.hf.worker().run_once()
        office.clock.advance(minutes=30)
    office.hf.worker().run_once()


def part_jobs(office: Office) -> list[tuple[str, str]]:
    rows = look(
        office.hf.store,
        "SELECT state, payload FROM holdfast.job WHERE job_type = 'review.criticise' ORDER BY id",
    )
    return [(row["state"], str(row["payload"])) for row in rows]


def test_a_change_is_asked_about_in_one_batch_and_its_findings_are_merged(
    office: Office, critic: Model, simulator: Simulator
) -> None:
    change(office)
    asked = office.submit()
    office.hf.worker().run_once()
    assert [state for state, _ in part_jobs(office)] == ["queued"] * 3
    assert office.again(asked).word is ReviewProgress.IN_PROGRESS

    let_pass(office)

    shown = office.reviews.find(asked.review.review_id, org_id=ORG)
    assert shown.review.word is ReviewProgress.SUCCEEDED
    assert [(one.file, one.line) for one in shown.findings] == [
        ("file0", 2), ("file1", 2), ("file2", 2),
    ]  # fmt: skip
    assert (len(critic.asked), len(simulator.state.batches), len(office.mails)) == (3, 1, 2)
    assert simulator.ledger.double_paid() == {}
    assert office.hf.get(asked.review.job_id, org_id=ORG).attempt_count == 0
    # The batch jobs store ids; the findings of parts are deleted after the merge.
    assert not any("eval" in payload for _, payload in part_jobs(office))
    assert office.count("review_part") == 0


@pytest.mark.req("S-02", "S-03", "S-05", "S-06", "D-17")
def test_a_part_that_is_dead_ends_the_stage_and_a_replay_asks_for_it_alone(
    office: Office, critic: Model
) -> None:
    critic.failing_in = "file1"
    change(office)
    asked = office.submit()
    let_pass(office, hours=6)

    job = office.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.stage, job.error_class) == (State.FAILED, "llm", "REVIEW_PARTS_FAILED")
    assert sorted(state for state, _ in part_jobs(office)) == ["completed", "completed", "failed"]
    tries = sum("file1" in ask.text for ask in critic.asked)
    assert (tries, len(critic.asked), office.mails) == (5, 7, [])

    critic.failing_in = ""
    office.clock.advance(days=9)
    replay(operator(office.hf), job)
    let_pass(office)

    shown = office.reviews.find(asked.review.review_id, org_id=ORG)
    assert (shown.review.word, len(shown.findings)) == (ReviewProgress.SUCCEEDED, 3)
    assert (len(critic.asked), len(office.mails)) == (8, 2)
    assert office.count("artifact", "name = 'change.diff'") == 1


def test_a_worker_that_died_while_it_asked_asks_for_the_same_parts(
    office: Office, critic: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = office.hf.enqueue_many
    died: list[bool] = []

    def enqueue_and_die(*given: object, **options: object) -> object:
        made = real(*given, **options)  # type: ignore[arg-type]
        if not died:
            died.append(True)
            raise UpstreamDown
        return made

    monkeypatch.setattr(office.hf, "enqueue_many", enqueue_and_die)
    change(office)
    asked = office.submit()
    let_pass(office)

    assert (office.again(asked).word, died) == (ReviewProgress.SUCCEEDED, [True])
    assert (len(part_jobs(office)), len(critic.asked), len(office.mails)) == (3, 3, 2)


def test_an_erased_review_keeps_no_answer(office: Office) -> None:
    change(office)
    asked = office.submit()
    office.hf.worker().run_once()
    dispatch_once(office.hf)

    office.reviews.erase("cl-1", org_id=ORG, reason="asked for")
    let_pass(office)

    assert office.again(asked).state is State.CANCELED
    assert (office.count("review_part"), office.count("finding"), office.mails) == (0, 0, [])
    assert not [file for file in (office.home / "artifacts").rglob("*") if file.is_file()]


@pytest.mark.parametrize("is_erased", [False, True])
def test_the_parts_of_a_canceled_review_are_canceled_and_not_paid_for(
    office: Office, critic: Model, is_erased: bool
) -> None:
    change(office)
    asked = office.submit()
    office.hf.worker().run_once()
    office.hf.cancel(asked.review.job_id, org_id=ORG)
    if is_erased:
        office.reviews.erase("cl-1", org_id=ORG, reason="asked for")

    let_pass(office)

    assert [state for state, _ in part_jobs(office)] == ["canceled"] * 3
    assert (critic.asked, office.count("dead_letter"), office.mails) == ([], 0, [])


def test_another_prompt_while_a_review_waits_calls_the_model_again(
    office: Office, critic: Model
) -> None:
    change(office)
    asked = office.submit()
    office.hf.worker().run_once()
    # As after a deployment: the same job, other parts.
    office.reviews._criticise_change.part_chars = 99  # type: ignore[attr-defined]

    let_pass(office, hours=6)

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    assert (len(office.mails), office.count("review_part")) == (2, 0)


def test_a_change_without_text_needs_no_batch(office: Office, critic: Model) -> None:
    commit(office.repository, image=b"\x89PNG\0\0\1")
    asked = office.submit()
    let_pass(office, hours=1)

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    assert (critic.asked, part_jobs(office)) == ([], [])


def test_a_batch_needs_a_provider_that_takes_them() -> None:
    own = ProviderSettings(base_url="https://models.example.org/v1", supports_batches=False)
    critic = ReviewSettings(provider="own", adapter_kind="openai_chat", model="m", mode="batch")

    with pytest.raises(ConfigError, match="needs a provider"):
        Settings(review=ReviewSettings(mode="batch"))
    with pytest.raises(ConfigError, match="takes no batches"):
        Settings(providers={"own": own}, review=critic)
