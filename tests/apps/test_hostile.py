"""What others may try: rows by hand, a directory that lies, a tenant's own SQL, a curious eye."""

from __future__ import annotations

import traceback
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors as pg

from holdfast import FakeClock, Holdfast
from holdfast.config import RunProfile
from holdfast.document import encode
from holdfast.engine.periodic_task import RunBudget
from holdfast.errors import Forbidden, RuleViolated, StoreError
from holdfast_llm.batch.rendered_request import RenderedRequest
from holdfast_llm.provider.reply import ItemAnswer, Reply
from holdfast_rewrite.decide import Decision, Written
from holdfast_rewrite.directory import Household, Member
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound
from holdfast_rewrite.finish import OrchestratorTask, finish_once
from holdfast_rewrite.intake import SQL as INTAKE
from holdfast_rewrite.prompt import prompt_for
from holdfast_rewrite.rewrites import Rewrites
from tests.apps.household import (
    HOME,
    OTHER_HOME,
    RECIPIENT,
    SENDER,
    Heard,
    furnish,
    intake,
    request_row,
    result_of,
    rewriting,
    submission,
)
from tests.apps.planted import ORIGINAL, REWRITE, Planted, Stage
from tests.engine.planting import plant
from tests.operate.sound import assert_sound, report_of, violations
from tests.story import look


@pytest.fixture
def heard() -> Heard:
    """A classifier that waits, so that submitted requests stay until the run processes them."""
    return Heard(waits=True)


# -- rows by hand


@pytest.mark.parametrize(
    "broken", ["sender_role = NULL", "sender_role = 'landlord'", "surface = NULL"]
)
def test_an_unreadable_request_fails_alone_and_blocks_no_other(
    rewrites: Rewrites, broken: str
) -> None:
    hf = rewrites.hf
    bad, good = rewrites.submit_many([submission(), submission()])
    plant(
        hf,
        f"UPDATE holdfast.rewrite_request SET {broken} WHERE rewrite_request_id = :id",
        id=bad.rewrite_request_id,
    )

    assert rewrites.orchestrator.resume_once() == 2
    assert request_row(hf.store, good.rewrite_request_id)["step"] == "enqueued"
    assert request_row(hf.store, bad.rewrite_request_id)["failure_code"] == "abandoned"
    assert_sound(hf)


def test_a_text_in_the_audit_of_a_request_is_found(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    finish_once(stage.store, reveal_delay=timedelta(days=1))
    whole = violations(report_of(stage.hf, only=["I41"]))
    said = encode({"subject": f"rewrite:{planted.id}", "note": ORIGINAL})
    plant(
        stage.hf,
        "UPDATE holdfast.audit_event SET detail = :said WHERE name = 'rewrite_completed'",
        said=said,
    )

    assert whole == {}
    assert violations(report_of(stage.hf, only=["I41"])) == {
        "I41": [f"rewrite:{planted.id} its original_text lies in its audit"]
    }


# -- a directory that is somebody else's


@pytest.mark.parametrize(
    ("locale", "answers"),
    [("de\0", {}), ("de\ud800", {}), ("de", {"a\0": "b"}), ("de", {"a": "\udfff"})],
)
def test_what_a_directory_says_that_no_database_takes_fails_that_message_alone(
    rewrites: Rewrites, locale: str, answers: dict[str, str]
) -> None:
    class Lying:
        def look(self, home_id: str, sender_user_id: str, recipient_user_id: str) -> Household:
            sender = Member(sender_user_id, HomeRole.OWNER, "en")
            if recipient_user_id != RECIPIENT:
                return Household(sender, Member(recipient_user_id, HomeRole.OWNER, "de"), {})
            return Household(sender, Member(RECIPIENT, HomeRole.OWNER, locale), answers)

    rewrites.orchestrator.directory = Lying()
    bad, good = rewrites.submit_many([submission(), submission(recipient_user_id=OTHER_HOME)])

    assert (bad.status, good.status) == ("failed", "queued")
    row = request_row(rewrites.hf.store, bad.rewrite_request_id)
    assert row["failure_code"] == "directory_failed"


# -- a run that has too much to do


def test_a_model_that_uses_all_the_time_of_a_run_does_not_delay_finished_requests(
    stage: Stage,
) -> None:
    planted = stage.plant()
    stage.answer()

    def slow(limit: int) -> int:
        stage.clock.advance(hours=1)
        return limit

    task = OrchestratorTask(stage.hf, resume=slow, count_unfinished=lambda _: 1_000_000)
    clock = stage.hf.clock
    task.perform(RunBudget("run", ("q:default",), (), RunProfile(max_jobs_per_run=10_000), clock))

    assert stage.told(planted) == ["rewrite_completed"]


# -- whoever asks in the name of others


@pytest.mark.parametrize("limit", [0, -1, 1_001, True, "5", None])
def test_a_page_has_a_length(rewrites: Rewrites, limit: Any) -> None:
    for listed in (rewrites.list_sent, rewrites.list_received):
        with pytest.raises(InvalidRewrite, match="limit: must be from 1 to 1000"):
            listed(home_id=HOME, user_id=SENDER, limit=limit)


def test_no_call_reaches_into_another_home(rewrites: Rewrites) -> None:
    hf = rewrites.hf
    mine = rewrites.submit(submission()).rewrite_request_id
    desk = rewrites.operate(actor="user:b", role="admin", org_id=OTHER_HOME)

    with pytest.raises(RewriteNotFound):
        rewrites.find_sent(mine, home_id=OTHER_HOME, user_id=SENDER)
    with pytest.raises(RewriteNotFound):
        desk.show(mine)
    for whose in ({"home_id": HOME}, {"user_id": SENDER}, {"user_id": SENDER, "home_id": HOME}):
        with pytest.raises(Forbidden):
            desk.erase(reason="asked", **whose)
        with pytest.raises(Forbidden):
            desk.export(**whose)
    desk.erase(user_id=SENDER, home_id=OTHER_HOME, reason="asked")

    assert list(desk.export(user_id=SENDER, home_id=OTHER_HOME)) == []
    assert rewrites.list_sent(home_id=OTHER_HOME, user_id=SENDER) == []
    assert rewrites.list_received(home_id=OTHER_HOME, user_id=RECIPIENT) == []
    assert request_row(hf.store, mine)["erased_at"] is None
    assert_sound(hf)


# -- a tenant's own SQL


TABLES = ["preference_answer", "rewrite_block", "rewrite_request", "rewrite_message"]
TABLES += ["recipient_snapshot", "recipient_preference_snapshot", "rewrite_output"]
TABLES += ["rewrite_status", "rewrite_job"]


def test_a_homes_own_sql_reads_its_members_and_nothing_else(postgres_url: str) -> None:
    with rewriting(postgres_url, FakeClock()) as hf:
        made = Rewrites(hf, classifier=Heard())
        furnish(made)
        directory: Any = made.directory
        directory.add_home(OTHER_HOME)
        directory.add_member(OTHER_HOME, SENDER, role="owner")
        made.submit(submission())
        with hf.store.tenant_transaction(OTHER_HOME, None, lambda tx: None) as theirs:
            homes = theirs.execute("SELECT DISTINCT org_id::text FROM holdfast.home").fetchall()
            members = theirs.execute("SELECT org_id::text FROM holdfast.home_member").fetchall()
            jobs = theirs.execute("SELECT count(*) FROM holdfast.job").fetchall()
            events = theirs.execute(
                "SELECT count(*) FROM holdfast.job_event WHERE org_id <> %s", (OTHER_HOME,)
            ).fetchall()

        assert (homes, members, jobs, events) == ([(OTHER_HOME,)], [(OTHER_HOME,)], [(0,)], [(0,)])
        forbidden = [f"SELECT * FROM holdfast.{table}" for table in TABLES]
        forbidden += [
            "DELETE FROM holdfast.home_member",
            "UPDATE holdfast.home_member SET role = 'owner'",
            "INSERT INTO holdfast.home VALUES (gen_random_uuid(), now())",
        ]
        for text in forbidden:
            with (
                pytest.raises((pg.InsufficientPrivilege, RuleViolated, StoreError)),
                hf.store.tenant_transaction(HOME, None, lambda tx: None) as own,
            ):
                own.execute(text.encode())


# -- who looks into what went wrong


def test_no_value_shows_a_text_when_it_is_printed(stage: Stage) -> None:
    request = stage.request(ORIGINAL)
    prompt = prompt_for(request, "v1")
    reply = Reply(REWRITE, "m", data={"rewritten_text": REWRITE})
    decision = Decision(intake(ORIGINAL), result_of())
    values = [
        request,
        Written.from_request(request),
        prompt,
        prompt.with_echo("abcd"),
        RenderedRequest(prompt, "abcd", {"input": ORIGINAL}),
        reply,
        ItemAnswer("c", reply, "d"),
        decision,
        replace(decision, request=request, written=Written.from_request(request)),
        Planted(request, "j"),
    ]

    for value in values:
        assert "bins" not in repr(value), type(value)


def test_an_error_of_the_database_quotes_no_row_however_it_is_printed(hf: Holdfast) -> None:
    row = {
        "org_id": HOME,
        "rewrite_request_id": HOME,
        "original_text": ORIGINAL,
        "emotion_context": "\0",
    }
    with pytest.raises(StoreError) as raised:
        hf.store.write(lambda tx: tx.affected(INTAKE.insert_messages, messages=[row, row]))

    # PostgreSQL's context quotes what stands before the character that it does not take.
    assert "tonight" in ORIGINAL
    assert "tonight" not in "".join(traceback.format_exception(raised.value))


def test_no_word_of_a_message_comes_out_of_what_operators_read(stage: Stage) -> None:
    stage.plant()
    stage.answer({"rewritten_text": "You idiot, the bins!", "output_language": "en"})
    failed = stage.planted[-1]
    desk = stage.hf.operate(actor="user:a", role="admin")
    shown = [
        repr(stage.job(failed)),
        str(stage.job(failed).record),
        repr(desk.explain(failed.job_id)),
        str(look(stage.store, "SELECT * FROM holdfast.dead_letter")),
        str(look(stage.store, "SELECT * FROM holdfast.rewrite_job")),
        str(look(stage.store, "SELECT * FROM holdfast.job_event")),
    ]

    assert stage.job(failed).state == "failed"
    assert [text for text in shown if "bins" in text or "idiot" in text] == []
