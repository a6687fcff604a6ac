"""The first day of a new user: built wheels, a service under load, kills, an outage, recovery."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from tests.engine.faulty_hosts import closed_port
from tests.packaging.environment import VARIABLES, Environment

SHOP = Path(__file__).with_name("first_day_shop.py")
REQUESTS, SOLD_OUT, PER_ORDER, CHARGES = 120, 12, 3, 200
ORDERS = REQUESTS - SOLD_OUT
# A killed worker is noticed after a lease of one second.
QUICK = {"HOLDFAST_LEASE_SECONDS": "1", "HOLDFAST_RESCUE_SECONDS": "0.2",
         "HOLDFAST_POLL_SECONDS": "0.1"}  # fmt: skip


def until(found: Callable[[], object], what: str, seconds: float = 80.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@dataclass
class Shop:
    """The service and its workers as processes of a clean environment."""

    folder: Path
    installed: Environment
    url: str
    log: IO[bytes]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        return {**kept, **QUICK, "SHOP_DATABASE": self.url, "PYTHONPATH": str(self.folder)}

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            [str(self.installed.folder / "bin" / command[0]), *command[1:]],
            cwd=self.folder, env=self.variables, start_new_session=True, stdout=self.log,
            stderr=self.log,
        )  # fmt: skip
        self.running.append(started)
        return started

    def start_worker(self) -> subprocess.Popen[bytes]:
        options = ("--concurrency", "2", "--log-level", "error")
        return self.start("holdfast", "--app", "shop:hf", "worker", *options)

    def holdfast(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.installed.run(
            "holdfast", "--app", "shop:hf", *arguments, cwd=self.folder, env=self.variables
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The result of a query, read by a driver of the test and not by Holdfast."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(
                sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)
            ) as file:
                return file.execute(query.replace("holdfast.", "holdfast_")).fetchall()
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def states(self, job_type: str) -> dict[str, int]:
        return dict(
            self.rows(
                "SELECT state, count(*) FROM holdfast.job"
                f" WHERE job_type = '{job_type}' GROUP BY state"
            )
        )

    def stop(self) -> None:
        for one in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


@pytest.fixture
def shop(environment: Callable[..., Environment], url: str, tmp_path: Path) -> Iterator[Shop]:
    installed = environment("holdfast-jobs[postgres,serve]", "sqlalchemy", "httpx")
    folder = tmp_path / "shop"
    folder.mkdir()
    shutil.copy(SHOP, folder / "shop.py")
    with (folder / "log.txt").open("wb") as log:
        made = Shop(folder, installed, url, log)
        try:
            yield made
        finally:
            made.stop()


class Provider(ThreadingHTTPServer):
    """A provider of card payments that is down until it is repaired."""

    daemon_threads = True
    request_queue_size = 200

    def __init__(self) -> None:
        self.is_up = False
        self.charged: list[str] = []
        super().__init__(("127.0.0.1", 0), Charging)


class Charging(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        if self.server.is_up:
            self.server.charged.append(self.headers["Idempotency-Key"])
        self.send_response(200 if self.server.is_up else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as made:
        serving = threading.Thread(target=made.serve_forever, args=(0.05,))
        serving.start()
        yield made
        made.shutdown()
        serving.join()


def post(address: str) -> int:
    try:
        request = urllib.request.Request(address, method="POST")
        with urllib.request.urlopen(request, timeout=80) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        exc.close()
        return exc.code


def place_orders(shop: Shop, port: int) -> list[int]:
    """Send all orders at the same time, and kill the workers while they are placed."""
    articles = [
        "sold%20out" if n % (REQUESTS // SOLD_OUT) == 0 else "rope" for n in range(REQUESTS)
    ]
    begin = threading.Barrier(REQUESTS + 1)

    def place(article: str) -> int:
        begin.wait(60)
        return post(f"http://127.0.0.1:{port}/orders?article={article}")

    workers = [shop.start_worker() for _ in range(2)]
    with ThreadPoolExecutor(REQUESTS) as crowd:
        placed = [crowd.submit(place, article) for article in articles]
        begin.wait(60)
        for killed, done in zip(workers, (5, 60), strict=True):
            until(
                lambda done=done: shop.rows("SELECT count(*) FROM shop_effect")[0][0] >= done,
                f"{done} effects",
            )
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            shop.start_worker()
        return [one.result() for one in placed]


@pytest.mark.timeout(240)
def test_the_first_day(shop: Shop, provider: Provider) -> None:
    shop.holdfast("migrate")
    shop.start("python", "shop.py")
    until((shop.folder / "port.txt").exists, "the service listens")
    port = int((shop.folder / "port.txt").read_text())
    if not shop.url.startswith("sqlite"):
        # Handlers may write only the tables that are granted to them.
        shop.holdfast("grant", "shop_effect")

    # 120 requests at once, 12 of them rolled back, while both workers are killed.
    answers = place_orders(shop, port)
    assert (answers.count(202), answers.count(409)) == (ORDERS, SOLD_OUT), set(answers)
    kinds = ("receipt.send", "stock.reserve", "parcel.pack")
    for kind in kinds:
        until(lambda kind=kind: shop.states(kind) == {"completed": ORDERS}, f"{kind} is complete")
    assert shop.rows("SELECT count(*) FROM shop_order") == [(ORDERS,)]
    # Every effect of a committed order happened once, and none of a rolled back one.
    effects = shop.rows("SELECT number, kind FROM shop_effect")
    assert len(effects) == len(set(effects)) == ORDERS * PER_ORDER == 324
    assert {number for number, _ in effects} == {
        n for (n,) in shop.rows("SELECT id FROM shop_order")
    }

    # An outage: half of the calls are refused by a closed port, the others get a 503.
    (shop.folder / "provider.txt").write_text(
        f"http://127.0.0.1:{closed_port()} http://127.0.0.1:{provider.server_port}"
    )
    assert post(f"http://127.0.0.1:{port}/charges?count={CHARGES}") == 202
    until(lambda: shop.states("card.charge") == {"failed": CHARGES}, "all charges failed")
    counted = json.loads(shop.holdfast("jobs", "count", "--json").stdout)
    assert sum(row.get("problems", 0) for row in counted) == CHARGES

    # The provider is available again, and one command replays all dead letters.
    provider.is_up = True
    (shop.folder / "provider.txt").write_text(f"http://127.0.0.1:{provider.server_port} " * 2)
    recovered = shop.holdfast(
        *("dead-letters", "recover", "--type", "card.charge", "--since", "1h"),
        *("--reason", "the provider is back", "--wait", "80"),
    )

    assert f"{CHARGES}" in recovered.stdout
    assert shop.states("card.charge") == {"failed": CHARGES, "completed": CHARGES}
    assert len(provider.charged) == len(set(provider.charged)) == CHARGES
    assert shop.rows("SELECT state, count(*) FROM holdfast.dead_letter GROUP BY state") == [
        ("resolved", CHARGES)
    ]
    counted = json.loads(shop.holdfast("jobs", "count", "--json").stdout)
    assert sum(row.get("problems", 0) for row in counted) == 0
    # No module of the development environment was imported.
    shown = shop.installed.run("python", "-c", "import holdfast; print(holdfast.__file__)")
    assert str(shop.installed.site_packages) in shown.stdout
    shop.holdfast("verify")
