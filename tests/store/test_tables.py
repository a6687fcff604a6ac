"""Every table declares its tenant column, and the keys of tenant tables start with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import ConfigError
from holdfast.store import CORE, Store
from holdfast.store.tables import Key, Tables, read_tables
from tests.conftest import COMPONENTS
from tests.story import look

PACKAGES = [component.package for component in (CORE, *COMPONENTS)]
POSTGRES_KEYS = """
SELECT t.relname AS table_name, i.relname AS name, '' AS "references",
       (SELECT array_agg(a.attname::text ORDER BY place) FROM unnest(x.indkey) WITH ORDINALITY
        AS part (number, place) JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = number)
       AS columns
FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE t.relnamespace = 'holdfast'::regnamespace AND x.indisunique
UNION ALL
SELECT t.relname, c.conname, r.relname,
       (SELECT array_agg(a.attname::text ORDER BY place) FROM unnest(c.conkey) WITH ORDINALITY
        AS part (number, place) JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = number)
FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid
WHERE c.connamespace = 'holdfast'::regnamespace AND c.contype = 'f'
"""


def tables_of(store: Store) -> set[str]:
    if store.is_embedded:
        rows = look(store, "SELECT name FROM sqlite_master WHERE type = 'table'")
        names = {row["name"] for row in rows}
        return {name.removeprefix("holdfast_") for name in names if name.startswith("holdfast_")}
    rows = look(
        store,
        "SELECT relname AS name FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p')",
    )
    return {row["name"] for row in rows}


def keys_of(store: Store) -> list[Key]:
    if not store.is_embedded:
        return [
            Key(row["table_name"], row["name"], tuple(row["columns"]), row["references"])
            for row in look(store, POSTGRES_KEYS)
        ]
    found = []
    for row in look(store, "SELECT name FROM sqlite_master WHERE type = 'table'"):
        table = row["name"].removeprefix("holdfast_")
        if table == row["name"]:
            continue
        # An INTEGER PRIMARY KEY is SQLite's rowid, which every table has; it is no key of ours.
        for index in look(
            store, f"SELECT name FROM pragma_index_list('{row['name']}') WHERE \"unique\""
        ):
            columns = look(store, f"SELECT name FROM pragma_index_info('{index['name']}')")
            names = tuple(column["name"] for column in columns)
            found.append(Key(table, index["name"], names))
        for part in look(
            store, f"SELECT * FROM pragma_foreign_key_list('{row['name']}') WHERE seq = 0"
        ):
            referenced = part["table"].removeprefix("holdfast_")
            found.append(Key(table, f"{table}_fkey", (part["from"],), referenced))
    return found


def test_every_table_declares_what_it_belongs_to(store: Store) -> None:
    declared, found = read_tables(PACKAGES), tables_of(store)
    only_postgres = {"handler_transaction"} if store.is_embedded else set()

    assert declared.undeclared(found) == [], "declare these tables in tables.toml"
    assert declared.tenant.keys() | declared.cell.keys() == found | only_postgres


def test_the_column_of_the_tenant_is_there_and_never_empty(store: Store) -> None:
    declared = read_tables(PACKAGES)
    if store.is_embedded:
        sql = "SELECT name FROM pragma_table_info('holdfast_{table}') WHERE \"notnull\""
    else:
        sql = (
            "SELECT attname AS name FROM pg_attribute"
            " WHERE attrelid = 'holdfast.{table}'::regclass AND attnotnull"
        )
    present = tables_of(store) & declared.tenant.keys()

    for table in sorted(present):
        columns = {row["name"] for row in look(store, sql.format(table=table))}
        assert declared.tenant[table] in columns, table


def test_keys_of_a_tenants_tables_start_with_the_tenant(store: Store) -> None:
    declared, keys = read_tables(PACKAGES), keys_of(store)

    assert list(declared.wrong_keys(keys)) == []
    shared = {f"{key.table}.{key.columns[0]}" for key in keys}
    # A tenant has a login of its own only on PostgreSQL.
    only_postgres = {"job_envelope.id"} if store.is_embedded else set()
    assert declared.unique_in_cell.keys() <= shared | only_postgres


def test_a_key_without_the_tenant_is_found() -> None:
    declared = Tables({"order": "org_id"}, {"shelf": "shelves"}, {"order.token": "random"})
    good = Key("order", "order_once", ("org_id", "number"))
    shared = Key("order", "order_token_once", ("token",))
    to_cell = Key("order", "order_shelf_fkey", ("shelf",), "shelf")
    bad = Key("order", "order_number_once", ("number",))
    bad_reference = Key("order", "order_parent_fkey", ("parent",), "order")

    assert list(declared.wrong_keys([good, shared, to_cell, bad, bad_reference])) == [
        bad,
        bad_reference,
    ]
    assert declared.undeclared(["order", "shelf", "invoice"]) == ["invoice"]


def test_an_extension_declares_its_tables_in_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, text in (
        ("shop_extension", '[tenant]\nbasket = "org_id"\n'),
        ("greedy_extension", '[cell]\njob_envelope = "ours"\n'),
    ):
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "tables.toml").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert read_tables(["holdfast.store", "shop_extension"]).tenant["basket"] == "org_id"
    with pytest.raises(ConfigError, match="declares the table job_envelope a second time"):
        read_tables(["holdfast.store", "greedy_extension"])
