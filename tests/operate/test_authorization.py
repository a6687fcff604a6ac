"""The operator context: required roles, tenants, and the audit of refusals."""

from __future__ import annotations

import pytest

from holdfast import Forbidden, Holdfast, InvalidArgument
from holdfast.actor import Role
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.errors import JobNotFound
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.sealed_audit.chain import verify_seals
from holdfast.store import Row
from tests.story import ORG, OTHER_ORG, look, seal_all

VIEWERS = {Action.LOOK}
MEMBERS = {Action.CANCEL, Action.SEND_EVENT}
ADMINS = {
    *(Action.EXPORT_AUDIT, Action.DOCTOR, Action.ERASE, Action.EXPORT, Action.GRANT),
    *(Action.SET_QUEUE, Action.SET_LIMIT_KEY, Action.SET_TENANT, Action.CHANGE_SCHEDULE),
    *(Action.TRIGGER_SCHEDULE, Action.START_RUN, Action.SWEEP_ARTIFACTS),
    *(Action.READ_HELD, Action.DECIDE_HELD),
    *(Action.READ_KEYS, Action.CREATE_KEY, Action.ROTATE_KEY, Action.REVOKE_KEY),
}


def context_of(hf: Holdfast, role: Role | str, org_id: str | None = None) -> OperatorContext:
    return hf.operate(actor="user:olga", role=role, org_id=org_id).context


def refusals(hf: Holdfast) -> list[Row]:
    return look(
        hf.store,
        "SELECT org_id, job_type, actor_type, actor_id, request_id, correlation_id, detail"
        " FROM holdfast.job_event WHERE name = 'operator.refused' ORDER BY id",
    )


def least(action: Action) -> Role:
    """The intended least role."""
    if action in VIEWERS:
        return Role.VIEWER
    if action in MEMBERS:
        return Role.MEMBER
    return Role.ADMIN if action in ADMINS else Role.OPERATOR


ORDER = [Role.VIEWER, Role.MEMBER, Role.OPERATOR, Role.ADMIN]


@pytest.mark.req("X-07")
@pytest.mark.parametrize("role", Role)
def test_permissions_by_role(hf: Holdfast, role: Role) -> None:
    context = context_of(hf, role, ORG)
    forbidden = [action for action in Action if ORDER.index(role) < ORDER.index(least(action))]

    for action in Action:
        if action in forbidden:
            with pytest.raises(Forbidden, match=f"the role {role} may not, {least(action)} may"):
                context.check(action, org_id=ORG, subject="job:1")
        else:
            context.check(action, org_id=ORG, subject="job:1")

    assert [decode(row["detail"])["action"] for row in refusals(hf)] == forbidden


@pytest.mark.req("X-07", "X-09")
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("org_id", [OTHER_ORG, None])
def test_a_caller_bound_to_a_tenant_reaches_no_other(
    hf: Holdfast, role: Role, org_id: str | None
) -> None:
    with pytest.raises(Forbidden, match=f"olga acts for tenant {ORG} only"):
        context_of(hf, role, ORG).check(Action.LOOK, org_id=org_id, subject="job:1")

    (refused,) = refusals(hf)
    assert refused["org_id"] == ORG, "it is on record where the one who tried can be asked"


def test_a_caller_bound_to_no_tenant_reaches_every_tenant(hf: Holdfast) -> None:
    for org_id in (ORG, OTHER_ORG, None):
        context_of(hf, Role.OPERATOR).check(Action.REPLAY, org_id=org_id, subject="job:1")


def test_a_refusal_names_who_in_which_role_what_and_why(hf: Holdfast) -> None:
    with pytest.raises(Forbidden, match=r"replay of job:1 was refused: the role member may not"):
        context_of(hf, "member", ORG).check(Action.REPLAY, org_id=ORG, subject="job:1")

    (refused,) = refusals(hf)
    assert (refused["actor_type"], refused["actor_id"]) == ("user", "olga")
    assert (refused["request_id"], refused["job_type"]) == ("job:1", "job")
    assert decode(refused["detail"]) == {
        "subject": "job:1",
        "action": "replay",
        "role": "member",
        "why": "Forbidden",
    }


@pytest.mark.parametrize(
    ("bound_to", "about", "under"),
    [(ORG, OTHER_ORG, ORG), (None, ORG, ORG), (None, None, PLATFORM_ORG), (ORG, None, ORG)],
)
def test_a_refusal_is_under_the_tenant_of_the_one_who_asked(
    hf: Holdfast, bound_to: str | None, about: str | None, under: str
) -> None:
    context = context_of(hf, "admin", bound_to)

    with pytest.raises(JobNotFound) as raised:
        context.refuse(Action.CANCEL, JobNotFound("1"), org_id=about, subject="job:1")

    assert raised.value.job_id == "1"
    (refused,) = refusals(hf)
    assert (refused["org_id"], decode(refused["detail"])["why"]) == (under, "JobNotFound")


def test_refusals_are_sealed_like_everything_else(hf: Holdfast) -> None:
    for subject in ("job:1", "job:2"):
        with pytest.raises(Forbidden):
            context_of(hf, "member", ORG).check(Action.REPLAY, org_id=ORG, subject=subject)

    assert seal_all(hf.store) == [2]
    assert verify_seals(hf.store, ORG) == []


def test_a_role_that_there_is_not_is_refused(hf: Holdfast) -> None:
    with pytest.raises(InvalidArgument, match="role: must be one of"):
        context_of(hf, "king")


def test_a_member_is_one_tenants(hf: Holdfast) -> None:
    with pytest.raises(Forbidden, match="requires a tenant"):
        hf.operate(actor="user:42", role="member")
