"""``--alternate`` runs some cases on one database: three of four on SQLite, one on PostgreSQL.

The files below test decisions in Python, over SQL that is the same text for both databases. Their
statements run on both in tests/store/test_statements.py. A file is not listed if its SQL differs
between the databases, or if its tests depend on locks, triggers or concurrent transactions. A
single such test of a listed file is marked ``both_databases``.

``make test`` passes the option; without it every case runs on both databases. A case takes longer
on PostgreSQL, because every statement goes to another process.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parent
DATABASES = ("sqlite", "postgres")
FILES = frozenset(
    {
        "api/test_attacks.py",
        "api/test_frontend.py",
        "api/test_jobs.py",
        "api/test_operations.py",
        "api/test_walk.py",
        "apps/test_cancel_rewrite.py",
        "apps/test_context_pack.py",
        "apps/test_crash.py",
        "apps/test_directory.py",
        "apps/test_erase.py",
        "apps/test_held.py",
        "apps/test_hostile.py",
        "apps/test_judge.py",
        "apps/test_orchestrate.py",
        "apps/test_reuse.py",
        "apps/test_show.py",
        "apps/test_snapshots.py",
        "apps/test_verify_rewrites.py",
        "apps/test_work.py",
        "apps_review/test_crash.py",
        "apps_review/test_criticise.py",
        "apps_review/test_end_to_end.py",
        "apps_review/test_part.py",
        "apps_review/test_stages.py",
        "apps_review/test_waiting.py",
        "artifact/test_access.py",
        "artifact/test_contract.py",
        "artifact/test_crash.py",
        "artifact/test_job.py",
        "artifact/test_link.py",
        "batch/test_accounts.py",
        "batch/test_api.py",
        "batch/test_budget.py",
        "batch/test_call.py",
        "batch/test_call_providers.py",
        "batch/test_circuit.py",
        "batch/test_collect.py",
        "batch/test_collect_faults.py",
        "batch/test_cost.py",
        "batch/test_cost_story.py",
        "batch/test_failed_batch.py",
        "batch/test_faults.py",
        "batch/test_fence.py",
        "batch/test_group.py",
        "batch/test_incomplete_results.py",
        "batch/test_item_outcome.py",
        "batch/test_kept_answers.py",
        "batch/test_load.py",
        "batch/test_micro_batch.py",
        "batch/test_recover.py",
        "batch/test_recover_model.py",
        "batch/test_runs.py",
        "batch/test_submit.py",
        "batch/test_swapped.py",
        "batch/test_wrong_address.py",
        "channel/test_bad_input.py",
        "channel/test_kinds.py",
        "engine/test_bad_input.py",
        "engine/test_category.py",
        "engine/test_clock_going_back.py",
        "engine/test_declared.py",
        "engine/test_dispatch.py",
        "engine/test_execute.py",
        "engine/test_export_rules.py",
        "engine/test_lease_renewal.py",
        "engine/test_retry.py",
        "engine/test_rules.py",
        "engine/test_run.py",
        "engine/test_schedule.py",
        "engine/test_stages.py",
        "engine/test_watchdog.py",
        "faces/test_artifacts_cli.py",
        "faces/test_audit_cli.py",
        "faces/test_batches_cli.py",
        "faces/test_category_rules_cli.py",
        "faces/test_cli.py",
        "faces/test_costs_cli.py",
        "faces/test_dead_letters_cli.py",
        "faces/test_deliveries_cli.py",
        "faces/test_demo.py",
        "faces/test_explain_cli.py",
        "faces/test_review_cli.py",
        "faces/test_rewrite_cli.py",
        "faces/test_run_cli.py",
        "faces/test_wrong_calls.py",
        "operate/test_authorization.py",
        "operate/test_dead_letters.py",
        "operate/test_dead_letters_bulk.py",
        "operate/test_delivery_bulk.py",
        "operate/test_delivery_reasons.py",
        "operate/test_doctor_batches.py",
        "operate/test_explain.py",
        "operate/test_explain_batches.py",
        "operate/test_verify_batches.py",
        "operate/test_verify_deliveries.py",
        "operate/test_verify_lifecycle.py",
        "operate/test_verify_store.py",
        "outbox/test_cancel.py",
        "outbox/test_circuit.py",
        "outbox/test_crash.py",
        "outbox/test_delivery_lease.py",
        "outbox/test_erase.py",
        "outbox/test_faults.py",
        "outbox/test_fence.py",
        "outbox/test_in_app.py",
        "outbox/test_intend.py",
        "outbox/test_notify.py",
        "outbox/test_post.py",
        "outbox/test_receivers.py",
        "outbox/test_reconcile.py",
        "outbox/test_replay.py",
        "outbox/test_send.py",
        "outbox/test_smtp_crash.py",
        "outbox/test_traceable.py",
        "telemetry/test_alert.py",
        "telemetry/test_alert_delivery.py",
        "telemetry/test_batch.py",
        "telemetry/test_deliveries.py",
        "telemetry/test_log.py",
        "telemetry/test_metrics.py",
        "telemetry/test_metrics_absent.py",
        "telemetry/test_metrics_files.py",
        "telemetry/test_metrics_worker.py",
        "telemetry/test_rewrite.py",
    }
)


def left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """For each case that exists for both databases, the one that does not run."""
    cases: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        if _alternates(item) and (found := _case(item)):
            name, database = found
            cases.setdefault(name, {})[database] = item
    return {
        on["sqlite" if crc32(name.encode()) % 4 == 0 else "postgres"]
        for name, on in cases.items()
        if len(on) == len(DATABASES)
    }


def _alternates(item: pytest.Item) -> bool:
    is_listed = str(item.path.relative_to(ROOT)) in FILES
    return is_listed and item.get_closest_marker("both_databases") is None


def _case(item: pytest.Item) -> tuple[str, str] | None:
    """The name of a case without its database, and the database."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or not isinstance(item, pytest.Function):
        return None
    for name in ("url", "mould", "pair"):
        # A pair is a database and a store of artifacts.
        database, _, _ = str(callspec.params.get(name)).partition("-")
        if database in DATABASES:
            parts = callspec.id.split("-")
            parts.remove(database)
            return "-".join([item.path.name, item.originalname, *sorted(parts)]), database
    return None
