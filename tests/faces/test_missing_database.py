"""A read command creates no database; errors name the missing database, role or grant."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, StoreDown
from holdfast.errors import RuleBroken
from holdfast.store.connection_refusal import connection_refusal, grant_hint
from tests.faces.conftest import Run
from tests.story import ORG

READS = [
    ("jobs", "list"),
    ("jobs", "count"),
    ("jobs", "show", ORG),
    ("dead-letters", "list"),
    ("dead-letters", "recover", "--type", "a", "--reason", "b"),
    ("queues", "list"),
    ("runs", "list"),
    ("audit", "list"),
    ("deliveries", "list"),
    ("verify",),
    ("explain", ORG),
]


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_read_command_creates_no_database(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    ran = run(*command, db=f"sqlite:///{tmp_path}/typo.db")

    assert ran.code == 4
    assert "There is no database" in ran.err
    assert "holdfast migrate" in ran.err
    assert list(tmp_path.glob("typo.db*")) == []


def test_the_doctor_reports_a_missing_database_as_a_finding(run: Run, tmp_path: Path) -> None:
    ran = run("doctor", db=f"sqlite:///{tmp_path}/typo.db")

    assert ran.code == 1
    assert "typo.db does not exist" in ran.out
    assert list(tmp_path.glob("typo.db*")) == []


def test_schedules_are_listed_without_a_database(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports.py").write_text(
        "from holdfast import Holdfast\n"
        "hf = Holdfast('sqlite:///reports.db')\n"
        "hf.job('report.make', category='maintenance')(lambda job, payload: None)\n"
        f"hf.schedule('nightly', cron='0 3 * * *', job_type='report.make', payload={{}},"
        f" org_id='{ORG}')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    shown = run("schedules", "list", app="reports:hf", db="sqlite:///reports.db").out

    assert "nightly" in shown
    assert "report.make" in shown
    assert "1 schedule not stored yet: start a dispatcher" in shown
    assert not (tmp_path / "reports.db").exists()


def test_a_declared_schedule_shows_its_next_tick(hf: Holdfast) -> None:
    hf.job("report.make", category="maintenance")(lambda job, payload: None)
    hf.schedule("nightly", cron="0 3 * * *", job_type="report.make", payload={}, org_id=ORG)
    schedules = hf.operate(actor="user:ann", role="admin").schedules

    (listed,) = schedules.list()

    assert (listed.name, listed.last_outcome) == ("nightly", None)
    assert listed.next_fire_at.hour == 3
    assert schedules.get("nightly") == listed
    assert schedules.next("nightly", count=1)[0].fire_at == listed.next_fire_at
    assert schedules.ticks("nightly") == ()


def test_a_missing_database_and_role_say_what_to_type(postgres_url: str) -> None:
    server = postgres_url.rpartition("/")[0]

    with Holdfast(f"{server}/nowhere") as hf, pytest.raises(StoreDown) as refused:
        hf.store.version()
    assert "createdb nowhere; then: holdfast migrate" in str(refused.value)
    other = postgres_url.replace("postgres@", "nobody_here@")
    with Holdfast(other) as hf, pytest.raises(StoreDown, match="createuser nobody_here"):
        hf.store.version()


def test_a_missing_grant_says_what_to_type(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS without_grant")
        admin.execute("CREATE ROLE without_grant LOGIN")
    with (
        Holdfast(postgres_url.replace("postgres@", "without_grant@")) as hf,
        pytest.raises(RuleBroken, match="GRANT holdfast_engine TO your_login"),
    ):
        hf.operate(actor="user:ann", role="admin").jobs.list()


class OperationalError(Exception):
    """As psycopg raises it for a connection that was refused."""

    sqlstate = None


@pytest.mark.parametrize(
    ("said", "says", "lasts"),
    [
        ('FATAL:  password authentication failed for user "ann"', 'password of "ann"', True),
        ("fe_sendauth: no password supplied", "PGPASSWORD", True),
        ('FATAL:  role "x" is not permitted to log in', 'ALTER ROLE "x" LOGIN', True),
        ("FATAL:  no pg_hba.conf entry for host", "pg_hba.conf", True),
        ('could not translate host name "x" to address', "host of the database URL", False),
    ],
)
def test_a_refused_connection_says_what_to_type(said: str, says: str, lasts: bool) -> None:
    error = connection_refusal(OperationalError(said))

    assert error is not None
    assert says in str(error)
    assert error.is_permanent is lasts


def test_other_errors_get_no_hint() -> None:
    assert connection_refusal(OperationalError("Connection refused")) is None
    assert connection_refusal(ValueError("database does not exist")) is None
    assert grant_hint("new row violates row-level security policy") == ""
    assert "GRANT CREATE ON DATABASE shop" in grant_hint("permission denied for database shop")
