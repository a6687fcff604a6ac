"""A route whose outputs may be reused: an identical request of the same people asks no model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast import ConfigError, FakeClock, Holdfast
from holdfast.config import Settings
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast_llm.provider.echo import ECHO
from holdfast_llm.provider.reply import Answer, Reply, Usage
from holdfast_rewrite import Rewrites
from holdfast_rewrite import work as working
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.route import Routes
from holdfast_rewrite.settings import RewriteSettings, RouteSettings
from holdfast_rewrite.text_retention import forget_once
from tests.apps.household import (
    HOME,
    RECIPIENT,
    ROUTE,
    SENDER,
    STRANGER,
    Heard,
    request_row,
    rewriting,
    submission,
)
from tests.apps.planted import Deaf
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.operate.sound import assert_sound
from tests.story import look

MODE = ("batch", "async")
CRON = Trigger(TriggerKind.CRON)
KIND = "Could you please take the bins out tonight? It would help me."


class House:
    """An application whose route lets outputs be reused, and a provider that counts."""

    def __init__(self, url: str, clock: FakeClock, **route: Any) -> None:
        self.clock = clock
        row = replace(ROUTE, adapter_kind="scripted", **{"cache_eligible": True, **route})
        self.provider = ScriptedProvider(clock)
        self.hf = rewriting(url, clock)
        self.hf.batch.accounts = ScriptedAccounts(self.provider)
        self.rewrites = Rewrites(self.hf, classifier=Heard(), detector=Deaf())
        self.rewrites.routes._rows = (row,)
        self.said = KIND
        self.provider.answer = self._answer
        directory: Any = self.rewrites.directory
        directory.add_home(HOME)
        for user in (SENDER, RECIPIENT, STRANGER):
            directory.add_member(HOME, user, role=HomeRole.HOUSEMATE, locale="en")

    def _answer(self, line: dict[str, Any]) -> Answer:
        said = {"rewritten_text": self.said, "output_language": "en"}
        if line["body"].get("echo"):
            said[ECHO] = line["body"]["echo"]
        return Reply(json.dumps(said), "model-1", Usage(10, 5), "req-1", None, said)

    def send(self, message: str = KIND, **changes: Any) -> str:
        """Submit a message and let everything happen that follows from it."""
        answer = self.rewrites.submit(submission(message, **changes))
        worker = self.hf.worker()
        while worker.run_once().claimed:
            pass
        perform_run(self.hf, "rewrite_batch_submitter", trigger=CRON)
        self.provider.complete()
        self.clock.advance(minutes=30)
        perform_run(self.hf, "rewrite_batch_collector", trigger=CRON)
        perform_run(self.hf, "rewrite_orchestrator", trigger=CRON)
        return answer.rewrite_request_id

    @property
    def paid(self) -> int:
        return self.provider.paid.total()

    def output(self, rewrite_request_id: str) -> Any:
        (row,) = look(
            self.hf.store,
            "SELECT * FROM holdfast.rewrite_output WHERE rewrite_request_id = :id",
            id=rewrite_request_id,
        )
        return row

    def record(self, rewrite_request_id: str) -> dict[str, Any]:
        return self.rewrites.operate(actor="user:op", role="operator").show(rewrite_request_id)


@pytest.fixture(params=MODE)
def house(request: pytest.FixtureRequest, url: str, clock: FakeClock) -> Any:
    made = House(url, clock, execution_mode=request.param)
    yield made
    made.hf.close()


def test_the_same_message_again_reuses_the_output_and_pays_nothing(house: House) -> None:
    first, again = house.send(), house.send()

    assert house.paid == 1
    record = house.record(again)
    assert (record["status"], record["reused_from"]) == ("completed", first)
    assert house.record(first)["reused_from"] is None
    assert house.output(again)["rewritten_text"] == house.output(first)["rewritten_text"] == KIND
    assert json.loads(house.output(again)["eval_result"])["schema_valid"] is True
    assert [event["name"] for event in record["events"]][-1] == "rewrite_completed"
    assert_sound(house.hf)


@pytest.mark.req("P-16")
@pytest.mark.parametrize(
    "changes",
    [
        {"recipient_user_id": STRANGER},
        {"sender_user_id": STRANGER},
        {"surface": "direct_message"},
        {"message": KIND + " Thanks."},
    ],
    ids=["another recipient", "another sender", "another surface", "another message"],
)
def test_nothing_is_reused_for_other_people_or_another_message(
    house: House, changes: dict[str, Any]
) -> None:
    house.send()
    again = house.send(**changes)

    assert house.paid == 2
    assert house.record(again)["reused_from"] is None


def test_changed_preferences_or_another_prompt_ask_the_model_again(house: House) -> None:
    house.send()
    directory: Any = house.rewrites.directory
    directory.answer(HOME, RECIPIENT, "communication_directness", "gentle")
    house.send()
    (row,) = house.rewrites.routes._rows
    house.rewrites.routes._rows = (replace(row, prompt_version="v2"),)
    house.send()

    assert house.paid == 3


@pytest.mark.req("V-05")
def test_what_the_judge_no_longer_passes_is_not_reused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.send()
    judge = working.evaluate
    seen: list[str] = []

    def strict(request: Any, *, rewritten_text: str, **more: Any) -> Any:
        seen.append(rewritten_text)
        refused = "you shithead" if len(seen) == 1 else ""
        return judge(request, rewritten_text=f"{rewritten_text}{refused}", **more)

    monkeypatch.setattr(working, "evaluate", strict)
    again = house.send()

    assert house.paid == 2
    assert house.record(again)["status"] == "completed"
    assert house.record(again)["reused_from"] is None


def test_what_was_erased_or_forgotten_is_not_reused(house: House) -> None:
    first = house.send()
    house.clock.advance(days=31)
    forget_once(house.hf.store, house.hf.settings.rewrite, limit=10)
    house.send()

    assert request_row(house.hf.store, first)["content_hash"] is None
    assert house.paid == 2


def test_without_the_key_nothing_is_reused_and_no_hash_of_a_text_is_kept(
    url: str, clock: FakeClock
) -> None:
    house = House(url, clock, cache_eligible=False)
    sent = [house.send(), house.send()]

    assert house.paid == 2
    assert [house.record(one)["routing_decision"]["cache_eligible"] for one in sent] == [False] * 2
    assert [request_row(house.hf.store, one)["content_hash"] for one in sent] == [None] * 2
    house.hf.close()


@pytest.mark.req("J-21")
@pytest.mark.parametrize("eligible", [True, False])
def test_the_decision_carries_what_the_route_says(eligible: bool) -> None:
    row = replace(ROUTE, cache_eligible=eligible)
    routes = Routes(Settings(rewrite=RewriteSettings(routes=(row,))))
    request = working_request()

    assert routes.decide(request)["cache_eligible"] is eligible


def working_request() -> Any:
    from holdfast_rewrite.enums import JOB_TYPE, Lane, Strength, Surface
    from holdfast_rewrite.route import RouteRequest

    return RouteRequest(
        JOB_TYPE,
        Surface.OTHER,
        Strength.LIGHT_TOUCH,
        "en",
        "en",
        Lane.SAME_LANGUAGE,
        "v1",
    )


def test_a_key_that_is_no_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="cache_eligible"):
        RouteSettings(cache_eligible="yes")  # type: ignore[arg-type]


def test_a_job_of_an_erased_request_reuses_nothing(house: House, hf: Holdfast) -> None:
    house.send()
    answer = house.rewrites.submit(submission(KIND))
    desk = house.rewrites.operate(actor="user:p", role="admin")
    desk.erase(user_id=SENDER, reason="asked")
    worker = house.hf.worker()
    worker.run_once()
    perform_run(house.hf, "rewrite_batch_submitter", trigger=CRON)

    assert house.paid == 1
    assert house.record(answer.rewrite_request_id)["failure_code"] == "TEXT_ERASED"
