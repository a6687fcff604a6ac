"""Jobs per second of candidate schema shapes, in plain SQL, on SQLite and PostgreSQL.

    python bench/schema_shapes.py [--postgres DSN] [--jobs 30000] [--rounds 3]

Every shape writes the same audit rows and fences its settle by lease token. Shapes alternate within
a round, so that noise affects all alike; figures are medians. Compare ratios, not digits. The
PostgreSQL schema `shapes` is dropped and recreated for each measurement.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]

CLAIM_GROUP, ENQUEUE_GROUP = 500, 1000
WHO = "org_id uuid, project_id uuid"
ACTOR = "actor_type text, actor_id text, request_id text, correlation_id text"
ROUTE = "job_type text, category text, queue text, origin_queue text, priority int"
ROUTE += ", max_attempts int, unit_key text"
BODY = f"{ACTOR}, idempotency_key text, traceparent text, payload jsonb"
LIFE = """state text NOT NULL DEFAULT 'queued', stage text, attempt_count int NOT NULL DEFAULT 0,
 not_before_at timestamptz, created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
 updated_at timestamptz, claimed_at timestamptz, claimed_by text,
 lease_token bigint NOT NULL DEFAULT 0, lease_expires_at timestamptz, last_error text,
 last_error_at timestamptz, error_class text, result jsonb"""
EVENT = f"{WHO}, {ACTOR}, job_id uuid, job_type text, attempt int, detail text"
EVENT_TABLE = f"""CREATE TABLE job_event (event_id IDENTITY, {EVENT}, name text NOT NULL,
 at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX job_event_job ON job_event (job_id);"""
READY = "state = 'queued' AND not_before_at IS NULL"
JOB_INDEXES = f"""CREATE INDEX job_ready ON job (queue, priority, created_at, id) WHERE {READY};
CREATE INDEX job_lease ON job (lease_expires_at) WHERE state = 'processing';"""
LEDGER_TABLE = """CREATE TABLE idempotency_key (idempotency_key text PRIMARY KEY, job_id uuid,
 status text NOT NULL, first_seen_at timestamptz NOT NULL, last_seen_at timestamptz NOT NULL);"""
EDGES = "('queued','processing'), ('processing','queued'), ('processing','succeeded')"
EDGES += ", ('processing','dead_letter'), ('queued','cancelled'), ('dead_letter','queued')"


def names(columns: str) -> list[str]:
    return [column.split()[0] for column in columns.split(",")]


def insert(table: str, columns: str, key: str = "") -> str:
    """Insert a batch; with a conflict key, only new rows, whose ids are returned."""
    tail = f" WHERE true ON CONFLICT ({key}) DO NOTHING RETURNING id" if key else ""
    listed = ", ".join(names(columns))
    return f"INSERT INTO {table} ({listed}) SELECT {listed} FROM BATCH({columns}){tail}"


@dataclass(frozen=True)
class Shape:
    """Statements of one shape; BATCH(columns) stands for the JSON parameter as a row set."""

    name: str
    tables: str
    enqueue: list[str]
    take: str
    lease: str
    fetch: str
    settle: str
    finish: str = ""
    take_postgres: str = ""  # the whole claim as one statement, where SQLite needs several
    ledger: bool = False
    once: str = ""
    guard: str = "columns"
    edges: str = EDGES
    key_chars: int = 110


TAKE = f"""WITH picked AS MATERIALIZED (SELECT id FROM job WHERE queue = 'default' AND {READY}
 ORDER BY priority, created_at, id LIMIT {CLAIM_GROUP} SKIP_LOCKED)
UPDATE job SET state = 'processing', attempt_count = attempt_count + 1, claimed_by = 'w1',
 lease_token = lease_token + 1, claimed_at = CURRENT_TIMESTAMP, updated_at = CURRENT_TIMESTAMP,
 lease_expires_at = SOON WHERE job.id ONE_OF(picked) RETURNING """
SETTLE = """WITH b AS MATERIALIZED (SELECT * FROM
 BATCH(id uuid, lease_token bigint, state text, result jsonb))
UPDATE job SET state = 'succeeded', result = b.result, claimed_by = NULL,
 lease_expires_at = NULL, updated_at = CURRENT_TIMESTAMP
FROM b WHERE job.id ONE_OF(b) AND job.id = b.id AND job.lease_token = b.lease_token
 AND job.state = b.state RETURNING job.id"""
WIDE = f"id uuid, {WHO}, {ROUTE}, {BODY}"
ONE_ROW = Shape(
    name="one_row",
    tables=f"""CREATE TABLE job (id uuid PRIMARY KEY, {WHO}, {ROUTE}, {BODY}, {LIFE},
 UNIQUE (idempotency_key)); {JOB_INDEXES}""",
    enqueue=[insert("job", WIDE, "idempotency_key")],
    take=TAKE + ", ".join("job." + c for c in names(WIDE) + names(LIFE)),
    lease="",
    fetch="",
    settle=SETTLE,
    once=f"id, created_at, {', '.join(names(f'{WHO}, {BODY}'))}, job_type, category",
)
SPLIT = Shape(
    name="split_body",
    tables=f"""CREATE TABLE job (id uuid PRIMARY KEY, {WHO}, {ROUTE}, {LIFE}); {JOB_INDEXES}
CREATE TABLE job_body (id uuid PRIMARY KEY, {BODY}, UNIQUE (idempotency_key));""",
    enqueue=[
        insert("job_body", f"id uuid, {BODY}", "idempotency_key"),
        insert("job", f"id uuid, {WHO}, {ROUTE}"),
    ],
    take=TAKE + "job.id",
    take_postgres=TAKE.replace("SOON WHERE", "SOON FROM job_body y WHERE y.id = job.id AND")
    + "job.*, y.*",
    lease="",
    fetch="""SELECT j.*, y.* FROM BATCH(id uuid) JOIN job j ON j.id = b.id
JOIN job_body y ON y.id = b.id""",
    settle=SETTLE,
    once=f"id, created_at, {', '.join(names(WHO))}, job_type, category",
)
LEASE = "id uuid, attempt_count int, lease_token bigint"
NARROW_TAKE = f"""WITH picked AS MATERIALIZED (SELECT id FROM job_ready
 WHERE queue = 'default' AND not_before_at IS NULL
 ORDER BY priority, created_at, id LIMIT {CLAIM_GROUP} SKIP_LOCKED)"""
NARROW_GONE = """DELETE FROM job_ready WHERE id ONE_OF(picked)
RETURNING id, attempt_count + 1 AS attempt_count, lease_token + 1 AS lease_token"""
NARROW = Shape(
    name="narrow_lease",
    tables=f"""CREATE TABLE job (id uuid PRIMARY KEY, {WHO}, {ROUTE}, {BODY},
 state text NOT NULL DEFAULT 'open', stage text, attempt_count int NOT NULL DEFAULT 0,
 created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at timestamptz,
 last_error text, last_error_at timestamptz, error_class text, result jsonb,
 UNIQUE (idempotency_key));
CREATE TABLE job_ready (id uuid PRIMARY KEY, queue text, priority int, not_before_at timestamptz,
 attempt_count int NOT NULL DEFAULT 0, lease_token bigint NOT NULL DEFAULT 0,
 created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX job_ready_next ON job_ready (queue, priority, created_at, id)
 WHERE not_before_at IS NULL;
CREATE TABLE job_lease (id uuid PRIMARY KEY, attempt_count int, lease_token bigint,
 claimed_by text, claimed_at timestamptz, lease_expires_at timestamptz);
CREATE INDEX job_lease_end ON job_lease (lease_expires_at);
CREATE VIEW job_record AS SELECT j.*, r.not_before_at, l.claimed_by, l.claimed_at,
 l.lease_token, l.lease_expires_at, CASE WHEN j.state <> 'open' THEN j.state
 WHEN l.id IS NULL THEN 'queued' ELSE 'processing' END AS full_state
FROM job j LEFT JOIN job_ready r ON r.id = j.id LEFT JOIN job_lease l ON l.id = j.id;""",
    enqueue=[
        insert("job", WIDE, "idempotency_key"),
        insert("job_ready", "id uuid, queue text, priority int"),
    ],
    take=NARROW_TAKE + NARROW_GONE,
    take_postgres=f"""{NARROW_TAKE}, gone AS ({NARROW_GONE}), leased AS (INSERT INTO job_lease
 SELECT id, attempt_count, lease_token, 'w1', CURRENT_TIMESTAMP, SOON FROM gone)
SELECT j.*, gone.attempt_count, gone.lease_token FROM gone JOIN job j ON j.id = gone.id""",
    lease=f"""INSERT INTO job_lease SELECT id, attempt_count, lease_token, 'w1',
 CURRENT_TIMESTAMP, SOON FROM BATCH({LEASE})""",
    fetch=f"""SELECT j.*, b.attempt_count AS attempt_count, b.lease_token AS lease_token
FROM BATCH({LEASE}) JOIN job j ON j.id = b.id""",
    settle="""WITH b AS MATERIALIZED (SELECT * FROM BATCH(id uuid, lease_token bigint))
DELETE FROM job_lease WHERE id ONE_OF(b) AND (id, lease_token) IN
 (SELECT b.id, b.lease_token FROM b) RETURNING id""",
    finish="""UPDATE job SET state = 'succeeded', result = b.result, updated_at = CURRENT_TIMESTAMP,
 attempt_count = b.attempt FROM BATCH(id uuid, attempt int, result jsonb) WHERE job.id = b.id""",
    once=ONE_ROW.once,
    edges="('open','succeeded'), ('open','dead_letter'), ('open','cancelled')",
)
LEDGER_SET = """UPDATE idempotency_key SET status = '{}', last_seen_at = CURRENT_TIMESTAMP
FROM BATCH(idempotency_key text) WHERE idempotency_key.idempotency_key = b.idempotency_key"""
LEDGER_ADD = """INSERT INTO idempotency_key SELECT idempotency_key, id, 'pending',
 CURRENT_TIMESTAMP, CURRENT_TIMESTAMP FROM BATCH(idempotency_key text, id uuid)"""
LEDGER = replace(ONE_ROW, name="one_row+ledger", ledger=True, tables=ONE_ROW.tables + LEDGER_TABLE)
UNGUARDED = replace(ONE_ROW, name="one_row, no trigger", guard="")
FUNCTION_GUARD = replace(ONE_ROW, name="one_row, function trigger", guard="function")
SHORT_KEY = replace(ONE_ROW, name="one_row, 32-char key", key_chars=32)


def guard_sql(shape: Shape, postgres: bool) -> str:
    """Return triggers that reject illegal transitions and changes of write-once fields.

    `function`: one trigger on every update that checks everything. `columns`: two triggers, each of
    which fires only when a statement names a column it guards.
    """
    edge = f"(NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (VALUES {shape.edges}))"
    differ = "IS DISTINCT FROM" if postgres else "IS NOT"
    changed = " OR ".join(f"NEW.{c} {differ} OLD.{c}" for c in shape.once.split(", "))
    if postgres:
        edge = edge.replace("VALUES ", "")
        body = "BEGIN RAISE EXCEPTION 'refused'; END"
        if shape.guard == "function":
            body = f"BEGIN IF {edge} OR {changed} THEN RAISE EXCEPTION 'refused'; END IF;"
            body += " RETURN NEW; END"
        function = f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $${body}$$;"
        action = "EXECUTE FUNCTION refuse();"
    else:
        function, action = "", "BEGIN SELECT RAISE(ABORT, 'refused'); END;"
    head = "CREATE TRIGGER {} BEFORE UPDATE {} ON job FOR EACH ROW {} "
    if shape.guard == "columns":
        first = head.format("edge", "OF state", f"WHEN ({edge})") + action
        second = head.format("once", f"OF {shape.once}", f"WHEN ({changed})") + action
        return function + first + second
    when = "" if postgres else f"WHEN ({edge} OR {changed})"
    return function + head.format("guard", "", when) + action


class Database:
    """One connection, with the differences between the two databases."""

    def __init__(self, connection: Any, postgres: bool) -> None:
        self.connection, self.postgres = connection, postgres
        self.texts: dict[str, str] = {}

    def render(self, sql: str) -> str:
        if sql not in self.texts:
            self.texts[sql] = self._render(sql)
        return self.texts[sql]

    def _render(self, sql: str) -> str:
        if self.postgres:
            sql = re.sub(r"BATCH\(([^)]*)\)", r"json_to_recordset(%(batch)s::json) AS b(\1)", sql)
            sql = re.sub(r"ONE_OF\((\w+)\)", r"= ANY (ARRAY(SELECT id FROM \1))", sql)
            sql = sql.replace("SKIP_LOCKED", "FOR UPDATE SKIP LOCKED")
            sql = sql.replace("IDENTITY", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
            return sql.replace("SOON", "CURRENT_TIMESTAMP + interval '60 s'")

        def each(match: re.Match[str]) -> str:
            columns = ", ".join(f"value->>'{c}' AS {c}" for c in names(match[1]))
            return f"(SELECT {columns} FROM json_each(:batch)) AS b"

        sql = re.sub(r"BATCH\(([^)]*)\)", each, sql).replace("SKIP_LOCKED", "")
        sql = re.sub(r"ONE_OF\((\w+)\)", r"IN (SELECT id FROM \1)", sql)
        sql = sql.replace("IDENTITY", "integer PRIMARY KEY")
        sql = sql.replace("SOON", "datetime('now', '+60 seconds')")
        return re.sub(r"\b(uuid|timestamptz|jsonb)\b", "text", sql)

    def run(self, sql: str, batch: str = "[]") -> list[Row]:
        text = self.render(sql)
        cursor = self.connection.execute(text, {"batch": batch} if "batch" in text else {})
        rows: list[Row] = cursor.fetchall() if cursor.description else []
        return rows

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN" if self.postgres else "BEGIN IMMEDIATE")
        yield
        self.connection.execute("COMMIT")

    def create(self, shape: Shape) -> None:
        guard = guard_sql(shape, self.postgres) if shape.guard else ""
        script = self.render(shape.tables + EVENT_TABLE) + guard
        if self.postgres:
            self.connection.execute("DROP SCHEMA IF EXISTS shapes CASCADE; CREATE SCHEMA shapes")
            self.connection.execute("DEALLOCATE ALL; SET search_path = shapes")
            self.connection.execute(script)
            self.connection.execute("CHECKPOINT")
        else:
            self.connection.executescript(script)

    def analyze(self) -> None:
        self.connection.execute("VACUUM ANALYZE" if self.postgres else "ANALYZE")

    def wal(self) -> int:
        if not self.postgres:
            return 0
        row = self.connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0' AS n").fetchone()
        return int(row["n"])

    def size(self) -> int:
        if self.postgres:
            sql = """SELECT sum(pg_total_relation_size(oid)) AS n FROM pg_class
             WHERE relkind = 'r' AND relnamespace = 'shapes'::regnamespace"""
        else:
            sql = "SELECT page_count * page_size AS n FROM pragma_page_count, pragma_page_size"
        return int(self.connection.execute(sql).fetchone()["n"])


@contextmanager
def opened(dsn: str | None) -> Iterator[Database]:
    if dsn:
        import psycopg
        from psycopg.rows import dict_row
        from psycopg.types.string import TextLoader

        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as server:
            server.adapters.register_loader("uuid", TextLoader)
            yield Database(server, True)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = sqlite3.connect(Path(folder) / "shapes.db", isolation_level=None)
        file.row_factory = lambda cursor, row: dict(
            zip((d[0] for d in cursor.description), row, strict=True)
        )
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute("PRAGMA cache_size = -16000")
        yield Database(file, False)
        file.close()


def make_jobs(count: int, payload_bytes: int, key_chars: int) -> list[Row]:
    rng = random.Random(7)
    org, project = (str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(2))
    jobs: list[Row] = []
    for n in range(count):
        job_id = str(uuid.UUID(int=(1_760_000_000_000 + n // 10 << 80) + rng.getrandbits(74)))
        text = f"{rng.getrandbits(4 * (payload_bytes - 20)):x}"
        jobs.append(
            {
                "id": job_id, "job_id": job_id, "org_id": org, "project_id": project,
                "job_type": "report.export", "category": "export", "queue": "default",
                "origin_queue": "default", "priority": 100, "max_attempts": 5,
                "unit_key": f"{project}:{n}", "actor_type": "user", "actor_id": f"user-{n % 97}",
                "request_id": f"req-{job_id}", "correlation_id": f"cor-{job_id}", "attempt": 0,
                "idempotency_key": f"{rng.getrandbits(4 * key_chars):0{key_chars}x}",
                "traceparent": f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01",
                "payload": {"i": n, "text": text},
            }
        )  # fmt: skip
    return jobs


def record(db: Database, name: str, batch: str) -> None:
    listed = ", ".join(names(EVENT))
    db.run(
        f"INSERT INTO job_event ({listed}, name) SELECT {listed}, '{name}' FROM BATCH({EVENT})",
        batch,
    )


def enqueue(db: Database, shape: Shape, jobs: list[Row]) -> None:
    batch = json.dumps(jobs)
    with db.transaction():
        new = db.run(shape.enqueue[0], batch)
        if len(new) != len(jobs):
            raise RuntimeError("a duplicate key in the bench's own data")
        for sql in shape.enqueue[1:]:
            db.run(sql, batch)
        if shape.ledger:
            db.run(LEDGER_ADD, batch)
        record(db, "enqueued", batch)


CARRIED = [*names(f"id uuid, {WHO}, {ACTOR}"), "job_type", "idempotency_key", "lease_token"]


def claim(db: Database, shape: Shape) -> list[Row]:
    with db.transaction():
        whole = db.postgres and shape.take_postgres
        rows = db.run(whole or shape.take)
        if not rows:
            return []
        if shape.fetch and not whole:
            batch = json.dumps(rows)
            if shape.lease:
                db.run(shape.lease, batch)
            rows = db.run(shape.fetch, batch)
        for row in rows:
            row["payload"] = row["payload"] if db.postgres else json.loads(row["payload"])
        claimed = [
            {key: row[key] for key in CARRIED}
            | {"job_id": row["id"], "attempt": row["attempt_count"], "state": "processing"}
            for row in rows
        ]
        batch = json.dumps(claimed)
        record(db, "started", batch)
        if shape.ledger:
            db.run(LEDGER_SET.format("running"), batch)
    return claimed


def settle(db: Database, shape: Shape, claimed: list[Row]) -> None:
    batch = json.dumps([job | {"result": {"rows": 12}} for job in claimed])
    with db.transaction():
        if len(db.run(shape.settle, batch)) != len(claimed):
            raise RuntimeError("a lease was lost in a bench with one worker")
        if shape.finish:
            db.run(shape.finish, batch)
        record(db, "succeeded", batch)
        if shape.ledger:
            db.run(LEDGER_SET.format("succeeded"), batch)


def drain(db: Database, shape: Shape, limit: int | None = None) -> tuple[int, float]:
    done, start = 0, time.perf_counter()
    while (limit is None or done < limit) and (claimed := claim(db, shape)):
        settle(db, shape, claimed)
        done += len(claimed)
    return done, time.perf_counter() - start


def fill(db: Database, shape: Shape, jobs: list[Row]) -> float:
    start = time.perf_counter()
    for n in range(0, len(jobs), ENQUEUE_GROUP):
        enqueue(db, shape, jobs[n : n + ENQUEUE_GROUP])
    return time.perf_counter() - start


def measure(dsn: str | None, shape: Shape, count: int, payload: int, analyze: bool) -> Row:
    jobs = make_jobs(count, payload, shape.key_chars)
    with opened(dsn) as db:
        db.create(shape)
        wal = db.wal()
        filled = fill(db, shape, jobs)
        wal_in = db.wal() - wal
        if analyze:
            db.analyze()
        wal = db.wal()
        done, drained = drain(db, shape)
        if done != count:
            raise RuntimeError(f"{shape.name}: {done} of {count} jobs drained")
        return {
            "drain/s": count / drained, "enqueue/s": count / filled,
            "WAL in B": wal_in / count, "WAL drain B": (db.wal() - wal) / count,
            "size B": db.size() / count,
        }  # fmt: skip


def measure_deep(dsn: str | None, shape: Shape, count: int, part: int) -> Row:
    """Drain a long queue; the last part must skip the dead rows of the earlier parts."""
    with opened(dsn) as db:
        db.create(shape)
        fill(db, shape, make_jobs(count, 200, shape.key_chars))
        db.analyze()
        first = drain(db, shape, part)
        drain(db, shape, count - 2 * part)
        last = drain(db, shape)
        return {"first/s": first[0] / first[1], "last/s": last[0] / last[1]}


def measure_inputs(dsn: str, count: int) -> Row:
    """Enqueue one_row by a JSON record set, by arrays, and by COPY."""
    shape, jobs, answer = ONE_ROW, make_jobs(count, 200, 110), {}
    for mode in ("json", "unnest", "copy"):
        with opened(dsn) as db:
            db.create(shape)
            start = time.perf_counter()
            for n in range(0, count, ENQUEUE_GROUP):
                group = jobs[n : n + ENQUEUE_GROUP]
                if mode == "json":
                    enqueue(db, shape, group)
                    continue
                with db.transaction():
                    put(db, "job", WIDE, group, mode, "ON CONFLICT (idempotency_key) DO NOTHING")
                    put(db, "job_event", f"{EVENT}, name text", group, mode, "")
            answer[f"{mode} enqueue/s"] = count / (time.perf_counter() - start)
    return answer


def put(db: Database, table: str, columns: str, jobs: list[Row], mode: str, tail: str) -> None:
    listed = ", ".join(names(columns))
    rows = [
        [json.dumps(v) if isinstance(v, dict) else v for v in map(job.get, names(columns))]
        for job in (job | {"name": "enqueued"} for job in jobs)
    ]
    if mode == "copy":
        with db.connection.cursor().copy(f"COPY {table} ({listed}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return
    arrays = ", ".join(f"%s::{column.split()[1]}[]" for column in columns.split(","))
    sql = f"INSERT INTO {table} ({listed}) SELECT * FROM unnest({arrays}) {tail}"
    db.connection.execute(sql, [list(values) for values in zip(*rows, strict=True)])


def table(title: str, results: dict[str, list[Row]]) -> None:
    """Print medians; in brackets the median ratio to the first line, round by round."""
    print(f"\n{title}")
    base = next(iter(results.values()))
    for name, rounds in results.items():
        cells = []
        for key in (key for key in rounds[0] if base[0][key]):
            ratio = median(r[key] / b[key] for r, b in zip(rounds, base, strict=True))
            cells.append(f"{key} {median(r[key] for r in rounds):,.0f} ({ratio:.2f})")
        print(f"  {name:<26}" + "  ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", metavar="DSN", help="also measure on this server")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--deep", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=200, help="bytes, in the first table")
    parser.add_argument("--brief", action="store_true", help="only the first table of each half")
    args = parser.parse_args()
    shapes = [ONE_ROW, LEDGER, SPLIT, NARROW]
    variants = [UNGUARDED, FUNCTION_GUARD, SHORT_KEY]

    def rounds(chosen: list[Shape], dsn: str | None, *how: Any) -> dict[str, list[Row]]:
        results: dict[str, list[Row]] = {shape.name: [] for shape in chosen}
        for turn in range(args.rounds):
            for shape in chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)]:
                results[shape.name].append(measure(dsn, shape, *how))
        return results

    for label, dsn in (("PostgreSQL", args.postgres), ("SQLite", None)):
        if label == "PostgreSQL" and not dsn:
            continue
        measure(dsn, ONE_ROW, args.jobs // 5, 200, True)  # warm-up
        every = rounds(shapes + variants, dsn, args.jobs, args.payload, True)
        table(f"{label}, {args.jobs:,} jobs, {args.payload} B", every)
        if args.brief:
            continue
        for payload in (1500, 4096):
            sized = rounds([*shapes, FUNCTION_GUARD], dsn, args.jobs // 5, payload, True)
            table(f"{label}, {args.jobs // 5:,} jobs, {payload} B", sized)
        fresh = rounds([ONE_ROW, SPLIT, NARROW], dsn, args.jobs // 5, 200, False)
        table(f"{label}, {args.jobs // 5:,} jobs, 200 B, never analysed", fresh)
        part = args.deep // 10
        deep = {s.name: [measure_deep(dsn, s, args.deep, part)] for s in (ONE_ROW, SPLIT, NARROW)}
        table(f"{label}, {args.deep:,} queued, first and last {part:,}", deep)
        if dsn:
            inputs = [measure_inputs(dsn, args.jobs) for _ in range(args.rounds)]
            table("PostgreSQL, ways to enqueue one_row", {"one_row": inputs})


if __name__ == "__main__":
    main()
