"""The console in a real browser: every page, and the work of an operator from start to end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast import Holdfast
from holdfast.api.server import Server
from tests.console.site import World
from tests.story import ORG

SHOTS = Path("build/e2e")
CHECKS = (Path(__file__).parent / "page_checks.js").read_text()
VIEWS = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
LETTERS = 200


class Console:
    """A running server, and pages that fail on errors of the browser's console."""

    def __init__(self, url: str, chromium: Browser, dead: int = 12) -> None:
        self.hf = Holdfast(url)
        self.world = World(self.hf, dead=dead, work=30)
        self.server = Server(self.hf, port=0, is_dev=True)
        self.chromium = chromium
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        assert self.server.dev_login is not None
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{self.server.url}/dev-login?token={self.server.dev_login.token}")
        self.cookies = context.cookies()
        context.close()

    def page(self, view: str = "light") -> Page:
        width, height = VIEWS[view]
        context = self.chromium.new_context(
            color_scheme="dark" if view == "dark" else "light",
            viewport={"width": width, "height": height},
            timezone_id="Europe/Berlin",
            base_url=self.server.url,
        )
        context.add_cookies(self.cookies)
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", lambda asked: self.errors.append(f"failed: {asked.url}"))
        return page

    def close(self) -> None:
        self.server.stop()
        self._thread.join(timeout=10)
        self.hf.close()


@pytest.fixture
def console(url: str, chromium: Browser) -> Iterator[Console]:
    made = Console(url, chromium)
    yield made
    made.close()


@pytest.fixture
def busy(url: str, chromium: Browser) -> Iterator[Console]:
    """A console with 200 dead letters of one cause."""
    made = Console(url, chromium, LETTERS)
    yield made
    made.close()


def paths(console: Console) -> list[str]:
    """Every page of the navigation, and one of each kind of object."""
    page = console.page()
    page.goto("/console/")
    listed = page.locator("nav[aria-label=Console] a").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    page.context.close()
    world = console.world
    return [
        *listed,
        f"/console/jobs/{world.retried.id}",
        f"/console/dead-letters/{world.dead[0].id}",
        "/console/dead-letters/bulk?step=triage&error_class=GONE",
        "/console/jobs/bulk?job_type=leaflet.print",
        "/console/queues/q:default",
        "/console/schedules/nightly",
        f"/console/tenants?org_id={ORG}",
        "/console/nothing",
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_every_page_is_readable_and_without_errors(console: Console, view: str) -> None:
    page = console.page(view)
    wrong: dict[str, list[str]] = {}
    SHOTS.mkdir(parents=True, exist_ok=True)

    for path in paths(console):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        if found := page.evaluate(CHECKS):
            wrong[path] = found
        name = path.removeprefix("/console").partition("?")[0].strip("/").replace("/", "-")
        page.screenshot(path=SHOTS / f"{name[:30] or 'overview'}-{view}.png", full_page=True)

    # A missing page is an error of the network, as it should be.
    errors = [error for error in console.errors if "404" not in error]
    assert (wrong, errors) == ({}, [])


def test_an_operator_resolves_200_dead_letters_of_one_cause(busy: Console) -> None:
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


def test_an_operator_pauses_a_queue_and_watches_a_job_change(console: Console) -> None:
    page, watching = console.page(), console.page()
    job = console.world.waiting[0]

    watching.goto(f"/console/jobs/{job.id}")
    expect(watching.locator("h1 + .state")).to_have_text("queued")
    page.goto("/console/queues/q:default")
    page.get_by_text("Pause…").click()
    page.get_by_role("textbox", name="Reason").fill("INC-9")
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_role("status")).to_contain_text("The queue is paused")
    expect(watching.locator("main")).to_contain_text("paused", timeout=10_000)
    page.get_by_text("Resume…").click()
    page.get_by_role("textbox", name="Reason").fill("INC-9")
    page.get_by_role("button", name="Resume the queue").click()
    expect(page.locator("h1 + .state")).to_have_text("active")
    console.hf.worker().run_once()

    # Without a reload.
    expect(watching.locator("h1 + .state")).to_have_text("completed", timeout=10_000)
    assert console.errors == []


def test_the_keyboard_moves_in_lists_and_opens_rows(console: Console) -> None:
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
