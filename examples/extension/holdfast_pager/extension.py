"""The extension: tables, the job that stores pages, a check, a command and a route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import (
    Check,
    Component,
    Extension,
    Holdfast,
    ResultWithRows,
    Statements,
    StateStatement,
    selects,
)

SQL = Statements("holdfast_pager", "pager.sql")


class Pager(Extension):
    """Records which numbers were paged."""

    name = "pager"
    component = Component("pager", "holdfast_pager", needs={"core": 19})
    commands = {"pager": "holdfast_pager.command:pager"}
    api = "holdfast_pager.api:router"

    def install(self, app: Holdfast) -> None:
        """Declare the job type, with the statement that stores its rows."""
        self.app = app
        app.job("pager.record", stores=SQL.insert_pages)(record)

    def state_statements(self) -> Sequence[StateStatement]:
        """Record the jobs that failed."""
        failed = frozenset({"failed"})
        return (StateStatement(frozenset({"pager.record"}), SQL.insert_failures, failed),)

    def verify_checks(self) -> Sequence[Check]:
        """Check that every page has a number."""
        return (Check("PAGER1", "Every page has a number.", selects(SQL.find_unnumbered)),)

    def list_pages(self, org_id: str) -> list[str]:
        """List the numbers that one tenant paged."""
        return [row["number"] for row in self.app.store.many(SQL.list_pages, org_id=org_id)]

    def count_failures(self, org_id: str) -> int:
        """Count the failed pages of one tenant."""
        return int(self.app.store.one(SQL.count_failures, org_id=org_id)["failures"])


def record(job: Any, payload: Mapping[str, Any]) -> ResultWithRows:
    """Store the page in the transaction that completes the job."""
    number = payload["number"]
    return ResultWithRows({"paged": number}, {"pages": [{"org_id": job.org_id, "number": number}]})
