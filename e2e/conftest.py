"""The databases of the tests, and a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.conftest import (
    databases,
    migrated_sqlite_url,
    postgres,
    postgres_url,
    sqlite_template,
    sqlite_url,
    url,
)

__all__ = [
    "databases",
    "migrated_sqlite_url",
    "postgres",
    "postgres_url",
    "sqlite_template",
    "sqlite_url",
    "url",
]

# The machine may be busy: a condition that becomes true late is not a failure.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[
                *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
                *("--disable-background-networking", "--disable-component-update"),
            ],
        )
        yield found
        found.close()
