"""An operator cancels a job: the role and the tenant are checked, and every step is audited."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import CancelAnswer, Enqueued, Holdfast, State
from holdfast.actor import Role
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.errors import Forbidden, JobNotFound
from holdfast.operate import authorization
from holdfast.operate.cancel import cancel_job
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row
from tests.story import ORG, OTHER_ORG, claim, events, look, timeline

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"


@pytest.fixture
def job(hf: Holdfast) -> Enqueued:
    hf.job("report.export")(lambda job, payload: "done")
    return hf.enqueue("report.export", {}, org_id=ORG)


def cancel(hf: Holdfast, job_id: str, *, reason: str = "not needed", **who: Any) -> CancelAnswer:
    desk = hf.operate(**{"actor": "user:op", "role": "operator", **who})
    return cancel_job(desk.context, job_id, reason=reason)


def refusals(hf: Holdfast) -> list[Row]:
    return look(
        hf.store,
        "SELECT org_id, actor_id, detail FROM holdfast.job_event WHERE name = 'operator.refused'",
    )


@pytest.mark.req("T-04", "A-10")
@pytest.mark.parametrize("who", [{"role": "member", "org_id": ORG}, {"role": "operator"}])
def test_a_member_cancels_jobs_of_its_tenant_and_an_operator_of_every_tenant(
    hf: Holdfast, job: Enqueued, who: dict[str, str]
) -> None:
    assert cancel(hf, job.id, **who) is CancelAnswer.CANCELED

    assert hf.get(job.id, org_id=ORG).state is State.CANCELED
    asked = next(e for e in events(hf, job) if e["name"] == "job.cancel_requested")
    assert (asked["actor_type"], asked["actor_id"]) == ("user", "op")
    assert decode(asked["detail"]) == {
        "reason": "not needed",
        "answer": "canceled",
        "was": "queued",
    }


@pytest.mark.req("T-04", "A-10")
def test_a_running_job_is_asked_and_an_ended_one_is_too_late(hf: Holdfast, job: Enqueued) -> None:
    claim(hf)
    asked = cancel(hf, job.id)
    other = hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()

    assert asked is CancelAnswer.REQUESTED
    assert cancel(hf, other.id) is CancelAnswer.TOO_LATE
    assert timeline(hf, other)[-1] == "job.cancel_requested"


@pytest.mark.req("X-07", "X-09", "A-10")
@pytest.mark.parametrize("which", ["another tenant's", "nobody's", "nonsense"])
def test_another_tenants_job_is_not_found_and_the_attempt_is_on_record(
    hf: Holdfast, job: Enqueued, which: str
) -> None:
    job_id = {"another tenant's": job.id, "nobody's": NOBODY, "nonsense": "x" * 900}[which]

    with pytest.raises(JobNotFound):
        cancel(hf, job_id, role="member", org_id=OTHER_ORG)

    (refused,) = refusals(hf)
    assert (refused["org_id"], refused["actor_id"]) == (OTHER_ORG, "op")
    assert decode(refused["detail"])["why"] == "JobNotFound"
    assert len(refused["detail"]) < 500
    assert hf.get(job.id, org_id=ORG).state is State.QUEUED
    assert timeline(hf, job) == ["job.enqueued"]


@pytest.mark.req("A-10")
def test_a_role_that_may_not_cancel_is_refused_on_record(
    hf: Holdfast, job: Enqueued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(authorization._LEAST, authorization.Action.CANCEL, Role.ADMIN)

    with pytest.raises(Forbidden):
        cancel(hf, job.id)

    assert [row["org_id"] for row in refusals(hf)] == [ORG]
    assert hf.get(job.id, org_id=ORG).state is State.QUEUED


@pytest.mark.req("A-10")
def test_an_unknown_id_is_refused_and_audited_for_an_operator_too(hf: Holdfast) -> None:
    with pytest.raises(JobNotFound):
        cancel(hf, NOBODY)

    (refused,) = refusals(hf)
    assert refused["org_id"] == PLATFORM_ORG


@pytest.mark.parametrize(
    "reason",
    ["", "  ", "x" * 201, "line\x1b[2Jcleared", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"],
)
def test_a_reason_that_cannot_be_kept_is_refused_and_nothing_is_done(
    hf: Holdfast, job: Enqueued, reason: str
) -> None:
    with pytest.raises(InvalidAction) as caught:
        cancel(hf, job.id, reason=reason)

    assert set(caught.value.fields) == {"reason"}
    assert len(refusals(hf)) == 1
    assert hf.get(job.id, org_id=ORG).state is State.QUEUED
