"""The console without a browser: pages, roles, actions and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from holdfast import ConfigError, Context, FakeClock, Holdfast, State
from holdfast.config.serve import ServeSettings
from holdfast.console.pages import PAGES
from holdfast.console.site import POLICY, Site
from holdfast.console.visit import Page, PageContext, Shown
from holdfast.operate.bulk_actions import LetterAction
from holdfast.operate.dead_letter_input import DeadLetterFilter
from tests.console.site import HOSTILE, OpenAccess, World, make_site
from tests.story import ORG, OTHER_ORG, look, make_holdfast

Browser = Callable[..., TestClient]

# Pages that a key of one tenant may not see.
REFUSED = {
    *("/batches", "/queues", "/queues/q:default", "/runs", "/schedules", "/schedules/nightly"),
    "/workers",
}


@pytest.fixture
def world(hf: Holdfast) -> World:
    return World(hf)


@pytest.fixture
def browser(hf: Holdfast) -> Browser:
    def make(**who: Any) -> TestClient:
        return TestClient(make_site(hf, **who), base_url="http://127.0.0.1")

    return make


def paths(world: World) -> list[str]:
    """Every page of the core, with an id where its path takes one."""
    dead, job = world.dead[0].id, world.retried.id
    known = {
        "/jobs/{job_id}": f"/jobs/{job}",
        "/jobs/bulk": "/jobs/bulk?job_type=leaflet.print",
        "/dead-letters/bulk": "/dead-letters/bulk?step=triage&error_class=GONE",
        "/dead-letters/{job_id}": f"/dead-letters/{dead}",
        "/queues/{name}": "/queues/q:default",
        "/schedules/{name}": "/schedules/nightly",
        "/find": f"/find?q={job}",
    }
    shown = [page.path for page in PAGES if page.method == "GET"]
    # Other tests create their objects.
    left = {"/deliveries/{delivery_id}", "/deliveries/bulk", "/runs/{run_id}"}
    left.add("/bulk-actions/{action_id}")
    added = ["/batches", "/costs", "/costs?by=model", "/reviews"]
    return [*(known.get(path, path) for path in shown if path not in left), *added]


def test_every_page_answers_and_lets_no_foreign_script_in(world: World, browser: Browser) -> None:
    for role in ("admin", "viewer"):
        client = browser(role=role)
        for path in paths(world):
            if role == "viewer" and ("bulk" in path or path.startswith(("/audit", "/costs"))):
                continue
            answer = client.get(f"/console{path}")
            assert answer.status_code == 200, (role, path, answer.text)
            assert answer.headers["content-security-policy"] == POLICY
            assert not re.search(r"<script(?! src=)|style=|\son\w+=|hx-on|https?://", answer.text)


def test_a_viewer_sees_no_action_and_every_action_is_refused(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    client = browser(role="viewer")
    job = world.waiting[0]

    for page in PAGES:
        if page.method == "POST":
            path = re.sub(r"\{\w+\}", job.id, page.path)
            assert client.post(f"/console{path}", data={"reason": "x"}).status_code == 403, path
    for path in (f"/jobs/{job.id}", f"/dead-letters/{world.dead[0].id}", "/queues/q:default"):
        shown = client.get(f"/console{path}").text
        assert set(re.findall(r'method="post" action="([^"]*)"', shown)) == {"/console/logout"}
    assert hf.get(job.id, org_id=ORG).state is State.QUEUED


def test_a_tenant_sees_its_own_jobs_and_not_those_of_others(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    (foreign,) = hf.operate(actor="user:x", role="admin", org_id=OTHER_ORG).dead_letters.list()
    client = browser(role="operator", org_id=ORG)

    assert foreign.job_id not in client.get("/console/jobs").text
    assert "order.ship" not in client.get("/console/").text
    for path in (f"jobs/{foreign.job_id}", f"dead-letters/{foreign.job_id}"):
        assert client.get(f"/console/{path}").status_code == 404
    assert client.post(
        f"/console/dead-letters/{foreign.job_id}/discard", data={"reason": "x"}
    ).status_code == 404  # fmt: skip
    assert client.get(f"/console/jobs?org_id={OTHER_ORG}").status_code == 403


@pytest.mark.req("X-01")
def test_every_page_of_a_tenant_answers_in_the_role_of_tenants(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    """Row-level security of PostgreSQL checks the reads as well."""
    client = browser(role="operator", org_id=ORG)
    wanted = LetterAction("discard", DeadLetterFilter(error_class="GONE"), "x")
    own = hf.operate(actor="user:ann", role="operator", org_id=ORG)
    action = own.bulk_actions.start(wanted, expected=3)

    answers = {}
    for path in (*paths(world), f"/bulk-actions/{action.id}"):
        answers[path] = client.get(f"/console{path}").status_code

    # Resources of all tenants are not available to one.
    refused = {path for path, status in answers.items() if status == 403}
    assert {path.partition("?")[0] for path in refused} == REFUSED
    assert {status for path, status in answers.items() if path not in refused} == {200}


@pytest.mark.req("X-01")
def test_a_page_that_forgets_the_tenant_shows_no_row_of_another(
    postgres_url: str, clock: FakeClock
) -> None:
    """A statement without its tenant reads in the role of tenants, too."""
    with make_holdfast(postgres_url, clock) as hf:
        world = World(hf)
        seen: dict[str, int] = {}

        def forget(visit: PageContext) -> Shown:
            everything = "SELECT count(*) AS found FROM holdfast.job"
            outside = f"{everything} WHERE org_id <> '{ORG}'"
            seen["all"] = look(hf.store, everything)[0]["found"]
            seen["others"] = look(hf.store, outside)[0]["found"]
            return Shown("error.html", "x", {"says": "", "fields": {}})

        site = Site(hf, OpenAccess(hf, "operator", ORG))
        site.pages.insert(0, Page("/forgets", forget))
        client = TestClient(Starlette(routes=site.routes), base_url="http://127.0.0.1")

        assert client.get("/console/forgets").status_code == 200
        assert seen["others"] == 0
        assert seen["all"] >= len(world.dead)


def test_text_of_jobs_and_people_is_escaped(hf: Holdfast, browser: Browser) -> None:
    def fail(_job: Context, _payload: dict[str, Any]) -> None:
        raise ValueError(HOSTILE)

    hf.job("mail.send", max_attempts=1)(fail)
    job = hf.enqueue("mail.send", {}, org_id=ORG, idempotency_key=HOSTILE, actor=f"user:{HOSTILE}")
    hf.worker().run_once()
    client = browser()
    client.post(f"/console/dead-letters/{job.id}/note", data={"body": HOSTILE})
    client.post("/console/queues/q:default/pause", data={"reason": HOSTILE})

    for path in (
        f"jobs/{job.id}", f"dead-letters/{job.id}", "queues/q:default", "audit", "",
        f"jobs?job_type={HOSTILE}", f"find?q={HOSTILE}", f"dead-letters?error_class={HOSTILE}",
        f"login?next={HOSTILE}", HOSTILE,
    ):  # fmt: skip
        assert "<script>alert" not in client.get(f"/console/{path}").text, path
    assert "&lt;script&gt;" in client.get(f"/console/jobs/{job.id}").text


def test_dead_letters_of_one_cause_are_resolved_in_bulk(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    client = browser()
    cause = {"error_class": "GONE", "job_type": "invoice.send"}
    fields = {
        "triage": {"kind_of": "data"},
        "remediate": {"done": "source_corrected", "kind": "data"},
        "validate": {"evidence_ref": "INC-7", "is_safe": "yes"},
        "replay": {},
        "verify": {},
        "resolve": {"notes": "Fixed."},
    }
    world.is_broken = False

    for step, more in fields.items():
        query = {**cause, "step": step, **({"kind": "data"} if step == "remediate" else {})}
        plan = client.get("/console/dead-letters/bulk", params=query).text
        form = {**dict(re.findall(r'name="(\w+)" value="([^"]*)"', plan)), **more}
        assert form["count"] == "3", (step, plan)
        begun = client.post("/console/dead-letters/bulk", data={**form, "reason": "INC-7"})
        assert "/console/bulk-actions/" in str(begun.url), (step, begun.text)
        assert 'hx-trigger="every 1s"' in begun.text
        hf.worker(queues=["q:maintenance"]).run_once()
        done = client.get(str(begun.url))
        assert '<div class="notice" role="status">3 ' in done.text, (step, done.text)
        assert "hx-trigger" not in done.text
        if step == "replay":
            hf.worker().run_once()

    assert "GONE" not in client.get("/console/").text


def test_a_bulk_action_is_refused_if_more_items_match_than_were_shown(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    client = browser()
    letters = {"error_class": "GONE", "step": "discard", "count": "2", "reason": "x"}
    jobs = {"job_type": "leaflet.print", "count": "1", "reason": "x"}

    for path, form in (("dead-letters", letters), ("jobs", jobs)):
        answer = client.post(f"/console/{path}/bulk", data=form).text
        assert "Nothing was done" in answer

    assert len(hf.operate(actor="user:x", role="admin").dead_letters.list()) == 4
    assert hf.get(world.waiting[0].id, org_id=ORG).state is State.QUEUED
    begun = client.post("/console/jobs/bulk", data={**jobs, "count": "2"})
    hf.worker(queues=["q:maintenance"]).run_once()
    assert "<dt>Canceled</dt><dd>2</dd>" in client.get(str(begun.url)).text
    assert "leaflet.print" in client.get("/console/bulk-actions").text
    assert hf.get(world.waiting[0].id, org_id=ORG).state is State.CANCELED


def test_an_action_without_a_reason_is_refused(
    world: World, browser: Browser, hf: Holdfast
) -> None:
    client = browser()
    job = world.waiting[0]

    for path in (
        f"jobs/{job.id}/cancel",
        f"dead-letters/{world.dead[0].id}/discard",
        "queues/q:default/pause",
        f"tenants/{ORG}",
        "schedules/nightly/pause",
    ):
        answer = client.post(f"/console/{path}", data={"reason": " ", "weight": "2"})
        assert answer.status_code == 400, (path, answer.text)
        assert "<dt>reason</dt>" in answer.text

    assert hf.get(job.id, org_id=ORG).state is State.QUEUED


def test_an_operator_pauses_a_queue_and_sees_the_notice_once(
    world: World, browser: Browser, clock: FakeClock
) -> None:
    client = browser(role="operator")

    done = client.post("/console/queues/q:default/pause", data={"reason": "INC-9"})

    assert "The queue is paused." in done.text
    assert "INC-9" in done.text
    assert "The queue is paused." not in client.get("/console/queues/q:default").text


def test_without_a_session_every_page_leads_to_the_login(world: World, browser: Browser) -> None:
    client = browser(is_in=False)
    client.follow_redirects = False

    for path in (*paths(world), "/anything"):
        answer = client.get(f"/console{path}")
        assert answer.headers["location"].startswith("/console/login"), path
    assert client.post("/console/login", data={"key": "wrong"}).status_code == 403
    login = {"key": "right", "next": "https://evil.example/"}
    assert client.post("/console/login", data=login).headers["location"] == "/console/"
    login = {"key": "right", "next": "/console/jobs?state=failed"}
    assert client.post("/console/login", data=login).headers["location"] == login["next"]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (None, None),
        ("https://traces.example.com/t/{trace_id}?from=now", "https://traces.example.com/t/TRACE"),
    ],
)
def test_the_page_of_a_job_links_to_its_trace(
    url: str, address: str | None, wanted: str | None
) -> None:
    hf = make_holdfast(url, serve=ServeSettings(trace_url=address))
    hf.job("work")(lambda job, payload: None)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    job = hf.enqueue("work", {}, org_id=ORG, traceparent=f"00-{trace}-00f067aa0ba902b7-01")

    page = TestClient(make_site(hf), base_url="http://127.0.0.1").get(f"/console/jobs/{job.id}")
    hf.close()

    assert trace in page.text
    assert ("traces.example.com" in page.text) == (wanted is not None)
    if wanted is not None:
        assert f'href="{wanted.replace("TRACE", trace)}?from=now"' in page.text


@pytest.mark.parametrize(
    "address",
    [
        "https://traces.example.com/t/",
        "javascript:alert('{trace_id}')",
        "https://user@traces.example.com/{trace_id}",
        "https://{trace_id}.example.com/",
    ],
)
def test_an_address_of_traces_that_is_no_web_page_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="trace_url"):
        ServeSettings(trace_url=address)
