"""I47: triggers, functions, policies, grants and all other definitions are those of the migrations.

On SQLite the migrations run once more in memory, and the words must be the same. PostgreSQL writes
definitions in its own words, so ``definitions.postgres.txt`` holds what a new database says after
the migrations; ``make definitions`` writes it, and a test keeps it current.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from importlib import resources

from holdfast.engine.audit import PLATFORM_ORG
from holdfast.operate.verify.check import Check, Look, Violation
from holdfast.store import Row, Statements, Tx
from holdfast.store.dialect import POSTGRES, Dialect
from holdfast.store.migrate import make_in_memory, migrations

SQL = Statements("holdfast.operate.verify", "definitions.sql")
RUN_SQL = Statements("holdfast.operate.verify", "run.sql")
FILE = "definitions.postgres.txt"

_ROLE = re.compile(r"\bholdfast_[a-z]+\b")
_HELPER = re.compile(r"(holdfast_\w+: )?CREATE INDEX ")
_TABLE_NAME = re.compile(r"\b(?!holdfast\.)[a-z_]+\.(?=[a-z_])")

_expected: dict[str, Mapping[str, str]] = {}


def read_definitions(tx: Tx) -> dict[str, str]:
    """What this database says of our schema, by subject."""
    tx.affected(RUN_SQL.trust_nothing)
    roles = [{"name": name} for name in _roles()]
    return _by_subject(tx.many(SQL.list_definitions, roles=roles))


def expected_definitions(dialect: Dialect) -> Mapping[str, str]:
    """What the migrations make."""
    if dialect.name not in _expected:
        _expected[dialect.name] = _expect(dialect)
    return _expected[dialect.name]


def _expect(dialect: Dialect) -> Mapping[str, str]:
    made = make_in_memory(dialect)
    if made is None:
        return _read_file()
    with closing(made):
        cursor = made.execute(SQL.list_definitions.render(dialect).text)
        return _by_subject([{"subject": row[0], "definition": row[1]} for row in cursor])


def _read_file() -> dict[str, str]:
    text = resources.files("holdfast.operate.verify").joinpath(FILE).read_text(encoding="utf-8")
    lines = (line.partition("\t") for line in text.splitlines())
    return {subject: definition for subject, _, definition in lines}


def write_definitions(found: Mapping[str, str]) -> str:
    """The text of the file that :func:`expected_definitions` reads."""
    return "".join(f"{subject}\t{found[subject]}\n" for subject in sorted(found))


def _by_subject(rows: list[Row]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        plain = _plain(row["subject"], row["definition"])
        found.setdefault(row["subject"], []).append(plain)
    # Functions of one name that take other arguments are one subject.
    return {subject: "; ".join(sorted(parts)) for subject, parts in found.items()}


def _plain(subject: str, definition: str) -> str:
    """A definition without what differs between versions of one database."""
    text = " ".join(definition.split())
    if subject.startswith("view:") and " JOIN " not in text:
        # From version 16 on PostgreSQL names the table of a column only if there are several.
        text = _TABLE_NAME.sub("", text)
    return text


@lru_cache(maxsize=1)
def _roles() -> tuple[str, ...]:
    """The roles that the migrations make."""
    return tuple(sorted({name for one in migrations(POSTGRES) for name in _ROLE.findall(one.text)}))


def _find_changed(look: Look) -> Iterator[Violation]:
    wanted, found = expected_definitions(look.tx.dialect), read_definitions(look.tx)
    for subject in sorted(wanted.keys() | found.keys()):
        if subject not in found:
            yield Violation(PLATFORM_ORG, subject, "it is missing")
        elif subject not in wanted:
            # An index that only helps to find rows changes nothing that is written.
            if _HELPER.match(found[subject]) is None:
                yield Violation(PLATFORM_ORG, subject, "the migrations did not make it")
        elif wanted[subject] != found[subject]:
            yield Violation(PLATFORM_ORG, subject, "it is not as the migrations made it")


DEFINITIONS = Check(
    "I47",
    "Triggers, functions, policies, grants and tables are as the migrations made them.",
    _find_changed,
    is_of_store=True,
)
