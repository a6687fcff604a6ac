"""Every verb of the operator API gives the documented answer to every role and tenant.

The table is docs/reference/operator-api.md. A verb that is not in it fails here.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from holdfast import FakeClock, Forbidden, Holdfast, Role
from holdfast.document import decode
from holdfast.errors import NotFound
from holdfast.operate import nouns
from holdfast.operate.operator import Operator
from holdfast.operate.refusal import NothingMatches
from tests.operate.verbs import SAYS, VERBS, WHY, World
from tests.story import ORG, OTHER_ORG, look
from tests.test_house import ROOT

PAGE = ROOT / "docs" / "reference" / "operator-api.md"
NONE = "-"


class Row(NamedTuple):
    """The entry of one verb on the page."""

    verb: str
    one_tenant: str
    another_tenant: str
    all_tenants: str
    event: str

    def expect(self, role: Role, org_id: str | None) -> str:
        """The documented answer for an operator of *org_id* on an object of ORG."""
        if org_id == OTHER_ORG and self.another_tenant != "own rows":
            return self.another_tenant
        least = self.all_tenants if org_id is None else self.one_tenant
        if org_id is None and role is Role.MEMBER:
            return "forbidden"
        if least == NONE or role.rank < Role(least).rank:
            return "forbidden"
        return "own rows" if org_id == OTHER_ORG else "allowed"


def read_page() -> dict[str, Row]:
    lines = PAGE.read_text().split("## Verbs", 1)[1].splitlines()
    cells = [line.strip("| ").replace("`", "").split(" | ") for line in lines if "| `" in line]
    return {row[0]: Row(*row) for row in cells}


DOCUMENTED = read_page()


def public_verbs() -> set[str]:
    found = {name for name, method in vars(Operator).items() if is_verb(name, method)}
    for noun in nouns.names():
        methods = inspect.getmembers(nouns.find(noun) or object)
        found |= {f"{noun}.{name}" for name, method in methods if is_verb(name, method)}
    return found


def is_verb(name: str, method: object) -> bool:
    return inspect.isfunction(method) and not name.startswith("_")


@pytest.fixture
def world(hf: Holdfast, clock: FakeClock) -> World:
    return World(hf, clock)


def operator(world: World, role: Role, org_id: str | None) -> Operator:
    made = world.hf.operate(actor="user:olga", role=role, org_id=org_id)
    # The batch service whose provider is scripted.
    made.__dict__["batches"] = made.batches(world.stage.service)
    return made


def answer(world: World, verb: str, role: Role, org_id: str | None, target: Any) -> str:
    try:
        found = VERBS[verb][1](operator(world, role, org_id), target)
    except Forbidden:
        return "forbidden"
    except NothingMatches:
        # A bulk verb found no row of its own tenant.
        return "own rows"
    except NotFound:
        return "not found"
    if org_id != OTHER_ORG:
        return "allowed"
    rows = found if isinstance(found, Sequence) else [found]
    # The audit of a refusal names the requested tenant.
    shown = [repr(row) for row in rows if "operator.refused" not in repr(row)]
    return "leaks" if any(ORG in row for row in shown) else "own rows"


@pytest.mark.req("X-07")
def test_every_verb_is_documented_and_called() -> None:
    assert set(DOCUMENTED) == public_verbs()
    assert set(VERBS) == public_verbs()


@pytest.mark.req("X-07", "X-09")
def test_every_verb_gives_each_role_and_tenant_the_documented_answer(world: World) -> None:
    wrong = []
    for verb, row in DOCUMENTED.items():
        make = VERBS[verb][0]
        kept = make(world)
        for role in Role:
            for org_id in (OTHER_ORG, ORG, None):
                expected = row.expect(role, org_id)
                # A call that changes its object uses another object.
                fresh = expected == "allowed" and row.event != NONE
                found = answer(world, verb, role, org_id, make(world) if fresh else kept)
                if found != expected:
                    wrong.append(f"{verb} as {role} of {org_id}: {found}, not {expected}")

    assert wrong == []


def audited(hf: Holdfast, after: int) -> list[dict[str, Any]]:
    rows = look(
        hf.store,
        "SELECT id, name, actor_id, CAST(detail AS text) AS detail FROM holdfast.job_event"
        " WHERE id > :after ORDER BY id",
        after=after,
    )
    return [dict(row) for row in rows]


def newest(hf: Holdfast) -> int:
    (row,) = look(hf.store, "SELECT coalesce(max(id), 0) AS id FROM holdfast.job_event")
    return int(row["id"])


@pytest.mark.req("X-07")
def test_every_verb_that_changes_something_leaves_one_event_with_actor_and_reason(
    world: World,
) -> None:
    wrong = []
    for verb, row in DOCUMENTED.items():
        if verb == "grant" and not world.hf.store.dialect.has_roles:
            continue
        make, act = VERBS[verb]
        target = make(world)
        before = newest(world.hf)
        act(operator(world, Role.ADMIN, None), target)
        events = [one for one in audited(world.hf, before) if one["actor_id"] == "olga"]
        says = SAYS.get(verb, WHY)
        named = [
            one["name"]
            for one in events
            if says is None or says in str(decode(one["detail"]) if one["detail"] else "")
        ]
        if named != ([] if row.event == NONE else [row.event]):
            wrong.append(f"{verb}: {[(one['name'], one['detail']) for one in events]}")

    assert wrong == []
