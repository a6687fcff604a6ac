"""Calls about bulk actions. Written by tools/client_code.py."""

from __future__ import annotations

from holdfast.client.calls.shared import BulkActionView
from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
    Page,
    read_page,
)


def list_bulk_actions(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[BulkActionView]]:
    """List bulk actions, newest first. A page may be short although there are more."""
    return Call(
        "list_bulk_actions",
        "GET",
        "/v1/bulk-actions",
        lambda found: read_page(BulkActionView, found),
        query={"limit": limit, "cursor": cursor},
    )


def get_bulk_action(bulk_action_id: str) -> Call[BulkActionView]:
    """Return a bulk action and its progress."""
    return Call(
        "get_bulk_action",
        "GET",
        "/v1/bulk-actions/{bulk_action_id}",
        lambda found: read(BulkActionView, found),
        names={"bulk_action_id": bulk_action_id},
    )
