"""Only an admin or the system can cancel a rewrite, on every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import CancelAnswer, FakeClock, Forbidden, Holdfast, State
from holdfast.document import decode
from holdfast_rewrite import Rewrites
from holdfast_rewrite.validation import Answer
from tests.apps.household import HOME, request_row, submission
from tests.operate.letters import refusals
from tests.operate.sound import assert_sound
from tests.story import make_holdfast

Cancel = Callable[[Holdfast, str], CancelAnswer]


@pytest.fixture
def sent(rewrites: Rewrites) -> Answer:
    return rewrites.submit(submission())


def as_operator(role: str, org_id: str | None = HOME) -> Cancel:
    return lambda hf, job_id: hf.operate(actor="user:7", role=role, org_id=org_id).cancel(
        job_id, reason="asked"
    )


def by(actor: str) -> Cancel:
    return lambda hf, job_id: hf.cancel(job_id, org_id=HOME, actor=actor, reason="asked")


REFUSED: dict[str, Cancel] = {
    "a user": by("user:7"),
    "an API key": by("api_key:k1"),
    "a user of the tenant": lambda hf, job_id: hf.for_org(HOME).cancel(job_id, actor="user:7"),
    "a member": as_operator("member"),
    "an operator of the home": as_operator("operator"),
    "an operator of all homes": as_operator("operator", None),
}
ALLOWED: dict[str, Cancel] = {
    "the system": by("system:retention"),
    "the system without a word": lambda hf, job_id: hf.cancel(job_id, org_id=HOME),
    "an admin": as_operator("admin", None),
    "an admin of the home": as_operator("admin"),
}


@pytest.mark.req("J-07")
@pytest.mark.parametrize("cancel", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("declares", [True, False], ids=["the application", "another process"])
def test_other_roles_cannot_cancel_a_rewrite_and_the_attempt_is_audited(
    hf: Holdfast, clock: FakeClock, sent: Answer, cancel: Cancel, declares: bool
) -> None:
    job_id = str(sent.job_id)
    with (
        make_holdfast(hf.settings.db, clock) as stranger,
        pytest.raises(Forbidden, match="admin"),
    ):
        cancel(hf if declares else stranger, job_id)

    assert hf.get(job_id, org_id=HOME).state is State.QUEUED
    (refused,) = refusals(hf)
    detail = decode(refused["detail"])
    assert (refused["org_id"], detail["action"], detail["why"]) == (HOME, "cancel", "Forbidden")
    assert detail["subject"] == f"job:{job_id}"
    assert_sound(hf)


@pytest.mark.req("J-07")
@pytest.mark.parametrize("cancel", ALLOWED.values(), ids=ALLOWED.keys())
def test_an_admin_and_the_system_cancel_a_rewrite(
    hf: Holdfast, sent: Answer, cancel: Cancel
) -> None:
    answer = cancel(hf, str(sent.job_id))

    assert answer is CancelAnswer.CANCELED
    assert request_row(hf.store, sent.rewrite_request_id)["status"] == "canceled"
    assert refusals(hf) == []
    assert_sound(hf)


def test_a_job_type_without_the_rule_is_canceled_as_before(hf: Holdfast) -> None:
    hf.job("plain.work")(lambda job, payload: None)
    jobs: list[Any] = hf.enqueue_many("plain.work", [{}, {}], org_id=HOME)

    answers = [by("user:7")(hf, jobs[0].id), as_operator("member")(hf, jobs[1].id)]

    assert answers == [CancelAnswer.CANCELED] * 2
