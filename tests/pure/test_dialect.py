"""One text for two databases: every token is translated to the SQL of each."""

from __future__ import annotations

import re

import pytest

from holdfast.store.caller_connection import _named, _numbered
from holdfast.store.dialect import POSTGRES, SQLITE, Dialect, names_in, to_psycopg

BOTH = [SQLITE, POSTGRES]


@pytest.mark.parametrize(
    ("token", "sqlite", "postgres"),
    [
        ("{now}", ":now", "coalesce(CAST(:now AS timestamptz), statement_timestamp())"),
        ("{skip_locked}", "", "FOR UPDATE SKIP LOCKED"),
        ("{unit_free(x)}", "TRUE", "pg_try_advisory_xact_lock(hashtextextended(x, 0))"),
        (
            "{object(NEW.payload)}",
            "(json_type(NEW.payload) = 'object')",
            "(jsonb_typeof(NEW.payload) = 'object')",
        ),
        (
            "{field(row.document, name)}",
            "(CASE WHEN json_valid(row.document) THEN json_extract(row.document, '$.name') END)",
            "(row.document ->> 'name')",
        ),
        (
            "{field(row.document, outer.inner)}",
            (
                "(CASE WHEN json_valid(row.document)"
                " THEN json_extract(row.document, '$.outer.inner') END)"
            ),
            "(row.document -> 'outer' ->> 'inner')",
        ),
        (
            "{json_field(row.document, name)}",
            "(CASE WHEN json_valid(row.document) THEN json_extract(row.document, '$.name') END)",
            "nullif(row.document -> 'name', CAST('null' AS jsonb))",
        ),
        (
            "{elements(row.list) AS one}",
            "json_each(row.list) AS one",
            "LATERAL jsonb_array_elements(row.list) AS one (value)",
        ),
        (
            "{each(row.ids) AS one}",
            "json_each(row.ids) AS one",
            (
                "LATERAL (SELECT value, number - 1 AS key"
                " FROM unnest(row.ids) WITH ORDINALITY AS listed (value, number)) AS one"
            ),
        ),
        (
            "{each_or_none(row.ids) AS one}",
            "json_each(coalesce(row.ids, '[null]')) AS one",
            (
                "LATERAL (SELECT value, number - 1 AS key"
                " FROM unnest(coalesce(row.ids, CAST(ARRAY[NULL] AS uuid[])))"
                " WITH ORDINALITY AS listed (value, number)) AS one"
            ),
        ),
        (
            "{at(row.ids, a.last - 1)}",
            "json_extract(row.ids, '$[' || (a.last - 1) || ']')",
            "row.ids[(a.last - 1) + 1]",
        ),
        (
            "{group_digest(row.digest)}",
            "group_concat(row.digest, '')",
            "encode(substr(sha256(convert_to(string_agg(row.digest, ''), 'UTF8')), 1, 16), 'hex')",
        ),
        (
            "{lateral f: holdfast.job (a, b)}SELECT g.a, g.b FROM g WHERE {object(g.c)}{end}",
            (
                "CROSS JOIN holdfast_job AS f ON (f.a, f.b) IN"
                " (SELECT g.a, g.b FROM g WHERE (json_type(g.c) = 'object'))"
            ),
            (
                "CROSS JOIN LATERAL"
                " (SELECT g.a, g.b FROM g WHERE (jsonb_typeof(g.c) = 'object')) AS f"
            ),
        ),
        ("{uuid} {instant} {json}", "TEXT TEXT TEXT", "uuid timestamptz jsonb"),
        ("holdfast.job", "holdfast_job", "holdfast.job"),
        ("a IS DISTINCT FROM b", "a IS NOT b", "a IS DISTINCT FROM b"),
    ],
)
def test_a_token_becomes_each_databases_words(token: str, sqlite: str, postgres: str) -> None:
    assert SQLITE.render(token) == sqlite
    assert POSTGRES.render(token) == postgres


def test_a_later_instant_is_the_deciding_one_plus_milliseconds() -> None:
    assert SQLITE.render("{later(:lease_ms)}") == (
        "strftime('%Y-%m-%dT%H:%M:%fZ', :now, ((:lease_ms) / 1000.0) || ' seconds')"
    )
    assert POSTGRES.render("{later(:lease_ms)}") == (
        "(coalesce(CAST(:now AS timestamptz), statement_timestamp())"
        " + CAST(:lease_ms AS bigint) * INTERVAL '1 millisecond')"
    )


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_rows_come_from_one_parameter(dialect: Dialect) -> None:
    text = dialect.render("SELECT r.id FROM {rows r: id uuid, n int, doc json}")

    assert names_in(text) == {"r"}
    assert text.endswith(" AS r")


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_a_lone_row_comes_from_a_parameter_a_column(dialect: Dialect) -> None:
    text = dialect.render("SELECT r.id FROM {rows r: id uuid, doc json}", lone=True)

    assert names_in(text) == {"r__id", "r__doc"}
    assert text.endswith(" AS r")


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_a_refusal_is_a_trigger_that_says_its_name(dialect: Dialect) -> None:
    text = dialect.render(
        "{refuse job_edge BEFORE UPDATE OF state ON holdfast.job\nWHEN OLD.a <> NEW.a\nSAYING 'no'}"
    )

    assert re.match(r"CREATE TRIGGER job_edge (BEFORE|AFTER) UPDATE OF state ON holdfast", text)
    assert "'no'" in text or "'job_edge: no'" in text


def test_an_insert_is_refused_before_a_unique_key_can_answer() -> None:
    text = POSTGRES.render("{refuse r BEFORE INSERT ON holdfast.job\nWHEN TRUE\nSAYING 'no'}")

    assert text.startswith("CREATE TRIGGER r BEFORE INSERT ON holdfast.job")


def test_sqlite_returns_columns_without_the_tables_alias() -> None:
    text = "UPDATE holdfast.job AS job SET x = 1 WHERE job.id = 2 RETURNING job.id, job.state"

    assert SQLITE.render(text).endswith("WHERE job.id = 2 RETURNING id, state")
    assert POSTGRES.render(text) == text


@pytest.mark.parametrize(
    ("text", "psycopg"),
    [
        ("id = :id", "id = %(id)s"),
        ("a LIKE 'x%' AND id = :id", "a LIKE 'x%%' AND id = %(id)s"),
        ("'%H:%M' || :at_once", "'%%H:%%M' || %(at_once)s"),
        ("x::text = :id", "x::text = %(id)s"),
        ("'holdfast:' || :channel", "'holdfast:' || %(channel)s"),
    ],
)
def test_a_name_becomes_psycopgs_placeholder_and_back(text: str, psycopg: str) -> None:
    assert to_psycopg(text) == psycopg
    assert _named(psycopg) == text


def test_a_name_becomes_a_number_for_asyncpg() -> None:
    text, values = _numbered(
        "a = %(a)s AND b = %(b)s OR a > %(a)s AND c LIKE '%%'", {"a": 1, "b": 2}
    )

    assert text == "a = $1 AND b = $2 OR a > $1 AND c LIKE '%'"
    assert values == [1, 2]
