"""docs/reference/audit-events.md: every audit event.

The names and meanings are in audit_events.toml; tests/test_frozen_names.py compares the page with
the events that the code writes.
"""

from __future__ import annotations

import tomllib

from reference_pages.page import HERE, Page, code, introduction


def build() -> Page:
    page = Page()
    page.add(introduction("audit_events"))
    declared: dict[str, dict[str, list[str]]] = tomllib.loads(
        (HERE / "audit_events.toml").read_text()
    )
    for subject, events in declared.items():
        page.add(f"## {subject[0].upper()}{subject[1:]} events")
        rows = [
            [code(name), page.need(name, said), detail] for name, (said, detail) in events.items()
        ]
        page.table(("Event", "Written when", "Detail"), rows)
    return page
