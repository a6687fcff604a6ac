"""The routes: method and path below ``/api``, and the function that answers.

A function takes the application and the tenant of the request, and returns a JSON document.
"""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast
from holdfast_pager.extension import SQL


def list_pages(app: Holdfast, org_id: str) -> dict[str, Any]:
    """The numbers that were paged for one tenant."""
    rows = app.store.read(lambda tx: tx.many(SQL.list_pages, org_id=org_id))
    return {"pages": [row["number"] for row in rows]}


ROUTES = {"GET /pager/pages": list_pages}
