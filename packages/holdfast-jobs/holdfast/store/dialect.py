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
    {keep_row(T)}              keep the rows of T from being deleted until the transaction ends;
                               concurrent updates of them are allowed
    {hold_row}                 lock the row until the transaction ends; references to it are allowed
    {same(A, B)}               A = B, for a column A of the key by which a place must be read
    {last_attempt a: ORG, ID}  LEFT JOIN the newest attempt of that job as a, always by its key
    {unit_free(X)}             lock the unit X; false if another transaction holds it
    {oldest_running} {this_transaction}   transactions below the first have ended; this one's id
    {numbered}                 true; assigns the transaction id before a row is inserted
    {next_event}               the next id of an event, in SELECT; {next_event(X)} for the rows
                               with one value of X
    {object(X)}                X is a JSON object (checks in migrations)
    {field(X, name)}           that field of the JSON object X; NULL if X is not an object;
                               {field(X, a.b)} is the field b of its field a
    {json_field(X, name)}      the same as JSON; NULL if it is null
    {elements(X) AS e}         the elements of the JSON array X as e.value, for CROSS JOIN
    {each(X) AS i}             the ids of the list X as i.value, for joins; i.key counts from 0
    {each_or_none(X) AS i}     the same; one row, and NULL as its id, if X is NULL
    {at(X, N)}                 the id at the place N, counted from 0, of the list X
    {json_object}              the function that builds a JSON object of names and values
    {json_list}                the aggregate that builds a JSON array
    {with_fields(X): 'a', b}   the JSON object X, or an empty one, with these fields where not null
    {digest kind X}            a digest of the audited columns of the row X (digest.py)
    {hash(X)}                  a digest of the text X
    {joined(X)}                the concatenated texts X of all rows (an aggregate)
    {group_digest(X)}          the digest in the event of a group whose rows have the digests X
                               (an aggregate)
    {stamp(X)}                 the instant X as text, independent of the session's time zone
    {lateral f: T (A, B)} … {end}   join the rows of T, as f, whose keys A and B this query selects
                               for each row before; use only these columns of f
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
_SAME = re.compile(r"\{same\(([\w.]+), ([\w.]+)\)\}")
_LAST_ATTEMPT = re.compile(r"\{last_attempt (\w+): ([\w.]+), ([^{}]+)\}")
_NEXT_EVENT = re.compile(r"\{next_event\(([\w.]+)\)\}")
_LATER = re.compile(r"\{later\(([^{}]*)\)\}")
_ONLY = re.compile(r"\{only (\w+)\}(.*?)\{end\}", re.DOTALL)
_MS_SINCE = re.compile(r"\{ms_since\(([^{}]*)\)\}")
_UNIT_FREE = re.compile(r"\{unit_free\(([^{}]*)\)\}")
_SKIP_HELD = re.compile(r"\{skip_held\((\w+)\)\}")
_LOCK_ROW = re.compile(r"\{lock_row\((\w+)\)\}")
_KEEP_ROW = re.compile(r"\{keep_row\((\w+)\)\}")
_OBJECT = re.compile(r"\{object\(([\w.]+)\)\}")
_FIELD = re.compile(r"\{field\(([\w.]+), ([\w.]+)\)\}")
_JSON_FIELD = re.compile(r"\{json_field\(([\w.]+), (\w+)\)\}")
_ELEMENTS = re.compile(r"\{elements\(([\w.]+)\) AS (\w+)\}")
_EACH = re.compile(r"\{each(_or_none)?\(([\w.]+)\) AS (\w+)\}")
_AT = re.compile(r"\{at\(([\w.]+), ([^{}]+)\)\}")
_GROUP_DIGEST = re.compile(r"\{group_digest\(([\w.]+)\)\}")
_LATERAL = re.compile(r"\{lateral (\w+): ([\w.]+) \(([\w, ]+)\)\}(.*?)\{end\}", re.DOTALL)
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
        text = _LATERAL.sub(self._lateral, text)
        text = _REFUSE.sub(self._refuse, text)
        text = _ROWS.sub(self._lone_row if lone else self._rows, text)
        text = _SAME.sub(self._same, text)
        text = _LAST_ATTEMPT.sub(self._last_attempt, text)
        text = _UNIT_FREE.sub(self._unit_free, text)
        text = _SKIP_HELD.sub(self._skip_held, text)
        text = _LOCK_ROW.sub("" if self.name == "sqlite" else r"FOR UPDATE OF \1", text)
        text = _KEEP_ROW.sub("" if self.name == "sqlite" else r"FOR KEY SHARE OF \1", text)
        text = _OBJECT.sub(self._object, text)
        text = _FIELD.sub(self._field, text)
        text = _JSON_FIELD.sub(self._json_field, text)
        text = _ELEMENTS.sub(self._elements, text)
        text = _EACH.sub(self._each, text)
        text = _AT.sub(self._at, text)
        text = _STAMP.sub(self._stamp, text)
        text = _WITH_FIELDS.sub(self._with_fields, text)
        text = _GROUP_DIGEST.sub(self._group_digest, text)
        text = _JOINED.sub(self._joined, text)
        text = _DIGEST.sub(lambda match: digest_of(self.name, match[1], match[2]), text)
        text = _HASH.sub(lambda match: hash_of(self.name, match[1]), text)
        text = _NEXT_EVENT.sub(self._next_event, text)
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
        declared: dict[str, tuple[str, ...]] = {}

        def as_values(match: re.Match[str]) -> str:
            name, spec = match.groups()
            if name != row_set:
                return match[0]
            # A statement may read the row set in several places, each with columns of its own.
            columns = tuple(column.split()[0] for column in spec.split(","))
            mark = f"{name}__{len(declared)}"
            declared[mark] = columns
            picked = ", ".join(f"column{place} AS {name}" for place, name in enumerate(columns, 1))
            values = f"SELECT {picked} FROM (VALUES :{mark})"  # noqa: S608
            # SQLite estimates a million rows without the limit, and reads the joined table whole.
            return f"({values} WHERE column1 IS NOT NULL LIMIT {rows}) AS {name}"

        text = self.render(_ROWS.sub(as_values, text))
        slots: list[tuple[str, tuple[str, ...]]] = []

        def as_mark(match: re.Match[str]) -> str:
            columns = declared.get(match[1], ())
            slots.append((row_set if columns else match[1], columns))
            row = f"({', '.join('?' * len(columns))})"
            return ", ".join([row] * rows) if columns else "?"

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

    def _next_event(self, match: re.Match[str]) -> str:
        # SQLite numbers the rows of the statement, also those that get no event.
        word = self.words["next_event"]
        return word.replace("OVER ()", f"OVER (PARTITION BY {match[1]})")

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

    def _same(self, match: re.Match[str]) -> str:
        column, value = match.groups()
        if self.name == "sqlite":
            return f"{column} = {value}"
        # With "=", PostgreSQL may read a whole place in the order of its key and compare each row
        # with all values, if it was empty when it was analyzed: 250 microseconds a job.
        return f"{column} = ANY (ARRAY[{value}])"

    def _last_attempt(self, match: re.Match[str]) -> str:
        name, org_id, job_id = match.groups()
        if self.name == "sqlite":
            of_job = f"newest.org_id = {org_id} AND newest.job_id = {job_id}"
            return (
                f"LEFT JOIN holdfast.job_attempt AS {name} ON {name}.org_id = {org_id}"  # noqa: S608
                f" AND {name}.job_id = {job_id} AND {name}.number = (SELECT max(newest.number)"
                f" FROM holdfast.job_attempt AS newest WHERE {of_job})"
            )
        # PostgreSQL would join it as SQLite does by reading every attempt, if the table was small
        # when it was analyzed.
        return (
            "LEFT JOIN LATERAL (SELECT newest.* FROM holdfast.job_attempt AS newest"  # noqa: S608
            f" WHERE newest.org_id = {org_id} AND newest.job_id = {job_id}"
            f" ORDER BY newest.number DESC LIMIT 1) AS {name} ON TRUE"
        )

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
        *objects, last = name.split(".")
        path = "".join(f" -> '{one}'" for one in objects)
        return f"({document}{path} ->> '{last}')"

    def _json_field(self, match: re.Match[str]) -> str:
        document, name = match.groups()
        if self.name == "sqlite":
            return self._field(match)
        return f"nullif({document} -> '{name}', CAST('null' AS jsonb))"

    def _elements(self, match: re.Match[str]) -> str:
        array, name = match.groups()
        if self.name == "sqlite":
            return f"json_each({array}) AS {name}"
        return f"LATERAL jsonb_array_elements({array}) AS {name} (value)"

    def _each(self, match: re.Match[str]) -> str:
        or_none, ids, name = match.groups()
        if or_none:
            none = "'[null]'" if self.name == "sqlite" else "CAST(ARRAY[NULL] AS uuid[])"
            ids = f"coalesce({ids}, {none})"
        if self.name == "sqlite":
            return f"json_each({ids}) AS {name}"
        listed = f"unnest({ids}) WITH ORDINALITY AS listed (value, number)"
        return f"LATERAL (SELECT value, number - 1 AS key FROM {listed}) AS {name}"  # noqa: S608

    def _at(self, match: re.Match[str]) -> str:
        ids, place = match.groups()
        if self.name == "sqlite":
            return f"json_extract({ids}, '$[' || ({place}) || ']')"
        return f"{ids}[({place}) + 1]"

    def _lateral(self, match: re.Match[str]) -> str:
        name, table, keys, query = match.groups()
        if self.name == "postgres":
            return f"CROSS JOIN LATERAL ({query}) AS {name}"
        # SQLite has no LATERAL. With columns that are not keys, it would run the query for each
        # row of the table.
        named = ", ".join(f"{name}.{key}" for key in keys.split(", "))
        return f"CROSS JOIN {table} AS {name} ON ({named}) IN ({query})"

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

    def _group_digest(self, match: re.Match[str]) -> str:
        digests = f"{{joined({match[1]})}}"
        # On SQLite each row has an event of its own, with the digest of the row.
        return digests if self.name == "sqlite" else f"{{hash({digests})}}"

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
