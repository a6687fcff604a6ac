"""Held rewrites in the console: texts on one page, for the deciding role, and each decision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from holdfast import FakeClock
from tests.apps.judged import KIND, SAID, Court, open_court, verdict
from tests.console.site import make_site

EDITED = "Could you please take the bins out tonight?"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def court(url: str, clock: FakeClock) -> Iterator[Court]:
    with open_court(url, clock) as made:
        made.says = verdict("threat", quote="help me a lot")
        yield made


def browser(court: Court, role: str = "admin") -> TestClient:
    return TestClient(make_site(court.hf, role=role), base_url="http://127.0.0.1")


def test_texts_are_shown_on_the_page_of_one_held_rewrite_to_an_admin_only(court: Court) -> None:
    request_id = court.send()
    admin, operator = browser(court), browser(court, "operator")

    for page in ("/console/", "/console/held-rewrites"):
        shown = admin.get(page)
        assert shown.status_code == 200
        assert KIND not in shown.text
        assert SAID not in shown.text
    assert request_id in admin.get("/console/held-rewrites").text

    shown = admin.get(f"/console/held-rewrites/{request_id}")
    assert shown.status_code == 200
    assert KIND in shown.text
    refused = operator.get(f"/console/held-rewrites/{request_id}")
    assert refused.status_code == 403
    assert KIND not in refused.text


@pytest.mark.parametrize(
    ("decision", "form", "received", "status"),
    [
        ("approve", {}, [KIND], "completed"),
        ("edit", {"text": EDITED}, [EDITED], "completed"),
        ("reject", {}, [], "failed"),
    ],
)
def test_a_decision_in_the_console_decides_the_rewrite(
    court: Court, decision: str, form: dict[str, str], received: list[str], status: str
) -> None:
    request_id = court.send()
    act = f"/console/held-rewrites/{request_id}/{decision}"
    form = {**form, "reason": "read twice"}

    assert browser(court, "operator").post(act, data=form, headers=SAME_ORIGIN).status_code == 403
    done = browser(court).post(act, data=form, headers=SAME_ORIGIN, follow_redirects=False)
    court.run("orchestrator")

    assert done.status_code == 303
    assert (court.received(), court.status(request_id)) == (received, status)
