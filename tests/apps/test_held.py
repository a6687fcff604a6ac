"""Rewrites that wait for a person: nothing is delivered before a decision, and each is audited."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest

from holdfast import FakeClock
from holdfast.cli import main
from holdfast.errors import Forbidden
from holdfast.operate.doctor import Limits, examine
from holdfast.telemetry import log
from holdfast.telemetry.metrics import Metrics
from holdfast_rewrite.enums import Strength
from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound
from holdfast_rewrite.settings import JudgeRouteSettings
from tests.apps.household import HOME, SENDER, result_of, told
from tests.apps.judged import KIND, SAID, Court, open_court, verdict
from tests.apps.test_crash import crash_everywhere, every_answer_lost
from tests.operate.sound import assert_sound
from tests.story import look

EDITED = "Could you please take the bins out tonight?"


@pytest.fixture
def court(url: str, clock: FakeClock) -> Iterator[Court]:
    with open_court(url, clock) as made:
        made.says = verdict("threat", quote="help me a lot")
        yield made


def events(court: Court, request_id: str) -> list[Any]:
    return [
        (row["name"].removeprefix("rewrite_"), json.loads(row["detail"]).get("reason"))
        for row in told(court.hf.store, request_id)
        if row["name"].startswith("rewrite_held")
    ]


def test_a_held_rewrite_is_listed_without_text_by_age_and_reason(court: Court) -> None:
    first = court.send()
    court.clock.advance(hours=2)
    court.says = "no JSON"
    second = court.send("Please turn the music down tonight.")

    found = court.desk("operator").held.list()
    assert [one.rewrite_request_id for one in found] == [first, second]
    assert found[0].age_seconds > found[1].age_seconds >= 0
    assert [(one.reason, one.findings) for one in found] == [
        ("disagreement", ("threat",)),
        ("no_verdict", None),
    ]
    assert KIND not in str(found)
    only = court.desk("operator").held.list(reason="no_verdict", limit=1)
    assert [one.rewrite_request_id for one in only] == [second]


def test_texts_and_decisions_are_for_an_admin_and_reading_is_audited(court: Court) -> None:
    request_id = court.send()
    held = court.desk("operator").held
    for act in (
        lambda: held.show(request_id),
        lambda: held.approve(request_id, reason="r"),
        lambda: held.edit(request_id, text=EDITED, reason="r"),
        lambda: held.reject(request_id, reason="r"),
    ):
        with pytest.raises(Forbidden):
            act()
    other = court.rewrites.operate(
        actor="user:x", role="admin", org_id="0198c0de-0000-7000-8000-0000000000f9"
    )
    with pytest.raises(RewriteNotFound):
        other.held.show(request_id)

    shown = court.desk().held.show(request_id)
    assert (shown.original_text, shown.rewritten_text) == (SAID, KIND)
    assert KIND not in repr(shown)
    last = told(court.hf.store, request_id)[-1]
    assert (last["name"], last["actor_id"]) == ("rewrite_held_read", "reviewer")


def test_an_approved_rewrite_is_delivered_as_it_is(court: Court) -> None:
    request_id = court.send()
    assert (court.received(), court.status(request_id)) == ([], "processing")
    done = court.desk().held.approve(request_id, reason="harmless")
    court.run("orchestrator")

    assert (done.decision, court.received()) == ("approve", [KIND])
    assert court.status(request_id) == "completed"
    assert events(court, request_id) == [("held", "disagreement"), ("held_approved", "harmless")]
    draft = court.draft(request_id)
    assert (draft["decision"], draft["rewritten_text"]) == ("approve", None)
    with pytest.raises(RewriteNotFound):
        court.desk().held.reject(request_id, reason="too late")
    assert_sound(court.hf)


def test_an_edit_passes_the_gate_again(court: Court) -> None:
    request_id = court.send()
    held = court.desk().held
    with pytest.raises(InvalidRewrite) as refused:
        held.edit(request_id, text="Take the fucking bins out tonight.", reason="mine")
    assert "fucking" not in str(refused.value)
    with pytest.raises(InvalidRewrite):
        held.edit(request_id, text="x" * 601, reason="mine")
    assert court.received() == []
    held.edit(request_id, text=EDITED, reason="softer")
    court.run("orchestrator")

    assert court.received() == [EDITED]
    assert events(court, request_id)[-1] == ("held_edited", "softer")
    assert_sound(court.hf)


def test_a_rejected_rewrite_fails_its_request_and_leaves_no_text(court: Court) -> None:
    request_id = court.send()
    with pytest.raises(InvalidRewrite):
        court.desk().held.reject(request_id, reason="  ")
    court.desk().held.reject(request_id, reason="a threat")
    court.run("orchestrator")

    assert (court.status(request_id), court.received()) == ("failed", [])
    assert court.row(request_id)["failure_code"] == "held_rejected"
    assert court.draft(request_id)["rewritten_text"] is None
    assert events(court, request_id)[-1] == ("held_rejected", "a threat")
    assert_sound(court.hf)


def test_a_decision_that_dies_or_loses_its_answer_is_made_once(court: Court) -> None:
    request_id = court.send()
    crash_everywhere(lambda: court.desk().held.approve(request_id, reason="fine"))

    assert court.received() == [KIND]
    assert [name for name, _ in events(court, request_id)] == ["held", "held_approved"]
    second = court.send("Please take the bins out, they smell.")
    with every_answer_lost(court.hf), contextlib.suppress(RewriteNotFound):
        court.desk().held.reject(second, reason="no")
    assert [name for name, _ in events(court, second)] == ["held", "held_rejected"]
    court.run("orchestrator")
    assert_sound(court.hf)


# -- without a judge


@pytest.mark.parametrize("strength", Strength)
@pytest.mark.parametrize("writes", [KIND, f"{KIND} I AM WAITING!!"], ids=["passed", "warned"])
def test_without_a_judge_the_policy_holds_and_a_person_delivers(
    url: str, clock: FakeClock, strength: Strength, writes: str
) -> None:
    with open_court(url, clock, judge_route=JudgeRouteSettings(), without_judge="hold") as court:
        court.heard.result = result_of(strength)
        court.writes = writes
        request_id = court.send()

        assert (court.row(request_id)["step"], court.received()) == ("held", [])
        assert court.draft(request_id)["hold_reason"] == "policy"
        court.desk().held.approve(request_id, reason="read it")
        court.run("orchestrator")
        assert (court.received(), court.judges) == ([writes], 0)
        assert_sound(court.hf)


# -- privacy


def test_erasing_a_person_erases_what_is_held_and_what_is_judged(court: Court) -> None:
    held = court.send()
    judging = court.submit("Please turn the music down tonight.")
    court.go_on()
    assert [court.row(each)["step"] for each in (held, judging)] == ["held", "judging"]
    court.desk().erase(user_id=SENDER, home_id=HOME, reason="asked")
    for _ in range(2):
        court.go_on()

    for each in (held, judging):
        assert court.draft(each)["rewritten_text"] is None
        assert (court.status(each), court.row(each)["failure_code"]) == ("failed", "erased")
    assert court.desk().held.list() == []
    assert court.outputs() == []
    assert KIND not in str(look(court.hf.store, "SELECT * FROM holdfast.batch_answer"))
    assert_sound(court.hf)


def test_only_the_export_of_a_home_has_a_held_text(court: Court) -> None:
    court.send()
    home = list(court.desk().export(home_id=HOME))
    person = list(court.desk().export(user_id=SENDER, home_id=HOME))

    assert [one["held_text"] for one in home if one["kind"] == "rewrite"] == [KIND]
    assert KIND not in str(person)


def test_a_held_rewrite_expires(court: Court) -> None:
    request_id = court.send()
    court.clock.advance(days=31)
    court.run("orchestrator")
    court.run("orchestrator")

    assert (court.status(request_id), court.draft(request_id)["decision"]) == ("failed", "expire")
    assert court.row(request_id)["failure_code"] == "held_expired"
    assert court.draft(request_id)["rewritten_text"] is None
    assert events(court, request_id)[-1][0] == "held_expired"
    assert_sound(court.hf)


# -- operating


def test_the_doctor_and_the_metrics_report_held_rewrites(court: Court) -> None:
    metrics = Metrics(court.hf)
    court.send()
    operator = court.hf.operate(actor="user:op", role="admin")
    assert not any("held for" in str(one) for one in examine(operator.context, Limits()))
    court.clock.advance(hours=25)

    seen = examine(operator.context, Limits())
    (found,) = [one for one in seen if "held for review" in str(one)]
    assert "rewrite held list" in str(found.remedy)
    said = generate_latest(metrics.registry).decode()
    assert 'holdfast_rewrites_held{reason="disagreement"} 1.0' in said
    assert 'holdfast_rewrite_verdicts_total{code="threat"} 1.0' in said
    assert 'holdfast_rewrites_total{lane="same_language",step="held"' in said


def test_held_rewrites_are_shown_edited_rejected_and_approved_on_the_command_line(
    court: Court, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = court.send(), court.send("Please take the bins out, they smell.")
    third = court.send("Please take the bins out, it is late.")
    who = ("--role", "admin", "--actor", "user:reviewer")

    def cli(*arguments: str) -> Any:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main(["--db", url, "rewrite", "held", *arguments, *who])
        return json.loads(printed.getvalue())

    assert {one["rewrite_request_id"] for one in cli("list", "--json")} == {first, second, third}
    assert cli("show", first)["rewritten_text"] == KIND
    assert cli("edit", first, "--text", EDITED, "--reason", "softer")["status"] == "completed"
    assert cli("reject", second, "--reason", "no")["status"] == "failed"
    assert cli("approve", third, "--reason", "as it is")["status"] == "completed"
    assert cli("list", "--json") == []
    assert sorted(court.received()) == sorted([EDITED, KIND])
    assert events(court, third)[-1][0] == "held_approved"


def test_held_rewrites_are_listed_in_a_table_and_decided_by_the_beginning_of_their_id(
    court: Court, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def cli(*arguments: str) -> str:
        with contextlib.suppress(SystemExit):
            main(["--db", url, "rewrite", "held", *arguments])
        said = capsys.readouterr()
        return said.out + said.err

    assert "No held rewrites" in cli("list")
    sent = [court.send()]
    court.clock.advance(minutes=5)
    sent += [court.send(f"Please take the {what} out.") for what in ("bins", "paper", "glass")]
    heading, *rows = cli("list").splitlines()
    short = [row.split()[0] for row in rows[:4]]

    assert heading.split()[:4] == ["rewrite_request_id", "home_id", "reason", "held_at"]
    assert [one.startswith(given) for one, given in zip(sent, short, strict=True)] == [True] * 4
    assert max(map(len, short)) < len(sent[0])
    assert {"disagreement", "threat"} <= set(rows[0].split())
    assert f"rewrite held show {short[0]}" in rows[-1]
    assert KIND not in "".join(rows)
    for given, command in zip(
        short,
        (["show"], ["approve"], ["reject"], ["edit", "--text", EDITED]),
        strict=True,
    ):
        action, *more = command
        reason = [] if action == "show" else ["--reason", "read it"]
        document = json.loads(cli(action, given, *more, *reason))
        assert document["rewrite_request_id"].startswith(given)
    assert court.status(sent[2]) == "failed"
    assert sorted(court.received()) == sorted([KIND, EDITED])


def test_a_beginning_of_two_ids_or_of_none_decides_nothing(
    court: Court, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = [court.send(), court.send("Please take the bins out, they smell.")]
    # Ids of one hour begin alike.
    for given, said in ((sent[0][:6], "ambiguous"), ("ffff", "No held rewrite"), ("x", "prefix")):
        with pytest.raises(SystemExit) as ended:
            main(["--db", url, "rewrite", "held", "approve", given, "--reason", "r"])
        assert ended.value.code != 0
        assert said in capsys.readouterr().err
    assert [court.status(each) for each in sent] == ["processing"] * 2


def test_no_quote_of_the_judge_is_in_the_log_the_audit_the_metrics_or_the_database(
    court: Court,
) -> None:
    canary = "canary-quote-4711"
    court.writes = f"Could you take the bins out tonight? It would help me. {canary}"
    court.says = verdict("threat", quote=canary, request=f"the secret of {canary}")
    said = io.StringIO()
    log.configure_logging("debug", said)
    court.hf.events.subscribe(log.log_event)
    metrics = Metrics(court.hf)
    request_id = court.send(f"Take the bins out tonight. {canary}")
    court.desk().held.reject(request_id, reason="a threat")
    court.run("orchestrator")
    log.uninstall()

    assert canary not in said.getvalue()
    assert canary not in generate_latest(metrics.registry).decode()
    for table in ("job", "job_event", "dead_letter", "rewrite_draft", "batch_item", "batch_answer",
                  "provider_call", "provider_batch", "rewrite_output"):  # fmt: skip
        assert canary not in str(look(court.hf.store, f"SELECT * FROM holdfast.{table}")), table
    assert canary not in str(court.desk().show(request_id))
    assert_sound(court.hf)
