"""A canary secret and a canary sentence: planted by careless code, found in no output."""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from holdfast import Context, FakeClock, Holdfast, InvalidJob, State, Transient
from holdfast.cli import main
from holdfast.engine.job import Claimed
from holdfast.engine.payload_reader import Signature
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import SecretInPayload
from holdfast.event import Event, JobSettled
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind
from holdfast.store import Store
from holdfast.telemetry import log
from holdfast.telemetry.metrics import Metrics
from holdfast.telemetry.trace import trace
from tests.operate.canary import (
    CARELESS,
    REQUEST_ID,
    SECRET,
    SENTENCE,
    declare,
    needles,
    reply_body,
)
from tests.story import ORG, look, seal_all

NEEDLES = needles()
PAYLOAD = {"text": SENTENCE, "letters": [{"to": SENTENCE}]}
# The payload is the only place that may hold the sentence.
ITS_PLACE = {("job_envelope", "payload")}


def leaks(text: str) -> list[str]:
    """The canaries in a text."""
    small = text.lower()
    return [needle for needle in NEEDLES if needle in small]


def stored(url: str) -> Iterator[tuple[str, str, str]]:
    """Every value of every column of every table, as text: table, column, value."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                rows = file.execute(f'SELECT * FROM "{table}"')
                columns = [column[0] for column in rows.description]
                yield from _cells(table.removeprefix("holdfast_"), columns, rows.fetchall())
        return
    with psycopg.connect(url) as server:
        tables = server.execute(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            found = server.execute(f'SELECT * FROM "{schema}"."{table}"')
            columns = [column.name for column in found.description or ()]
            yield from _cells(table, columns, found.fetchall())


def _cells(table: str, columns: list[str], rows: list[Any]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            yield (
                table,
                column,
                value.decode(errors="replace") if isinstance(value, bytes) else str(value),
            )


def leaks_in_store(url: str) -> list[tuple[str, str, str]]:
    return [
        (table, column, needle)
        for table, column, value in stored(url)
        if (table, column) not in ITS_PLACE
        for needle in leaks(value)
    ]


class Provider(BaseHTTPRequestHandler):
    """A provider that fails and repeats the request in its reply."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = reply_body().encode()
        self.send_response(503, SENTENCE)
        self.send_header("request-id", REQUEST_ID)
        self.send_header("set-cookie", f"session={SECRET}")
        self.send_header("x-echo", f"{SENTENCE} {self.headers['authorization']}")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def careless_provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("CANARY_PROVIDER", f"http://127.0.0.1:{server.server_port}/v1/messages")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The whole log of a process that Holdfast configures."""
    stream = io.StringIO()
    log.install("debug", stream)
    yield stream
    log.uninstall()


@dataclass(frozen=True)
class Told:
    """All visible output of the jobs, besides the database."""

    log: str
    metrics: str
    spans: str


@pytest.fixture
def told(hf: Holdfast, clock: FakeClock, written: io.StringIO) -> Told:
    """Every careless job, run until it has failed, with all listeners attached."""
    declare(hf)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace(hf, provider)
    metrics = Metrics(hf)
    hf.events.subscribe(log.log_event)
    for function in CARELESS:
        with mock.patch.object(Signature, "check"):  # By a process with another declaration.
            hf.enqueue(f"careless.{function.__name__}", PAYLOAD, org_id=ORG, actor="user:42")
    hf.worker(concurrency=2).run(until_idle=True)
    clock.advance(hours=1)
    hf.worker().run_once()
    gc.collect()
    return Told(
        written.getvalue(),
        generate_latest(metrics.registry).decode(),
        "\n".join(span.to_json() for span in spans.get_finished_spans()),
    )


def cli(url: str, *arguments: str) -> str:
    """The output of a command, on either stream."""
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        contextlib.suppress(SystemExit),
    ):
        main(["--db", url, *arguments])
    return printed.getvalue()


@pytest.mark.req("D-03", "D-10", "D-11", "M-03", "X-02", "X-05")
def test_no_canary_is_in_the_database_the_log_the_metrics_or_the_traces(
    hf: Holdfast, url: str, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    states = look(hf.store, "SELECT job_type, state, error_class FROM holdfast.job")
    assert {row["state"] for row in states} == {State.FAILED}, states
    assert len(states) == len(CARELESS)

    seal_all(hf.store)

    assert leaks_in_store(url) == []
    assert leaks(told.log) == []
    assert leaks(told.metrics) == []
    assert leaks(told.spans) == []
    printed = capfd.readouterr()
    assert leaks(printed.out + printed.err) == []
    # The canaries were present.
    assert told.log.count('"event": "job.dead"') == len(CARELESS)
    assert '"logger": "careless.app"' in told.log
    assert "jobs_failed_total" in told.metrics
    assert "execute careless.message/run" in told.spans


@pytest.mark.req("D-07", "D-08", "D-11")
def test_what_an_operator_needs_is_there_all_the_same(hf: Holdfast, told: Told) -> None:
    letters = {
        row["job_type"].removeprefix("careless."): row
        for row in look(
            hf.store,
            "SELECT job_type, error_class, last_stack, sanitized_context FROM holdfast.dead_letter",
        )
    }

    assert "tests.operate.canary:" in letters["message"]["last_stack"]
    assert "in deep" in letters["local_variables"]["last_stack"]
    assert "builtins.LookupError" in letters["causes"]["last_stack"]
    assert "urllib.error.HTTPError" in letters["provider"]["last_stack"]
    context = json.loads(letters["provider"]["sanitized_context"])
    assert (context["status"], context["upstream_request"]) == (503, REQUEST_ID)
    assert context["body"].startswith("hash:")
    assert (context["cookie"], context["stage"], context["attempts"]) == ("[secret]", "run", 2)
    assert {name: row["error_class"] for name, row in letters.items()} == {
        "message": "DEFECT", "arguments": "DEFECT", "local_variables": "DEFECT",
        "causes": "DEFECT", "failure_context": "UPSTREAM_DOWN", "provider": "UPSTREAM_DOWN",
        "provider_unguarded": "UPSTREAM_DOWN", "database": "DEFECT", "class_names": "DEFECT",
        "error_class": "PERMANENT", "result": "RESULT_INVALID", "transient": "TRANSIENT",
        "own_log": "TRANSIENT", "awaited": "DEFECT", "misfit": "SCHEMA_INVALID",
        "breaks": "DEFECT",
    }  # fmt: skip


@pytest.mark.req("D-10", "M-03", "X-02", "X-05")
def test_no_canary_is_in_what_the_command_line_prints(hf: Holdfast, url: str, told: Told) -> None:
    seal_all(hf.store)
    dead = look(hf.store, "SELECT id FROM holdfast.job")

    of_all = [
        ("jobs", "list"),
        ("jobs", "count"),
        ("dead-letters", "list"),
        ("audit", "list", "--limit", "1000"),
        ("audit", "verify"),
        ("verify",),
        ("doctor",),
        ("queues", "list"),
    ]
    forms: tuple[tuple[str, ...], ...] = ((), ("--json",))
    printed = [cli(url, *command, *form) for form in forms for command in of_all]
    # Each job is printed by each command, half of them as text and half as JSON.
    for number, row in enumerate(dead):
        of_job = [
            ("jobs", "show", row["id"]),
            ("dead-letters", "show", row["id"]),
            ("explain", row["id"]),
            ("audit", "list", "--job", row["id"]),
        ]
        printed += [cli(url, *command, *forms[number % 2]) for command in of_job]
    printed.append(cli(url, "audit", "export", "--to", "-"))
    printed.append(cli(url, "metrics"))

    everything = "\n".join(printed)
    assert leaks(everything) == []
    assert "UPSTREAM_DOWN" in everything
    assert "tests.operate.canary" in everything
    assert "No such command" not in everything
    assert "Traceback" not in everything


@pytest.mark.req("X-02", "D-10")
def test_no_canary_comes_with_a_replay_or_goes_into_history(
    hf: Holdfast, url: str, clock: FakeClock, told: Told
) -> None:
    fails = iter([True, False])

    @hf.job("second.time")
    def second_time(job: Context, payload: dict[str, Any]) -> None:
        if next(fails):
            raise Transient(payload["text"], note=payload["text"], token=SECRET)

    hf.enqueue("second.time", PAYLOAD, org_id=ORG)
    letters = hf.operate(actor="user:7", role="admin").dead_letters
    replayed = look(hf.store, "SELECT job_id FROM holdfast.dead_letter")
    for row in replayed:
        letters.triage(row["job_id"], kind="defect")
        letters.remediate(row["job_id"], done=CHECKLISTS[DeadLetterKind.DEFECT])
        letters.validate(row["job_id"], evidence_ref="FIX-7", is_safe_to_repeat=True)
        letters.replay(row["job_id"], reason="once more")
    for _ in range(3):
        hf.worker().run_once()
        clock.advance(hours=1)
    clock.advance(days=2)
    run_maintenance(hf.store, hf.settings, hf.events)

    assert look(hf.store, "SELECT error_class FROM holdfast.job WHERE state = 'completed'") == [
        {"error_class": "TRANSIENT"}
    ]
    ended = look(hf.store, "SELECT DISTINCT outcome FROM holdfast.dead_letter_replay")
    assert (len(replayed), ended) == (len(CARELESS), [{"outcome": "failed"}])
    assert leaks_in_store(url) == []


@pytest.mark.req("M-03", "X-02")
def test_a_worker_process_writes_no_canary_whatever_kills_its_jobs(
    url: str, hf: Holdfast, tmp_path: Path
) -> None:
    declare(hf)
    for function in CARELESS:
        with mock.patch.object(Signature, "check"):  # By a process with another declaration.
            hf.enqueue(f"careless.{function.__name__}", PAYLOAD, org_id=ORG, max_attempts=1)

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--db", url, "--app", "tests.operate.canary:hf",
         "worker", "--until-idle", "--log-level", "debug", "--concurrency", "2"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert leaks(done.stdout + done.stderr) == []
    assert leaks_in_store(url) == []
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert sum(line["event"] == "job.dead" for line in lines) == len(CARELESS)


# -- refusals


@pytest.mark.req("X-10")
def test_a_refusal_quotes_nothing_of_the_payload(hf: Holdfast, url: str) -> None:
    hf.job("some.work")(lambda job, payload: None)
    bad: list[dict[Any, Any]] = [
        {"text": SENTENCE, "key": SECRET},
        {"text": SENTENCE, "password": SENTENCE},
        {"text": SENTENCE, "number": float("nan")},
        {"text": f"{SENTENCE}\x00"},
        {"text": f"{SENTENCE}\ud800"},
        {"text": SENTENCE, "set": {SENTENCE}},
        {"text": SENTENCE, "raw": SENTENCE.encode()},
        {"text": SENTENCE * 10_000},
        {"text": SENTENCE, 7: SENTENCE},
        {"text": SENTENCE, "huge": 10**400},
    ]
    for payload in bad:
        with pytest.raises(InvalidJob) as caught:
            hf.enqueue("some.work", payload, org_id=ORG)
        assert leaks(f"{caught.value} {caught.value!r} {caught.value.fields}") == []
    with pytest.raises(SecretInPayload) as secret:
        hf.enqueue("some.work", {"key": SECRET}, org_id=ORG)

    assert leaks(str(secret.value)) == []
    for payload_text in (json.dumps({"key": SECRET}), f'{{"text": "{SENTENCE}', f"'{SENTENCE}'"):
        printed = cli(url, "--app", "tests.operate.canary:hf", "enqueue", "careless.message",
                      payload_text, "--org", ORG)  # fmt: skip
        assert "Job not enqueued" in printed or "it is not JSON" in printed
        assert leaks(printed) == []
    assert look(hf.store, "SELECT id FROM holdfast.job") == []


# -- released memory


class DeadLetter:
    """A payload that reports when its last reference is gone."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def model_validate(cls, payload: dict[str, Any]) -> DeadLetter:
        return cls(payload["text"])


def claims_of(request_id: str) -> int:
    """The number of claims of a request that this process still holds.

    Ids of jobs have a fixed seed, so other tests have claims with the same ids.
    """
    claims = [item for item in gc.get_objects() if type(item) is Claimed]
    return sum(claim.request_id == request_id for claim in claims)


@pytest.mark.req("X-03")
@pytest.mark.parametrize("how", ["returns", "fails", "awaits"])
def test_an_idle_worker_holds_nothing_of_what_it_has_worked_on(hf: Holdfast, how: str) -> None:
    held: list[weakref.ref[DeadLetter]] = []
    settled = threading.Event()

    def work(job: Context, letter: DeadLetter) -> None:
        held.append(weakref.ref(letter))
        if how == "fails":
            raise ValueError(letter.text)

    async def work_async(job: Context, letter: DeadLetter) -> None:
        work(job, letter)

    def on_event(event: Event) -> None:
        if isinstance(event, JobSettled):
            settled.set()

    hf.job("some.work")(work_async if how == "awaits" else work)
    hf.events.subscribe(on_event)
    worker = hf.worker(concurrency=1)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        asked = str(uuid.uuid4())
        hf.enqueue("some.work", PAYLOAD, org_id=ORG, request_id=asked)
        assert settled.wait(20)
        give_up = time.monotonic() + 30
        # The thread that reported it is still in the reporting call.
        while (held[0]() is not None or claims_of(asked)) and time.monotonic() < give_up:
            threading.Event().wait(0.05)
            gc.collect()
        assert (held[0](), claims_of(asked)) == (None, 0)
        assert running.is_alive()
    finally:
        worker.drain()
        running.join(20)


# -- the scanner itself


def test_the_scanner_finds_a_canary_in_any_table(hf: Holdfast, url: str) -> None:
    hf.job("some.work")(lambda job, payload: {"said": SENTENCE})
    hf.enqueue("some.work", PAYLOAD, org_id=ORG)
    assert leaks_in_store(url) == []

    hf.worker().run_once()
    result = {(table, column) for table, column, _ in leaks_in_store(url)}
    hf.enqueue("some.work", {}, org_id=ORG, request_id=f"x{SECRET}x")
    found = {(table, column) for table, column, _ in leaks_in_store(url)}

    assert result == {("job_outcome", "result")}
    assert found >= {("job_outcome", "result"), ("job_envelope", "request_id")}


def test_the_scanner_reads_every_table_and_text_in_any_form(url: str, store: Store) -> None:
    tables = {table for table, _, _ in stored(url)}
    raw = base64.b64encode(f"a {SECRET} b".encode()).decode()

    assert {"category", "schema_migration"} & tables
    for text in (SENTENCE.upper(), f"x{SECRET}y", raw, SECRET.encode().hex(), "marmalade"):
        assert leaks(f"before {text} after")
    assert leaks("an ordinary line about job 7") == []


def test_the_scanner_hears_what_a_logger_says(written: io.StringIO) -> None:
    logging.getLogger("some.app").error("the sender wrote: %s", SENTENCE)

    # A handler may log any words of its own; only secrets have a recognizable shape.
    assert leaks(written.getvalue())
