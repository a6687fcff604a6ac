"""An application with a judge, and a provider that plays the writer and the judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast import FakeClock
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.store import Row
from holdfast_llm.provider.echo import ECHO
from holdfast_llm.provider.reply import Answer, Reply, Usage
from holdfast_rewrite import Rewrites
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.settings import JudgeRouteSettings
from holdfast_rewrite.verdict import JudgeCode
from tests.apps.household import (
    HOME,
    RECIPIENT,
    ROUTE,
    SENDER,
    Heard,
    request_row,
    rewriting,
    submission,
)
from tests.apps.planted import Deaf
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.story import look

CRON = Trigger(TriggerKind.CRON)
SAID = "You never take the bins out. Take them out tonight."
KIND = "Could you take the bins out tonight? It would help me a lot."
JUDGE = JudgeRouteSettings(
    provider="openai", adapter_kind="openai_responses", model="judge-1", prompt_version="v1"
)


def verdict(*found: str, quote: str = "the bins", **changes: Any) -> dict[str, Any]:
    """A complete answer of a judge that finds these codes and quotes *quote* for each."""
    fates = {"request_reversed", "request_lost"}
    codes = {*found} if fates & {*found} else {*found, "request_kept"}
    return {
        "request": "Take the bins out.",
        "codes": {
            code.value: {"found": code in codes, "quote": quote if code in codes else ""}
            for code in JudgeCode
        },
        **changes,
    }


class Court:
    """One home, one writer and one judge; *says* is what the judge answers."""

    def __init__(self, url: str, clock: FakeClock, *, mode: str = "batch", **rewrite: Any) -> None:
        self.clock = clock
        self.provider = ScriptedProvider(clock)
        self.judges = 0
        self.writes = KIND
        self.says: Any = verdict()
        self.provider.answer = self._answer
        given: dict[str, Any] = {
            "judge_route": replace(JUDGE, execution_mode=mode),
            "routes": [replace(ROUTE, execution_mode=mode)],
            **rewrite,
        }
        self.hf = rewriting(url, clock, **given)
        self.hf.batch.accounts = ScriptedAccounts(self.provider)
        self.heard = Heard()
        self.rewrites = Rewrites(self.hf, classifier=self.heard, detector=Deaf())
        directory: Any = self.rewrites.directory
        directory.add_home(HOME)
        for user in (SENDER, RECIPIENT):
            directory.add_member(HOME, user, role=HomeRole.HOUSEMATE, locale="en")

    def _answer(self, line: dict[str, Any]) -> Answer:
        asked = "\n".join(line["body"]["input"])
        if "<rewrite>" in asked:
            self.judges += 1
            said = self.says(asked) if callable(self.says) else self.says
        else:
            said = {"rewritten_text": self.writes, "output_language": "en"}
        if isinstance(said, str):
            return Reply(said, "model-1", Usage(10, 5), "req-1", None, None)
        if line["body"].get("echo"):
            said = {**said, ECHO: line["body"]["echo"]}
        return Reply(json.dumps(said), "model-1", Usage(10, 5), "req-1", None, said)

    # -- going on

    def submit(self, message: str = SAID, **changes: Any) -> str:
        return self.rewrites.submit(submission(message, **changes)).rewrite_request_id

    def run(self, name: str) -> None:
        perform_run(self.hf, f"rewrite_{name}", trigger=CRON)

    def go_on(self) -> None:
        """Everything happens once: calls, batches out and back, and the orchestrator."""
        worker = self.hf.worker()
        while worker.run_once().claimed:
            pass
        self.run("batch_submitter")
        self.provider.complete()
        self.clock.advance(minutes=30)
        self.run("batch_collector")
        self.run("orchestrator")

    def send(self, message: str = SAID) -> str:
        """Submit a message and let it be written and judged."""
        request_id = self.submit(message)
        self.go_on()
        self.go_on()
        return request_id

    # -- looking

    def row(self, request_id: str) -> Row:
        return request_row(self.hf.store, request_id)

    def draft(self, request_id: str) -> Row:
        (row,) = look(
            self.hf.store,
            "SELECT * FROM holdfast.rewrite_draft WHERE rewrite_request_id = :id",
            id=request_id,
        )
        return row

    def outputs(self) -> list[str]:
        rows = look(self.hf.store, "SELECT rewritten_text FROM holdfast.rewrite_output")
        return [row["rewritten_text"] for row in rows]

    def received(self) -> list[str]:
        found = self.rewrites.list_received(home_id=HOME, user_id=RECIPIENT)
        return [one.rewritten_text for one in found]

    def status(self, request_id: str) -> str:
        return self.rewrites.find_sent(request_id, home_id=HOME, user_id=SENDER).status

    def desk(self, role: str = "admin", actor: str = "user:reviewer") -> Any:
        return self.rewrites.operate(actor=actor, role=role, org_id=HOME)


@contextmanager
def open_court(url: str, clock: FakeClock, **options: Any) -> Iterator[Court]:
    court = Court(url, clock, **options)
    try:
        yield court
    finally:
        court.hf.close()
