"""Traces: one per request, from the enqueue to every attempt, without private data."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.context import Context as OtelContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler, SamplingResult
from opentelemetry.trace import (
    NoOpTracerProvider,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast import Context, FakeClock, Holdfast, InvalidJob, JobRequest, NetworkTimeout, State
from holdfast.engine.job import Claimed
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.telemetry.trace import read_traceparent, span_of, trace
from tests.acceptance.processes import wait_until
from tests.operate.letters import Review, operator, replay
from tests.story import ORG, PROJECT, claim, make_holdfast
from tests.telemetry import traced_app
from tests.telemetry.collector import Collector, Seen, collecting, serving
from tests.telemetry.traced_app import CANARY

ROOT = Path(__file__).resolve().parent.parent.parent
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CLIENT_ID = "b7ad6b7169203331"
CLIENT = f"00-{TRACE_ID}-{CLIENT_ID}-01"


class Traced:
    """A provider whose spans stay in memory."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def traced(hf: Holdfast) -> Iterator[Traced]:
    made = Traced()
    trace(hf, made.provider)
    yield made
    made.provider.shutdown()


def trace_id(span: ReadableSpan) -> str:
    return format_trace_id(span.get_span_context().trace_id)


def span_id(span: ReadableSpan) -> str:
    return format_span_id(span.get_span_context().span_id)


def parent_id(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traceparent(hf: Holdfast, job_id: str) -> str | None:
    found: str | None = hf.get(job_id, org_id=ORG).record["traceparent"]
    return found


# -- from an HTTP request to the last attempt, over a real exporter


@pytest.mark.req("M-11", "M-12", "M-13")
def test_a_trace_leads_from_an_http_request_through_two_stages_and_a_retry(
    url: str, clock: FakeClock
) -> None:
    with collecting() as collector:
        provider = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=collector.url)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        hf = make_holdfast(url, clock)
        hf.registry = traced_app.make(url).registry
        trace(hf, provider)

        status, job_id = _ask(_web(hf, provider), {"traceparent": CLIENT, "tracestate": "v=1"})
        hf.worker(concurrency=2).run(until_idle=True)
        hf.worker(concurrency=2).run(until_idle=True)
        provider.shutdown()

        assert (status, hf.get(job_id, org_id=ORG).state) == (202, State.COMPLETED)
        hf.close()
    _check_trace(collector, job_id)


def _web(hf: Holdfast, provider: TracerProvider) -> type[BaseHTTPRequestHandler]:
    """A web application that is instrumented by hand and enqueues."""

    class Web(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            caller = TraceContextTextMapPropagator().extract(headers)
            tracer = provider.get_tracer("web")
            with tracer.start_as_current_span("POST /reports", caller, kind=SpanKind.SERVER):
                job = hf.enqueue("report.make", body, org_id=ORG, request_id="req-1")
            answer = job.id.encode()
            self.send_response(202)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    return Web


def _ask(web: type[BaseHTTPRequestHandler], headers: dict[str, str]) -> tuple[int, str]:
    with serving(web) as server:
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.server_port}/reports",
            data=json.dumps({"text": CANARY}).encode(),
            headers={"content-type": "application/json", **headers},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()


def _check_trace(collector: Collector, job_id: str) -> None:
    (server,) = collector.named("POST /reports")
    (enqueue,) = collector.named("enqueue report.make")
    fetches = collector.named("execute report.make/fetch")
    (draw,) = collector.named("execute report.make/draw")

    assert {span.trace_id for span in collector.spans} == {TRACE_ID}
    assert (server.parent_id, enqueue.parent_id) == (CLIENT_ID, server.span_id)
    assert (enqueue.kind, enqueue.failed) == ("PRODUCER", False)
    assert [_attempt(span) for span in fetches] == [
        (1, True, "NETWORK_TIMEOUT", "retry"),
        (2, False, None, "advanced"),
    ]
    assert _attempt(draw) == (1, False, None, "completed")
    for span in (*fetches, draw):
        assert span.kind == "CONSUMER"
        assert span.parent_id == enqueue.span_id
        assert span.links == [(TRACE_ID, enqueue.span_id)]
    for span in (enqueue, *fetches, draw):
        assert span.attributes["holdfast.job_id"] == job_id
        assert span.attributes["holdfast.job_type"] == "report.make"
        assert span.attributes["holdfast.org_id"] == ORG
        assert span.attributes["holdfast.request_id"] == "req-1"
        assert span.attributes["holdfast.correlation_id"] == "req-1"
        assert span.attributes["messaging.system"] == "holdfast"
        assert (span.description, span.events) == ("", 0)
    assert CANARY.encode() not in collector.bytes


def _attempt(span: Seen) -> tuple[object, ...]:
    found = span.attributes
    return (
        found["holdfast.attempt"], span.failed, found.get("error.type"), found["holdfast.outcome"],
    )  # fmt: skip


@pytest.mark.req("M-11", "M-12")
def test_a_worker_process_exports_the_spans_of_what_another_process_enqueued(url: str) -> None:
    with collecting() as collector:
        hf = traced_app.make(url)
        provider = traced_app.export(hf, collector.url)
        job = hf.enqueue(
            "report.make", {"text": CANARY}, org_id=ORG, request_id="req-1", traceparent=CLIENT
        )
        provider.shutdown()
        worker = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "--app", "tests.telemetry.traced_app:hf", "worker"],
            env={**os.environ, "HOLDFAST_DB": url, "TRACES_TO": collector.url},
            cwd=ROOT, text=True, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            wait_until(lambda: hf.get(job.id, org_id=ORG).state is State.COMPLETED)
        finally:
            worker.send_signal(signal.SIGTERM)
            _, log = worker.communicate(timeout=60)
            hf.close()

        assert worker.returncode == 0, log
    (enqueue,) = collector.named("enqueue report.make")
    executions = [span for span in collector.spans if span.name.startswith("execute")]
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}
    # The caller named the trace, so the job keeps it.
    assert enqueue.parent_id == CLIENT_ID
    assert {span.parent_id for span in executions} == {CLIENT_ID}
    assert [span.failed for span in executions] == [True, False, False]
    assert all(json.loads(line) for line in log.splitlines())
    assert CANARY.encode() not in collector.bytes
    assert CANARY not in log


# -- the handler's view, and its enqueues


def test_a_handler_sees_its_span_and_what_it_enqueues_joins_the_trace(
    hf: Holdfast, traced: Traced
) -> None:
    seen: dict[str, int] = {}

    @hf.job("outer.sync")
    def outer(job: Context, payload: object) -> None:
        seen["sync"] = get_current_span().get_span_context().span_id
        hf.enqueue("inner.async", {})

    @hf.job("inner.async")
    async def inner(job: Context, payload: object) -> None:
        seen["async"] = get_current_span().get_span_context().span_id
        await asyncio.sleep(0)
        with traced.tracer.start_as_current_span("by hand"):
            await hf.aenqueue("leaf", {})

    hf.job("leaf")(lambda job, payload: None)
    with traced.tracer.start_as_current_span("request") as request:
        hf.enqueue("outer.sync", {}, org_id=ORG, project_id=PROJECT)
    hf.worker(concurrency=2).run(until_idle=True)

    sync_span, async_span = (
        traced.one("execute outer.sync/run"),
        traced.one("execute inner.async/run"),
    )
    assert seen["sync"] == sync_span.get_span_context().span_id
    assert seen["async"] == async_span.get_span_context().span_id
    assert len({trace_id(span) for span in traced.spans}) == 1
    assert trace_id(sync_span) == format_trace_id(request.get_span_context().trace_id)
    chain = {
        "enqueue outer.sync": "request",
        "execute outer.sync/run": "enqueue outer.sync",
        "enqueue inner.async": "execute outer.sync/run",
        "execute inner.async/run": "enqueue inner.async",
        "by hand": "execute inner.async/run",
        "enqueue leaf": "by hand",
        "execute leaf/run": "enqueue leaf",
    }
    assert {name: parent_id(traced.one(name)) for name in chain} == {
        name: span_id(traced.one(parent)) for name, parent in chain.items()
    }
    assert attributes(traced.one("enqueue leaf"))["holdfast.project_id"] == PROJECT
    assert not get_current_span().get_span_context().is_valid


def test_a_bulk_is_one_span_and_every_job_of_it_continues_there(
    hf: Holdfast, traced: Traced
) -> None:
    hf.job("work")(lambda job, payload: None)
    jobs = [{"n": 1}, JobRequest({"n": 2}, ORG), JobRequest({"n": 3}, ORG, traceparent=CLIENT)]

    first, second, third = hf.enqueue_many("work", jobs, org_id=ORG)
    hf.worker().run_once()

    enqueue = traced.one("enqueue work")
    assert attributes(enqueue)["messaging.batch.message_count"] == 3
    assert traceparent(hf, first.id) == traceparent(hf, second.id)
    assert traceparent(hf, third.id) == CLIENT
    by_job = {
        attributes(span)["holdfast.job_id"]: span for span in traced.named("execute work/run")
    }
    assert {parent_id(by_job[job.id]) for job in (first, second)} == {span_id(enqueue)}
    assert (trace_id(by_job[third.id]), parent_id(by_job[third.id])) == (TRACE_ID, CLIENT_ID)


def test_a_large_bulk_is_one_span_too(hf: Holdfast, traced: Traced) -> None:
    hf.job("work")(lambda job, payload: None)

    jobs = hf.enqueue_many("work", ({"n": n} for n in range(600)), org_id=ORG)

    assert attributes(traced.one("enqueue work"))["messaging.batch.message_count"] == 600
    assert traceparent(hf, jobs[0].id) == traceparent(hf, jobs[-1].id) is not None


def test_a_duplicate_keeps_the_trace_of_the_first(hf: Holdfast, traced: Traced) -> None:
    hf.job("work")(lambda job, payload: None)

    first = hf.enqueue("work", {}, org_id=ORG, idempotency_key="k")
    kept = traceparent(hf, first.id)
    hf.enqueue("work", {}, org_id=ORG, idempotency_key="k")

    created, known = traced.named("enqueue work")
    assert traceparent(hf, first.id) == kept
    assert attributes(created)["holdfast.created"] == 1
    assert attributes(known)["holdfast.created"] == 0
    assert attributes(known)["messaging.message.id"] == first.id


def test_a_job_on_the_callers_own_connection_is_traced(
    hf: Holdfast, url: str, traced: Traced
) -> None:
    hf.job("work")(lambda job, payload: None)
    is_sqlite = url.startswith("sqlite")
    _ = hf.store
    connection: Any = (
        sqlite3.connect(url.removeprefix("sqlite:///")) if is_sqlite else psycopg.connect(url)
    )
    try:
        job = hf.enqueue("work", {}, org_id=ORG, conn=connection)
        connection.commit()
    finally:
        connection.close()
    hf.worker().run_once()

    enqueue, execute = traced.one("enqueue work"), traced.one("execute work/run")
    assert parent_id(execute) == span_id(enqueue)
    assert attributes(execute)["holdfast.job_id"] == job.id


def test_a_job_on_a_connection_that_is_awaited_has_one_span(postgres_url: str) -> None:
    hf, traced = make_holdfast(postgres_url), Traced()
    trace(hf, traced.provider)
    hf.job("work")(lambda job, payload: None)

    async def ask() -> str:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            borrowed = await hf.aenqueue("work", {}, org_id=ORG, conn=connection)
        own = await hf.aenqueue("work", {}, org_id=ORG)
        assert traceparent(hf, borrowed.id) != traceparent(hf, own.id)
        return borrowed.id

    job_id = asyncio.run(ask())

    spans = traced.named("enqueue work")
    assert len(spans) == 2
    assert job_id in {attributes(span)["holdfast.job_id"] for span in spans}
    found = read_traceparent(traceparent(hf, job_id))
    assert found is not None
    assert found.span_id in {span.get_span_context().span_id for span in spans}
    hf.close()


@pytest.mark.req("M-11")
def test_a_job_from_the_sql_function_continues_the_trace_it_was_given(postgres_url: str) -> None:
    hf, traced = make_holdfast(postgres_url), Traced()
    trace(hf, traced.provider)
    hf.job("work")(lambda job, payload: None)
    _ = hf.worker()

    def call(given: str | None) -> str:
        with psycopg.connect(postgres_url) as connection:
            row = connection.execute(
                "SELECT job_id FROM holdfast.enqueue('work', '{}', %s, traceparent => %s)",
                (ORG, given),
            ).fetchone()
        assert row is not None
        return str(row[0])

    told, untold = call(CLIENT), call(None)
    invalid = [call(text) for text in (f"ff{CLIENT[2:]}", f"00-{'0' * 32}-{CLIENT_ID}-01")]
    hf.clock.advance(seconds=1)  # type: ignore[attr-defined]
    hf.worker().run_once()

    by_job = {attributes(span)["holdfast.job_id"]: span for span in traced.spans}
    assert (trace_id(by_job[told]), parent_id(by_job[told])) == (TRACE_ID, CLIENT_ID)
    for job_id in (untold, *invalid):
        assert by_job[job_id].parent is None
        assert not by_job[job_id].links
    hf.close()


def test_a_tick_of_the_clock_begins_a_trace_that_all_its_attempts_share(
    hf: Holdfast, clock: FakeClock, traced: Traced
) -> None:
    @hf.job("db.cleanup", category="maintenance")
    def cleanup(job: Context, payload: object) -> None:
        if job.attempt == 1:
            raise NetworkTimeout

    hf.schedule("hourly", every="1h", job_type="db.cleanup", org_id=ORG)
    sync_schedules(hf)
    clock.advance(hours=1)
    with traced.tracer.start_as_current_span("of somebody else"):
        dispatch_once(hf)
    hf.worker().run_once()
    clock.advance(hours=1)
    hf.worker().run_once()

    root = traced.named("enqueue db.cleanup")[0]
    attempts = traced.named("execute db.cleanup/run")
    assert root.parent is None
    assert attributes(root)["messaging.operation.type"] == "create"
    assert [attributes(span)["holdfast.attempt"] for span in attempts] == [1, 2]
    assert {(trace_id(span), parent_id(span)) for span in attempts} == {
        (trace_id(root), span_id(root))
    }


def test_a_replay_leads_back_to_what_enqueued_the_original(
    hf: Holdfast, clock: FakeClock, traced: Traced
) -> None:
    review = Review(hf, attempts=1)
    job = review.die(clock, NetworkTimeout())
    review.faults = {}
    traced.exporter.clear()
    with traced.tracer.start_as_current_span("of the operator"):
        replay_id = replay(operator(hf), job)
    hf.worker().run_once()

    (again,) = [span for span in traced.spans if span.name.startswith("execute")]
    origin = span_of(hf.get(job.id, org_id=ORG))
    assert origin is not None
    assert again.name == "execute review.run/tell"
    assert attributes(again)["holdfast.job_id"] == replay_id
    assert attributes(again)["holdfast.replay_of"] == job.id
    assert parent_id(again) == format_span_id(origin.span_id)
    assert [link.context.span_id for link in again.links] == [origin.span_id]


def test_an_untraced_job_has_its_own_trace(hf: Holdfast, store: object) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.enqueue("work", {}, org_id=ORG)
    traced = Traced()
    trace(hf, traced.provider)

    with traced.tracer.start_as_current_span("of somebody else"):
        hf.worker().run_once()

    execute = traced.one("execute work/run")
    assert execute.parent is None
    assert not execute.links


# -- failures


def test_an_enqueue_that_is_refused_is_marked_and_says_only_the_class(
    hf: Holdfast, traced: Traced
) -> None:
    hf.job("work")(lambda job, payload: None)

    with pytest.raises(InvalidJob):
        hf.enqueue("work", {"n": 1}, org_id=ORG, priority=CANARY)
    with pytest.raises(Exception, match="is registered"):
        hf.enqueue(CANARY, {}, org_id=ORG)

    refused, unknown = traced.one("enqueue work"), traced.one("enqueue")
    assert refused.status.status_code is unknown.status.status_code is StatusCode.ERROR
    assert attributes(refused)["error.type"] == "InvalidJob"
    assert not any(CANARY in span.to_json() for span in traced.spans)


@pytest.mark.req("M-03")
def test_no_span_carries_payload_result_message_or_stack(hf: Holdfast, traced: Traced) -> None:
    @hf.job("broken")
    def broken(job: Context, payload: dict[str, Any]) -> None:
        local = {"token": payload["text"]}
        raise KeyError(CANARY, local) from ValueError(CANARY)

    @hf.job("good")
    async def good(job: Context, payload: dict[str, Any]) -> dict[str, str]:
        return {CANARY: CANARY}

    for job_type in ("broken", "good"):
        hf.enqueue(job_type, {"text": CANARY}, org_id=ORG, idempotency_key=CANARY)
    hf.worker(concurrency=1).run(until_idle=True)

    (dead,) = traced.named("execute broken/run")
    assert attributes(dead)["error.type"] == "DEFECT"
    assert attributes(dead)["holdfast.outcome"] == "dead"
    assert (dead.status.status_code, dead.status.description) == (StatusCode.ERROR, None)
    assert all(not span.events for span in traced.spans)
    assert not any(CANARY in span.to_json() for span in traced.spans)


def test_the_span_of_a_handler_that_hangs_ends_when_its_job_is_taken_away(
    hf: Holdfast, traced: Traced
) -> None:
    release = threading.Event()

    @hf.job("hangs", max_attempts=1, timeout=0.05)
    def hangs(job: Context, payload: object) -> None:
        release.wait(30)

    hf.enqueue("hangs", {}, org_id=ORG)
    hf.worker(concurrency=2).run(until_idle=True)
    (span,) = traced.named("execute hangs/run")
    release.set()

    assert attributes(span)["error.type"] == "HANDLER_TIMEOUT"
    assert attributes(span)["holdfast.outcome"] == "dead"
    assert span.status.status_code is StatusCode.ERROR


class Refuses(SpanProcessor):
    """A processor of the application that fails in every method."""

    def on_start(self, span: Span, parent_context: OtelContext | None = None) -> None:
        raise RuntimeError(CANARY)

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError(CANARY)


class RefusesAtTheEnd(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError(CANARY)


@pytest.mark.parametrize("processor", [Refuses, RefusesAtTheEnd])
def test_tracing_that_fails_harms_no_job(
    hf: Holdfast, processor: type[SpanProcessor], caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor())
    trace(hf, provider)
    hf.job("sync.work")(lambda job, payload: 1)

    @hf.job("async.work")
    async def work(job: Context, payload: object) -> int:
        return 2

    jobs = [hf.enqueue(name, {}, org_id=ORG) for name in ("sync.work", "async.work")]
    hf.worker(concurrency=1).run(until_idle=True)

    assert [hf.get(job.id, org_id=ORG).result for job in jobs] == [1, 2]
    assert "trace.failed" in caplog.text


# -- sampling, attaching, absence


class OnlyRoots(Sampler):
    """Counts its calls, and samples nothing."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        raise RuntimeError("a sampler of the application's own")

    def get_description(self) -> str:
        return "fails"


def test_a_sampler_that_fails_leaves_the_job_without_a_trace(hf: Holdfast) -> None:
    trace(hf, TracerProvider(sampler=OnlyRoots()))
    hf.job("work")(lambda job, payload: 1)

    job = hf.enqueue("work", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.get(job.id, org_id=ORG).state is State.COMPLETED
    assert traceparent(hf, job.id) is None


def test_what_is_not_sampled_is_passed_on_as_not_sampled(hf: Holdfast) -> None:
    unsampled, worker_side = Traced(ALWAYS_OFF), Traced()
    trace(hf, unsampled.provider)
    hf.job("work")(lambda job, payload: None)
    job = hf.enqueue("work", {}, org_id=ORG)
    trace(hf, worker_side.provider)
    hf.worker().run_once()

    stored = traceparent(hf, job.id)
    assert stored is not None
    assert int(stored[-2:], 16) & 1 == 0
    assert worker_side.spans == unsampled.spans == ()


@pytest.mark.req("M-11")
def test_without_a_library_behind_the_interface_a_given_trace_is_still_passed_on(
    hf: Holdfast,
) -> None:
    trace(hf, NoOpTracerProvider())
    inner: list[str] = []

    @hf.job("outer")
    def outer(job: Context, payload: object) -> None:
        inner.append(hf.enqueue("inner", {}).id)

    hf.job("inner")(lambda job, payload: None)
    hf.enqueue("outer", {}, org_id=ORG, traceparent=CLIENT)
    alone = hf.enqueue("inner", {}, org_id=ORG)
    hf.worker().run_once()

    assert traceparent(hf, inner[0]) == CLIENT
    assert traceparent(hf, alone.id) is None


def test_attaching_twice_traces_once(hf: Holdfast, traced: Traced) -> None:
    trace(hf, traced.provider)
    hf.job("work")(lambda job, payload: None)

    hf.enqueue("work", {}, org_id=ORG)
    hf.worker().run_once()

    assert sorted(span.name for span in traced.spans) == ["enqueue work", "execute work/run"]
    assert len([found for found in hf.events.subscribers if "on_event" in repr(found)]) == 1


def test_a_span_of_many_jobs_can_link_to_each(hf: Holdfast, traced: Traced) -> None:
    hf.job("work")(lambda job, payload: None)
    enqueued = hf.enqueue("work", {}, org_id=ORG)
    bare = hf.enqueue("work", {}, org_id=ORG, traceparent=CLIENT)
    stored = hf.get(enqueued.id, org_id=ORG)
    claimed = {job.id: job for job in claim(hf, limit=2)}

    origin = span_of(stored)

    assert origin is not None
    assert origin.span_id == traced.named("enqueue work")[0].get_span_context().span_id
    assert span_of(claimed[enqueued.id]) == origin
    assert format_span_id(span_of(claimed[bare.id]).span_id) == CLIENT_ID  # type: ignore[union-attr]
    assert all(isinstance(job, Claimed) for job in claimed.values())


@pytest.mark.parametrize(
    "text",
    [
        None, "", "00-xyz", CLIENT.upper(), f"ff{CLIENT[2:]}", f"00-{'0' * 32}-{CLIENT_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01", f"{CLIENT}-more", "0" * 10_000,
    ],
)  # fmt: skip
def test_a_traceparent_that_w3c_calls_invalid_names_no_span(text: str | None) -> None:
    assert read_traceparent(text) is None


ABSENT = """
import sys
from holdfast import Holdfast
from holdfast.telemetry import log
hf = Holdfast("sqlite:")
hf.job("work")(lambda job, payload: None)
hf.events.subscribe(log.log_event)
hf.enqueue("work", {}, org_id="0198c0de-0000-7000-8000-00000000000a")
assert hf.worker().run_once().outcomes == {"completed": 1}
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""

MISSING = """
import sys
sys.modules["opentelemetry"] = None
sys.modules["opentelemetry.context"] = None
try:
    import holdfast.telemetry.trace
except Exception as exc:
    print(type(exc).__name__, exc)
"""


def test_what_is_not_attached_is_not_even_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT + MISSING], text=True, capture_output=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[]",
        "ConfigError Traces need OpenTelemetry: pip install 'holdfast-jobs[trace]'.",
    ]
