"""Development mode prints data that is never stored: messages, tracebacks and the status."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Context, Holdfast, UpstreamDown
from holdfast.engine import development
from tests.story import ORG, look

SECRET = "the card of Ada Lovelace was declined"


@pytest.fixture
def terminal() -> Iterator[io.StringIO]:
    output = io.StringIO()
    development.enable(output)
    yield output
    development.disable()


def fail_once(hf: Holdfast, fault: BaseException) -> None:
    @hf.job("card.charge", max_attempts=1)
    def charge(job: Context, payload: dict[str, Any]) -> None:
        raise fault

    hf.enqueue("card.charge", {}, org_id=ORG)
    hf.worker().run_once()


def test_a_failure_is_printed_and_not_stored(hf: Holdfast, terminal: io.StringIO) -> None:
    fail_once(hf, ValueError(f"{SECRET}\x1b[2J"))

    said = terminal.getvalue()
    assert "card.charge" in said
    assert "attempt 1 of 1: DEFECT" in said
    assert "Traceback (most recent call last)" in said
    assert f"ValueError: {SECRET}" in said
    assert "\x1b" not in said
    stored = look(hf.store, "SELECT last_error, last_stack FROM holdfast.dead_letter")
    events = look(hf.store, "SELECT detail FROM holdfast.job_event")
    assert SECRET not in str([*stored, *events])


def test_the_status_of_the_upstream_is_printed(hf: Holdfast, terminal: io.StringIO) -> None:
    fail_once(hf, UpstreamDown(status=503))

    assert "UPSTREAM_DOWN, upstream status 503" in terminal.getvalue()


def test_nothing_is_printed_unless_it_is_asked_for(
    hf: Holdfast, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(hf, ValueError(SECRET))
    assert SECRET not in capsys.readouterr().err
    monkeypatch.setenv("HOLDFAST_DEV", "1")
    hf.enqueue("card.charge", {}, org_id=ORG)
    hf.worker().run_once()

    assert SECRET in capsys.readouterr().err


def test_a_broken_terminal_does_not_change_the_outcome(hf: Holdfast, terminal: io.StringIO) -> None:
    terminal.close()
    fail_once(hf, ValueError(SECRET))

    assert [row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job")] == ["failed"]
