"""A worker in production: probes, systemd, recycling, the wait of queues, and the manifests."""

from __future__ import annotations

import importlib.resources
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import fastjsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml

from holdfast import FakeClock, Holdfast, StoreDown, Worker
from holdfast.cli import cli
from holdfast.cli.worker import worker as worker_command
from holdfast.config import Settings
from holdfast.engine.worker import recycling
from holdfast.telemetry import gauges
from holdfast.telemetry.health import HealthServer, health_of, notifying, sd_notify
from tests.faces.conftest import APP, Run
from tests.story import ORG
from tests.tree import ROOT

DEPLOY = ROOT / "deploy"


@pytest.fixture
def live(migrated_sqlite_url: str) -> Iterator[Holdfast]:
    with Holdfast(settings=Settings(db=migrated_sqlite_url), default_tenant=True) as made:
        made.job("some.work")(lambda job, payload: None)
        yield made


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        thread.join(timeout=60)


def probe(server: HealthServer, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.loads(exc.read())


def test_probes_say_whether_a_worker_is_alive_and_ready(
    live: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = live.worker(concurrency=1)
    with HealthServer(live, health_of(worker), "127.0.0.1", 0) as server:
        assert probe(server, "/readyz") == (503, {"status": "starting"})
        assert probe(server, "/healthz") == (200, {"status": "ok"})
        with running(worker):
            until(lambda: probe(server, "/readyz") == (200, {"status": "ok"}))
            monkeypatch.setattr(worker, "_claim", _down)
            until(lambda: probe(server, "/readyz") == (503, {"status": "store_down"}))
            assert probe(server, "/healthz")[0] == 200
            worker.drain()
            until(lambda: probe(server, "/readyz") == (503, {"status": "draining"}))
        worker._watchdog.failure = "holdfast-settle-buffer died"
        assert probe(server, "/healthz") == (503, {"status": "holdfast-settle-buffer died"})
        assert probe(server, "/else")[0] == 404


def _down(wanted: int) -> list[Any]:
    raise StoreDown("gone")


def test_systemd_hears_ready_watchdog_and_stopping(
    live: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not sd_notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"{tmp_path}/notify")
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
        monkeypatch.setenv("WATCHDOG_USEC", "30000")
        heard: list[str] = []

        def hear(wanted: str) -> None:
            while wanted not in heard:
                heard.extend(listening.recv(4096).decode().splitlines())

        worker = live.worker(concurrency=1)
        with notifying(health_of(worker)), running(worker):
            hear("READY=1")
            hear("WATCHDOG=1")
            assert "STOPPING=1" not in heard
            worker.drain()
            hear("STOPPING=1")


def test_a_worker_asks_for_a_restart_after_so_many_jobs(live: Holdfast) -> None:
    live.enqueue_many("some.work", [{}] * 5)
    worker = live.worker(concurrency=1, max_jobs=3)
    done = worker.run()

    assert worker.must_recycle
    assert 3 <= done.claimed <= 5


def test_a_worker_asks_for_a_restart_above_so_much_memory(
    live: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recycling.memory_bytes() > 2**20
    monkeypatch.setattr(recycling, "memory_bytes", lambda: 500)
    rule = recycling.Recycling(max_memory_bytes=499)
    assert rule.reason(0) == "0 MB of memory"
    worker = live.worker(concurrency=1, max_memory_bytes=499)
    worker.run()

    assert worker.must_recycle
    assert recycling.Recycling(max_memory_bytes=501).reason(10**9) is None


def test_the_concurrency_follows_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus, threads in ((0.1, 4), (2, 10), (8, 40), (64, 64)):
        monkeypatch.setattr(recycling, "usable_cpus", lambda cpus=cpus: cpus)
        assert recycling.auto_concurrency() == threads
    parsed = worker_command.make_context("worker", ["--concurrency", "auto"])
    assert parsed.params["concurrency"] == 64
    with pytest.raises(click.BadParameter):
        worker_command.make_context("worker", ["--concurrency", "many"])
    assert worker_command.make_context("worker", ["--max-memory", "1.5G"]).params[
        "max_memory"
    ] == int(1.5 * 2**30)


def test_the_wait_of_a_queue_is_that_of_its_oldest_ready_job(
    hf: Holdfast, clock: FakeClock, run: Run, url: str
) -> None:
    hf.job("some.work")(lambda job, payload: None)
    hf.enqueue("some.work", {}, org_id=ORG)
    clock.advance(seconds=40)
    hf.enqueue("some.work", {}, org_id=ORG, delay=3600)
    hf.enqueue("some.work", {}, org_id=ORG, queue="q:exports")
    clock.advance(seconds=2)

    with HealthServer(hf, health_of(hf.worker()), "127.0.0.1", 0) as server:
        status, waits = probe(server, "/waits")
    assert (status, waits["oldest_wait_seconds"]) == (200, 42.0)
    assert (waits["queues"]["q:default"], waits["queues"]["q:exports"]) == (42.0, 2.0)
    assert waits["queues"]["q:planning"] == 0.0
    listed = run("queues", "wait", "--json", db=url, app=APP).json
    (default,) = (one for one in listed if one["queue"] == "q:default")
    # By the command's real clock both are due.
    assert (default["ready"], default["is_paused"]) == (2, False)
    assert "wait_seconds" in run("queues", "wait", db=url, app=APP).out


# -- the manifests


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def check_command(words: list[str]) -> dict[str, Any]:
    """The options of a holdfast command line, parsed as the command parses them."""
    assert words[0] == "holdfast"
    group = cli.make_context("holdfast", words[1:], resilient_parsing=False)
    rest = [*group._protected_args, *group.args]
    name, command, arguments = cli.resolve_command(group, rest)
    assert command is not None
    return command.make_context(name, list(arguments), parent=group).params


NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
# The newest version of the schemas, and an older one.
KUBERNETES = ("1.33", "1.37")
# No Python package has the schema of KEDA's own kinds; these are the documented fields.
SCALED_OBJECT = fastjsonschema.compile(
    {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": "keda.sh/v1alpha1"},
            "kind": {"const": "ScaledObject"},
            "metadata": NAMED,
            "spec": {
                "type": "object",
                "required": ["scaleTargetRef", "triggers"],
                "additionalProperties": False,
                "properties": {
                    "scaleTargetRef": NAMED,
                    "pollingInterval": {"type": "integer"},
                    "cooldownPeriod": {"type": "integer"},
                    "minReplicaCount": {"type": "integer", "minimum": 0},
                    "maxReplicaCount": {"type": "integer", "minimum": 1},
                    "advanced": {"type": "object"},
                    "triggers": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["type", "metadata"],
                            "properties": {
                                "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
                                # KEDA takes text only.
                                "metadata": {"additionalProperties": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        },
    }
)


def test_the_kubernetes_manifests_fit_the_commands_and_each_other() -> None:
    found = {
        (one["kind"], one["metadata"]["name"]): one for one in documents("kubernetes/worker.yaml")
    }
    for (kind, _), one in found.items():
        for version in KUBERNETES:
            kubernetes_validate.validate(one, version, strict=True)
        if kind == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if kind in ("Deployment", "Job"):
            for container in one["spec"]["template"]["spec"]["containers"]:
                check_command([*container["command"], *container["args"]])
    pod = found["Deployment", "holdfast-worker"]["spec"]["template"]
    (worker,) = pod["spec"]["containers"]
    options = check_command([*worker["command"], *worker["args"]])
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    assert ports == {"health": options["health_port"], "metrics": options["metrics_port"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] > options["drain_seconds"]
    probes = [
        worker[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    assert [one["path"] for one in probes] == ["/readyz", "/healthz", "/readyz"]
    assert {one["port"] for one in probes} == {"health"}
    service = found["Service", "holdfast-worker"]["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["ports"]} == set(ports)


def test_a_misspelled_field_of_a_manifest_is_refused() -> None:
    (*_, manifest) = documents("kubernetes/worker.yaml")
    manifest["spec"]["template"]["spec"]["containers"][0]["comand"] = []

    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(manifest, KUBERNETES[0], strict=True)


def test_the_keda_manifest_scales_the_workers_by_a_metric_that_exists() -> None:
    deployments = {
        one["metadata"]["name"]
        for one in documents("kubernetes/worker.yaml")
        if one["kind"] == "Deployment"
    }
    by_prometheus, by_http = documents("keda/scaledobject.yaml")

    for one in (by_prometheus, by_http):
        SCALED_OBJECT(one)
        assert one["spec"]["scaleTargetRef"]["name"] in deployments
    query = by_prometheus["spec"]["triggers"][0]["metadata"]["query"]
    assert gauges.OLDEST_AGE.name in query
    metadata = by_http["spec"]["triggers"][0]["metadata"]
    assert metadata["url"].endswith(":8080/waits")
    assert metadata["valueLocation"] == "oldest_wait_seconds"


def test_the_compose_file_fits_the_schema_of_the_specification() -> None:
    # check-jsonschema ships the schema of compose-spec.
    vendored = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads((vendored / "compose-spec.json").read_text())
    (compose,) = documents("compose/compose.yaml")

    jsonschema.validate(compose, schema)

    compose["services"]["worker"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        jsonschema.validate(compose, schema)


def test_the_compose_file_fits_the_commands() -> None:
    (compose,) = documents("compose/compose.yaml")
    services = compose["services"]

    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        if service.get("command"):
            check_command(service["command"])
    worker = services["worker"]
    options = check_command(worker["command"])
    assert f":{options['health_port']}/healthz" in worker["healthcheck"]["test"][-1]
    assert int(worker["stop_grace_period"].removesuffix("s")) > options["drain_seconds"]
    assert services["database"]["healthcheck"]["test"][0] == "CMD-SHELL"
    assert set(compose["volumes"]) == {"database"}


def test_the_systemd_unit_fits_the_command() -> None:
    lines = (DEPLOY / "systemd" / "holdfast-worker.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))

    program, *arguments = unit["ExecStart"].split()
    options = check_command([Path(program).name, *arguments])
    assert (unit["Type"], unit["WatchdogSec"]) == ("notify", "60")
    assert int(unit["TimeoutStopSec"]) > options["drain_seconds"]
