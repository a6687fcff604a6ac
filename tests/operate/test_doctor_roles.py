"""The doctor on rights: tables that handlers cannot use, and tables that all of them can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Context, Holdfast
from holdfast.operate.doctor import Finding, Severity, examine
from tests.story import ORG, by_hand, make_holdfast


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url) as hf:
        yield hf


def found(hf: Holdfast, check: str) -> list[Finding]:
    every = examine(hf.operate(actor="user:op", role="admin").watch)
    return [finding for finding in every if finding.check == check]


def test_an_application_without_tables_has_nothing_to_grant(shop: Holdfast) -> None:
    (finding,) = found(shop, "grants")

    assert finding.severity is Severity.OK


def test_a_table_without_a_grant_is_a_notice_and_once_a_job_died_of_it_a_warning(
    shop: Holdfast,
) -> None:
    by_hand(shop.store, "CREATE TABLE note (text text)")
    (finding,) = found(shop, "grants")
    assert finding.severity is Severity.NOTICE
    assert "public.note" in finding.seen

    @shop.job("write.note")
    def write(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('x')")

    shop.enqueue("write.note", {}, org_id=ORG)
    shop.worker().run_once()
    finding, _ = found(shop, "grants")

    assert finding.severity is Severity.WARNING
    assert "1 jobs died because handlers may not use public.note" in finding.seen
    assert "holdfast grant public.note" in finding.remedy

    shop.operate(actor="user:op", role="admin").grant(["note"])
    (finding,) = found(shop, "grants")
    assert finding.severity is Severity.NOTICE
    assert "every tenant can use all rows of public.note" in finding.seen


def test_a_table_with_row_level_security_is_well(shop: Holdfast) -> None:
    by_hand(shop.store, "CREATE TABLE note (org_id uuid, text text)")
    by_hand(shop.store, "ALTER TABLE note ENABLE ROW LEVEL SECURITY")
    shop.operate(actor="user:op", role="admin").grant(["note"])

    (finding,) = found(shop, "grants")

    assert finding.severity is Severity.OK


def test_a_long_list_is_cut(shop: Holdfast) -> None:
    for number in range(13):
        by_hand(shop.store, f"CREATE TABLE note_{number:02} (text text)")

    (finding,) = found(shop, "grants")

    assert "public.note_09 and 3 more tables" in finding.seen


def test_on_sqlite_there_are_no_roles_to_look_at(migrated_sqlite_url: str) -> None:
    with make_holdfast(migrated_sqlite_url) as hf:
        assert found(hf, "grants") == []
