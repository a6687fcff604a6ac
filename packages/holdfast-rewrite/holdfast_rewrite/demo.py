"""The rewrite act of ``holdfast demo``: sharp messages become kind ones in one provider batch.

The model provider is simulated by holdfast-simulator. It accepts the batch and resets the
connection before it answers. The clock is a fake one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast import FakeClock, Holdfast, Settings, dispatch_once, sync_schedules
from holdfast_llm import ProviderSettings
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.rewrites import Rewrites
from holdfast_rewrite.settings import JudgeRouteSettings, RewriteSettings, RouteSettings
from holdfast_rewrite.show import Received
from holdfast_rewrite.validation import Submission
from holdfast_simulator import Prompt, Simulator, with_judge

if TYPE_CHECKING:
    from holdfast.demo.acts import ActReport

LOCALES = {"Nora": "en-GB", "Ben": "en-US", "Luis": "es-MX", "Amélie": "fr"}
MOST_DISPATCHES = 16


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and the answer of the simulated model. The leak detector follows *canary*."""

    sender: str
    recipient: str
    sharp: str
    kind: str
    canary: str

    @property
    def text(self) -> str:
        return f"{self.sharp} {self.canary}"

    @property
    def language(self) -> str:
        return LOCALES[self.recipient].partition("-")[0]


EXCHANGES = (
    Exchange(
        "Amélie",
        "Nora",
        "Encore la musique à fond hier soir, tu ne penses qu'à toi, j'en ai marre.",
        "The music last night made it hard to sleep. Could you turn it down a little at night?",
        "canary-1a",
    ),
    Exchange(
        "Ben",
        "Luis",
        "Clean the bloody kitchen after yourself for once, it is disgusting!",
        "¿Podrías ordenar un poco la cocina después de cocinar? Me ayudaría mucho.",
        "canary-2b",
    ),
    Exchange(
        "Nora",
        "Ben",
        "Take the damn bins out for once, you lazy slob!",
        "Could you take the bins out? It would help me a lot.",
        "canary-3c",
    ),
)


def run(report: ActReport) -> None:
    """Rewrite the messages, lose the answer to the batch, and count what was paid and read."""
    os.environ["SIMULATED_KEY"] = "not-a-real-key"
    clock = FakeClock()
    with Simulator(clock=clock, responder=with_judge(_answer)) as simulator:
        hf = Holdfast(settings=_settings(report.folder, simulator), clock=clock)
        try:
            _play(report, hf, clock, simulator)
        finally:
            hf.close()


def _play(report: ActReport, hf: Holdfast, clock: FakeClock, simulator: Simulator) -> None:
    directory = SqlDirectory(hf)
    rewrites = Rewrites(hf, directory=directory)
    home = str(uuid4())
    users = {name: str(uuid4()) for name in LOCALES}
    directory.add_home(home)
    for name, user_id in users.items():
        directory.add_member(home, user_id, role="housemate", locale=LOCALES[name])
    sync_schedules(hf)
    submitted = {
        rewrites.submit(
            Submission(home, users[one.sender], users[one.recipient], one.text, "weekly_feedback")
        ).rewrite_request_id: one
        for one in EXCHANGES
    }
    report.say(f"{len(submitted)} sharp messages wait for a batch of the model provider.")
    fault = simulator.faults.add("accept_then_reset", provider="openai")
    for _ in range(MOST_DISPATCHES):
        clock.advance(minutes=15)
        dispatch_once(hf)
        if len(_received(rewrites, home, users)) == len(submitted):
            break
    # The next run of the orchestrator records the ends of the requests.
    clock.advance(minutes=15)
    dispatch_once(hf)
    report.require("the answer to the batch was lost", fault.fired == 1)
    received = _received(rewrites, home, users)
    _report(report, submitted, received, simulator)


def _received(
    rewrites: Rewrites, home: str, users: Mapping[str, str]
) -> list[tuple[str, Received]]:
    """What every user can read, with the user's name."""
    return [
        (name, one)
        for name, user_id in users.items()
        for one in rewrites.list_received(home_id=home, user_id=user_id)
    ]


def _report(
    report: ActReport,
    submitted: Mapping[str, Exchange],
    received: Sequence[tuple[str, Received]],
    simulator: Simulator,
) -> None:
    charges = simulator.ledger.charges
    report.require("every message is rewritten and judged once", len(charges) == 2 * len(submitted))
    report.say("The provider accepted the batch; its answer was lost.")
    report.say("A lookup found the batch, so it was not submitted again.")
    report.say("A second model judged every rewrite before it was delivered.")
    for request, exchange in submitted.items():
        report.say(f"{exchange.sender} writes: {exchange.sharp}")
        for name, one in received:
            if one.rewrite_request_id == request:
                report.say(f"{name} reads: {one.rewritten_text}")
    read = [one.rewrite_request_id for _, one in received]
    misdirected = [
        one for name, one in received if submitted[one.rewrite_request_id].recipient != name
    ]
    report.count("messages", len(submitted), "sharp messages that were submitted")
    report.count("rewritten", len(read), "kind messages that their recipients read")
    report.count(
        "charges", len(charges), "executions that the provider billed: rewrites and verdicts"
    )
    report.count("lost", len(submitted.keys() - set(read)), "messages without a rewrite")
    report.count("doubled", len(read) - len(set(read)), "messages with two rewrites")
    report.count("paid twice", len(simulator.ledger.double_paid()), "billed more than once")
    report.count(
        "leaked", len(simulator.leaks.found) + len(misdirected), "seen outside their own request"
    )


def _answer(prompt: Prompt) -> dict[str, str]:
    """The answer of the simulated model."""
    found = next(one for one in EXCHANGES if one.canary in prompt.text)
    return {"rewritten_text": found.kind, "output_language": found.language}


def _settings(folder: Path, simulator: Simulator) -> Settings:
    provider = ProviderSettings(
        base_url=simulator.url("openai"), credential_env="SIMULATED_KEY", allow_private=True
    )
    route = RouteSettings(
        provider="openai",
        adapter_kind="openai_responses",
        model="gpt-5.2",
        high_quality=True,
        supports_translation=True,
    )
    judge = JudgeRouteSettings(
        provider="openai", adapter_kind="openai_responses", model="gpt-5-mini"
    )
    sections: dict[str, Any] = {
        "providers": {"openai": provider},
        "rewrite": RewriteSettings(routes=(route,), judge_route=judge),
    }
    return Settings(db=f"sqlite:///{folder}/rewrite.db", **sections)
