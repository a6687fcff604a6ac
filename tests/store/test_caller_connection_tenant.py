"""conn= with a login that has a tenant's rights only, in every driver and inside a handler."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from holdfast import Context, Holdfast, QueueFull, State
from tests.outbox.scripted import letter, outbox_with
from tests.postgres_server import PostgresServer
from tests.store.test_caller_connection import AWAITING, BLOCKING
from tests.story import ORG, OTHER_ORG, look, timeline

BIND = "SELECT set_config('holdfast.org_id', '{org}', true)"
ON_POSTGRES = [opened for kind, opened in BLOCKING if kind == "postgres"]


@pytest.fixture(scope="module")
def login(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE borrower LOGIN")
        admin.execute("GRANT holdfast_tenant TO borrower")
    yield "borrower"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP ROLE borrower")


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with Holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        hf.queue("q:small", max_depth=2)
        hf.worker()
        yield hf


@contextmanager
def bound(hf: Holdfast, login: str, opened: Any, org_id: str = ORG) -> Iterator[Any]:
    with opened(hf.settings.db.replace("postgres@", f"{login}@")) as conn:
        text = BIND.format(org=org_id)
        conn.execute(text.encode() if isinstance(conn, psycopg.Connection) else sa.text(text))
        yield conn


each = pytest.mark.parametrize("opened", ON_POSTGRES, ids=lambda opened: opened.__name__)


@each
def test_a_tenant_s_login_enqueues_and_finds_its_originals(
    shop: Holdfast, login: str, opened: Any
) -> None:
    before = shop.enqueue("order.ship", {"n": 0}, org_id=ORG, idempotency_key="zero")
    with bound(shop, login, opened) as conn:
        options: dict[str, Any] = {"org_id": ORG, "conn": conn}
        known = shop.enqueue("order.ship", {"n": 0}, idempotency_key="zero", **options)
        one = shop.enqueue("order.ship", {"n": 1}, idempotency_key="one", **options)
        again = shop.enqueue("order.ship", {"n": 2}, idempotency_key="one", **options)
        unit = shop.enqueue("order.ship", {"n": 3}, unit_key="order-3", **options)
        many = shop.enqueue_many("order.ship", [{"n": n} for n in range(50)], **options)

    assert (known.id, known.created, known.created_at) == (before.id, False, before.created_at)
    assert (one.created, again.created, again.differs, again.id) == (True, False, True, one.id)
    assert timeline(shop, one) == ["job.enqueued", "job.duplicate_differs"]
    assert shop.enqueue("order.ship", {"n": 3}, org_id=ORG, unit_key="order-3").id == unit.id
    assert len({item.id for item in many}) == 50
    shop.worker().run_once(limit=100)
    for place, item in enumerate(many):
        assert shop.get(item.id, org_id=ORG).result == {"n": place}


@each
def test_it_enqueues_for_its_own_tenant_only(shop: Holdfast, login: str, opened: Any) -> None:
    refused = (psycopg.errors.InsufficientPrivilege, sa.exc.ProgrammingError)
    with pytest.raises(refused, match="row-level security"), bound(shop, login, opened) as conn:
        shop.enqueue("order.ship", {}, org_id=OTHER_ORG, conn=conn)

    assert look(shop.store, "SELECT id FROM holdfast.job") == []


@each
def test_a_full_queue_is_reported_and_the_caller_s_transaction_continues(
    shop: Holdfast, login: str, opened: Any
) -> None:
    options: dict[str, Any] = {"org_id": ORG, "queue": "q:small"}
    with bound(shop, login, opened) as conn:
        first = shop.enqueue("order.ship", {}, idempotency_key="a", conn=conn, **options)
        with pytest.raises(QueueFull, match="q:small is full"):
            shop.enqueue_many("order.ship", [{}, {}], conn=conn, **options)
        shop.enqueue("order.ship", {}, conn=conn, **options)
        with pytest.raises(QueueFull):
            shop.enqueue("order.ship", {}, conn=conn, **options)
        same = shop.enqueue("order.ship", {}, idempotency_key="a", conn=conn, **options)

    assert same.id == first.id
    assert len(look(shop.store, "SELECT id FROM holdfast.job")) == 2


@pytest.mark.parametrize("opened", AWAITING, ids=lambda opened: opened.__name__)
def test_an_awaiting_login_of_a_tenant_does_the_same(
    shop: Holdfast, login: str, opened: Any
) -> None:
    url = shop.settings.db.replace("postgres@", f"{login}@")

    async def story() -> tuple[Any, Any, Any]:
        async with opened(url) as conn:
            text: Any = BIND.format(org=ORG)
            await conn.execute(sa.text(text) if hasattr(conn, "run_sync") else text)
            options: dict[str, Any] = {"org_id": ORG, "conn": conn}
            one = await shop.aenqueue("order.ship", {"n": 1}, idempotency_key="k", **options)
            two = await shop.aenqueue("order.ship", {"n": 2}, idempotency_key="k", **options)
            many = await shop.aenqueue_many("order.ship", [{"n": 2}, {"n": 3}], **options)
            return one, two, many

    one, two, many = asyncio.run(story())
    assert (one.created, two.created, two.differs, two.id) == (True, False, True, one.id)
    found = look(shop.store, "SELECT id FROM holdfast.job ORDER BY id")
    assert sorted(row["id"] for row in found) == sorted([one.id, *(item.id for item in many)])


DJANGO = """
    import json, sys
    from django.conf import settings
    settings.configure(DATABASES={"default": json.loads(sys.argv[2])}, USE_TZ=True)
    import django
    django.setup()
    from django.db import connection, transaction
    from holdfast import Holdfast

    hf = Holdfast(sys.argv[1])
    hf.job("order.ship")(lambda job, payload: payload)
    org = "0198c0de-0000-7000-8000-00000000000a"
    with transaction.atomic():
        connection.cursor().execute("SELECT set_config('holdfast.org_id', %s, true)", [org])
        one = hf.enqueue("order.ship", {"n": 1}, org_id=org, conn=connection, idempotency_key="k")
        two = hf.enqueue("order.ship", {"n": 1}, org_id=org, conn=connection, idempotency_key="k")
    connection.close()
    print(json.dumps([one.id, one.created, two.id, two.created]))
"""


def test_django_with_a_tenant_s_login_does_the_same(
    shop: Holdfast, login: str, postgres: PostgresServer
) -> None:
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": shop.settings.db.rpartition("/")[2],
        "USER": login,
        "HOST": "127.0.0.1",
        "PORT": str(postgres.port),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DJANGO), shop.settings.db, json.dumps(database)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    first, created, second, again = json.loads(done.stdout)
    assert (created, again, second) == (True, False, first)
    assert shop.get(first, org_id=ORG).state is State.QUEUED


def test_a_handler_enqueues_what_is_known_ended_or_differs_in_its_own_transaction(
    shop: Holdfast,
) -> None:
    ended = shop.enqueue("order.ship", {"n": 0}, org_id=ORG, idempotency_key="ended")
    shop.worker().run_once()
    answers: list[Any] = []

    @shop.job("order.plan")
    def plan(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            for n, key in ((0, "ended"), (1, "new"), (2, "new"), (3, "ended")):
                made = shop.enqueue("order.ship", {"n": n}, idempotency_key=key, conn=connection)
                answers.append((made.id, made.created, made.differs))

    planned = shop.enqueue("order.plan", {}, org_id=ORG)
    shop.worker().run_once()

    assert shop.get(planned.id, org_id=ORG).state is State.COMPLETED
    new = answers[1][0]
    assert answers == [
        (ended.id, False, False),
        (new, True, False),
        (new, False, True),
        (ended.id, False, True),
    ]
    assert timeline(shop, ended)[-1] == "job.duplicate_differs"


def test_a_handler_posts_deliveries_whose_job_is_the_one_they_name(shop: Holdfast) -> None:
    outbox_with(shop)

    @shop.job("order.tell")
    def tell(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            shop.outbox.post([letter()], conn=connection)

    shop.enqueue("order.tell", {}, org_id=ORG)
    shop.worker(queues=["q:default"]).run_once()

    rows = look(
        shop.store,
        "SELECT job.job_type FROM holdfast.delivery AS delivery"
        " JOIN holdfast.job AS job ON job.id = delivery.deliver_job_id",
    )
    assert [row["job_type"] for row in rows] == ["outbox.deliver"]
    assert shop.operate(actor="user:ann", role="admin").verify().violated == ()
