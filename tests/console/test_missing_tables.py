"""Pages and resources of extensions on a database without their tables."""

from __future__ import annotations

import logging
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient

from holdfast import FakeClock
from holdfast.api import create_app
from holdfast.store import open_store
from tests.api.conftest import make_key
from tests.console.site import make_site
from tests.postgres_server import PostgresServer
from tests.story import make_holdfast

PAGES = ("reviews", "held-rewrites", "batches", "costs")


def test_an_embedded_database_creates_the_tables_that_a_page_reads(
    tmp_path: Path, clock: FakeClock
) -> None:
    with make_holdfast(f"sqlite:///{tmp_path}/new.db", clock) as hf:
        browser = TestClient(make_site(hf), base_url="http://127.0.0.1")
        api = TestClient(create_app(hf), base_url="http://127.0.0.1")
        key = {"Authorization": f"Bearer {make_key(hf, 'admin', None)}"}

        assert "review" not in hf.store.component_versions()
        for page in PAGES:
            assert browser.get(f"/console/{page}").status_code == 200, page
        assert api.get("/v1/batches", headers=key).status_code == 200


def test_a_page_without_its_tables_says_what_to_type_and_the_log_says_which(
    postgres: PostgresServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS core_only")
        admin.execute("CREATE DATABASE core_only")
    store = open_store(postgres.dsn("core_only"), check=False)
    store.migrate()
    store.close()
    with make_holdfast(postgres.dsn("core_only"), clock) as hf:
        browser = TestClient(make_site(hf), base_url="http://127.0.0.1")
        api = TestClient(create_app(hf), base_url="http://127.0.0.1")
        key = {"Authorization": f"Bearer {make_key(hf, 'admin', None)}"}
        with caplog.at_level(logging.WARNING, "holdfast.console"):
            shown = {page: browser.get(f"/console/{page}") for page in PAGES}
        answer = api.get("/v1/batches", headers=key)
        overview = browser.get("/console/")

    for page, found in shown.items():
        assert found.status_code == 503, page
        assert "holdfast migrate" in found.text
        assert f"/{page}" in caplog.text
    assert (answer.status_code, answer.json()["code"]) == (503, "schema_mismatch")
    assert overview.status_code == 200
