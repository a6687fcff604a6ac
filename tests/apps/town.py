"""Five homes, a provider over HTTP that knows two quarrels, and everything that is said."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from prometheus_client import generate_latest

from holdfast import FakeClock, Holdfast, Settings
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.operate.verify.run import SQL as VERIFY
from holdfast.store import Row
from holdfast.telemetry import log
from holdfast.telemetry.metrics import Metrics
from holdfast_llm.settings import PriceSettings, ProviderSettings
from holdfast_rewrite import Rewrites, Submission
from holdfast_rewrite.classify import Message
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.enums import Surface
from holdfast_rewrite.settings import RewriteSettings, RouteSettings
from holdfast_rewrite.validation import Answer
from holdfast_simulator.prompt import Prompt
from holdfast_simulator.simulator import Simulator
from tests.apps.phrases import KIND, LANGUAGES, SAID
from tests.story import look

KEY = "HOLDFAST_TEST_KEY"
CRON = Trigger(TriggerKind.CRON)
HOMES, MEMBERS = 5, 12


def new_id(kind: int, number: int) -> str:
    return f"0198c0de-0000-7000-80{kind:02x}-{number:012x}"


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of the story, and what there is to know of it."""

    home: str
    sender: str
    recipient: str
    quarrel: str
    source: str
    target: str
    text: str
    surface: str


def sixty() -> list[Sent]:
    """Twelve messages in each home, each of another sender; every second crosses a language."""
    found = []
    for home in range(HOMES):
        people = [new_id(2, home * MEMBERS + at) for at in range(MEMBERS)]
        for at in range(MEMBERS):
            number = home * MEMBERS + at
            source = language_of(home, at)
            quarrel = ("bins", "music")[(at // 2) % 2]
            found.append(
                Sent(
                    home=new_id(1, home),
                    sender=people[at],
                    recipient=people[(at + 1) % MEMBERS],
                    quarrel=quarrel,
                    source=source,
                    target=language_of(home, (at + 1) % MEMBERS),
                    text=f"{SAID[quarrel][source]} (canary-{number:04d})",
                    surface="weekly_feedback" if number % 5 else "direct_message",
                )
            )
    return found


def language_of(home: int, at: int) -> str:
    """Neighbours in pairs speak one language: 0 and 1, 2 and 3 …"""
    return LANGUAGES[(at // 2 + home) % len(LANGUAGES)]


@dataclass
class Model:
    """A model that knows the two quarrels; what it does wrong is said by the test."""

    asked: list[Prompt] = field(default_factory=list)
    wrong: Callable[[str], Any] | None = None

    def __call__(self, prompt: Prompt) -> Any:
        self.asked.append(prompt)
        brief = json.loads(prompt.inputs[0].splitlines()[1])
        message = json.loads(prompt.inputs[0].split("<message>\n")[1].split("\n</message>")[0])
        target = brief["target_language"]
        quarrel = next(
            name for name, said in SAID.items() if said[brief["source_language"]] in message
        )
        if self.wrong is not None:
            return self.wrong(message)
        return {"rewritten_text": KIND[quarrel][target], "output_language": target}


@dataclass
class Town:
    """Homes with people in them, the application, and everything that is said."""

    hf: Holdfast
    rewrites: Rewrites
    clock: FakeClock
    sim: Simulator
    model: Model
    said: io.StringIO
    metrics: Metrics

    @property
    def directory(self) -> SqlDirectory:
        assert isinstance(self.rewrites.directory, SqlDirectory)
        return self.rewrites.directory

    def settle(self, messages: list[Sent]) -> None:
        directory = self.directory
        for home in dict.fromkeys(one.home for one in messages):
            directory.add_home(home)
        for one in messages:
            at = int(one.sender[-12:], 16) % MEMBERS
            role = "owner" if at == 0 else "housemate"
            directory.add_member(one.home, one.sender, role=role, locale=f"{one.source}-001")
            directory.answer(one.home, one.sender, "communication_directness", "gentle")

    def submit(self, messages: list[Sent]) -> list[Answer]:
        return self.rewrites.submit_many(
            Submission(
                home_id=one.home,
                sender_user_id=one.sender,
                recipient_user_id=one.recipient,
                sender_message=one.text,
                surface=one.surface,
                emotion_context="thunderstorm",
            )
            for one in messages
        )

    def run(self, name: str) -> None:
        perform_run(self.hf, name, trigger=CRON)

    def go_on(self) -> None:
        """Make the calls, submit and collect batches, report the outcomes; then advance a day."""
        worker = self.hf.worker()
        while worker.run_once(limit=100).claimed:
            pass
        # A run takes 25 of them and leaves the rest to the next.
        for _ in range(2):
            self.run("rewrite_batch_submitter")
        self.clock.advance(minutes=30)
        self.run("rewrite_batch_collector")
        self.run("rewrite_orchestrator")

    # -- looking

    def requests(self) -> dict[str, Row]:
        rows = look(self.hf.store, "SELECT * FROM holdfast.rewrite_request")
        return {row["rewrite_request_id"]: row for row in rows}

    def records(self) -> dict[str, Row]:
        rows = look(self.hf.store, "SELECT * FROM holdfast.rewrite_job")
        return {row["rewrite_request_id"]: row for row in rows}

    def outputs(self) -> dict[str, Row]:
        rows = look(self.hf.store, "SELECT * FROM holdfast.rewrite_output")
        return {row["rewrite_request_id"]: row for row in rows}

    def spilled(self, words: str, allowed: set[tuple[str, str]]) -> set[str]:
        """Every place that holds *words* and may not."""
        forms = {words, json.dumps(words, ensure_ascii=False)[1:-1], json.dumps(words)[1:-1]}
        found = {
            name
            for name, told in (
                ("log", self.said.getvalue()),
                ("metrics", generate_latest(self.metrics.registry).decode()),
            )
            if any(form in told for form in forms)
        }
        for (table, column), told in self.columns.items():
            if (table, column) not in allowed and any(form in told for form in forms):
                found.add(f"{table}.{column}")
        return found

    @property
    def columns(self) -> dict[tuple[str, str], str]:
        """Everything that the database holds, by column."""
        found: dict[tuple[str, str], list[str]] = {}
        for table in look(self.hf.store, VERIFY.list_tables.raw):
            for row in look(self.hf.store, f"SELECT * FROM holdfast.{table['name']}"):
                for column, value in row.items():
                    if value is not None:
                        found.setdefault((table["name"], column), []).append(str(value))
        return {place: "\n".join(values) for place, values in found.items()}


@contextmanager
def open_town(url: str, clock: FakeClock) -> Iterator[Town]:
    """An application with its homes still empty."""
    model = Model()
    os.environ[KEY] = "sk-simulated-0123456789"
    said = io.StringIO()
    with Simulator(clock=clock, responder=model) as sim:
        account = ProviderSettings(
            base_url=sim.url("openai"),
            credential_env=KEY,
            allow_private=True,
            read_seconds=5,
        )
        hf = Holdfast(
            settings=Settings(
                db=url,
                providers={"openai": account},
                prices=tuple(map(_price, ("batch", "async"))),
                rewrite=RewriteSettings(
                    routes=(_route("batch"), _route("async")), without_judge="gate_only"
                ),
                profiles={},
            ),
            clock=clock,
            rng=random.Random(5),
        )
        log.configure_logging("debug", said)
        hf.events.subscribe(log.log_event)
        rewrites = Rewrites(hf)
        # The first text of a process loads its language's data, which must not be timed here.
        for text in SAID["bins"].values():
            rewrites.orchestrator.classifier.classify(Message("", text, "", Surface.OTHER))
        metrics = Metrics(hf, database=False)
        yield Town(hf, rewrites, clock, sim, model, said, metrics)
        log.uninstall()
        hf.close()


def _route(mode: str) -> RouteSettings:
    return RouteSettings(
        provider="openai",
        adapter_kind="openai_responses",
        model="gpt-5.2",
        execution_mode=mode,
        high_quality=True,
        supports_translation=True,
        surfaces=("weekly_harmony", "other") if mode == "batch" else ("direct_message",),
    )


def _price(mode: str) -> PriceSettings:
    return PriceSettings(
        provider="openai",
        model="*",
        mode=mode,
        valid_from=date(2026, 1, 1),
        input=Decimal(1),
        cache_read=Decimal(1),
        output=Decimal(4),
    )
