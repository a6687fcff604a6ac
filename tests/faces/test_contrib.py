"""Integrations of frameworks beyond what their examples show."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast, InvalidJob
from holdfast.config import Settings
from holdfast.contrib.django.app import database_url
from holdfast.contrib.fastapi import lifespan, provide
from holdfast.contrib.sqlalchemy import aenqueue, enqueue
from holdfast.errors import ConfigError


@pytest.fixture
def shop(url: str) -> Iterator[Holdfast]:
    with Holdfast(settings=Settings(db=url), default_tenant=True) as made:
        yield made


@pytest.fixture
def woken(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(shop, "wake", found.append)
    _ = shop.store
    return found


def count(hf: Holdfast) -> int:
    return sum(one.jobs for one in hf.operate(actor="user:1", role="admin").jobs.counts())


def for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def test_a_session_wakes_the_workers_once_it_has_committed(
    shop: Holdfast, url: str, woken: list[list[str]]
) -> None:
    @shop.job("receipt.send", queue="q:notifications")
    def send(order: int) -> None: ...

    engine = create_engine(for_sqlalchemy(url))
    with Session(engine) as session:
        enqueue(session, send, 1)
        session.rollback()
        assert (count(shop), woken) == (0, [])
        enqueue(session, send, 2)
        enqueue(session, send.configure(queue="q:exports"), order=3)
        assert woken == []
        session.commit()
        assert (count(shop), woken) == (2, [["q:exports", "q:notifications"]])
        with pytest.raises(InvalidJob, match="order: is missing"):
            enqueue(session, send)  # type: ignore[call-arg]
        session.commit()
    engine.dispose()

    assert (count(shop), len(woken)) == (2, 1)


def test_an_asynchronous_session_does_the_same(postgres_url: str) -> None:
    with Holdfast(settings=Settings(db=postgres_url), default_tenant=True) as hf:

        @hf.job("receipt.send")
        def send(order: int) -> int:
            return order

        woken: list[list[str]] = []
        hf.wake = woken.append  # type: ignore[method-assign, assignment]

        async def main() -> list[Any]:
            engine = create_async_engine(for_sqlalchemy(postgres_url))
            async with AsyncSession(engine) as session:
                await aenqueue(session, send, 1)
                await session.rollback()
                handle = await aenqueue(session, send, order=2)
                await session.commit()
            await engine.dispose()
            await asyncio.to_thread(hf.worker().run_once)
            return [await handle]

        assert asyncio.run(main()) == [2]
        assert (count(hf), woken) == (1, [["q:default"]])


def test_a_lifespan_opens_and_closes_within_another(shop: Holdfast) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def outer(app: Any) -> AsyncIterator[None]:
        steps.append(f"outer {app}")
        yield
        steps.append(f"store open: {shop._store is not None}")

    async def main() -> None:
        async with lifespan(shop, within=outer)("app"):
            steps.append(f"store open: {shop._store is not None}")

    asyncio.run(main())

    assert steps == ["outer app", "store open: True", "store open: False"]
    assert provide(shop)() is shop


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/a.db"}, "sqlite:////srv/a.db"),
        (
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "shop",
                "USER": "ada",
                "PASSWORD": "p@ss/word",
                "HOST": "db.example.com",
                "PORT": 5433,
            },
            "postgresql://ada:p%40ss%2Fword@db.example.com:5433/shop",
        ),
        (
            {"ENGINE": "django.contrib.gis.db.backends.postgis", "NAME": "s", "HOST": "/run/pg"},
            "postgresql://%2Frun%2Fpg/s",
        ),
    ],
)
def test_the_database_of_django_is_that_of_the_jobs(database: dict[str, Any], url: str) -> None:
    assert database_url(database) == url


def test_a_database_that_cannot_hold_jobs_is_refused() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_APP"):
        database_url({"ENGINE": "django.db.backends.mysql", "NAME": "shop"})


def test_the_api_and_the_console_are_mounted_in_django_with_its_logins(tmp_path: Path) -> None:
    site = Path(__file__).with_name("django_site.py")

    done = subprocess.run(
        [sys.executable, str(site), str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == ("served\n", 0), done.stderr
