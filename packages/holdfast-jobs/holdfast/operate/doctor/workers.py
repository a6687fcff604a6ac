"""Checks of workers, queues, leases, dead letters and schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from holdfast.clock import ms, read_instant
from holdfast.config.extensions import built_in_run
from holdfast.engine.worker.heartbeat import WorkerRow, list_workers, serving
from holdfast.operate.doctor.finding import SQL, CheckContext, Finding, Severity, length
from holdfast.operate.plural import counted

OK, NOTICE, WARNING, PROBLEM = Severity

START = "Start one: holdfast --app MODULE:NAME worker"


def check_workers(context: CheckContext) -> Iterator[Finding]:
    """Check for running workers, crashed workers and wrong clocks."""
    workers = context.store.read(list_workers)
    alive = [worker for worker in workers if not worker.is_gone]
    if alive:
        yield Finding("workers", OK, f"{counted(len(alive), 'running worker')}.")
    else:
        yield Finding("workers", NOTICE, "No running workers.", START)
    gone = [worker for worker in workers if worker.is_gone]
    if gone:
        yield Finding(
            "workers",
            WARNING,
            f"{counted(len(gone), 'worker')} stopped without signing off; the last was"
            f" {_named(gone[0])}, last heartbeat {gone[0].seen_at:%F %T} UTC.",
            "Find out why. Their jobs are rescued when the leases expire.",
            {"gone": [worker.worker_id for worker in gone]},
        )
    yield from _unrecorded(context, alive)
    for worker in alive:
        off = abs(worker.clock_off_ms or 0) / 1000
        if off > context.limits.clock.total_seconds():
            yield Finding(
                "clock",
                PROBLEM if worker.is_off else WARNING,
                f"The clock of worker {_named(worker)} is {off:.1f} s off the database's."
                + (" It claims no jobs." if worker.is_off else ""),
                "Synchronize that machine's clock (NTP).",
                {"worker_id": worker.worker_id, "seconds": off},
            )
    yield from _connections(context, alive)
    yield from _leases(context, alive)


def _unrecorded(context: CheckContext, alive: Sequence[WorkerRow]) -> Iterator[Finding]:
    """Check for running workers that do not record outcomes."""
    for worker in alive:
        waits = worker.unsettled_ms / 1000
        if not worker.unsettled or waits < context.limits.unrecorded.total_seconds():
            continue
        last = "It has recorded none yet."
        if worker.settled_at is not None:
            last = f"It recorded the last one at {worker.settled_at:%F %T} UTC."
        yield Finding(
            "workers",
            PROBLEM,
            f"Worker {_named(worker)} renews its leases but records no outcomes:"
            f" {worker.unsettled} pending, the oldest for {length(waits)}. {last}",
            "Restart that process; its jobs run again when the leases expire. Look for"
            " worker.thread_died and worker.settle_refused in its log.",
            {
                "worker_id": worker.worker_id,
                "unsettled": worker.unsettled,
                "unsettled_ms": worker.unsettled_ms,
            },
        )


# One to listen and one to notify.
BESIDE_POOL = 2


def _connections(context: CheckContext, alive: Sequence[WorkerRow]) -> Iterator[Finding]:
    """Check that the server accepts all connections that the workers may open."""
    pools = {(worker.host, worker.process_id): worker.pool_size for worker in alive}
    needed = sum(size + BESIDE_POOL for size in pools.values() if size)
    for row in context.many(SQL.count_connections):
        if needed > row["most"]:
            yield Finding(
                "connections",
                WARNING,
                f"The workers may open {needed} connections together, but {row['whose']} allows"
                f" {row['most']}.",
                "Raise that limit, set pool_size lower, or put a pooler in between.",
                {"needed": needed, "most": row["most"]},
            )


def _named(worker: WorkerRow) -> str:
    return f"{worker.worker_id} on {worker.host} (process {worker.process_id})"


def _leases(context: CheckContext, alive: Sequence[WorkerRow]) -> Iterator[Finding]:
    """Check for claims that last longer than their leases and depend on renewals."""
    longer = {
        worker.longest_type: (worker.longest_ms, worker.lease_ms)
        for worker in alive
        if worker.longest_type is not None and worker.longest_ms >= worker.lease_ms
    }
    lease_ms = min(
        (worker.lease_ms for worker in alive), default=ms(context.settings.lease_seconds)
    )
    times: dict[str, list[float]] = defaultdict(list)
    for row in context.many(SQL.list_run_times, events=context.limits.events):
        times[row["job_type"]].append(row["ran_ms"])
    for job_type, ran in times.items():
        # The 99th percentile; with fewer than a hundred values the maximum.
        usual = sorted(ran)[max(0, len(ran) - 1 - len(ran) // 100)]
        if usual >= lease_ms and job_type not in longer:
            longer[job_type] = round(usual), lease_ms
    for job_type, (ran_ms, short_ms) in sorted(longer.items()):
        yield Finding(
            "leases",
            WARNING,
            f"Jobs of type {job_type} were claimed for {length(ran_ms / 1000)} with a lease of"
            f" {length(short_ms / 1000)}. The lease is renewed; but a worker that stalls for"
            " longer than it loses the job, and it runs twice.",
            "Raise lease_seconds above the longest run, or give the handler a timeout below it.",
            {"job_type": job_type, "ran_ms": ran_ms, "lease_ms": short_ms},
        )
    if not longer:
        yield Finding("leases", OK, "No claim has outlasted its lease.")


def check_queues(context: CheckContext) -> Iterator[Finding]:
    """Check for queues with jobs and no worker, and for queues paused for long."""
    workers = context.store.read(list_workers)
    # A built-in run or a run of an extension names every queue, and claims no job of a worker.
    by_run = {
        queue
        for name, run in context.settings.runs.items()
        if built_in_run(name) is None
        for queue in run.queues
    }
    rows = context.many(SQL.list_waiting)
    lonely = [
        row for row in rows if not serving(workers, row["name"]) and row["name"] not in by_run
    ]
    for row in lonely:
        waits = row["waits_ms"] / 1000
        yield Finding(
            "queues",
            PROBLEM if waits >= context.limits.waiting.total_seconds() else WARNING,
            f"Jobs have waited in {row['name']} for {length(waits)}, and no worker serves it.",
            f"{START} --queues {row['name']}",
            {"queue": row["name"], "waits_ms": row["waits_ms"]},
        )
    if not lonely:
        yield Finding(
            "queues",
            OK,
            f"Every queue with waiting jobs has a worker ({counted(len(rows), 'queue')}).",
        )
    for row in context.many(SQL.list_paused, age_ms=ms(context.limits.pause)):
        yield Finding(
            "paused",
            WARNING,
            f"Queue {row['name']} was paused at {read_instant(row['paused_at']):%F %T} UTC by"
            f" {row['paused_by']}: {row['pause_reason']}",
            f"To resume it: holdfast queues resume {row['name']} --reason …",
            {"queue": row["name"]},
        )


def check_rescue(context: CheckContext) -> Iterator[Finding]:
    """Check for expired leases that were not rescued."""
    limits = context.limits
    (row,) = context.many(SQL.count_stale, grace_ms=ms(limits.lease), limit=limits.count)
    if not row["jobs"]:
        yield Finding("rescue", OK, "No expired lease is waiting for rescue.")
        return
    late = length(row["late_ms"] / 1000)
    yield Finding(
        "rescue",
        PROBLEM,
        f"{_up_to(row['jobs'], limits.count)} leases expired, the first {late} ago, and their"
        " jobs were not rescued.",
        f"Every worker rescues jobs. {START}, or look for upkeep_failed in the logs of the running"
        " workers.",
        {"jobs": row["jobs"]},
    )


def _up_to(count: int, limit: int) -> str:
    return f"At least {limit}" if count >= limit else str(count)


def check_letters(context: CheckContext) -> Iterator[Finding]:
    """Check for dead letters that need an operator."""
    limits = context.limits
    (row,) = context.many(SQL.count_letters, age_ms=ms(limits.letter), limit=limits.count)
    if not row["letters"]:
        yield Finding("dead_letters", OK, "No dead letter needs an operator.")
        return
    kinds = row["error_class"] if row["classes"] == 1 else f"{row['classes']} error classes"
    is_one = row["letters"] == 1
    needing = f"dead letter ({kinds}) needs" if is_one else f"dead letters ({kinds}) need"
    old = ""
    if row["old"]:
        old = f" {row['old']} of them are older than {length(limits.letter.total_seconds())}."
    yield Finding(
        "dead_letters",
        WARNING,
        f"{_up_to(row['letters'], limits.count)} {needing} an operator, the oldest since"
        f" {read_instant(row['oldest_at']):%F %T} UTC.{old}",
        "List them: holdfast dead-letters list. When the cause is fixed: holdfast dead-letters"
        " recover --error-class CLASS --reason TEXT",
        {"letters": row["letters"], "old": row["old"]},
    )


def check_schedules(context: CheckContext) -> Iterator[Finding]:
    """Check for overdue ticks."""
    limits = context.limits
    rows = context.many(SQL.list_late, late_ms=ms(limits.schedule), limit=limits.count)
    for row in rows:
        late = length(row["late_ms"] / 1000)
        why = f" It waits: {row['detail']}." if row["detail"] else ""
        yield Finding(
            "schedules",
            WARNING,
            f"Schedule {row['name']} was due {late} ago and did not fire.{why}",
            "Start a dispatcher of the application that declares it: holdfast worker --dispatch",
            {"schedule": row["name"], "next_fire_at": read_instant(row["next_fire_at"])},
        )
    if not rows:
        yield Finding("schedules", OK, "No schedule is late.")
