"""I30 and I38: the schema matches this code and isolates tenants.

The expected objects are read from the migrations, so no separate list is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from holdfast.engine.audit import PLATFORM_ORG
from holdfast.operate.verify.check import Check, VerifyContext, Violation
from holdfast.store import CORE, Row, Statements
from holdfast.store.migrate import Migration, after
from holdfast.store.tables import Key, read_tables

SQL = Statements("holdfast.operate.verify", "catalog.sql")

ENGINE, TENANT = "holdfast_engine", "holdfast_tenant"
_OWN_ROWS = "(org_id = "
_OWN_TENANT = "holdfast.current_tenant()"

_STEP = re.compile(
    r"\b(CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:UNIQUE\s+)?(TRIGGER|INDEX|FUNCTION)\s+"
    r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?:holdfast\.)?(\w+)"
)
_RULE = re.compile(r"\b(DROP\s+)?CONSTRAINT\s+(\w+)(?=\s+(?:CHECK|UNIQUE|PRIMARY|FOREIGN)|\s*[;,])")


@dataclass(slots=True)
class Made:
    """The objects that the migrations create, by name."""

    trigger: set[str] = field(default_factory=set)
    index: set[str] = field(default_factory=set)
    function: set[str] = field(default_factory=set)
    rule: set[str] = field(default_factory=set)


def made_by(steps: list[Migration]) -> Made:
    """Return the objects that exist after these migrations."""
    made = Made()
    for migration in steps:
        steps_of, rules_of = _read(migration.text)
        for verb, kind, name in steps_of:
            names: set[str] = getattr(made, kind.lower())
            (names.add if verb == "CREATE" else names.discard)(name)
        for dropped, name in rules_of:
            (made.rule.discard if dropped else made.rule.add)(name)
    return made


@cache
def _read(text: str) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Return the objects and rules that a migration creates and drops; cached per process."""
    return _STEP.findall(text), _RULE.findall(text)


def _wrong(subject: str, detail: str) -> Violation:
    return Violation(PLATFORM_ORG, subject, detail)


# -- I30


def _find_open(context: VerifyContext) -> Iterator[Violation]:
    tables = [row for row in context.tx.many(SQL.list_tables) if row["has_tenant"]]
    for row in tables:
        if not row["names_tenant"]:
            yield _wrong(f"table:{row['name']}", "the tenant column is nullable")
        if not row["is_guarded"]:
            yield _wrong(f"table:{row['name']}", "row-level security is not forced")
    yield from _find_policies(context, tables)
    for row in context.tx.many(SQL.list_rights):
        place = f"table:{row['table_name']}" if row["table_name"] else f"role:{row['role']}"
        yield _wrong(place, f"{row['role']} has {row['word']}, which no policy restricts")
    unique = [
        Key(row["table_name"], row["name"], (row["leads"],))
        for row in context.tx.many(SQL.list_unique)
    ]
    declared = read_tables(component.package for component in (CORE, *context.components))
    for key in declared.wrong_keys(unique):
        yield _wrong(f"index:{key.name}", "the unique index does not start with the tenant")
    for row in context.tx.many(SQL.list_views):
        if not row["is_invoker"]:
            yield _wrong(
                f"view:{row['name']}",
                "the view runs with its owner's privileges (security_invoker is off)",
            )
    for row in context.tx.many(SQL.list_functions):
        if not row["is_confined"]:
            yield _wrong(
                f"function:{row['name']}", "the SECURITY DEFINER function has no fixed search_path"
            )
    yield from _find_triggers(context)


def _find_policies(context: VerifyContext, tables: list[Row]) -> Iterator[Violation]:
    """Each table lets the engine see all rows and a tenant its own, and no other role any."""
    policies = context.tx.many(SQL.list_policies)
    known = {(row["table_name"], row["name"]): row for row in policies}
    for row in tables:
        for name in ("engine_serves_all", "tenant_sees_itself"):
            if row["has_policies"] and (row["name"], name) not in known:
                yield _wrong(f"table:{row['name']}", f"the policy {name} is missing")
    for (table, name), row in known.items():
        if row["roles"] == ENGINE or row["permissive"] == "RESTRICTIVE":
            continue
        words = [text for text in (row["qual"], row["with_check"]) if text is not None]
        if not words or not all(_is_own(text) for text in words):
            yield _wrong(f"table:{table}", f"the policy {name} exposes rows of other tenants")


def _is_own(text: str) -> bool:
    return text.startswith(_OWN_ROWS) and _OWN_TENANT in text and " OR " not in text


def _find_triggers(context: VerifyContext) -> Iterator[Violation]:
    found = {row["name"]: row["is_on"] for row in context.tx.many(SQL.list_triggers)}
    for name in sorted(made_by(_steps(context)).trigger):
        if name not in found:
            yield _wrong(f"trigger:{name}", "it is missing")
        elif not found[name]:
            yield _wrong(f"trigger:{name}", "the trigger is disabled")


# -- I38


def _steps(context: VerifyContext) -> list[Migration]:
    """Return the migrations of the core and of the extensions that are in the database."""
    return after({}, context.tx.dialect, context.components)


def _find_drift(context: VerifyContext) -> Iterator[Violation]:
    steps = _steps(context)
    known = {CORE.name, *(component.name for component in context.components)}
    code = {(one.component, one.version): one.name for one in steps}
    here = {
        (row["component"], row["version"]): row["name"]
        for row in context.tx.many(SQL.list_migrations)
        if row["component"] in known
    }
    for key in sorted(code.keys() | here.keys()):
        if code.get(key) != here.get(key):
            component, version = key
            says = f"it is {here.get(key, 'missing')} here and {code.get(key, 'none')} in code"
            numbered = f"{version:04d}" if component == CORE.name else f"{component}:{version:04d}"
            yield _wrong(f"migration:{numbered}", says)
    made = made_by(steps)
    indexes = {row["name"]: row["is_sound"] for row in context.tx.many(SQL.list_indexes)}
    rules: dict[str, bool] = {}
    for row in context.tx.many(SQL.list_constraints):
        names = (
            [row["name"]] if row["name"] else [name for _, name in _RULE.findall(row["made_by"])]
        )
        rules.update(dict.fromkeys(names, bool(row["is_sound"])))
    functions = {row["name"]: True for row in context.tx.many(SQL.list_functions)}
    for kind, wanted, found in (
        ("index", made.index, indexes),
        ("constraint", made.rule, rules),
        ("function", made.function, functions),
    ):
        for name in sorted(wanted - found.keys()):
            yield _wrong(f"{kind}:{name}", "it is missing")
        for name in sorted(name for name, is_sound in found.items() if not is_sound):
            yield _wrong(f"{kind}:{name}", f"the {kind} is not valid")
    for row in context.tx.stream(SQL.list_damage):
        yield _wrong(row["subject"], row["detail"])


OPEN = Check(
    "I30",
    "Row-level security and tenant triggers are in place.",
    _find_open,
    is_of_store=True,
)
DRIFT = Check(
    "I38",
    "The schema version matches the code, and the database's integrity check passes.",
    _find_drift,
    is_of_store=True,
)
