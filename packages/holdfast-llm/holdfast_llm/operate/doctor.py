"""Doctor checks of batch processing: stuck batches, unusable accounts, missing prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.clock import ms, read_instant
from holdfast.document import decode
from holdfast.errors import ConfigError
from holdfast.operate.doctor.finding import (
    RUN,
    CheckContext,
    DoctorCheck,
    Finding,
    Severity,
    last_of,
    length,
)
from holdfast.operate.plural import counted
from holdfast.store import Row, Statements
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.batch.list_price import STALE_AFTER, list_prices
from holdfast_llm.batch.release import NO_ACCOUNT
from holdfast_llm.provider.reply import WRONG_ADDRESS
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import collector_of, submitter_of

SQL = Statements("holdfast_llm.operate", "doctor.sql")

OK, NOTICE, WARNING, PROBLEM = Severity


def check_runs(context: CheckContext) -> Iterator[Finding]:
    """Check that the submitter and the collector run, and that no work is overdue."""
    limits = context.limits
    submitter, collector = submitter_of(context.settings), collector_of(context.settings)
    names = [{"name": name} for name in (submitter, collector)]
    ran = {row["name"]: row["started_at"] for row in context.many(SQL.find_last_runs, runs=names)}
    (waiting,) = context.many(SQL.find_unsubmitted, limit=limits.count)
    stuck = context.many(SQL.list_stuck, late_ms=ms(limits.batch), limit=limits.count)
    # A timestamp stored as text loses precision when it is read back.
    waits = round(waiting["waits_ms"] or 0.0) / 1000
    is_calm = True
    if waits >= limits.batch_wait.total_seconds():
        is_calm = False
        yield Finding(
            "lane",
            PROBLEM,
            f"Jobs have waited for batch submission for {length(waits)};"
            f" {last_of(submitter, ran)}.",
            RUN.format(name=submitter),
            {"waits_ms": waiting["waits_ms"]},
        )
    for row in stuck:
        is_calm = False
        late = length(row["late_ms"] / 1000)
        # Until it is submitted a batch belongs to the submitter, then to the collector.
        name = collector if row["state"] in ("submitted", "ended") else submitter
        yield Finding(
            "lane",
            PROBLEM,
            f"{row['batches']} batches that are {row['state']}, with {row['items']} items, were due"
            f" to be processed {late} ago; {last_of(name, ran)}.",
            RUN.format(name=name),
            {"state": row["state"], "batches": row["batches"], "late_ms": row["late_ms"]},
        )
    (stale,) = context.many(SQL.count_stale, grace_ms=ms(limits.lease), limit=limits.count)
    if stale["jobs"]:
        late = length(stale["late_ms"] / 1000)
        yield Finding(
            "rescue",
            PROBLEM,
            f"{stale['jobs']} jobs were claimed for a batch and are in none; the first lease"
            f" expired {late} ago.",
            "Start a worker that has batch processing enabled: holdfast worker",
            {"jobs": stale["jobs"]},
        )
    if is_calm:
        yield Finding("lane", OK, "No batch work is overdue.")


def check_batches(context: CheckContext) -> Iterator[Finding]:
    """Check for batches that need an operator, and for files left at a provider."""
    limits = context.limits
    rows = context.many(SQL.list_quarantined, limit=limits.count)
    for row in rows:
        yield Finding(
            "quarantine",
            PROBLEM,
            f"Batch {row['id']} at {row['provider']} with {row['items']} items has been"
            f" quarantined since {read_instant(row['updated_at']):%F %T} UTC"
            f" ({row['error_code'] or 'no code'}).",
            f"Inspect it: holdfast batches show {row['id']}; then adopt it, cancel it or release"
            " its jobs.",
            {"batch_id": row["id"], "items": row["items"]},
        )
    if not rows:
        yield Finding("quarantine", OK, "No batch is quarantined.")
    (row,) = context.many(SQL.count_undeleted, age_ms=ms(limits.batch_files), limit=limits.count)
    if row["batches"]:
        yield Finding(
            "batch_files",
            WARNING,
            "The provider files of"
            f" {counted(row['batches'], 'finished batch', 'finished batches')} still exist, the"
            f" oldest since {read_instant(row['since']):%F %T} UTC.",
            f"{RUN.format(name=collector_of(context.settings))}. If it runs, check whether the"
            " credential may delete files.",
            {"batches": row["batches"]},
        )


def check_credentials(context: CheckContext) -> Iterator[Finding]:
    """Check for accounts with pending work that cannot be used from here."""
    accounts = ConfiguredAccounts(context.settings, clock=context.store.clock)
    waiting: Counter[str] = Counter()
    says: dict[str, str] = {}
    for row in context.many(SQL.list_routes, limit=context.limits.count):
        try:
            route = Route.read(decode(row["routing_decision"]))
        except ValueError:
            # The submitter ends it with a reason.
            continue
        try:
            accounts.for_route(route)
        except ConfigError as exc:
            waiting[route.provider] += row["jobs"]
            says.setdefault(route.provider, str(exc))
    for provider, jobs in sorted(waiting.items()):
        yield Finding(
            "accounts",
            WARNING,
            f"{counted(jobs, 'job waits', 'jobs wait')} for an account at {provider}, which cannot"
            " be used from here.",
            f"{says[provider]} Or run doctor on the workers' machine, where it may be configured.",
            {"provider": provider, "jobs": jobs},
        )
    unreached = context.many(SQL.list_unreached, error_code=NO_ACCOUNT)
    for row in unreached:
        yield Finding(
            "accounts",
            PROBLEM,
            f"{row['batches']} batches with {row['items']} items, the oldest submitted at"
            f" {read_instant(row['since']):%F %T} UTC, cannot be collected: no"
            f" configured account has the credential of {row['account']}.",
            "Restore that credential until they are collected, or configure a newer one of the same"
            " account. After their deadline they are quarantined.",
            {"account": row["account"], "batches": row["batches"], "items": row["items"]},
        )
    if not waiting and not unreached:
        yield Finding("accounts", OK, "All accounts with waiting work are usable.")


def check_accounts(context: CheckContext) -> Iterator[Finding]:
    """Check for accounts with an open circuit, and for models without a price."""
    limits = context.limits
    circuits = context.many(SQL.list_circuits, limit=limits.count)
    for row in circuits:
        yield Finding(
            "circuits",
            PROBLEM,
            f"Account {row['account']} has rejected all requests since"
            f" {read_instant(row['opened_at']):%F %T} UTC with {row['error_code']} (refusal"
            f" {row['times']}); nothing is sent until {read_instant(row['open_until']):%F %T} UTC.",
            f"{_remedy_of(row)} A new key is used at once; otherwise the next call is made then,"
            f" or now: holdfast batches probe '{row['account']}' --reason …. No attempt was"
            " counted.",
            {"account": row["account"], "error_code": row["error_code"], "times": row["times"]},
        )
    if not circuits:
        yield Finding("circuits", OK, "No provider account has an open circuit.")
    unpriced = context.many(SQL.list_unpriced, age_ms=ms(limits.unpriced), limit=limits.count)
    for row in unpriced:
        yield Finding(
            "prices",
            WARNING,
            f"{counted(row['calls'], 'answer')} of {row['model']} at {row['provider']}"
            f" ({row['execution_mode']}) without a price: the cost is unknown and not counted"
            " against budgets.",
            "Add its price: [[prices]] in holdfast.toml.",
            {"provider": row["provider"], "model": row["model"], "calls": row["calls"]},
        )
    stale = list(_find_stale_prices(context))
    yield from stale
    if not unpriced and not stale:
        yield Finding("prices", OK, "All recorded usage has a price.")


def _remedy_of(circuit: Row) -> str:
    if circuit["error_code"] in WRONG_ADDRESS:
        return (
            f"Another server answered: correct providers.{circuit['provider']}.base_url or the"
            " proxy."
        )
    return "Correct its key, quota or credit."


def _find_stale_prices(context: CheckContext) -> Iterator[Finding]:
    """Check for old list prices of providers that are used or have a budget."""
    today = context.store.clock.now().date()
    used = {row["provider"] for row in context.many(SQL.list_used_providers)}
    for name, listed in list_prices().items():
        age = today - listed.checked
        if age <= STALE_AFTER or not (context.settings.budgets or name in used):
            continue
        yield Finding(
            "prices",
            WARNING,
            f"The built-in prices of {name} date from {listed.checked:%F}, {age.days} days ago;"
            " costs and budgets may be wrong.",
            f"Compare them with {listed.source}, and correct them: [[prices]] in holdfast.toml.",
            {"provider": name, "checked": listed.checked.isoformat(), "source": listed.source},
        )


CHECKS: Mapping[str, DoctorCheck] = {
    "lane": check_runs,
    "quarantine": check_batches,
    "accounts": check_credentials,
    "circuits": check_accounts,
}
