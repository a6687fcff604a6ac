"""Prerequisites of some blocks of the documentation: a server, tables, failed jobs.

A comment ``<!-- prepared by NAME -->`` above a block calls the function of that name. It may start
processes that end with the page, set environment variables, and add names to the page's Python.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from holdfast import (
    Content,
    FakeClock,
    Holdfast,
    OutgoingMessage,
    Settings,
    dispatch_once,
    sync_schedules,
)
from holdfast.api.server import Server
from holdfast.store import Statement
from holdfast_llm import ProviderSettings
from holdfast_simulator import Simulator
from tests.docs.reader import Command, Reader
from tests.story import ORG


def run(reader: Reader, line: str) -> str:
    """Run a command that the page leaves to its reader."""
    printed = reader.shell.run(Command(line))
    assert reader.shell.last_code == 0, printed
    return printed


# -- PostgreSQL


def tables_of_an_application(reader: Reader) -> None:
    """Tables beside those of Holdfast, and the application's own login."""
    url = os.environ["HOLDFAST_DB"] = reader.postgres()
    reader.started.enter_context(_login(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA app")
        for name in ("note", "bill", "audit"):
            connection.execute(f"CREATE TABLE app.{name} (org_id uuid, said text)".encode())


@contextmanager
def _login(url: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE your_login")
    yield
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE your_login")


# -- batch processing and the outbox


def statements_of_an_application(reader: Reader) -> None:
    """The statement that stores the rows of a result."""
    text = "INSERT INTO outputs SELECT o.job_id, o.text FROM {rows outputs: job_id text, text text}"
    reader.module.insert_outputs = Statement(  # type: ignore[attr-defined]
        "insert_outputs", "affected", "", text, frozenset({"outputs"})
    )


SUMMARIES = """
from holdfast import Holdfast
from holdfast_llm import Request, Route

hf = Holdfast()


class Summarise:
    def request(self, item):
        return Request((item.payload["text"],), "Summarise the text in one sentence.")

    def accept(self, item, reply):
        return {"headline": reply.text}


route = Route("openai", "openai_responses", "gpt-5.2")
hf.batch("text.summarise", route=route)(Summarise)
"""


def kept_replies(reader: Reader) -> None:
    """A reply that a bug of the application kept, and the application without the bug."""
    url = os.environ["HOLDFAST_DB"] = "sqlite:///summaries.db"
    os.environ["HOLDFAST_APP"] = "summaries:hf"
    clock = FakeClock()
    simulator = reader.started.enter_context(Simulator(clock=clock))
    provider = ProviderSettings(
        base_url=simulator.url("openai"), credential_env="SIMULATED_KEY", allow_private=True
    )
    settings = Settings(db=url, providers={"openai": provider})
    with Holdfast(settings=settings, clock=clock) as hf:
        names: dict[str, object] = {}
        exec(
            SUMMARIES.replace("hf = Holdfast()", "").replace("reply.text", "{}['text']"),
            {"hf": hf},
            names,
        )
        hf.enqueue("text.summarise", {"text": "The bread was good."}, org_id=ORG)
        sync_schedules(hf)
        for _ in range(4):
            clock.advance(minutes=15)
            dispatch_once(hf)
    (reader.folder / "summaries.py").write_text(SUMMARIES)


def a_held_delivery(reader: Reader) -> None:
    """A mail of the page's application whose outcome is unknown since an outage."""
    os.environ["HOLDFAST_DB"] = "sqlite:///holdfast.db"
    message = OutgoingMessage(
        subject="order:8", recipient="user:43", version=1, channel="mail",
        address="ben@example.com", content=Content("Shipped", "Your order 8 is on its way."),
    )  # fmt: skip
    page: Holdfast = reader.module.hf  # type: ignore[attr-defined]
    with Holdfast(
        settings=page.settings, clock=FakeClock(datetime(2026, 1, 5, 9, 30, tzinfo=UTC))
    ) as hf:
        hf.outbox.post([message], org_id=ORG)
    with closing(sqlite3.connect(reader.folder / "holdfast.db")) as file, file:
        changed = file.execute(
            "UPDATE holdfast_delivery SET state = 'held', reason = 'unknown'"
            " WHERE recipient = 'user:43'"
        )
        assert changed.rowcount == 1


# -- workflows


SHOP = '''
from pathlib import Path

from holdfast import Gone, Holdfast

hf = Holdfast("sqlite:///work.db", default_tenant=True)


@hf.job("order.charge")
def charge(order: int) -> int:
    if not Path("bank").exists():
        raise Gone
    return order


@hf.job("order.notify")
def notify(order: int) -> None:
    """Tell the customer."""
'''


START = """
from holdfast import Workflow
from shop import charge, hf, notify

workflow = Workflow("order")
charged = workflow.add("charge", charge.step(order=7))
workflow.add("notify", notify.step(order=charged.output))
workflow.enqueue()
hf.worker().run(until_idle=True)
hf.close()
"""


def a_failed_workflow(reader: Reader) -> None:
    """A workflow whose first step failed, because the bank did not answer."""
    os.environ["HOLDFAST_DB"] = "sqlite:///work.db"
    os.environ["HOLDFAST_APP"] = "shop:hf"
    (reader.folder / "shop.py").write_text(SHOP)
    (reader.folder / "start.py").write_text(START)
    run(reader, "python start.py")
    Path("bank").touch()


# -- servers


def a_simulator_in_another_terminal(reader: Reader) -> None:
    """The simulator with the responder of the page, on a free port."""
    command = ["holdfast", "simulator", "--port=0", "--seconds=0", "--responder=house:kind"]
    process = subprocess.Popen(
        command,
        cwd=reader.folder,
        env=reader.shell.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    reader.started.enter_context(process)
    reader.started.callback(process.terminate)
    assert process.stdout is not None
    address = process.stdout.readline().split()[1].removesuffix("/openai/v1")
    settings = reader.folder / "holdfast.toml"
    settings.write_text(settings.read_text().replace("http://127.0.0.1:8790", address))


def a_served_api(reader: Reader) -> None:
    """``holdfast serve`` with the application of the page, and a key."""
    hf = reader.started.enter_context(Holdfast("sqlite:///shop.db"))
    hf.job("receipt.send")(lambda job, payload: {"order": payload["order"]})
    keys = hf.operate(actor="user:ada", role="admin").api_keys
    made = keys.create("page", role="operator", org_id=ORG, reason="the page")
    server = Server(hf, port=0, shutdown_seconds=1)
    thread = threading.Thread(target=server.run)
    thread.start()
    reader.started.callback(thread.join)
    reader.started.callback(server.stop)
    os.environ["JOBS_URL"] = server.url
    os.environ["JOBS_KEY"] = made.secret
