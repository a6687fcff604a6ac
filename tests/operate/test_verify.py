"""Verify: one snapshot, no writes, bounded memory, and the required role."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Forbidden, Holdfast
from holdfast.config.extensions import installed
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.errors import NotFound
from holdfast.operate.authorization import OperatorContext
from holdfast.operate.verify import CHECKS
from holdfast.operate.verify.check import Check, VerifyContext, Violation
from holdfast.operate.verify.run import SQL, Report, Status, verify, verify_with
from holdfast.store import Store
from holdfast.store.query import Statement
from tests.operate.busy import declare
from tests.operate.conftest import Mould
from tests.operate.sound import assert_sound, by_rule, report_of
from tests.story import ORG, OTHER_ORG, look, make_holdfast


@pytest.fixture
def clock(mould: Mould) -> FakeClock:
    return FakeClock(mould.now)


@pytest.fixture
def hf(mould: Mould, clock: FakeClock) -> Iterator[Holdfast]:
    """A store that has been through everything."""
    with mould.copy() as url, make_holdfast(url, clock) as made:
        declare(made)
        yield made


def context_of(hf: Holdfast, role: str = "admin", org_id: str | None = None) -> OperatorContext:
    return hf.operate(actor="user:olga", role=role, org_id=org_id).context


def everything(store: Store) -> dict[str, list[str]]:
    """Every row of every table of ours."""
    tables = [row["name"] for row in store.read(lambda tx: tx.many(SQL.list_tables))]
    return {
        name: sorted(str(row) for row in look(store, f"SELECT * FROM holdfast.{name}"))
        for name in tables
    }


def statement(text: str) -> Statement:
    return Statement("planted", "many", "", text, frozenset())


def finding(report: Report, check: str) -> Any:
    (found,) = (item for item in report.findings if item.id == check)
    return found


# -- the checks


def test_the_invariants_are_numbered_in_order_and_each_is_a_sentence() -> None:
    extensions = [check for one in installed().values() for check in one.verify_checks()]
    ids = {check.id for check in (*CHECKS, *extensions)}

    assert ids == {f"I{n}" for n in range(1, len(ids) + 1)}
    assert [check.id for check in CHECKS] == sorted(
        (check.id for check in CHECKS), key=lambda name: int(name[1:])
    )
    assert all(check.name.endswith(".") for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_invariant_is_explained(check: Check) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "verify.md").read_text()

    assert f"| {check.id} | {check.name}" in page


def test_a_store_that_went_through_everything_is_sound(hf: Holdfast) -> None:
    assert_sound(hf)
    assert by_rule(report_of(hf, org_id=OTHER_ORG)) == {}


def test_an_empty_store_is_sound(url: str) -> None:
    with make_holdfast(url) as empty:
        assert_sound(empty)


def test_a_check_without_its_tables_is_not_applicable(hf: Holdfast) -> None:
    needy = Check(
        "X1", "Nothing is amiss.", lambda look: iter(()), needs=("job_envelope", "parcel")
    )

    (found,) = verify_with([needy], context_of(hf)).findings

    assert (found.status, found.why) == (Status.NOT_APPLICABLE, "there is no table parcel")


def test_a_check_of_the_whole_store_is_left_out_for_one_tenant(hf: Holdfast) -> None:
    whole = Check("X1", "Nothing is amiss.", lambda look: iter(()), is_of_store=True)

    statuses = [
        verify_with([whole], context_of(hf), org_id=org_id).findings[0].status
        for org_id in (None, ORG)
    ]

    assert statuses == [Status.OK, Status.NOT_APPLICABLE]


def test_only_some_checks_are_made_when_they_are_named(hf: Holdfast) -> None:
    assert [item.id for item in report_of(hf, only=["i7", " I4 "]).findings] == ["I4", "I7"]
    with pytest.raises(NotFound, match="There is no check 'I99'"):
        report_of(hf, only=["I4", "I99"])


# -- one snapshot


def test_every_check_sees_the_same_moment_while_work_continues(
    hf: Holdfast, clock: FakeClock
) -> None:
    seen: list[tuple[int, int]] = []

    def count(context: VerifyContext) -> tuple[int, int]:
        text = (
            "SELECT (SELECT count(*) FROM holdfast.job) AS jobs,"
            " (SELECT count(*) FROM holdfast.job_event) AS events"
        )
        row = context.tx.one(statement(text))
        return row["jobs"], row["events"]

    def disturb(context: VerifyContext) -> Iterator[Violation]:
        before = count(context)
        hf.enqueue_many("plain", [{}, {}], org_id=ORG)
        hf.enqueue("hopeless", {}, org_id=ORG)
        hf.worker().run_once()
        clock.advance(minutes=10)
        seen.append(before)
        seen.append(count(context))
        yield from ()

    disturbing = [
        item
        for number, check in enumerate(CHECKS)
        for item in (check, Check(f"X{number}", "Others work.", disturb))
    ]
    events = len(look(hf.store, "SELECT id FROM holdfast.job_event"))

    report = verify_with(disturbing, context_of(hf))

    assert by_rule(report) == {}
    assert len(set(seen)) == 1
    assert len(look(hf.store, "SELECT id FROM holdfast.job_event")) > events + 6 * len(CHECKS)
    assert report.at < clock.now()


# -- no writes


def test_verify_changes_nothing(hf: Holdfast) -> None:
    before = everything(hf.store)

    report_of(hf)
    report_of(hf, org_id=ORG)

    assert everything(hf.store) == before


def test_a_check_that_writes_is_stopped_by_the_database(hf: Holdfast) -> None:
    before = everything(hf.store)

    def vandalize(context: VerifyContext) -> Iterator[Violation]:
        context.tx.affected(statement("UPDATE holdfast.flow SET revision = revision + 1"))
        yield from ()

    report = verify_with([Check("X1", "Vandals are kept out.", vandalize)], context_of(hf))

    assert report.findings[0].status is Status.BROKEN
    assert everything(hf.store) == before


def test_verify_needs_no_more_than_a_connection_that_reads(postgres_mould: Mould) -> None:
    reading = "?options=-c%20default_transaction_read_only%3Don"
    with (
        postgres_mould.copy() as url,
        make_holdfast(url + reading, FakeClock(postgres_mould.now)) as reader,
    ):
        assert look(reader.store, "SHOW default_transaction_read_only") == [
            {"default_transaction_read_only": "on"}
        ]
        assert_sound(reader)


# -- a check that fails with an error


def test_a_check_that_cannot_be_made_is_a_finding_and_the_others_are_made(hf: Holdfast) -> None:
    def stumble(context: VerifyContext) -> Iterator[Violation]:
        yield Violation(ORG, "job:1", "half way")
        context.tx.many(statement("SELECT nothing FROM holdfast.nowhere"))

    broken = Check("X1", "It cannot be made.", stumble)
    report = verify_with([CHECKS[0], broken, CHECKS[3]], context_of(hf))

    assert [item.status for item in report.findings] == [Status.OK, Status.BROKEN, Status.OK]
    assert [item.id for item in report.violated] == ["X1"]
    assert report.findings[1].why.startswith("the check failed: ")
    assert "nowhere" not in report.findings[1].why
    assert_sound(hf)


# -- memory


def test_any_number_of_violations_takes_the_same_memory(hf: Holdfast) -> None:
    many = statement(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :upto)"
        " SELECT :org_id AS org_id, 'job:' || CAST(n AS text) AS subject, 'it is wrong' AS detail"
        " FROM n"
    )

    def peak(upto: int) -> tuple[int, int]:
        check = Check("X1", "Nothing is wrong.", lambda look: look.find(many, upto=upto))
        tracemalloc.start()
        (found,) = verify_with([check], context_of(hf), org_id=ORG).findings
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (found.count, len(found.violations)) == (upto, 20)
        return found.count, most

    peak(1_000)
    few, some = peak(1_000)
    lots, most = peak(20_000)

    assert lots == 20 * few
    assert most < some + 200_000


# -- roles


def test_an_operator_verifies_a_tenant_and_only_an_admin_all(hf: Holdfast) -> None:
    assert verify(context_of(hf, "operator", ORG)).org_id == ORG
    assert verify(context_of(hf, "operator"), org_id=ORG).org_id == ORG
    assert verify(context_of(hf, "admin")).org_id is None
    for asked, org_id, under in (
        (context_of(hf, "operator"), None, PLATFORM_ORG),
        (context_of(hf, "member", ORG), None, ORG),
        (context_of(hf, "operator", ORG), OTHER_ORG, ORG),
    ):
        with pytest.raises(Forbidden):
            verify(asked, org_id=org_id)
        (refused,) = look(
            hf.store,
            "SELECT org_id, actor_id FROM holdfast.job_event WHERE name = 'operator.refused'"
            " ORDER BY id DESC LIMIT 1",
        )
        assert (str(refused["org_id"]), refused["actor_id"]) == (under, "olga")


def test_violations_of_another_tenant_are_not_shown(hf: Holdfast) -> None:
    def gossip(context: VerifyContext) -> Iterator[Violation]:
        yield Violation(OTHER_ORG, "job:1", "theirs")
        yield Violation(ORG, "job:2", "ours")

    check = Check("X1", "Nothing is wrong.", gossip)
    (found,) = verify_with([check], context_of(hf), org_id=ORG).findings

    assert (found.count, [item.subject for item in found.violations]) == (1, ["job:2"])
