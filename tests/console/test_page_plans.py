"""No page of the console and no GET of the API reads a whole table that grows with the jobs.

Every statement of them is explained where it runs: in its transaction, with its values, and in the
role of its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.console.site import Site
from holdfast.store.postgres_tx import PostgresTx
from holdfast.store.sqlite_tx import SqliteTx
from tests.api.conftest import Client
from tests.api.world import make_world
from tests.console.everything import Everything
from tests.console.site import OpenAccess, make_site
from tests.story import ORG, OTHER_ORG, by_hand

# Long rows: the planner weighs pages.
JOBS, PAYLOAD = 6_000, {"text": "x" * 500}
# These count the jobs of every tenant exactly.
COUNTS = {"/v1/jobs/counts", "/v1/queues", "/v1/queues/{name}"}
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
    add_jobs(made.hf, "mail.send")
    yield made
    made.hf.close()


def add_jobs(hf: Holdfast, job_type: str) -> None:
    payloads = [{"n": n, **PAYLOAD} for n in range(JOBS // 6)]
    for org_id in (ORG, ORG, ORG, ORG, OTHER_ORG, OTHER_ORG):
        hf.enqueue_many(job_type, payloads, org_id=org_id)
    by_hand(hf.store, "ANALYZE")


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
    assert scans == {}, listed(scans)


def listed(scans: dict[str, list[tuple[str, str]]]) -> str:
    return "\n\n".join(
        f"{path}\n{text}\n{plan}" for path, found in scans.items() for text, plan in found
    )


@pytest.mark.timeout(300)
def test_no_get_of_the_api_reads_a_whole_table(url: str, clock: FakeClock, tmp_path: Path) -> None:
    world = make_world(url, clock, tmp_path)
    add_jobs(world.hf, "work")
    callers = (world.key("admin", None), world.key("operator", ORG))
    scans: dict[str, list[tuple[str, str]]] = {}
    statuses: dict[str, set[int]] = {}
    explained_count = 0
    for caller in callers:
        for route in world.routes():
            if route.method != "GET":
                continue
            plans: list[tuple[str, str]] = []
            with explained(plans):
                statuses.setdefault(route.path, set()).add(route.by(caller).status_code)
            explained_count += len(plans)
            found = [plan for plan in plans if reads_all(plan[1])]
            if found and route.path not in COUNTS:
                scans[route.path] = found
    world.hf.close()

    assert statuses["/v1/rewrites/{rewrite_request_id}"] == {200, 404}
    assert sum(200 in found for found in statuses.values()) > 30, statuses
    assert explained_count > 100
    assert scans == {}, listed(scans)


def test_a_page_that_reads_a_whole_table_is_noticed(everything: Everything) -> None:
    from holdfast.store import Statements

    statement = Statements("holdfast.operate", "jobs.sql").count_all_jobs
    plans: list[tuple[str, str]] = []
    with explained(plans):
        everything.hf.store.many(statement)

    assert any(reads_all(plan) for _, plan in plans), plans
