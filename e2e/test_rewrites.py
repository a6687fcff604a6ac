"""The complaint rewrite in a real browser: a person decides one, and two people use it."""

from __future__ import annotations

import runpy
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, expect

from e2e.served import CHECKS, Console, Windows
from holdfast import FakeClock
from tests.apps.judged import KIND, SAID, Court, verdict

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "live" / "rewrite_app.py"
RUDE = "Clean the bloody kitchen after yourself, it is disgusting!"


@pytest.fixture
def court(url: str) -> Court:
    made = Court(url, FakeClock(datetime.now(UTC)))
    made.says = verdict("threat", quote="help me a lot")
    return made


@pytest.fixture
def console(court: Court, chromium: Browser) -> Iterator[Console]:
    made = Console(court.hf, chromium)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("opens", "confirms", "received", "status"),
    [
        ("Approve…", "Deliver it", [KIND], "completed"),
        ("Edit…", "Deliver the edited text", ["Could you take the bins out?"], "completed"),
        ("Reject…", "Reject it", [], "failed"),
    ],
)
def test_an_admin_decides_a_held_rewrite(
    court: Court, console: Console, opens: str, confirms: str, received: list[str], status: str
) -> None:
    request_id = court.send()
    page = console.page()

    page.goto("/console/")
    page.get_by_role("link", name="Held rewrites 1").click()
    page.locator(f"a[href$='{request_id}']").click()
    expect(page.get_by_text(SAID)).to_be_visible()
    page.locator("summary", has_text=opens).click()
    form = page.locator("details[open] form")
    if received and received != [KIND]:
        form.get_by_label("Text").fill(received[0])
    form.get_by_label("Reason").fill("Both texts read.")
    form.get_by_role("button", name=confirms).click()
    expect(page.get_by_role("status")).to_contain_text("The rewrite was")
    expect(page.get_by_text("No rewrite waits for a person.")).to_be_visible()
    court.run("orchestrator")

    assert (court.received(), court.status(request_id)) == (received, status)
    assert console.errors == []


@pytest.fixture
def house(
    url: str, chromium: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Windows]:
    """The example with two people, on a server."""
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("SIMULATED_KEY", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = runpy.run_path(str(EXAMPLE), run_name="rewrite_app")["app"]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    windows = Windows(chromium, f"http://127.0.0.1:{port}")
    yield windows
    for context in chromium.contexts:
        context.close()
    server.should_exit = True
    thread.join(timeout=30)


@pytest.mark.req("F-01", "F-03")
def test_a_complaint_in_one_window_is_read_politely_in_another(house: Windows) -> None:
    nora, luis = house.page(), house.page("phone")
    nora.goto("/?person=nora")
    luis.goto("/?person=luis")
    expect(luis.get_by_role("heading", name="Messages of luis")).to_be_visible()
    assert (nora.evaluate(CHECKS), luis.evaluate(CHECKS)) == ([], [])

    nora.get_by_label("Message to your housemate").fill(RUDE)
    nora.get_by_role("button", name="Send").click()

    received = luis.get_by_role("list", name="Received").get_by_role("listitem")
    expect(received).to_have_text(
        ["Could you tidy the kitchen a little after cooking? That would help me a lot."]
    )
    expect(nora.get_by_role("list", name="Sent").get_by_role("listitem")).to_have_text(
        ["completed"]
    )
    assert RUDE not in luis.content()
    assert house.errors == []
