"""A worker logs everything as lines of JSON, in every situation, without private data."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, State
from holdfast.telemetry import log
from holdfast.telemetry.log_line import TextFormatter
from tests.acceptance.processes import Command
from tests.story import ORG, PROJECT
from tests.telemetry import loud_app
from tests.telemetry.loud_app import CANARY, SECRET

ROOT = Path(__file__).resolve().parent.parent.parent
SIX = set(log.SIX)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def taken() -> Iterator[io.StringIO]:
    """This process, with all its log records on a stream."""
    stream = io.StringIO()
    log.install("info", stream)
    yield stream
    log.uninstall()


def lines(text: io.StringIO | str) -> list[dict[str, Any]]:
    """The log, without late records of another test's alert sink."""
    whole = text if isinstance(text, str) else text.getvalue()
    found = [json.loads(line) for line in whole.splitlines()]
    return [line for line in found if line.get("event") != "alert.undelivered"]


def named(found: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in found if line["event"] == event]


# -- records of handlers


@pytest.mark.req("M-01", "M-02")
def test_what_a_handler_logs_names_its_job(hf: Holdfast, taken: io.StringIO) -> None:
    own = logging.getLogger("shop.billing")

    @hf.job("sync.work")
    def work(job: Context, payload: object) -> None:
        own.info("billed %s", 7)

    @hf.job("async.work")
    async def work_too(job: Context, payload: object) -> None:
        await asyncio.sleep(0)
        own.info("billed %s", 8)
        await asyncio.to_thread(own.warning, "from a thread")

    ids = {"org_id": ORG, "project_id": PROJECT, "request_id": "req-1", "correlation_id": "corr-1"}
    jobs = [
        hf.enqueue(job_type, {}, traceparent=TRACE, **ids)  # type: ignore[arg-type]
        for job_type in ("sync.work", "async.work")
    ]
    own.info("before")
    hf.worker(concurrency=1).run(until_idle=True)

    before, *during = named(lines(taken), "log")
    assert not before.keys() & SIX
    assert {(line["message"], line["job_id"]) for line in during} == {
        ("billed 7", jobs[0].id), ("billed 8", jobs[1].id), ("from a thread", jobs[1].id),
    }  # fmt: skip
    for line in during:
        assert line["logger"] == "shop.billing"
        assert {name: line[name] for name in ids} == ids
        assert line["trace_id"] == TRACE[3:35]


def test_handlers_of_your_own_get_the_fields_as_attributes(hf: Holdfast) -> None:
    stream = io.StringIO()
    theirs = logging.StreamHandler(stream)
    theirs.setFormatter(logging.Formatter("%(job_type)s|%(org_id)s|%(message)s"))
    theirs.addFilter(log.JobFields())
    own = logging.getLogger("shop.theirs")
    own.addHandler(theirs)
    own.setLevel("INFO")
    own.propagate = False

    @hf.job("work")
    def work(job: Context, payload: object) -> None:
        own.info("in a job")

    hf.enqueue("work", {}, org_id=ORG)
    hf.worker().run_once()
    own.info("outside")
    own.handlers.clear()

    assert stream.getvalue().splitlines() == [f"work|{ORG}|in a job", "None|None|outside"]


@pytest.mark.req("M-01", "M-03")
def test_the_words_of_a_handler_are_bounded_and_forge_no_line(taken: io.StringIO) -> None:
    own = logging.getLogger("shop.billing")

    own.info('x\n{"event": "job.dead", "job_id": "forged"}\r\x1b[31m\u2028\x00')
    own.info("key %s for ada@example.com", SECRET)
    own.info("y" * 1_000_000)
    own.info(
        "ä\u2028" * 1_000, extra={"fields": {"job_id": "forged"}, "holdfast_job": {"job_id": 1}}
    )

    found = lines(taken)
    assert len(found) == 4
    assert {line["event"] for line in found} == {"log"}
    assert all(len(line) <= log.LINE_BYTES for line in taken.getvalue().splitlines())
    assert not any(line.keys() & SIX for line in found)
    assert SECRET not in taken.getvalue()
    assert "ada@example.com" not in taken.getvalue()


def test_words_that_do_not_go_with_their_arguments_are_still_a_line(
    taken: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError(CANARY)

    # Pytest's own handlers would raise.
    shop = logging.getLogger("shop.alone")
    shop.propagate = False
    ours = (each for each in log.logger.handlers if isinstance(each.formatter, log.JsonFormatter))
    shop.handlers[:] = list(ours)
    shop.warning("%s and %s", CANARY)
    shop.warning("%s", Broken())
    shop.handlers.clear()

    assert [line["message"].split(" in ")[0] for line in lines(taken)] == [
        "(TypeError", "(ValueError",
    ]  # fmt: skip
    assert CANARY not in taken.getvalue()
    assert capsys.readouterr().err == ""


def test_libraries_are_heard_from_info_on_even_when_we_debug(taken: io.StringIO) -> None:
    log.install("debug", taken)

    logging.getLogger("botocore").debug("authorization: %s", CANARY)
    logging.getLogger("botocore").info("found credentials")
    log.write(logging.DEBUG, "job.started")

    assert [line["event"] for line in lines(taken)] == ["log", "job.started"]


# -- uncaught exceptions


@pytest.mark.req("M-01", "M-03")
def test_a_warning_a_dead_thread_and_what_cannot_be_raised_are_lines_without_their_words(
    taken: io.StringIO,
) -> None:
    def die() -> None:
        raise RuntimeError(CANARY)

    # Exceptions of earlier tests are reported before this one begins.
    gc.collect()
    taken.seek(0)
    taken.truncate()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = log._show_warning
        warnings.warn(CANARY, UserWarning, stacklevel=1)
    thread = threading.Thread(target=die, name="of-somebody")
    thread.start()
    thread.join()
    loud_app.Falls()
    gc.collect()
    sys.excepthook(ValueError, ValueError(CANARY), None)

    warned, dead, unraisable, process = lines(taken)
    assert (warned["event"], warned["category"]) == ("python.warning", "UserWarning")
    assert warned["where"].startswith("test_log.py:")
    assert (dead["event"], dead["thread"]) == ("thread.died", "of-somebody")
    assert dead["exception"] == "RuntimeError"
    assert "tests.telemetry.test_log:" in dead["stack"]
    assert (unraisable["event"], unraisable["exception"]) == ("python.unraisable", "ValueError")
    assert (process["event"], process["level"]) == ("process.died", "error")
    assert CANARY not in taken.getvalue()


def test_an_unawaited_task_is_a_line_without_its_exception(taken: io.StringIO) -> None:
    async def fail() -> None:
        raise RuntimeError(CANARY)

    async def forget() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(0)
        del task
        gc.collect()

    asyncio.run(forget())

    (line,) = lines(taken)
    assert (line["logger"], line["exception"]) == ("asyncio", "RuntimeError")
    assert line["message"] == "Task exception was never retrieved"
    assert CANARY not in taken.getvalue()


def test_everything_is_as_it_was_when_it_is_given_back() -> None:
    before = (sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning)
    handlers = list(logging.getLogger().handlers)
    level = logging.getLogger().level

    log.install("info", io.StringIO())
    log.install("warning", io.StringIO())
    taken = list(logging.getLogger().handlers)
    log.uninstall()

    assert len(taken) == len(handlers) + 1
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger().level == level
    assert (
        sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning
    ) == before  # fmt: skip


# -- real processes


def holdfast(
    url: str, *arguments: str, app: str = "tests.telemetry.loud_app:hf", **env: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-m", "holdfast", "--app", app, *arguments],
        env={**os.environ, "HOLDFAST_DB": url, **env},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until(hf: Holdfast, job_id: str, *states: State) -> None:
    deadline = time.monotonic() + 40
    while hf.get(job_id, org_id=ORG).state not in states:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.req("M-01", "M-02", "M-03")
def test_whatever_happens_in_a_worker_all_it_says_is_lines_of_json(url: str) -> None:
    hf = loud_app.make(url)
    loud = hf.enqueue("loud.sync", {"text": CANARY}, org_id=ORG, request_id="req-1")
    too = hf.enqueue("loud.async", {"text": CANARY}, org_id=ORG)
    odd = hf.enqueue("odd", {"text": CANARY}, org_id=ORG)
    worker = holdfast(url, "worker", "--concurrency", "4", "--drain-seconds", "1")
    try:
        wait_until(hf, loud.id, State.FAILED)
        wait_until(hf, too.id, State.COMPLETED)
        wait_until(hf, odd.id, State.PROCESSING, State.FAILED)
    finally:
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=60)

    found = lines(err)
    assert out == ""
    assert CANARY not in err
    assert SECRET not in err
    events = {line["event"] for line in found}
    assert events >= {
        "worker.started", "job.retry", "job.dead", "alert", "log", "python.warning", "thread.died",
        "python.unraisable",
    }  # fmt: skip
    assert {line["thread"] for line in named(found, "thread.died")} >= {"of-the-handler"}
    billed = [line for line in named(found, "log") if line["message"] == "billed invoice-7"]
    assert len(billed) == 2
    assert all((line["job_id"], line["request_id"]) == (loud.id, "req-1") for line in billed)
    about_jobs = [line for line in found if line["event"].startswith("job.")]
    assert all(line.keys() >= SIX for line in about_jobs)
    hf.close()


@pytest.mark.req("M-01", "D-04")
def test_a_supervisor_logs_json_lines_and_reports_dead_children(
    url: str,
) -> None:
    hf = loud_app.make(url)
    bomb = hf.enqueue("suicide", {"text": CANARY}, org_id=ORG)
    parent = holdfast(url, "worker", "--processes", "2", "--concurrency", "1")
    try:
        wait_until(hf, bomb.id, State.FAILED)
    finally:
        parent.send_signal(signal.SIGTERM)
        _, err = parent.communicate(timeout=60)

    found = lines(err)
    alerts = {line["kind"]: line for line in named(found, "alert")}
    assert named(found, "worker.died")
    assert alerts["worker_died"]["severity"] == "error"
    assert alerts["dead_letter"]["job_id"] == bomb.id
    assert alerts["dead_letter"]["error_class"] == "WORKER_CRASHED"
    assert CANARY not in err
    hf.close()


WORKER, DISPATCHER, RUN = ["worker"], ["schedules", "dispatch"], ["run", "any", "--cron"]


@pytest.mark.parametrize(
    ("source", "commands", "event", "says"),
    [
        ("", [RUN], "process.refused", "has no 'hf'"),
        (
            f"raise ValueError('{CANARY}')",
            [WORKER, DISPATCHER, RUN],
            "process.died",
            "ValueError",
        ),
        ("hf = 7", [WORKER], "process.refused", "not a Holdfast"),
    ],
)
def test_a_worker_that_cannot_start_says_so_in_one_line(
    sqlite_url: str, tmp_path: Path, source: str, commands: list[list[str]], event: str, says: str
) -> None:
    (tmp_path / "broken_app.py").write_text(source)
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    for command in commands:
        worker = holdfast(sqlite_url, *command, app="broken_app", **path)
        _, err = worker.communicate(timeout=60)

        (line,) = lines(err)
        assert (worker.returncode, line["event"]) == (1, event)
        assert says in json.dumps(line)
        assert CANARY not in err


def test_an_application_that_configures_logging_does_not_silence_the_worker(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import logging.config\n"
        "from holdfast import Holdfast\n"
        f"hf = Holdfast({sqlite_url!r})\n"
        "logging.config.dictConfig({'version': 1, 'root': {'handlers': []}})\n"
    )
    (tmp_path / "configured_app.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))

    _, err = Command("--app", "configured_app", "worker", "--until-idle").wait()

    assert [line["event"] for line in lines(err)] == [
        "worker.started", "worker.draining", "worker.stopped",
    ]  # fmt: skip


def test_the_level_of_the_log_is_a_setting_and_an_option(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet_app.py").write_text("from holdfast import Holdfast\nhf = Holdfast()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    env = {"HOLDFAST_LOG_LEVEL": "warning", "HOLDFAST_DB": sqlite_url}

    def said(*options: str) -> list[str]:
        worker = Command("--app", "quiet_app", "worker", "--until-idle", *options, env=env)
        _, err = worker.wait()
        assert worker.returncode == 0
        return [line["event"] for line in lines(err)]

    assert said() == []
    assert "worker.started" in said("--log-level", "info")


def test_a_terminal_gets_readable_lines_with_the_same_fields() -> None:
    record = log.logger.makeRecord(
        "holdfast", logging.INFO, "x.py", 1, "job.completed", (), None,
        extra={"fields": {"job_id": "01a1ed2e-2c62-75ec-9b4d-2a120219023f", "job_type": "mail.send",
                          "org_id": "018f0000-0000-7000-8000-000000000001", "queue": "q:default",
                          "note": "\x1b[2J", "seconds": 0.00163}},
    )  # fmt: skip

    line = TextFormatter().format(record)

    said = "info    job.completed mail.send 01a1ed2e-2c62 tenant=018f0000-0000 queue=q:default"
    assert said in line
    assert line.endswith("in 1.6 ms")
    assert "\x1b" not in line
