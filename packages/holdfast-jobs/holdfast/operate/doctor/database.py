"""Checks of the database: durability, connections, clock, old transactions and bloat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.clock import read_instant
from holdfast.engine.lease import read_clock
from holdfast.engine.request import DRIFT
from holdfast.errors import RuleBroken, StoreBusy, StoreDown, StoreError
from holdfast.extension import components_of
from holdfast.operate.doctor.finding import SQL, CheckContext, Finding, Severity, length
from holdfast.operate.plural import counted
from holdfast.store import CORE, Row
from holdfast.store.migrate import Migration, after, latest
from holdfast.store.transaction import IDLE_SECONDS

OK, NOTICE, WARNING, PROBLEM = Severity

PINS = 20


def check_schema(context: CheckContext) -> Iterator[Finding]:
    """Check that the tables match this code."""
    check = "schema"
    try:
        rows = context.many(SQL.list_migrations)
    except (RuleBroken, StoreBusy, StoreDown):
        raise
    except StoreError:
        yield Finding(check, PROBLEM, "There is no Holdfast schema.", "Run 'holdfast migrate'.")
        return
    extensions = {found.name: found for found in components_of(context.extensions)}
    enabled = [extensions[name] for name in _components(rows) if name in extensions]
    steps = after({}, context.store.dialect, enabled)
    known = {(one.component, one.version): one for one in steps}
    applied = {(row["component"], row["version"]): row["name"] for row in rows}
    missing = [str(found) for key, found in known.items() if key not in applied]
    strange = [
        str(Migration(version, name, "", component))
        for (component, version), name in applied.items()
        if (component == CORE.name or component in extensions)
        and ((component, version) not in known or known[component, version].name != name)
    ]
    if strange:
        yield Finding(
            check,
            PROBLEM,
            f"The schema has migrations that this code does not know: {', '.join(strange)}.",
            "Upgrade the holdfast package here; another installation migrated this database.",
        )
    if missing:
        yield Finding(
            check, PROBLEM, f"Not migrated yet: {', '.join(missing)}.", "Run 'holdfast migrate'."
        )
    if not strange and not missing:
        newest = max(version for component, version in applied if component == CORE.name)
        others = ", ".join(f"{one.name} {latest(context.store.dialect, one)}" for one in enabled)
        also = f" Extensions: {others}." if others else ""
        yield Finding(check, OK, f"Schema version {newest} is current.{also}")
    for name in _components(rows):
        if name not in extensions:
            yield Finding(
                "extensions",
                NOTICE,
                f"The database has tables of the extension {name!r}, which is not installed here.",
                "Install it here, or leave its jobs to the machines that have it.",
            )


def _components(rows: Sequence[Row]) -> list[str]:
    """Return the extensions that are in the database."""
    return sorted({row["component"] for row in rows} - {CORE.name})


def check_settings(context: CheckContext) -> Iterator[Finding]:
    """Check durability and vacuum settings."""
    found = {row["name"]: str(row["setting"]) for row in context.many(SQL.read_settings)}
    yield from _durability(found)
    yield from _timeouts(found, context)
    for name in ("autovacuum", "track_counts"):
        if found.get(name) == "off":
            yield Finding(
                "autovacuum",
                PROBLEM,
                f"{name} is off: dead rows accumulate, and claims slow down.",
                f"Set {name} = on in postgresql.conf and reload.",
            )
    unvacuumed = [row["name"] for row in context.many(SQL.list_unvacuumed)]
    if unvacuumed:
        yield Finding(
            "autovacuum",
            PROBLEM,
            f"Autovacuum is disabled for {', '.join(unvacuumed)}.",
            f"ALTER TABLE holdfast.{unvacuumed[0]} RESET (autovacuum_enabled);",
        )
    elif found.get("autovacuum") == found.get("track_counts") == "on":
        yield Finding("autovacuum", OK, "Autovacuum is on.")


# setting → required value, consequence otherwise, and remedy.
_MUST = {
    "fsync": ("on", "a machine crash can destroy the database", "fsync = on"),
    "full_page_writes": (
        "on",
        "a machine crash can corrupt pages beyond repair",
        "full_page_writes = on",
    ),
    "journal_mode": (
        "wal",
        "readers and the writer block each other, and a crash can lose commits",
        "PRAGMA journal_mode = WAL",
    ),
    "synchronous": ("2", "a power failure loses commits", "PRAGMA synchronous = FULL"),
}


def _durability(found: dict[str, str]) -> Iterator[Finding]:
    check, bad = "durability", False
    for name, (wanted, follows, remedy) in _MUST.items():
        if found.get(name, wanted) == wanted:
            continue
        bad = True
        if found[name] == "memory":
            yield Finding(
                check,
                NOTICE,
                "The database is in memory and is lost when the process exits.",
                "Use a file to keep the data: sqlite:///work.db.",
            )
            continue
        yield Finding(check, PROBLEM, f"{name} is {found[name]}: {follows}.", f"Set {remedy}.")
    commit, standby = found.get("synchronous_commit"), found.get("synchronous_standby_names")
    if commit == "off":
        bad = True
        yield Finding(
            check,
            PROBLEM,
            "synchronous_commit is off: a crash of the server loses acknowledged commits.",
            "ALTER DATABASE … SET synchronous_commit = on; then reconnect.",
        )
    if standby and commit in ("local", "off"):
        bad = True
        yield Finding(
            check,
            WARNING,
            f"Standbys are configured ({standby}), but synchronous_commit = {commit} waits for"
            " none.",
            "ALTER DATABASE … SET synchronous_commit = on; then reconnect.",
        )
    if not bad:
        yield Finding(check, OK, "Commits are durable.")
    if standby == "":
        yield Finding(
            "standby",
            NOTICE,
            "synchronous_standby_names is empty: commits are confirmed by this server alone. If it"
            " is lost and a replica takes over, the newest commits may be missing.",
            "List a standby in synchronous_standby_names if a failover must lose nothing.",
        )
    elif standby:
        yield Finding("standby", OK, f"Commits wait for {standby} (synchronous_commit = {commit}).")


def _timeouts(found: dict[str, str], context: CheckContext) -> Iterator[Finding]:
    check = "timeouts"
    idle = found.get("idle_in_transaction_session_timeout")
    statement = int(found.get("statement_timeout", 0))
    if idle == "0":
        yield Finding(
            check,
            WARNING,
            "idle_in_transaction_session_timeout is 0: an abandoned transaction blocks vacuum"
            " indefinitely. Holdfast limits its own to 60 s.",
            "ALTER DATABASE … SET idle_in_transaction_session_timeout = '5min';",
        )
    if 0 < statement < context.limits.statement_ms:
        yield Finding(
            check,
            WARNING,
            f"statement_timeout is {statement} ms: pruning or verify may be canceled.",
            "Raise it for Holdfast's role: ALTER ROLE … SET statement_timeout = '60s';",
        )
    if idle is not None and statement == 0:
        yield Finding(
            check,
            NOTICE,
            "statement_timeout is 0: a hanging statement is never canceled.",
            "ALTER ROLE … SET statement_timeout = '60s'; for the role of Holdfast.",
        )
    busy = found.get("busy_timeout")
    if busy is not None and int(busy) < 5_000:
        yield Finding(
            check,
            WARNING,
            f"busy_timeout is {busy} ms: a short write of another process causes an error.",
            "PRAGMA busy_timeout = 5000 on every connection.",
        )
    yield from _version(found.get("sqlite_version"))


def _version(version: str | None) -> Iterator[Finding]:
    if version is None:
        return
    numbers = [int(part) for part in version.split(".")]
    # Two older release lines have the fix too.
    repaired = {50: [3, 50, 7], 44: [3, 44, 6]}
    if numbers >= repaired.get(numbers[1], [3, 51, 3]):
        yield Finding("version", OK, f"SQLite {version}.")
        return
    yield Finding(
        "version",
        NOTICE,
        f"SQLite {version} can lose a commit when an automatic checkpoint overlaps another"
        " connection's reset of the log. Holdfast's own connections checkpoint under a lock and"
        " are not affected.",
        "Set PRAGMA wal_autocheckpoint = 0 on your own connections, or upgrade to SQLite 3.51.3.",
    )


def check_connections(context: CheckContext) -> Iterator[Finding]:
    """Check the remaining capacity for connections and notifications."""
    for row in context.many(SQL.count_connections):
        used, most = row["used"], row["most"]
        seen = f"{used} of {most} connections of {row['whose']} are in use."
        if used < context.limits.connections * most:
            yield Finding("connections", OK, seen)
            continue
        yield Finding(
            "connections",
            PROBLEM if used >= most else WARNING,
            seen,
            "Raise the limit, set pool_size lower, or put a pooler in between.",
            {"used": used, "most": most},
        )
    for row in context.many(SQL.read_notifications):
        used = float(row["used"])
        seen = f"The notification queue is {used:.0%} full."
        if used < context.limits.notifications:
            yield Finding("notifications", OK, seen)
            continue
        yield Finding(
            "notifications",
            PROBLEM if used >= context.limits.notifications_problem else WARNING,
            f"{seen} When it is full, commits fail.",
            "Terminate the oldest LISTEN session that is idle in a transaction.",
            {"used": used},
        )


def check_clock(context: CheckContext) -> Iterator[Finding]:
    """Check the clock offset between this machine and the store."""
    clock = context.store.clock
    began = clock.now()
    now = read_clock(context.store)
    off = abs((now - (began + (clock.now() - began) / 2)).total_seconds())
    seen = f"This machine's clock is {off:.1f} s off the database's."
    if off <= context.limits.clock.total_seconds():
        yield Finding("clock", OK, seen)
        return
    is_refused = off > DRIFT.total_seconds()
    yield Finding(
        "clock",
        PROBLEM if is_refused else WARNING,
        seen + (" Workers on this machine claim no jobs." if is_refused else ""),
        "Synchronize both clocks (NTP).",
        {"seconds": off},
    )


def check_transactions(context: CheckContext) -> Iterator[Finding]:
    """Check for transactions that prevent the removal of dead rows."""
    check, quiet = "transactions", True
    longest = length(context.limits.transaction.total_seconds())
    pins = context.many(SQL.list_pins, limit=PINS)
    for row in pins:
        severity = _pin(row, context)
        if severity is OK:
            continue
        quiet = False
        age = "" if row["seconds"] is None else f" for {length(row['seconds'])}"
        yield Finding(
            check,
            severity,
            f"{row['what']} holds a snapshot{age}, {row['transactions'] or 0} transactions old, so"
            " dead rows cannot be removed and claims slow down.",
            _UNPIN[row["kind"]],
            dict(row),
        )
    hidden = [row for row in pins if row["kind"] == "session" and row["seconds"] is None]
    if hidden:
        quiet = False
        yield Finding(
            check,
            NOTICE,
            f"{counted(len(hidden), 'session holds', 'sessions hold')} a snapshot, and this role"
            " cannot see since when.",
            "Grant pg_read_all_stats to this role, or run doctor as an administrator.",
        )
    for row in context.many(SQL.list_idle, seconds=context.limits.idle.total_seconds(), limit=PINS):
        quiet = False
        yield Finding(
            check,
            WARNING,
            f"pid {row['pid']} is a Holdfast session from {row['client']} that has run no"
            f" statement in its transaction for {length(row['seconds'])};"
            f" {counted(row['waiting'], 'session waits', 'sessions wait')} for its locks. Its"
            " process is frozen, or its handler is slow. The server ends the session after"
            f" {IDLE_SECONDS} s.",
            "Resume or kill that process, or end its transaction now: SELECT"
            f" pg_terminate_backend({row['pid']});",
            dict(row),
        )
    if quiet:
        yield Finding(check, OK, f"No transaction has been open for more than {longest}.")


_UNPIN = {
    "session": (
        "Terminate it: SELECT pg_terminate_backend(PID); then find out which program left it open."
    ),
    "prepared": "COMMIT PREPARED or ROLLBACK PREPARED it.",
    "slot": "If it is no longer used: pg_drop_replication_slot(NAME).",
}


def _pin(row: Row, context: CheckContext) -> Severity:
    limits = context.limits
    if row["kind"] == "slot":
        return OK if (row["transactions"] or 0) < limits.slot_transactions else WARNING
    seconds = row["seconds"]
    if seconds is None or seconds < limits.transaction.total_seconds():
        return OK
    return PROBLEM if seconds >= limits.transaction_problem.total_seconds() else WARNING


def check_bloat(context: CheckContext) -> Iterator[Finding]:
    """Check for accumulated dead rows and transaction id wraparound."""
    limits = context.limits
    bloated = context.many(SQL.list_bloat, dead=limits.dead_rows, share=limits.dead_share)
    for row in bloated:
        at = row["vacuumed_at"]
        last = "never vacuumed" if at is None else f"last vacuumed at {read_instant(at):%F %T} UTC"
        yield Finding(
            "bloat",
            WARNING,
            f"{row['name']} has {row['dead']} dead and {row['live']} live rows, {last}.",
            f"Terminate the oldest transaction, then VACUUM holdfast.{row['name']};",
            {"table": row["name"], "dead": row["dead"], "live": row["live"]},
        )
    for row in context.many(SQL.read_wraparound):
        age = row["transactions"]
        if not bloated:
            yield Finding("bloat", OK, "Dead rows are within limits.")
        if age < limits.frozen:
            yield Finding("wraparound", OK, f"The oldest row is {age:,} transactions old.")
            continue
        yield Finding(
            "wraparound",
            PROBLEM if age >= limits.frozen_problem else WARNING,
            f"The oldest row is {age:,} transactions old; at two billion the server stops.",
            "Terminate the oldest transaction, then VACUUM (FREEZE) the oldest tables.",
            {"transactions": age},
        )
