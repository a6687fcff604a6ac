"""``--alternate`` runs some stories on one database: half on SQLite, half on PostgreSQL.

The files below test decisions in Python, over SQL that is the same text for both databases. Their
statements run on both in tests/store/test_statements.py. A file stays out of this list if its SQL
differs between the databases, or if its stories depend on locks, triggers or concurrent
transactions. ``make test`` passes the option; without it every case runs on both databases.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parent
DATABASES = ("sqlite", "postgres")
FILES = frozenset(
    {
        "apps/test_cancel_rewrite.py",
        "apps/test_context_pack.py",
        "apps/test_crash.py",
        "apps/test_directory.py",
        "apps/test_erase.py",
        "apps/test_hostile.py",
        "apps/test_orchestrate.py",
        "apps/test_reuse.py",
        "apps/test_show.py",
        "apps/test_snapshots.py",
        "apps/test_work.py",
        "apps_review/test_crash.py",
        "apps_review/test_criticise.py",
        "apps_review/test_end_to_end.py",
        "apps_review/test_part.py",
        "apps_review/test_stages.py",
        "apps_review/test_waiting.py",
        "batch/test_api.py",
        "batch/test_call.py",
        "batch/test_collect.py",
        "batch/test_collect_faults.py",
        "batch/test_failed_batch.py",
        "batch/test_faults.py",
        "batch/test_group.py",
        "batch/test_incomplete_results.py",
        "batch/test_kept_answers.py",
        "batch/test_swapped.py",
        "faces/test_artifacts_cli.py",
        "faces/test_audit_cli.py",
        "faces/test_batches_cli.py",
        "faces/test_cli.py",
        "faces/test_costs_cli.py",
        "faces/test_dead_letters_cli.py",
        "faces/test_deliveries_cli.py",
        "faces/test_duty_cli.py",
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
        "operate/test_explain.py",
        "operate/test_explain_batches.py",
        "outbox/test_cancel.py",
        "outbox/test_crash.py",
        "outbox/test_erase.py",
        "outbox/test_faults.py",
        "outbox/test_page.py",
        "outbox/test_post.py",
        "outbox/test_reconcile.py",
        "outbox/test_traceable.py",
    }
)


def left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each case that is there for both databases, the one that does not run."""
    cases: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        if str(item.path.relative_to(ROOT)) in FILES and (found := _case(item)):
            name, database = found
            cases.setdefault(name, {})[database] = item
    return {
        on[DATABASES[crc32(name.encode()) % 2]]
        for name, on in cases.items()
        if len(on) == len(DATABASES)
    }


def _case(item: pytest.Item) -> tuple[str, str] | None:
    """What a case is called besides its database, and the database."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or not isinstance(item, pytest.Function):
        return None
    for name in ("url", "mould"):
        database = callspec.params.get(name)
        if database in DATABASES:
            parts = callspec.id.split("-")
            parts.remove(database)
            return "-".join([item.path.name, item.originalname, *sorted(parts)]), database
    return None
