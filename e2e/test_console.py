"""The work of an operator in a real browser, from start to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.served import Console
from holdfast import Holdfast
from tests.console.site import World

LETTERS = 200


class Office(Console):
    """A console with dead letters of one cause."""

    def __init__(self, url: str, chromium: Browser, dead: int) -> None:
        hf = Holdfast(url)
        self.world = World(hf, dead=dead, work=30)
        super().__init__(hf, chromium)


@pytest.fixture
def console(url: str, chromium: Browser) -> Iterator[Office]:
    made = Office(url, chromium, 12)
    yield made
    made.close()


@pytest.fixture
def busy(url: str, chromium: Browser) -> Iterator[Office]:
    """A console with 200 dead letters of one cause."""
    made = Office(url, chromium, LETTERS)
    yield made
    made.close()


def test_an_operator_resolves_200_dead_letters_of_one_cause(busy: Office) -> None:
    console, page = busy, busy.page()
    console.world.is_broken = False
    board = "/console/dead-letters?error_class=GONE&job_type=invoice.send"

    page.goto("/console/")
    page.get_by_role("link", name=f"Triage {LETTERS}").click()
    page.get_by_label("Kind of problem").select_option("data")
    act(page, "Triage")
    page.goto(f"{board}&state=triaged&kind=data")
    page.get_by_role("link", name="Remediate…").click()
    page.get_by_role("checkbox").check()
    act(page, "Remediate")
    page.goto(f"{board}&state=remediated")
    page.get_by_role("link", name="Validate…").click()
    page.get_by_label("Evidence").fill("INC-7")
    page.get_by_label("A replay is idempotent").check()
    act(page, "Validate")
    page.goto(f"{board}&state=validated")
    page.get_by_role("link", name="Replay…").click()
    act(page, "Replay")
    console.hf.worker().run_once(limit=LETTERS + 10)
    page.goto(f"{board}&state=replayed")
    page.get_by_role("link", name="Verify…").click()
    act(page, "Verify")
    page.goto(f"{board}&state=replayed")
    page.get_by_role("link", name="Resolve…").click()
    page.get_by_label("Closing notes").fill("The source was corrected.")
    act(page, "Resolve")

    page.goto("/console/")
    expect(page.get_by_role("link", name="GONE", exact=True)).to_have_count(0)
    assert console.errors == []


def act(page: Page, step: str) -> None:
    """Give a reason and confirm the dry run; all items must be done."""
    page.get_by_role("textbox", name="Reason").fill("INC-7")
    page.get_by_role("button", name=f"{step} {LETTERS} items").click()
    expect(page.get_by_role("status")).to_contain_text(f"{LETTERS} ")


def test_an_operator_pauses_a_queue_and_watches_a_job_change(console: Office) -> None:
    page, watching = console.page(), console.page()
    job = console.world.waiting[0]

    watching.goto(f"/console/jobs/{job.id}")
    expect(watching.locator("h1 + .state")).to_have_text("queued")
    page.goto("/console/queues/q:default")
    page.get_by_text("Pause…").click()
    page.get_by_role("textbox", name="Reason").fill("INC-9")
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_role("status")).to_contain_text("The queue is paused")
    expect(watching.locator("main")).to_contain_text("paused")
    page.get_by_text("Resume…").click()
    page.get_by_role("textbox", name="Reason").fill("INC-9")
    page.get_by_role("button", name="Resume the queue").click()
    expect(page.locator("h1 + .state")).to_have_text("active")
    console.hf.worker().run_once()

    # Without a reload.
    expect(watching.locator("h1 + .state")).to_have_text("completed")
    assert console.errors == []


def test_the_keyboard_moves_in_lists_and_opens_rows(console: Office) -> None:
    page = console.page()
    page.goto("/console/dead-letters")

    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr[aria-selected=true]")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead-letters/*")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type(console.world.retried.id)
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/jobs/{console.world.retried.id}")
    assert console.errors == []
