"""Every page of the console in a real browser: readable, labelled, and without any error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from e2e.served import CHECKS, SHOTS, VIEWS, Console
from tests.console.everything import Everything
from tests.story import make_holdfast

# The pictures of the documentation.
SHOWN = ("overview", "dead-letter", "job")


@pytest.fixture
def shots(url: str) -> Path:
    folder = SHOTS / url.partition(":")[0]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def everything(url: str) -> Everything:
    return Everything(url, minutes=56)


@pytest.fixture
def console(everything: Everything, chromium: Browser) -> Iterator[Console]:
    made = Console(everything.hf, chromium)
    yield made
    made.close()


def listed(page: Page) -> dict[str, str]:
    """The pages of the navigation, by the name of their picture."""
    page.goto("/console/")
    found: list[str] = page.locator("nav[aria-label=Console] a").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    return {
        path.strip("/").removeprefix("console").strip("/") or "overview": path for path in found
    }


@pytest.mark.timeout(600)
def test_every_page_is_readable_and_without_errors(
    everything: Everything, console: Console, shots: Path
) -> None:
    wrong: dict[str, list[str]] = {}
    for view in VIEWS:
        page = console.page(view)
        pages = {**listed(page), **everything.objects()}
        assert len(pages) > 28
        for name, path in pages.items():
            answer = page.goto(path)
            assert answer is not None
            assert answer.status == (404 if name == "missing" else 200), path
            if found := page.evaluate(CHECKS):
                wrong[f"{path} {view}"] = found
            page.screenshot(path=shots / f"{name}-{view}.png", full_page=True)
            if name in SHOWN:
                page.screenshot(path=shots / f"{name}-{view}-window.png")
        page.context.close()

    # A missing page causes an error of the network, as expected.
    errors = [error for error in console.errors if "404" not in error]
    assert (wrong, errors) == ({}, [])


def test_every_empty_page_and_the_login_are_readable(
    url: str, chromium: Browser, shots: Path
) -> None:
    console = Console(make_holdfast(url), chromium)
    try:
        wrong: dict[str, list[str]] = {}
        page = console.page()
        for name, path in {**listed(page), "login": "/console/login"}.items():
            page.goto(path)
            if found := page.evaluate(CHECKS):
                wrong[path] = found
            page.screenshot(path=shots / f"{name}-empty.png", full_page=True)
        assert (wrong, console.errors) == ({}, [])
    finally:
        console.close()


def test_a_violation_of_the_content_security_policy_is_an_error(console: Console) -> None:
    page = console.page()
    page.goto("/console/")

    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.wait_for_function("() => true")

    assert any("securitypolicyviolation: style-src" in error for error in console.errors)
