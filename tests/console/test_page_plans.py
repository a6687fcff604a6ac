"""No page of the console reads a whole table that grows with the number of jobs.

Every statement of every page is explained where it runs: in its transaction, with its values, and
in the role of its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.console.site import Site
from holdfast.store.postgres_tx import PostgresTx
from holdfast.store.sqlite_tx import SqliteTx
from tests.api.conftest import Client
from tests.console.everything import Everything
from tests.console.site import OpenAccess, make_site
from tests.story import ORG, OTHER_ORG, by_hand

# Long rows: the planner weighs pages.
JOBS, PAYLOAD = 6_000, {"text": "x" * 500}
SCANS = re.compile(
    r"Seq Scan on (?:job|job_event)\b"
    r"|SCAN (?P<table>(?:holdfast_)?(?:job|job_event))(?! USING (?:COVERING )?INDEX)\b"
)


def reads_all(plan: str) -> bool:
    """Whether a plan reads a whole table. A bounded subquery may have the name of a table."""
    return _joins_many(plan) or any(
        not (found["table"] and re.search(rf"(CO-ROUTINE|MATERIALIZE) {found['table']}\b", plan))
        for found in SCANS.finditer(plan)
    )


def _joins_many(plan: str) -> bool:
    """Whether PostgreSQL reads all jobs of a tenant by an index, to join them by their hash."""
    above: list[tuple[int, str]] = []
    for line in plan.split("\n"):
        depth = len(line) - len(line.lstrip())
        if "(cost=" not in line:
            continue
        above = [one for one in above if one[0] < depth]
        found = re.search(r"Scan .*\bon job\b.* rows=(\d+)", line)
        if found and int(found[1]) >= JOBS // 3:
            nodes = [name.partition("(")[0].strip(" ->") for _, name in above]
            # A limit above a join ends the read, unless all rows are collected in between.
            collected = [one for one in nodes if re.match("Limit|Sort|Hash$|Materialize", one)]
            is_joined = any(re.match("Hash Join|Hash$|Merge|Materialize", one) for one in nodes)
            if is_joined and collected[-1:] != ["Limit"]:
                return True
        above.append((depth, line))
    return False


@contextmanager
def explained(plans: list[tuple[str, str]]) -> Iterator[None]:
    """Within the block, the text and the plan of every query are added to *plans*."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, word in ((PostgresTx, "EXPLAIN "), (SqliteTx, "EXPLAIN QUERY PLAN ")):
            fetch = kind._fetch

            def look(
                tx: Any,
                text: str,
                params: dict[str, Any],
                prepare: bool,
                fetch: Any = fetch,
                word: str = word,
            ) -> Any:
                if re.match(r"\s*(SELECT|WITH)\b", re.sub(r"(?m)^\s*--.*$", "", text)):
                    columns, rows, _ = fetch(tx, word + text, params, False)
                    at = columns.index("detail") if "detail" in columns else 0
                    plans.append((text, "\n".join(str(row[at]) for row in rows)))
                return fetch(tx, text, params, prepare)

            patch.setattr(kind, "_fetch", look)
        yield


@pytest.fixture
def everything(url: str) -> Iterator[Everything]:
    made = Everything(url)
    payloads = [{"n": n, **PAYLOAD} for n in range(JOBS // 6)]
    for org_id in (ORG, ORG, ORG, ORG, OTHER_ORG, OTHER_ORG):
        made.hf.enqueue_many("mail.send", payloads, org_id=org_id)
    by_hand(made.hf.store, "ANALYZE")
    yield made
    made.hf.close()


def pages_of(made: Everything) -> dict[str, str]:
    site = Site(made.hf, OpenAccess(made.hf))
    listed = {page.path: f"/console{page.path}" for page in site.pages if page.title}
    assert len(listed) >= 16
    return {**listed, **made.objects()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("org_id", [None, ORG])
def test_no_page_reads_a_whole_table(everything: Everything, org_id: str | None) -> None:
    app = make_site(everything.hf, org_id=org_id)
    browser = Client(everything.hf, app)
    scans: dict[str, list[tuple[str, str]]] = {}
    explained_count = 0
    for name, path in pages_of(everything).items():
        plans: list[tuple[str, str]] = []
        with explained(plans):
            answer = browser.get(path)
        expected = {200, 403, 404} if org_id or name == "missing" else {200}
        assert answer.status_code in expected, (path, answer.status_code)
        explained_count += len(plans)
        if found := [plan for plan in plans if reads_all(plan[1])]:
            scans[path] = found

    assert explained_count > 60
    assert scans == {}, "\n\n".join(
        f"{path}\n{text}\n{plan}" for path, found in scans.items() for text, plan in found
    )


def test_a_page_that_reads_a_whole_table_is_noticed(everything: Everything) -> None:
    from holdfast.store import Statements

    statement = Statements("holdfast.operate", "jobs.sql").count_all_jobs
    plans: list[tuple[str, str]] = []
    with explained(plans):
        everything.hf.store.many(statement)

    assert any(reads_all(plan) for _, plan in plans), plans
