"""Dead letters older than the workflow become open items, and keep all their data."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.store import migrate, open_store
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand, look

JOB = "0198c0de-0000-7000-8000-0000000000d1"
BEFORE = 12


@pytest.fixture
def bare_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE before_letters")
    yield postgres.dsn("before_letters")
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE before_letters WITH (FORCE)")


@pytest.mark.parametrize("name", ["sqlite_url", "bare_postgres_url"])
def test_the_letters_of_an_older_schema_become_open_items(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = open_store(request.getfixturevalue(name), check=False)
    whole = migrate.migrations(store.dialect)
    older = [found for found in whole if found.version <= BEFORE]
    monkeypatch.setattr(migrate, "migrations", lambda dialect, component: older)
    store.migrate()
    monkeypatch.undo()
    times = dict.fromkeys(("created", "died"), "2026-01-05T09:00:00.000Z")
    by_hand(
        store,
        "INSERT INTO holdfast.job_envelope (id, org_id, event_id, job_type, category, actor_type,"
        " actor_id, request_id, correlation_id, idempotency_key, payload, payload_hash, priority,"
        " origin_queue, max_attempts, created_at)"
        " VALUES (:id, :org_id, 1, 'mail.send', 'general', 'user', '1', 'r', 'c', :key, '{}', 'h',"
        " 20, 'q:default', 1, :created)",
        id=JOB,
        org_id=ORG,
        key=f"mail.send:{ORG}::x",
        **times,
    )
    by_hand(
        store,
        "INSERT INTO holdfast.dead_letter (org_id, job_id, job_type, queue, stage, error_class,"
        " last_error, last_stack, sanitized_context, attempts, first_failure_at, last_failure_at,"
        " created_at) VALUES (:org_id, :id, 'mail.send', 'q:default', 'run', 'GONE', 'GONE', 's',"
        " '{}', 1, :died, :died, :died)",
        id=JOB,
        org_id=ORG,
        **times,
    )

    store.migrate()

    (letter,) = look(store, "SELECT * FROM holdfast.dead_letter")
    assert (letter["state"], letter["version"], letter["replay_count"]) == ("open", 1, 0)
    assert letter["updated_at"] == letter["created_at"]
    assert (letter["kind"], letter["ended_at"], letter["error_class"]) == (None, None, "GONE")
    store.close()
