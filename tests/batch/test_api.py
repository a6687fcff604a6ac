"""Declaring model work: a class with two methods, and a route that is frozen at enqueue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import ConfigError, FakeClock, Holdfast, InvalidJob, SchemaInvalid, State
from holdfast.config import Settings
from holdfast.engine.claim import claim_jobs
from holdfast.engine.context import CancelToken, Context
from holdfast.engine.job import BATCH_KEY
from holdfast_llm import ExecutionMode, Item, Reply, Request, Route
from holdfast_llm.settings import ProviderSettings
from tests.story import ORG, claim, look, make_holdfast

ROUTE = Route("openai", "openai_responses", "gpt-5.2", prompt_version="v3", target_locale="de")


class Shout:
    """Returns a text in capitals."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.")

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.text}


def declare(hf: Holdfast, route: Any = ROUTE, **options: Any) -> Holdfast:
    hf.batch("text.shout", route=route, **options)(Shout)
    return hf


def enqueue(hf: Holdfast, **options: Any) -> Any:
    return hf.enqueue("text.shout", {"text": "hello"}, org_id=ORG, **options)


def decision(hf: Holdfast, job: Any) -> Any:
    return hf.get(job.id, org_id=ORG).record["routing_decision"]


# -- the class


def test_a_class_with_two_methods_is_a_job_type() -> None:
    hf = Holdfast(settings=Settings(db="sqlite:"))

    @hf.batch("text.shout", route=ROUTE)
    class Mine(Shout):
        pass

    assert isinstance(hf.registry.get("text.shout").work, Mine)


def test_an_object_that_was_made_by_the_application_is_used_as_it_is() -> None:
    hf = Holdfast(settings=Settings(db="sqlite:"))
    work = Shout()

    hf.batch("text.shout", route=ROUTE)(work)

    assert hf.registry.get("text.shout").work is work


class NeedsMore(Shout):
    def __init__(self, more: str) -> None:
        self.more = more


class Awaits(Shout):
    async def request(self, item: Item) -> Request:  # type: ignore[override]
        return Request(("hello",))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (object(), "needs a plain method request"),
        (NeedsMore, "NeedsMore needs arguments"),
        (Awaits, "needs a plain method request"),
    ],
)
def test_what_is_no_such_class_is_refused_when_it_is_declared(given: Any, says: str) -> None:
    hf = Holdfast(settings=Settings(db="sqlite:"))

    with pytest.raises(ConfigError, match=says):
        hf.batch("text.shout", route=ROUTE)(given)

    assert "text.shout" not in hf.registry


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"route": "openai"}, "route must be a Route or an object"),
        ({"route": {"provider": "openai"}}, "route needs adapter_kind"),
        ({"route": Route("openai", "openai_response", "m")}, "known: anthropic_messages"),
        ({"route": ROUTE, "category": "planning"}, "the rules planning"),
        ({"route": ROUTE, "category": "export"}, "the rules export"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(options: dict[str, Any], says: str) -> None:
    hf = Holdfast(settings=Settings(db="sqlite:"))

    with pytest.raises(ConfigError, match=says):
        hf.batch("text.shout", **options)(Shout)


# -- the route


@pytest.mark.req("R-20", "R-21")
def test_the_route_of_a_job_is_frozen_when_it_is_enqueued(hf: Holdfast, clock: FakeClock) -> None:
    job = enqueue(declare(hf))
    later = make_holdfast(hf.settings.db, clock)
    declare(later, Route("gemini", "gemini_generate", "another"))

    (claimed,) = claim_jobs(
        later.store, queue="q:default", worker_id="w", limit=1, lease_ms=1000, of_batch=True
    )
    later.close()

    assert Item.from_job(claimed).route == ROUTE
    assert decision(hf, job) == ROUTE.decision


def test_a_caller_says_what_differs_and_keeps_what_is_its_own(hf: Holdfast) -> None:
    declare(hf)

    job = enqueue(hf, routing_decision={"target_locale": "fr", "rule": "by-home"})

    assert decision(hf, job) == {**ROUTE.decision, "target_locale": "fr", "rule": "by-home"}


def test_a_caller_that_names_a_provider_says_everything_itself(hf: Holdfast) -> None:
    declare(hf)

    with pytest.raises(InvalidJob, match="routing_decision: needs adapter_kind"):
        enqueue(hf, routing_decision={"provider": "mistral"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"execution_mode": "sometimes"}, "execution_mode must be batch or async"),
        ({"target_locale": "x" * 201}, "target_locale must be text"),
        ({"max_retries": -1}, "max_retries must be a whole number"),
        (["openai"], "must be an object"),
        (
            {"provider": "nobody", "adapter_kind": "openai_chat", "model": "m"},
            "names provider 'nobody'; configured are: anthropic",
        ),
        ({"adapter_kind": "openai_response"}, "names adapter_kind 'openai_response'; known: "),
        ({"base_url": "https://evil.example"}, "another base_url than providers.openai.base_url"),
        (
            {"provider": "anthropic", "adapter_kind": "openai_responses", "model": "m"},
            "adapter openai_responses with 'anthropic', whose base_url requires anthropic_messages",
        ),
    ],
)
def test_a_route_that_leads_nowhere_is_refused_at_the_edge(
    hf: Holdfast, given: Any, says: str
) -> None:
    declare(hf)

    with pytest.raises(InvalidJob, match=says):
        enqueue(hf, routing_decision=given)

    assert look(hf.store, "SELECT id FROM holdfast.job") == []


def test_a_job_type_without_a_route_asks_every_caller_for_one(hf: Holdfast) -> None:
    declare(hf, None)

    with pytest.raises(InvalidJob, match="the job type declares no route"):
        enqueue(hf)
    assert enqueue(hf, routing_decision=ROUTE.decision).created


def test_a_provider_that_takes_no_batches_is_refused_for_the_lane(url: str) -> None:
    server = ProviderSettings(base_url="https://llm.test/v1", supports_batches=False)
    hf = make_holdfast(url, providers={"own": server})
    declare(hf, Route("own", "openai_chat", "m"))

    with pytest.raises(InvalidJob, match="'own' takes no batches"):
        enqueue(hf)
    assert enqueue(hf, routing_decision={"execution_mode": "async"}).created
    hf.close()


def test_a_server_of_any_kind_may_be_at_another_address_of_a_provider(url: str) -> None:
    plain = ProviderSettings(base_url="https://api.anthropic.com/v1/")
    dated = replace(plain, api_version="2023-06-01")
    hf = make_holdfast(url, providers={"anthropic": plain, "dated": dated})
    route = Route("anthropic", "openai_chat", "m", base_url="https://api.anthropic.com/v1")
    declare(hf, route)

    assert enqueue(hf).created
    with pytest.raises(InvalidJob, match="leave providers"):
        enqueue(hf, routing_decision={**route.decision, "provider": "dated"})
    hf.close()


@pytest.mark.req("R-15")
@pytest.mark.parametrize(
    ("declared", "retries", "attempts"), [(2, None, 2), (2, 0, 1), (2, 5, 2), (5, 2, 3)]
)
def test_the_stricter_of_policy_and_route_says_how_often_a_job_is_tried(
    hf: Holdfast, declared: int, retries: int | None, attempts: int
) -> None:
    declare(hf, max_attempts=declared)
    route = {} if retries is None else {"routing_decision": {"max_retries": retries}}

    job = enqueue(hf, **route)

    assert hf.get(job.id, org_id=ORG).max_attempts == attempts


def test_a_limit_key_is_not_for_the_lane(hf: Holdfast) -> None:
    declare(hf)

    with pytest.raises(InvalidJob, match="their limits are those of the account"):
        enqueue(hf, limit_key="vendor")


# -- the process that takes it


@pytest.mark.req("B-19")
def test_a_job_of_the_lane_is_no_workers_and_a_call_of_its_own_is(hf: Holdfast) -> None:
    declare(hf)
    waits = enqueue(hf)
    called = enqueue(hf, routing_decision={"execution_mode": ExecutionMode.ASYNC})

    taken = claim(hf, limit=10)

    assert [job.id for job in taken] == [called.id]
    assert hf.get(waits.id, org_id=ORG).record["limit_key"] == BATCH_KEY


def test_a_job_that_was_enqueued_without_a_route_is_refused_by_the_worker(
    hf: Holdfast, clock: FakeClock
) -> None:
    """SQL has no routes: holdfast.enqueue() stores a job without one."""
    plain = make_holdfast(hf.settings.db, clock)
    plain.job("text.shout")(lambda job, payload: None)
    job = enqueue(plain)
    plain.close()
    declare(hf)

    hf.worker().run_once()

    found = hf.get(job.id, org_id=ORG)
    assert (found.state, found.error_class) == (State.FAILED, "SCHEMA_INVALID")
    assert "missing=routing_decision" in (found.last_error or "")


def test_a_job_of_the_lane_that_slips_to_a_worker_is_refused_and_not_sent(hf: Holdfast) -> None:
    declare(hf)
    enqueue(hf)
    (job,) = claim_jobs(
        hf.store, queue="q:default", worker_id="w", limit=1, lease_ms=1000, of_batch=True
    )
    context = Context(job, hf.store, CancelToken())

    with pytest.raises(SchemaInvalid) as refused:
        hf.registry.get("text.shout").first.function(context, {})

    assert refused.value.context == {"field": "routing_decision.execution_mode"}
    assert look(hf.store, "SELECT * FROM holdfast.batch_item") == []
