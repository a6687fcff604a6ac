"""Measure rewrites with the model judge against rewrites on the gate alone, on SQLite.

    python bench/judge.py [--requests 1000] [--rounds 3]

Messages are submitted, rewritten in provider batches, validated by the gate and, in the second
case, judged in batches of their own before they are stored. The provider is in this process and
answers at once, so the figures are the cost of the machinery. Processor seconds of this process
decide: a busy machine does not distort them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import FakeClock, Holdfast, RunSettings, Settings
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.store import open_store
from holdfast_llm.provider.echo import ECHO
from holdfast_llm.provider.reply import Answer, Reply, Usage
from holdfast_rewrite import Rewrites
from holdfast_rewrite.settings import (
    BATCH_COLLECTOR,
    BATCH_SUBMITTER,
    REWRITE_RUNS,
    JudgeRouteSettings,
    RewriteSettings,
)
from holdfast_rewrite.show import NEWEST
from tests.apps.household import HOME, RECIPIENT, ROUTE, submission
from tests.apps.judged import KIND, SAID, verdict
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider

MANUAL = Trigger(TriggerKind.CRON)
JUDGE = JudgeRouteSettings(provider="openai", adapter_kind="openai_responses", model="judge-1")


def sender(at: int) -> str:
    return f"0198c0de-0000-7000-8000-{at + 4096:012x}"


def answer(line: dict[str, Any]) -> Answer:
    said: dict[str, Any] = {"rewritten_text": KIND, "output_language": "en"}
    if "<rewrite>" in line["body"]["input"][0]:
        said = verdict()
    said[ECHO] = line["body"]["echo"]
    return Reply(json.dumps(said), "model-1", Usage(10, 5), "req-1", None, said)


def profiles() -> dict[str, RunSettings]:
    """Return the two batch runs without their limit of jobs."""
    wide = {"max_jobs_per_run": 10_000, "max_runtime_seconds": 3_600}
    names = (BATCH_SUBMITTER, BATCH_COLLECTOR)
    return {name: replace(REWRITE_RUNS[name], **wide) for name in names}


def count_received(rewrites: Rewrites) -> int:
    before, found = NEWEST, 0
    while page := rewrites.list_received(
        home_id=HOME, user_id=RECIPIENT, limit=1_000, before=before
    ):
        found += len(page)
        before = page[-1].rewrite_request_id
    return found


def measure(folder: Path, requests: int, *, is_judged: bool) -> float:
    """Return the processor seconds from the first message to the last stored rewrite."""
    url = f"sqlite:///{folder}/{'judged' if is_judged else 'gate'}-{time.monotonic_ns()}.db"
    open_store(url, check=False).migrate()
    clock = FakeClock()
    rewrite = RewriteSettings(
        routes=(ROUTE,),
        judge_route=JUDGE if is_judged else JudgeRouteSettings(),
        without_judge="gate_only",
    )
    with Holdfast(settings=Settings(db=url, rewrite=rewrite, runs=profiles()), clock=clock) as hf:
        provider = ScriptedProvider(clock)
        provider.answer = answer
        hf.batch.accounts = ScriptedAccounts(provider)
        rewrites = Rewrites(hf)
        directory: Any = rewrites.directory
        directory.add_home(HOME)
        for user in (RECIPIENT, *map(sender, range(requests))):
            directory.add_member(HOME, user, role="housemate", locale="en")
        messages = [submission(SAID, sender_user_id=sender(at)) for at in range(requests)]
        began = time.process_time()
        for at in range(0, requests, 100):
            rewrites.submit_many(messages[at : at + 100])
        for _ in range(2 if is_judged else 1):
            perform_run(hf, BATCH_SUBMITTER, trigger=MANUAL)
            provider.complete()
            clock.advance(minutes=30)
            perform_run(hf, BATCH_COLLECTOR, trigger=MANUAL)
            perform_run(hf, "rewrite_orchestrator", trigger=MANUAL)
        took = time.process_time() - began
        stored = count_received(rewrites)
    paid = provider.paid.total()
    if stored != requests or paid != requests * (2 if is_judged else 1):
        raise SystemExit(f"{stored} of {requests} rewrites are stored, {paid} items are paid")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The first use of a language loads its data.
        measure(folder, 5, is_judged=True)
        gate, judged = [], []
        for _ in range(given.rounds):
            gate.append(measure(folder, given.requests, is_judged=False))
            judged.append(measure(folder, given.requests, is_judged=True))
    ratio = median(judged) / median(gate)
    print(f"{given.requests} rewrites on SQLite, median of {given.rounds} rounds")
    print(f"  gate alone      {median(gate):6.2f} processor seconds")
    print(f"  gate and judge  {median(judged):6.2f} processor seconds, {ratio:.2f} times")


if __name__ == "__main__":
    main()
