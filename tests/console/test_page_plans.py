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
from tests.story import ORG, OTHER_ORG, by_hand, look

# Long rows: the planner weighs pages.
JOBS, PAYLOAD = 6_000, {"text": "x" * 500}
# These count the jobs of every tenant exactly.
COUNTS = {"/v1/jobs/counts", "/v1/queues", "/v1/queues/{name}"}
# Tables that keep rows of every job. Rows of the places leave with their jobs; a statement reads
# them up to a limit.
TABLES = "job_envelope|job_outcome|job_attempt|job_cancel|job_key_seen|job_stage|audit_event"
# SQLite names the alias of a table, which a statement gives it or a view.
IN_VIEWS = {"envelope", "asked", "outcome", "attempt", "fact", "event"}
SEQ_SCAN = re.compile(rf"Seq Scan on (?:{TABLES})\b")
SCAN = re.compile(r"SCAN (?P<alias>\w+)(?! USING (?:COVERING )?INDEX)\b")


def reads_all(text: str, plan: str) -> bool:
    """Whether a statement reads a whole table. A bounded subquery may have the name of a table."""
    return (
        SEQ_SCAN.search(plan) is not None
        or _joins_many(plan)
        or any(
            _is_whole(text, found["alias"])
            and not re.search(rf"(CO-ROUTINE|MATERIALIZE) {found['alias']}\b", plan)
            for found in SCAN.finditer(plan)
        )
    )


def _is_whole(text: str, alias: str) -> bool:
    """Whether SQLite reads all of such a table, and not its last rows in the order of their ids."""
    tables = set(re.findall(rf"\bholdfast_(\w+) AS {alias}\b", text))
    if tables == {"audit_event"} and re.search(rf"ORDER BY {alias}\.id DESC\s+LIMIT", text):
        return False
    if not tables:
        return alias in IN_VIEWS or re.fullmatch(rf"holdfast_(?:{TABLES})", alias) is not None
    return any(re.fullmatch(TABLES, table) for table in tables)


def _joins_many(plan: str) -> bool:
    """Whether PostgreSQL reads all jobs of a tenant by an index, to join them by their hash."""
    above: list[tuple[int, str]] = []
    for line in plan.split("\n"):
        depth = len(line) - len(line.lstrip())
        if "(cost=" not in line:
            continue
        above = [one for one in above if one[0] < depth]
        found = re.search(rf"Scan .*\bon (?:{TABLES})\b.* rows=(\d+)", line)
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
        if found := [plan for plan in plans if reads_all(*plan)]:
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
            found = [plan for plan in plans if reads_all(*plan)]
            if found and route.path not in COUNTS:
                scans[route.path] = found
    world.hf.close()

    assert statuses["/v1/rewrites/{rewrite_request_id}"] == {200, 404}
    assert sum(200 in found for found in statuses.values()) > 30, statuses
    assert explained_count > 100
    assert scans == {}, listed(scans)


def test_a_page_that_reads_a_whole_table_is_noticed(everything: Everything) -> None:
    plans: list[tuple[str, str]] = []
    with explained(plans):
        look(
            everything.hf.store,
            "SELECT asked.job_type, count(*) AS jobs FROM holdfast.job_envelope AS asked"
            " GROUP BY asked.job_type",
        )

    assert any(reads_all(*plan) for plan in plans), plans
