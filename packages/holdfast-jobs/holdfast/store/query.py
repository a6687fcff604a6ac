"""Named statements from the ``.sql`` files beside the code that runs them.

A statement begins with ``-- name :shape — why``. The shape is its result: ``one`` row, ``maybe`` a
row, ``many`` rows, or the number of rows ``affected``. A frequent statement says ``prepared`` after
its shape: PostgreSQL keeps its plan. One that gets many rows says ``bulk``: see :class:`Bulk`. Text
that several statements of a file share is a ``fragment``; ``{use name}`` stands for it.

A statement that differs between the databases is in ``name.sqlite.sql`` and ``name.postgres.sql``,
with the same header in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast.store.dialect import Dialect, names_in, to_psycopg

DIALECTS = ("sqlite", "postgres")
_HEADER = re.compile(r"^-- (\w+) :(one|maybe|many|affected|fragment)\b([^\n]*)\n", re.MULTILINE)
_USE = re.compile(r"\{use (\w+)\}")
_ROWS = re.compile(r"\{rows (\w+):")
_WRITES = re.compile(
    r"\b(INSERT INTO|UPDATE holdfast|DELETE FROM|FOR (NO KEY )?UPDATE|FOR SHARE|pg_notify)\b"
    r"|\{(skip_|lock_row|keep_row|hold_row|unit_free)"
)


BULK_SIZES = (100, 250, 500, 1_000)
FEWEST_BULK_ROWS = 50


@dataclass(frozen=True, slots=True)
class Rendered:
    """A statement rendered for one database, with its parameters.

    *picks* map each parameter to its row set and column when every row set has one row.
    """

    text: str
    params: frozenset[str]
    picks: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Bulk:
    """A statement for SQLite that gets one row set as bound values instead of JSON.

    A row of 16 columns takes 3 us instead of 7. Preparing the text takes 5 ms for 500 rows, so
    there are few sizes: missing rows are filled up with nulls, which the statement leaves out. The
    first column of such a row set is never null. *slots* are the parameters in their order, with
    the columns of the row set.
    """

    text: str
    slots: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int

    def bind(self, params: Mapping[str, Any]) -> list[Any]:
        """Return the values of all slots; the row set is a list of rows, others are as bound."""
        bound: list[Any] = []
        for name, columns in self.slots:
            if columns:
                rows = params[name]
                bound += _flat(rows, columns)
                bound += [None] * (len(columns) * (self.rows - len(rows)))
            else:
                bound.append(params[name])
        return bound


def _flat(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[Any]:
    """The values of all rows in one list; a column that a row does not have is None."""
    if len(columns) > 1:
        with suppress(KeyError):
            return list(chain.from_iterable(map(itemgetter(*columns), rows)))
    return [row.get(column) for row in rows for column in columns]


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement, before it is rendered."""

    name: str
    shape: str
    why: str
    raw: str
    row_sets: frozenset[str]
    is_prepared: bool = False
    is_bulk: bool = False
    # Whether it changes or locks rows, and so needs a write transaction.
    writes: bool = False
    # Not copied by replace(): another text has its own.
    _rendered: dict[tuple[str, bool], Rendered] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _bulk: dict[tuple[str, int], Bulk] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def render(self, dialect: Dialect, *, lone: bool = False) -> Rendered:
        found = self._rendered.get((dialect.name, lone))
        if found is None:
            text = dialect.render(self.raw, lone=lone)
            params = names_in(text)
            if dialect.name == "postgres":
                text = to_psycopg(text)
            picks = ((name, *name.partition("__")[::2]) for name in sorted(params))
            found = self._rendered[dialect.name, lone] = Rendered(text, params, tuple(picks))
        return found

    def bulk(self, dialect: Dialect, row_set: str, rows: int) -> Bulk | None:
        """Return the statement for that many rows as values; None if JSON is better."""
        size = next((size for size in BULK_SIZES if rows <= size), None)
        if size is None or rows < FEWEST_BULK_ROWS:
            return None
        found = self._bulk.get((row_set, size))
        if found is None:
            text, slots = dialect.render_bulk(self.raw, row_set, size)
            found = self._bulk[row_set, size] = Bulk(text, slots, size)
        return found


class Statements:
    """The named SQL statements of one file, as attributes: ``SQL.claim_jobs``."""

    def __init__(self, package: str, file: str) -> None:
        self.by_name = dict(_load(package, file))

    def __getattr__(self, name: str) -> Statement:
        try:
            found: Statement = self.__dict__["by_name"][name]
        except KeyError:
            raise AttributeError(f"no statement named {name}") from None
        return found


@cache
def _load(package: str, file: str) -> Mapping[str, Statement]:
    """Return the statements of a file by name. A process parses and renders each file once."""
    source = _read(package, file)
    own = {dialect: _read(package, file.replace(".sql", f".{dialect}.sql")) for dialect in DIALECTS}
    by_name = {found.name: found for found in (*_parse(source), *_of_each(own))}
    if not by_name:
        raise FileNotFoundError(f"no statements in {package}/{file}")
    return by_name


def folder_of(package: str) -> Path:
    """The folder of a package. importlib.resources imports three times as much for the same."""
    return Path(import_module(package).__path__[0])


def _read(package: str, file: str) -> str:
    place = folder_of(package) / file
    return place.read_text(encoding="utf-8") if place.is_file() else ""


def _of_each(sources: Mapping[str, str]) -> Iterator[Statement]:
    """Yield the statements that have a separate text for each database."""
    parsed = {
        dialect: {found.name: found for found in _parse(text)} for dialect, text in sources.items()
    }
    first, second = (parsed[dialect] for dialect in DIALECTS)
    if first.keys() != second.keys():
        raise ValueError(f"not in both files: {sorted(first.keys() ^ second.keys())}")
    for name, found in first.items():
        texts = ((dialect, parsed[dialect][name]) for dialect in DIALECTS)
        raw = "".join(f"{{only {dialect}}}{one.raw}{{end}}" for dialect, one in texts)
        row_sets = found.row_sets | second[name].row_sets
        yield replace(found, raw=raw, row_sets=row_sets)


def _parse(source: str) -> list[Statement]:
    headers = list(_HEADER.finditer(source))
    if not headers:
        return []
    found, fragments = [], dict[str, str]()
    for here, after in zip(headers, [*headers[1:], None], strict=True):
        body = source[here.end() : after.start() if after else len(source)]
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        raw = "\n".join(lines).strip().rstrip(";")
        raw = _USE.sub(lambda match: fragments[match[1]], raw)
        name, shape, why = here.groups()
        if shape == "fragment":
            fragments[name] = raw
            continue
        words, _, reason = why.partition("—")
        flags = set(words.split())
        row_sets = frozenset(_ROWS.findall(raw))
        writes = _WRITES.search(raw) is not None
        kinds = "prepared" in flags, "bulk" in flags
        found.append(Statement(name, shape, reason.strip(), raw, row_sets, *kinds, writes))
    return found
