"""The extension: a table of pages, the job that stores them, a check, a command and a route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import Check, Component, Extension, Holdfast, Kept, Statements, selects

SQL = Statements("holdfast_pager", "pager.sql")


class Pager(Extension):
    """Records who was paged."""

    name = "pager"
    component = Component("pager", "holdfast_pager", needs={"core": 1})
    commands = {"pager": "holdfast_pager.command:pager"}
    api = "holdfast_pager.api:ROUTES"

    def install(self, app: Holdfast) -> None:
        """Declare the job type, with the statement that stores its rows."""
        app.job("pager.record", stores=SQL.insert_pages)(record)

    def verify_checks(self) -> Sequence[Check]:
        """Check that every page has a number."""
        return (Check("PAGER1", "Every page has a number.", selects(SQL.find_unnumbered)),)


def record(job: Any, payload: Mapping[str, Any]) -> Kept:
    """Store the page in the transaction that completes the job."""
    number = payload["number"]
    return Kept({"paged": number}, {"pages": [{"org_id": job.org_id, "number": number}]})
