"""I47: triggers, functions, policies, grants and all other definitions are those of the
migrations.

On SQLite the migrations run again in memory, and the texts must be equal. PostgreSQL normalizes
definitions, so ``definitions.postgres.txt`` beside the migrations of each component holds those of
a new database; ``make definitions`` writes it, and a test keeps it current.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from importlib import resources

from holdfast.engine.audit import PLATFORM_ORG
from holdfast.operate.verify.check import Check, VerifyContext, Violation
from holdfast.store import Component, Row, Statements, Tx
from holdfast.store.component import in_order
from holdfast.store.dialect import POSTGRES, Dialect
from holdfast.store.migrate import after, make_in_memory

SQL = Statements("holdfast.operate.verify", "definitions.sql")
RUN_SQL = Statements("holdfast.operate.verify", "run.sql")
FILE = "definitions.postgres.txt"

_ROLE = re.compile(r"\bholdfast_[a-z]+\b")
_HELPER = re.compile(r"(holdfast_\w+: )?CREATE INDEX ")
_TABLE_NAME = re.compile(r"\b(?!holdfast\.)[a-z_]+\.(?=[a-z_])")

# Whether the definitions are those of all components, and the definitions.
_Expected = tuple[bool, Mapping[str, str]]
_expected: dict[tuple[str, ...], _Expected] = {}


def read_definitions(tx: Tx, components: Sequence[Component] = ()) -> dict[str, str]:
    """Return the definitions of Holdfast's schema in this database, by subject."""
    tx.affected(RUN_SQL.trust_nothing)
    roles = [{"name": name} for name in _roles(tuple(components))]
    return _by_subject(tx.many(SQL.list_definitions, roles=roles))


def expected_definitions(
    dialect: Dialect, components: Sequence[Component] = ()
) -> Mapping[str, str]:
    """Return the definitions that the migrations of the core and of *components* create."""
    return _find_expected(dialect, components)[1]


def _find_expected(dialect: Dialect, components: Sequence[Component]) -> _Expected:
    key = (dialect.name, *sorted(component.name for component in components))
    if key not in _expected:
        _expected[key] = _expect(dialect, components)
    return _expected[key]


def _expect(dialect: Dialect, components: Sequence[Component]) -> _Expected:
    made = make_in_memory(dialect, components)
    if made is None:
        files = [_read_file(component) for component in in_order(components)]
        found = {subject: file[subject] for file in files if file for subject in file}
        return None not in files, found
    with closing(made):
        cursor = made.execute(SQL.list_definitions.render(dialect).text)
        return True, _by_subject([{"subject": row[0], "definition": row[1]} for row in cursor])


def _read_file(component: Component) -> dict[str, str] | None:
    """Return the definitions of a component; None if it has no file of them."""
    place = resources.files(component.package).joinpath(component.folder, FILE)
    if not place.is_file():
        return None
    lines = (line.partition("\t") for line in place.read_text(encoding="utf-8").splitlines())
    return {subject: definition for subject, _, definition in lines}


def write_definitions(found: Mapping[str, str]) -> str:
    """Return the text of the file that :func:`expected_definitions` reads."""
    return "".join(f"{subject}\t{found[subject]}\n" for subject in sorted(found))


def _by_subject(rows: list[Row]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        plain = _plain(row["subject"], row["definition"])
        found.setdefault(row["subject"], []).append(plain)
    # Overloaded functions of one name are one subject.
    return {subject: "; ".join(sorted(parts)) for subject, parts in found.items()}


def _plain(subject: str, definition: str) -> str:
    """Return a definition without differences between versions of one database."""
    text = " ".join(definition.split())
    if subject.startswith("view:") and " JOIN " not in text:
        # From version 16 on PostgreSQL qualifies columns only if there are several tables.
        text = _TABLE_NAME.sub("", text)
    return text


@lru_cache(maxsize=8)
def _roles(components: tuple[Component, ...]) -> tuple[str, ...]:
    """Return the roles that the migrations create."""
    steps = after({}, POSTGRES, components)
    return tuple(sorted({name for one in steps for name in _ROLE.findall(one.text)}))


def _find_changed(context: VerifyContext) -> Iterator[Violation]:
    is_complete, wanted = _find_expected(context.tx.dialect, context.components)
    found = read_definitions(context.tx, context.components)
    has_others = context.has_others or not is_complete
    for subject in sorted(wanted.keys() | found.keys()):
        if subject not in found:
            yield Violation(PLATFORM_ORG, subject, "it is missing")
        elif subject not in wanted:
            # An index that only speeds up reads does not change what is written. Objects of an
            # extension that is not installed here, or that has no file of definitions, cannot be
            # distinguished from foreign objects.
            if _HELPER.match(found[subject]) is None and not has_others:
                yield Violation(PLATFORM_ORG, subject, "not created by the migrations")
        elif wanted[subject] != found[subject]:
            yield Violation(PLATFORM_ORG, subject, "differs from the migrations")


DEFINITIONS = Check(
    "I47",
    "Triggers, functions, policies, grants and tables match the migrations.",
    _find_changed,
    is_of_store=True,
)
