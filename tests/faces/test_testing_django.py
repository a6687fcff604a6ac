"""The pytest plugin inside Django's TestCase, run by Django's own test runner on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.contrib.django.app import database_url
from tests.postgres_server import PostgresServer

PROJECT = """
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": DATABASE}, INSTALLED_APPS=["shop"], USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", "test", *sys.argv[1:]])
"""
MODELS = """
from django.db import models


class Order(models.Model):
    article = models.TextField()
    receipts = models.IntegerField(default=0)
"""
JOBS = """
from django.db import connection, transaction

from holdfast import Holdfast

hf = Holdfast(URL, default_tenant=True)


@hf.job("receipt.send")
def send_receipt(order: int) -> None:
    from shop.models import Order

    found = Order.objects.get(id=order)
    found.receipts += 1
    found.save()


def place(article: str) -> None:
    from shop.models import Order

    with transaction.atomic():
        order = Order.objects.create(article=article)
        send_receipt.configure(conn=connection).enqueue(order=order.id)
        if article == "sold out":
            raise ValueError(article)
"""
TESTS = """
from django.db import connection
from django.test import TestCase

from holdfast.testing import HoldfastApp
from shop.jobs import hf, place, send_receipt
from shop.models import Order


class OrderTests(TestCase):
    def setUp(self):
        self.jobs = HoldfastApp(hf)
        self.addCleanup(self.jobs.close)
        self.jobs.use(connection)

    def test_1_an_order_sends_one_receipt(self):
        place("rope")
        self.jobs.assert_enqueued(send_receipt, times=1)
        self.assertEqual(self.jobs.drain().outcomes, {"completed": 1})
        self.assertEqual(Order.objects.get().receipts, 1)

    def test_2_the_job_of_another_test_was_rolled_back_with_it(self):
        self.assertEqual(self.jobs.all_enqueued(), [])
        self.assertEqual(Order.objects.count(), 0)

    def test_3_a_rolled_back_order_leaves_no_job(self):
        with self.assertRaises(ValueError):
            place("sold out")
        self.jobs.assert_not_enqueued(send_receipt)

    def test_4_a_crash_before_the_outcome_is_recorded_runs_the_job_again(self):
        place("rope")
        with self.jobs.crash_after("execute"):
            self.jobs.drain()
        self.jobs.advance(seconds=61)
        self.jobs.run_maintenance()
        self.assertEqual(self.jobs.drain(with_delays=True).outcomes, {"completed": 1})
        self.assertEqual(Order.objects.get().receipts, 2)
"""


def database_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    if kind == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    server: PostgresServer = request.getfixturevalue("postgres")
    with psycopg.connect(server.dsn()) as connection:
        info = connection.info
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "django_shop",
            "USER": info.user,
            "PASSWORD": info.password,
            "HOST": info.host,
            "PORT": info.port,
        }


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_jobs_of_a_django_test_case_are_seen_run_and_rolled_back(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database = database_of(kind, request, tmp_path)
    shop = tmp_path / "shop"
    shop.mkdir()
    (tmp_path / "manage.py").write_text(PROJECT.replace("DATABASE}", f"{database!r}}}"))
    for name, text in {"__init__": "", "models": MODELS, "jobs": JOBS, "tests": TESTS}.items():
        (shop / f"{name}.py").write_text(text.replace("(URL,", f"({database_url(database)!r},"))

    done = subprocess.run(
        [sys.executable, "manage.py", "--noinput"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Ran 4 tests" in done.stderr
    assert not (tmp_path / "shop.db").exists()
