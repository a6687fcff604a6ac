"""docs/reference/state-transitions.md: the transitions that the triggers allow.

The triggers are evaluated for every pair of states, so the page cannot differ from the database. A
job has no column for its state: its transitions are those of the engine, which the tests compare
with the database. The causes are in states.toml.
"""

from __future__ import annotations

import re
import sqlite3
import tomllib
from typing import Any

from holdfast.engine.job import TRANSITIONS, State
from reference_pages.page import HERE, Page, code, introduction
from reference_pages.source import schema


def build() -> Page:
    page = Page()
    page.add(introduction("states"))
    declared: dict[str, dict[str, Any]] = tomllib.loads((HERE / "states.toml").read_text())
    for table, entry in declared.items():
        _add_machine(page, table, entry)
    return page


def _add_machine(page: Page, table: str, entry: dict[str, Any]) -> None:
    meanings: dict[str, str] = entry["states"]
    column = entry["column"]
    is_job = table == "job"
    stored = {str(state) for state in State} if is_job else _states(table, column)
    page.add(f"## {entry['title']}", entry["about"])
    page.add(entry["stored"] if is_job else _stored(table, entry))
    page.problems += [f"states.toml: {table}.{one} is no state" for one in meanings.keys() - stored]
    order = [one for one in meanings if one in stored] + sorted(stored - meanings.keys())
    rows = [[code(one), page.need(f"{table}.{one}", meanings.get(one))] for one in order]
    page.table(("State", "Meaning"), rows)
    allowed = {
        (before, after)
        for before, after in (_engine() if is_job else _allowed(entry["trigger"], column, order))
        if before not in entry.get("terminal", ())
    }
    causes = _causes(page, table, entry["transitions"], allowed)
    listed = sorted(allowed, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    rows = [[code(a), code(b), " ".join(causes.get((a, b), ()))] for a, b in listed]
    page.problems += [f"{table}: {a} > {b} has no cause" for a, b in allowed - causes.keys()]
    page.table(("From", "To", "Cause and audit events"), rows)


def _stored(table: str, entry: dict[str, Any]) -> str:
    return (
        f"Table `{table}`, column `{entry['column']}`. A new row starts in `{entry['initial']}`."
        f" The trigger `{entry['trigger']}` rejects every transition that is not listed."
    )


def _engine() -> set[tuple[str, str]]:
    return {(str(before), str(after)) for before, more in TRANSITIONS.items() for after in more}


def _causes(
    page: Page, table: str, declared: dict[str, list[str]], allowed: set[tuple[str, str]]
) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for key, said in declared.items():
        before, after = (side.strip().split("|") for side in key.split(" > "))
        pairs = {
            (a, b)
            for a, b in allowed
            if (a in before or before == ["*"]) and (b in after or after == ["*"])
        }
        named = {a for a, _ in pairs} | {b for _, b in pairs} | {"*"}
        if not set(before) | set(after) <= named:
            page.problems.append(f"states.toml: {table}: {key} is not allowed")
        for pair in pairs:
            found.setdefault(pair, []).extend(said)
    return found


def _states(table: str, column: str) -> set[str]:
    """Return the states that the CHECK constraint of a table allows."""
    sql = next(sql for kind, _, owner, sql in schema() if kind == "table" and owner == table)
    listed = re.search(rf"\b{column} IN\s*\(([^)]*)\)", sql)
    assert listed is not None
    return set(re.findall(r"'(\w+)'", listed[1]))


def _allowed(trigger: str, column: str, states: list[str]) -> set[tuple[str, str]]:
    """Return the pairs of states that a trigger allows."""
    sql = next(sql for kind, name, _, sql in schema() if kind == "trigger" and name == trigger)
    condition = sql[sql.index("WHEN ") + 5 : sql.index("BEGIN")]
    others = set(re.findall(r"(?:OLD|NEW)\.(\w+)", condition)) - {column}
    old = "".join(f", NULL AS {name}" for name in sorted(others))
    new = "".join(f", 'set' AS {name}" for name in sorted(others))
    query = (
        f"SELECT {condition} FROM (SELECT ? AS {column}{old}) AS OLD,"  # noqa: S608
        f" (SELECT ? AS {column}{new}) AS NEW"
    )
    connection = sqlite3.connect(":memory:")
    return {
        (before, after)
        for before in states
        for after in states
        if before != after and not connection.execute(query, (before, after)).fetchone()[0]
    }
