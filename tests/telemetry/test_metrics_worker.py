"""A real worker process that is scraped over HTTP, as Prometheus would."""

from __future__ import annotations

import gzip
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from holdfast import Enqueued, Holdfast
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import ConfigError
from holdfast.telemetry.metrics import Metrics
from tests.story import ORG, OTHER_ORG
from tests.telemetry.app import make
from tests.telemetry.exposition import Family, problems_of, read, value

ROOT = Path(__file__).resolve().parent.parent.parent
CANARY = "canary-sentence-4711"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Scraped(str):
    """The text of one scrape, with its headers."""

    headers: Any


def scrape(port: int, path: str = "/metrics", **headers: str) -> Scraped:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with OPENER.open(asked, timeout=60) as answer:
        body = answer.read()
        if answer.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        text = Scraped(body.decode())
        text.headers = answer.headers
        return text


def free_port(count: int = 1) -> int:
    """The first of *count* consecutive ports without a listener.

    Ports that the system assigns to clients are excluded: a client that tries such a port without a
    listener can connect to itself.
    """
    for first in random.sample(range(15_000, 30_000), 100):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")


def until(true: Callable[[], Any], seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if found := true():
                return found
        assert time.monotonic() < deadline, "not true in time"
        time.sleep(0.02)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """Start holdfast worker with these options; running ones are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        log = (tmp_path / f"log{len(started)}").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "--app", "tests.telemetry.app:hf", *options],
            env={**os.environ, "HOLDFAST_DB": url},
            cwd=ROOT,
            text=True,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def families_of(text: str, name: str) -> Family:
    return read(text)[name]


def run_every_outcome(hf: Holdfast, folder: Path) -> None:
    """Jobs of every outcome, while a worker runs."""
    stranger = Holdfast(settings=hf.settings)
    stranger.job("stranger")(lambda job, payload: None)
    stranger.enqueue("stranger", {}, org_id=ORG)
    stranger.close()

    def enqueue(word: str, **more: str) -> Any:
        payload = {"as": word, "canary": CANARY, **more}
        return hf.enqueue("ends", payload, org_id=ORG)

    jobs = [enqueue(word) for word in ("well", "retried", "dead", "defect", "exhausted")]
    jobs.append(enqueue("snoozed", flag=str(folder / "snoozed")))
    jobs += hf.enqueue_many("awaits", [{}] * 3, org_id=OTHER_ORG)
    jobs.append(hf.enqueue("staged", {}, org_id=OTHER_ORG))

    began, go_on = folder / "began", folder / "go_on"
    waiting = enqueue("canceled", began=str(began), go_on=str(go_on))
    until(began.exists)
    hf.cancel(waiting.id, org_id=ORG, actor="user:1", reason="no longer wanted")
    wait_for_all(hf, [*jobs, waiting])
    began, go_on = folder / "began2", folder / "go_on2"
    robbed = enqueue("robbed", began=str(began), go_on=str(go_on))
    until(began.exists)
    holder = hf.get(robbed.id, org_id=ORG).record["claimed_by"]
    assert [found.job.id for found in rescue_jobs(hf.store, limit=10, dead_worker_id=holder)]
    go_on.touch()
    wait_for_all(hf, [robbed])


def wait_for_all(hf: Holdfast, jobs: Sequence[Enqueued]) -> None:
    """Wait until all of them have ended."""
    until(lambda: all(hf.get(job.id, org_id=job.org_id).state.is_terminal for job in jobs))


@pytest.mark.req("M-04", "M-05", "M-06", "M-07", "M-08", "M-09", "M-10", "M-13")
def test_a_worker_that_ran_jobs_of_every_outcome_shows_all_of_them(
    url: str, tmp_path: Path, start: Start
) -> None:
    hf = make(url)
    port = free_port()
    worker = start("worker", "--concurrency", "4", "--metrics-port", str(port))
    until(lambda: scrape(port))
    run_every_outcome(hf, tmp_path)

    def all_told() -> bool:
        text = scrape(port)
        lost = value(text, "holdfast_lease_losses_total", job_type="ends", queue="q:default")
        live = value(text, "holdfast_workers_live", state="working")
        return bool(lost and live and 'outcome="released"' in text)

    until(all_told)
    text = scrape(port)

    assert problems_of(text) == []
    _check_contract(text)
    _check_counts(text)
    assert CANARY not in text
    for hidden in (ORG, OTHER_ORG, "stranger"):
        assert hidden not in text
    outcomes = {
        dict(labels)["outcome"]
        for _, labels in families_of(text, "holdfast_jobs_settled_total").samples
    }
    assert outcomes == {
        *("completed", "advanced", "retry", "dead", "snoozed", "released", "canceled")
    }
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    with pytest.raises(urllib.error.URLError):
        scrape(port)
    hf.close()


def _check_contract(text: str) -> None:
    """The exact names, kinds and labels of M-04 to M-10."""
    wanted = {
        "jobs_enqueued_total": ("counter", {"job_type", "queue"}),
        "jobs_started_total": ("counter", {"job_type", "queue"}),
        "jobs_succeeded_total": ("counter", {"job_type", "queue"}),
        "jobs_failed_total": ("counter", {"job_type", "queue", "error_class"}),
        "jobs_duration_seconds": ("histogram", {"job_type", "queue"}),
        "jobs_attempts_histogram": ("histogram", {"job_type"}),
        "deadletter_total": ("counter", {"job_type", "queue"}),
    }
    families = read(text)
    assert {name: (families[name].kind, families[name].labels) for name in wanted} == wanted


def _check_counts(text: str) -> None:
    ends = {"job_type": "ends", "queue": "q:default"}
    # Completed, retried, snoozed, and the rescued one at its second claim.
    assert value(text, "jobs_succeeded_total", **ends) == 4
    assert value(text, "jobs_failed_total", **ends, error_class="NETWORK_TIMEOUT") == 1 + 3
    assert value(text, "jobs_failed_total", **ends, error_class="CARD_DECLINED") == 1
    assert value(text, "jobs_failed_total", **ends, error_class="DEFECT") == 1
    assert value(text, "deadletter_total", **ends) == 3
    assert value(text, "holdfast_jobs_settled_total", **ends, outcome="canceled") == 1
    assert value(text, "jobs_attempts_histogram_count", job_type="ends") == 4 + 3 + 1
    mail = {"job_type": "awaits", "queue": "q:mail"}
    assert value(text, "jobs_started_total", **mail) == 3
    assert value(text, "jobs_duration_seconds_count", **mail) == 3
    staged = {"job_type": "staged", "queue": "q:default"}
    assert value(text, "jobs_duration_seconds_count", **staged) == 2
    assert value(text, "holdfast_db_up") == 1
    assert value(text, "holdfast_workers_live", state="working") == 1
    assert value(text, "holdfast_queue_workers", queue="q:mail") == 1


def test_a_scraper_gets_the_format_that_it_asks_for(url: str) -> None:
    hf = make(url)
    metrics = Metrics(hf)
    hf.enqueue_many("awaits", [{}] * 2, org_id=ORG)
    with metrics.serve(free_port()) as served:
        plain = scrape(served.port)
        openly = scrape(
            served.port, Accept="application/openmetrics-text; version=1.0.0; charset=utf-8"
        )
        packed = scrape(served.port, **{"Accept-Encoding": "gzip"})
        some = scrape(served.port, "/metrics?name[]=holdfast_db_up")
    hf.close()

    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert problems_of(plain) == []
    assert openly.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openly.endswith("# EOF\n")
    families = {family.name: family for family in text_string_to_metric_families(openly)}
    assert families["jobs_enqueued"].type == "counter"
    assert families["jobs_attempts_histogram"].type == "histogram"
    sample = next(
        item for item in families["jobs_enqueued"].samples if item.labels["job_type"] == "awaits"
    )
    assert (sample.name, sample.value) == ("jobs_enqueued_total", 2)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert problems_of(packed) == []
    assert [line.split()[0] for line in some.splitlines() if line[0] != "#"] == ["holdfast_db_up"]


def test_a_port_that_is_taken_is_refused_in_one_sentence(url: str, start: Start) -> None:
    hf = make(url)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1 port {port}.*Choose another"):
            Metrics(hf).serve(port)
        with pytest.raises(ConfigError, match="served on no-such-host"):
            Metrics(hf).serve(port, "no-such-host.invalid")
    hf.close()


def test_a_silent_or_disconnecting_scraper_blocks_no_other(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    hf = make(url)
    with Metrics(hf).serve(free_port()) as served:
        silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
        for connection in silent[:10]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            connection.close()
        assert problems_of(scrape(served.port)) == []
        for connection in silent:
            connection.close()
    hf.close()

    assert capfd.readouterr().err == ""


def test_each_process_serves_its_own_metrics_and_the_parent_the_databases(
    url: str, tmp_path: Path, start: Start
) -> None:
    hf = make(url)
    port = free_port(3)
    parent = start(*("worker", "--processes", "2", "--concurrency", "1", f"--metrics-port={port}"))
    ports = range(port, port + 3)
    for each in ports:
        until(lambda each=each: scrape(each))  # type: ignore[misc]
    bomb = hf.enqueue("ends", {"as": "killed"}, org_id=ORG)
    wait_for_all(hf, [bomb])
    for each in ports:
        until(lambda each=each: scrape(each))  # type: ignore[misc]
    jobs = hf.enqueue_many("awaits", [{}] * 40, org_id=ORG)
    wait_for_all(hf, jobs)

    def total(name: str, **labels: str) -> float:
        found = 0.0
        for each in ports:
            with suppress(AssertionError):
                found += value(scrape(each), name, **labels)
        return found

    mail = {"job_type": "awaits", "queue": "q:mail"}
    until(lambda: total("jobs_succeeded_total", **mail) == 40)
    texts = [scrape(each) for each in ports]
    assert [problems_of(text) for text in texts] == [[], [], []]
    assert ["holdfast_db_up" in text for text in texts] == [True, False, False]
    assert value(texts[0], "holdfast_worker_changes_total", change="died") == 1
    # The parent saw the child end and counted an attempt of its job.
    labels = {"job_type": "ends", "queue": "q:default", "error_class": "WORKER_CRASHED"}
    assert value(texts[0], "jobs_failed_total", **labels) == 1
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(20) == 0
    hf.close()
