"""Calls without a tenant: SQLite has a default one, PostgreSQL refuses them unless it is set."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import psycopg
import pytest

from holdfast import (
    Context,
    Forbidden,
    Holdfast,
    InvalidArgument,
    InvalidJob,
    JobNotFound,
    JobRequest,
)
from holdfast.config import DEFAULT_ORG, Settings
from holdfast.ids import read_named_id
from holdfast.testing import HoldfastApp
from tests.story import ORG, look


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.delenv("HOLDFAST_DEFAULT_ORG", raising=False)


def declare(hf: Holdfast) -> Holdfast:
    @hf.job("greet")
    def greet(job: Context, payload: dict[str, str]) -> dict[str, str]:
        return {"tenant": job.org_id, "next": hf.enqueue("greet.again", {}).org_id}

    @hf.job("greet.again")
    def again(job: Context, payload: dict[str, str]) -> None:
        """Enqueued by the other."""

    return hf


def test_on_sqlite_a_job_needs_no_tenant(migrated_sqlite_url: str) -> None:
    with declare(Holdfast(migrated_sqlite_url)) as hf:
        first = hf.enqueue("greet", {}, idempotency_key="k")
        named = hf.enqueue("greet", {}, org_id=ORG)
        hf.worker().run(until_idle=True)

        assert hf.get(first.id).result == {"tenant": DEFAULT_ORG, "next": DEFAULT_ORG}
        assert hf.get(named.id, org_id=ORG).result == {"tenant": ORG, "next": ORG}
        assert hf.find_key("greet", "k").job_id == first.id  # type: ignore[union-attr]
        assert hf.operate(actor="user:1", role="admin").jobs.enqueue("greet", {}).created
        waiting = hf.enqueue("greet", {})
        hf.cancel(waiting.id)
        assert hf.get(waiting.id).state == "canceled"


def test_on_postgresql_a_call_without_a_tenant_is_refused(postgres_url: str) -> None:
    with declare(Holdfast(postgres_url)) as hf:
        with pytest.raises(InvalidJob, match="org_id"):
            hf.enqueue("greet", {})
        for call in (hf.get, hf.cancel):
            with pytest.raises(InvalidArgument, match="default_org"):
                call(ORG)


def test_the_setting_names_the_tenant_on_both_databases(url: str) -> None:
    with declare(Holdfast(settings=Settings(db=url, default_org=ORG))) as hf:
        job = hf.enqueue("greet", {})

        assert hf.get(job.id).org_id == ORG


def test_tests_of_an_application_refuse_what_its_database_refuses() -> None:
    hf = declare(Holdfast("postgresql://nowhere/work"))
    under_test = HoldfastApp(hf)

    with pytest.raises(InvalidJob, match="org_id"):
        hf.enqueue("greet", {})
    under_test.close()


def test_a_tenant_and_a_project_may_be_named(url: str) -> None:
    with declare(Holdfast(settings=Settings(db=url))) as hf:
        options = {"org_id": "name:acme", "project_id": "name:launch", "idempotency_key": "k"}
        job = hf.enqueue("greet", {}, **options)  # type: ignore[arg-type]
        again = hf.enqueue("greet", {}, **{**options, "org_id": job.org_id})  # type: ignore[arg-type]
        hf.worker().run_once()

        tenant = hf.for_org("name:acme")
        assert (again.id, again.created) == (job.id, False)
        assert tenant.org_id == job.org_id != hf.for_org("name:other").org_id
        found = tenant.get(job.id)
        assert found.result["tenant"] == job.org_id
        assert found.record["project_id"] == hf.for_org("name:launch").org_id
        with pytest.raises(JobNotFound):
            hf.get(job.id, org_id="name:other")
        assert hf.for_org("name:acme").get(job.id).id == job.id
        assert hf.enqueue("greet", {}, **{**options, "org_id": "name:acme"}).id == job.id  # type: ignore[arg-type]
        part_of_an_id = ("dead-beef", "cafe")
        for wrong in (
            *part_of_an_id,
            "acme",
            "a b",
            "7acme",
            "x" * 64,
            "name:",
            "name:a b",
            "Name:acme",
        ):
            with pytest.raises(InvalidJob, match="org_id: must be a UUID"):
                hf.enqueue("greet", {}, org_id=wrong)


def test_a_running_job_may_name_its_own_tenant_and_no_other(hf: Holdfast) -> None:
    refused: list[str] = []

    @hf.job("call.others")
    def call(job: Context, payload: dict[str, str]) -> str:
        try:
            hf.enqueue("call.others", {}, org_id="name:other")
        except Forbidden as exc:
            refused.append(type(exc).__name__)
        return hf.enqueue("call.others", {}, org_id="name:acme", delay=60).org_id

    first = hf.enqueue("call.others", {}, org_id="name:acme")
    hf.worker().run_once()

    assert first.get().result == first.org_id
    assert refused == ["Forbidden"]


@pytest.mark.parametrize("how", ["enqueue", "a connection", "a tenant", "many"])
def test_the_name_of_a_tenant_is_stored_with_its_first_job(url: str, how: str) -> None:
    with declare(Holdfast(settings=Settings(db=url))) as hf:
        _ = hf.store
        match how:
            case "enqueue":
                hf.enqueue("greet", {}, org_id="name:acme", project_id="name:launch")
            case "a tenant":
                hf.for_org("name:acme").enqueue("greet", {}, project_id="name:launch")
            case "many":
                hf.enqueue_many("greet", [JobRequest({}, "name:acme", "name:launch")] * 2)
            case _:
                is_sqlite = url.startswith("sqlite")
                path = url.removeprefix("sqlite:///")
                connection: Any = sqlite3.connect(path) if is_sqlite else psycopg.connect(url)
                with contextlib.closing(connection):
                    hf.enqueue(
                        "greet", {}, org_id="name:acme", project_id="name:launch", conn=connection
                    )
                    connection.commit()

        stored = look(hf.store, "SELECT id, name FROM holdfast.id_name ORDER BY name")
        assert [(str(row["id"]), row["name"]) for row in stored] == [
            (read_named_id("name:acme"), "acme"),
            (read_named_id("name:launch"), "launch"),
        ]
        assert hf.operate(actor="user:1", role="admin").verify().violated == ()
