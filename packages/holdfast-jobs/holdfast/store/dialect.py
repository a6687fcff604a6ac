"""The differences between SQLite and PostgreSQL in the text of a statement.

Statements are written once, in PostgreSQL's SQL, with these tokens:

    {now}                      the current time: the database's clock, or the fake one
    {later(X)}                 {now} plus X milliseconds
    {ms_since(X)}              milliseconds since X
    {rows r: id uuid, n int}   a set of rows from one JSON parameter :r, for joins
    {skip_locked}              skip rows that another transaction has locked
    {skip_held(T)}             the same for rows of T that are changed but not deleted afterwards:
                               concurrent references to them are allowed
    {lock_row(T)}              lock the rows of T in a query with joins until the transaction ends
    {hold_row}                 lock the row until the transaction ends; references to it are allowed
    {unit_free(X)}             lock the unit X; false if another transaction holds it
    {oldest_running} {this_transaction}   transactions below the first have ended; this one's id
    {numbered}                 true; assigns the transaction id before a row is inserted
    {next_event}               the next id of an event, in SELECT
    {object(X)}                X is a JSON object (checks in migrations)
    {field(X, name)}           that field of the JSON object X; NULL if X is not an object
    {json_object}              the function that builds a JSON object of names and values
    {json_list}                the aggregate that builds a JSON array
    {with_fields(X): 'a', b}   the JSON object X, or an empty one, with these fields where not null
    {digest kind X}            a digest of the audited columns of the row X (digest.py)
    {hash(X)}                  a digest of the text X
    {joined(X)}                the concatenated texts X of all rows (an aggregate)
    {stamp(X)}                 the instant X as text, independent of the session's time zone
    {only postgres} … {end}    text for one database only
    {refuse …}                 a trigger that refuses a write (migrations only)
    {uuid} {instant} {json} {identity} {uuids}   column types (migrations only)
    {clustered}                a table whose rows are stored in its primary key (migrations only)

Tables are written ``holdfast.job``: a schema on PostgreSQL, the prefix ``holdfast_`` on SQLite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from holdfast.store.digest import digest_of, hash_of

_ROWS = re.compile(r"\{rows (\w+): ([^}]+)\}")
_LATER = re.compile(r"\{later\(([^{}]*)\)\}")
_ONLY = re.compile(r"\{only (\w+)\}(.*?)\{end\}", re.DOTALL)
_MS_SINCE = re.compile(r"\{ms_since\(([^{}]*)\)\}")
_UNIT_FREE = re.compile(r"\{unit_free\(([^{}]*)\)\}")
_SKIP_HELD = re.compile(r"\{skip_held\((\w+)\)\}")
_LOCK_ROW = re.compile(r"\{lock_row\((\w+)\)\}")
_OBJECT = re.compile(r"\{object\(([\w.]+)\)\}")
_FIELD = re.compile(r"\{field\(([\w.]+), (\w+)\)\}")
_DIGEST = re.compile(r"\{digest (\w+) (\w+)\}")
_HASH = re.compile(r"\{hash\(([^{}]*)\)\}")
_JOINED = re.compile(r"\{joined\(([\w.]+)\)\}")
_STAMP = re.compile(r"\{stamp\(([\w.]+|\{now\})\)\}")
_WITH_FIELDS = re.compile(r"\{with_fields\(([\w.:]+)\): ([^{}]+)\}")
_REFUSE = re.compile(
    r"\{refuse (\w+) (.*?)\s+ON (\S+)\s+WHEN (.*?)\s+SAYING '([^']*)'\}", re.DOTALL
)
_NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of one database."""

    name: Literal["sqlite", "postgres"]
    words: dict[str, str]
    types: dict[str, str]
    # Whether connections may have fewer privileges than the engine.
    has_roles: bool
    # Whether WITH may contain an INSERT, so that a claim is one statement.
    has_writing_ctes: bool

    def render(self, text: str, *, lone: bool = False) -> str:
        """Render the statement for this database; *lone* if every row set has one row."""
        text = _ONLY.sub(lambda match: match[2] if match[1] == self.name else "", text)
        text = _REFUSE.sub(self._refuse, text)
        text = _ROWS.sub(self._lone_row if lone else self._rows, text)
        text = _UNIT_FREE.sub(self._unit_free, text)
        text = _SKIP_HELD.sub(self._skip_held, text)
        text = _LOCK_ROW.sub("" if self.name == "sqlite" else r"FOR UPDATE OF \1", text)
        text = _OBJECT.sub(self._object, text)
        text = _FIELD.sub(self._field, text)
        text = _STAMP.sub(self._stamp, text)
        text = _WITH_FIELDS.sub(self._with_fields, text)
        text = _JOINED.sub(self._joined, text)
        text = _DIGEST.sub(lambda match: digest_of(self.name, match[1], match[2]), text)
        text = _HASH.sub(lambda match: hash_of(self.name, match[1]), text)
        text = _LATER.sub(self._later, text)
        text = _MS_SINCE.sub(self._ms_since, text)
        for token, words in (self.words | self.types).items():
            text = text.replace("{" + token + "}", words)
        if self.name == "sqlite":
            # Index names are not qualified in DROP INDEX.
            text = text.replace("DROP INDEX holdfast.", "DROP INDEX ")
            text = text.replace("holdfast.", "holdfast_").replace("IS DISTINCT FROM", "IS NOT")
            # SQLite returns only columns of the updated table, and does not know its alias there.
            head, returning, tail = text.partition("RETURNING ")
            text = head + returning + tail.replace("job.", "")
        return text

    def render_bulk(
        self, text: str, row_set: str, rows: int
    ) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
        """Render the statement for SQLite with one row set as VALUES (query.Bulk).

        Returns the text, and its parameters in their order: SQLite would look each name up in all.
        """
        columns: tuple[str, ...] = ()

        def as_values(match: re.Match[str]) -> str:
            nonlocal columns
            name, spec = match.groups()
            if name != row_set:
                return match[0]
            columns = tuple(column.split()[0] for column in spec.split(","))
            picked = ", ".join(f"column{place} AS {name}" for place, name in enumerate(columns, 1))
            values = f"SELECT {picked} FROM (VALUES :{name})"  # noqa: S608
            # SQLite estimates a million rows without the limit, and reads the joined table whole.
            return f"({values} WHERE column1 IS NOT NULL LIMIT {rows}) AS {name}"

        text = self.render(_ROWS.sub(as_values, text))
        slots: list[tuple[str, tuple[str, ...]]] = []
        row = f"({', '.join('?' * len(columns))})"

        def as_mark(match: re.Match[str]) -> str:
            is_row_set = match[1] == row_set
            slots.append((match[1], columns if is_row_set else ()))
            return ", ".join([row] * rows) if is_row_set else "?"

        return _NAMED.sub(as_mark, text), tuple(slots)

    def _lone_row(self, match: re.Match[str]) -> str:
        """Render one row as plain parameters: PostgreSQL inserts it in 0.83 ms instead of 1.30."""
        name, spec = match.groups()
        columns = [column.split() for column in spec.split(",")]
        if self.name == "sqlite":
            picked = ", ".join(f":{name}__{column} AS {column}" for column, _ in columns)
        else:
            picked = ", ".join(
                f"CAST(:{name}__{column} AS {self.types.get(kind, kind)}) AS {column}"
                for column, kind in columns
            )
        return f"(SELECT {picked}) AS {name}"

    def _rows(self, match: re.Match[str]) -> str:
        name, spec = match.groups()
        columns = [column.split() for column in spec.split(",")]
        if self.name == "sqlite":
            picked = ", ".join(
                f"json_extract(value, '$.{column}') AS {column}" for column, _ in columns
            )
            return f"(SELECT {picked} FROM json_each(:{name})) AS {name}"  # noqa: S608
        # Documents are passed as text inside the parameter and cast to jsonb by the server, so that
        # both databases parse the same characters.
        inner = ", ".join(
            f"{column} {'text' if kind == 'json' else self.types.get(kind, kind)}"
            for column, kind in columns
        )
        picked = ", ".join(
            f"CAST({column} AS jsonb) AS {column}" if kind == "json" else column
            for column, kind in columns
        )
        # Cast to text first, because a driver may encode a json parameter twice.
        source = f"json_to_recordset(CAST(CAST(:{name} AS text) AS json)) AS _({inner})"
        return f"(SELECT {picked} FROM {source}) AS {name}"  # noqa: S608

    def _later(self, match: re.Match[str]) -> str:
        (length,) = match.groups()
        if self.name == "sqlite":
            return f"strftime('%Y-%m-%dT%H:%M:%fZ', {{now}}, (({length}) / 1000.0) || ' seconds')"
        return f"({{now}} + CAST({length} AS bigint) * INTERVAL '1 millisecond')"

    def _ms_since(self, match: re.Match[str]) -> str:
        (instant,) = match.groups()
        if self.name == "sqlite":
            # julianday counts days in floating point and is off by fractions of a millisecond.
            return f"round((julianday({{now}}) - julianday({instant})) * 86400000.0)"
        return f"CAST(EXTRACT(EPOCH FROM ({{now}} - {instant})) * 1000 AS double precision)"

    def _unit_free(self, match: re.Match[str]) -> str:
        # SQLite has one writer: no other transaction can hold a unit while a claim runs.
        if self.name == "sqlite":
            return "TRUE"
        return f"pg_try_advisory_xact_lock(hashtextextended({match.group(1)}, 0))"

    def _skip_held(self, match: re.Match[str]) -> str:
        if self.name == "sqlite":
            return ""
        return f"FOR NO KEY UPDATE OF {match.group(1)} SKIP LOCKED"

    def _object(self, match: re.Match[str]) -> str:
        function = "json_type" if self.name == "sqlite" else "jsonb_typeof"
        return f"({function}({match.group(1)}) = 'object')"

    def _field(self, match: re.Match[str]) -> str:
        document, name = match.groups()
        if self.name == "sqlite":
            # A value edited by hand may not be JSON, and json_extract raises an error for that.
            picked = f"json_extract({document}, '$.{name}')"
            return f"(CASE WHEN json_valid({document}) THEN {picked} END)"
        return f"({document} ->> '{name}')"

    def _stamp(self, match: re.Match[str]) -> str:
        (instant,) = match.groups()
        if self.name == "sqlite":
            return instant
        return f"""to_char({instant} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""

    def _with_fields(self, match: re.Match[str]) -> str:
        document, fields = match.groups()
        if self.name == "sqlite":
            return f"json_patch(coalesce({document}, json_object()), json_object({fields}))"
        added = f"jsonb_strip_nulls(jsonb_build_object({fields}))"
        return f"(coalesce(CAST({document} AS jsonb), jsonb_build_object()) || {added})"

    def _joined(self, match: re.Match[str]) -> str:
        function = "group_concat" if self.name == "sqlite" else "string_agg"
        return f"{function}({match.group(1)}, '')"

    def _refuse(self, match: re.Match[str]) -> str:
        name, moment, table, condition, says = match.groups()
        head = f"CREATE TRIGGER {name} {moment} ON {table} FOR EACH ROW WHEN ({condition})"
        if self.name == "sqlite":
            return f"{head} BEGIN SELECT RAISE(ABORT, '{name}: {says}'); END"
        # AFTER, because BEFORE would lock and fetch each old row again before the update. Inserts
        # stay BEFORE: a unique key must not reveal another tenant's row first.
        head = head.replace(" BEFORE UPDATE", " AFTER UPDATE", 1)
        return f"{head} EXECUTE FUNCTION holdfast.refuse('{says}')"


SQLITE = Dialect(
    name="sqlite",
    # SQLite runs in this process, so the process's clock is the database's clock.
    words={
        "now": ":now",
        "json_object": "json_object",
        "json_list": "json_group_array",
        "skip_locked": "",
        "hold_row": "",
        "oldest_running": "0",
        "this_transaction": "0",
        "numbered": "TRUE",
        "next_event": (
            "(SELECT coalesce(max(id), 0) FROM holdfast.audit_event) + row_number() OVER ()"
        ),
    },
    types={
        "uuid": "TEXT",
        "instant": "TEXT",
        "json": "TEXT",
        "identity": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "clustered": " WITHOUT ROWID",
        "uuids": "TEXT",
    },
    has_roles=False,
    has_writing_ctes=False,
)

POSTGRES = Dialect(
    name="postgres",
    words={
        # statement_timestamp, not clock_timestamp: a volatile function would turn the index
        # condition of a sweep into a filter.
        "now": "coalesce(CAST(:now AS timestamptz), statement_timestamp())",
        "json_object": "jsonb_build_object",
        "json_list": "jsonb_agg",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "hold_row": "FOR NO KEY UPDATE",
        "oldest_running": "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)",
        "this_transaction": "CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
        "numbered": "pg_current_xact_id() IS NOT NULL",
        "next_event": "nextval('holdfast.audit_event_id_seq')",
    },
    types={
        "uuid": "uuid",
        "instant": "timestamptz",
        "json": "jsonb",
        "identity": "bigint GENERATED ALWAYS AS IDENTITY",
        "clustered": "",
        "uuids": "uuid[]",
    },
    has_roles=True,
    has_writing_ctes=True,
)


def to_psycopg(text: str) -> str:
    """Replace ``:name`` by psycopg placeholders in a rendered statement."""
    return _NAMED.sub(r"%(\1)s", text.replace("%", "%%"))


def names_in(text: str) -> frozenset[str]:
    """Return the parameter names of a statement."""
    return frozenset(_NAMED.findall(text))
