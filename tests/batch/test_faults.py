"""With every provider fault and a kill at every point, no item is paid twice, lost or leaked.

The tests run every fault script of the simulator and a kill at every point of batch processing,
with two concurrent workers. Each fault runs with one of its providers, and every provider has
faults of each class. ``make batch-faults`` runs each fault with all its providers, on both
databases, and prints the counts.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast_llm import Request
from holdfast_simulator.faults import Rule
from holdfast_simulator.models import Pace
from holdfast_simulator.prompt import Finish, ItemError, Prompt, Said, respond
from holdfast_simulator.scripts import LIFECYCLE, LISTING, RESULTS, SCRIPTS, SUBMIT
from holdfast_simulator.simulator import Simulator
from tests.batch.dying import die
from tests.batch.house import COLLECTOR, PATIENCE, SUBMITTER, House, Shorten, Tally
from tests.failpoints import BatchPoint as Point
from tests.story import look

SEEDS = int(os.environ.get("HOLDFAST_FAULT_SEEDS", "1"))
TABLE = os.environ.get("HOLDFAST_FAULT_TABLE")
JOBS = 8 if TABLE else 4

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Case:
    """A fault and the expected outcome of the jobs."""

    fault: str
    options: dict[str, Any] = field(default_factory=dict)
    completed: int = JOBS
    dead: dict[str, int] = field(default_factory=dict)
    # Jobs that wait for an operator at the end.
    held: int = 0
    # Attempts of all jobs.
    charged: int = 0
    # The expected alerts.
    alerts: tuple[str, ...] = ()
    providers: tuple[str, ...] = ("openai",)
    # How long the provider runs a batch, in minutes.
    runs: float = 1.0
    # An operator cancels the batch in between.
    cancels: bool = False
    # Settings of the workers that differ from the default.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [str(value) for value in self.options.values() if not isinstance(value, tuple)]
        return "-".join([self.fault, *words])


ALL = ("openai", "gemini", "anthropic", "mistral")
KEYED = ("openai", "gemini", "mistral")

CASES = [
    # -- submit
    Case("reset_before", providers=KEYED),
    Case("accept_then_reset", providers=KEYED),
    Case("accept_then_500", providers=KEYED),
    Case("accept_then_hang", providers=KEYED),
    Case("zombie_create", {"minutes": 10.0}, providers=KEYED),
    Case("zombie_create", {"minutes": 40.0}, providers=KEYED),
    # If the listing has no batch of ours, a batch that fits is ours; if none fits after an hour,
    # none was created.
    Case("accept_then_reset", providers=("anthropic",)),
    Case("zombie_create", {"minutes": 10.0}, providers=("anthropic",)),
    Case("reset_before", providers=("anthropic",)),
    Case("accept_then_500", providers=("anthropic",)),
    Case("list_lag", providers=("anthropic",)),
    Case("foreign_batches", {"items": 3}, providers=("anthropic",)),
    Case(
        "foreign_batches",
        {"items": JOBS},
        completed=0,
        held=JOBS,
        alerts=("quarantined",),
        providers=("anthropic",),
    ),
    Case("proxy_html"),
    Case("proxy_html", {"accepted": True}),
    Case("proxy_html", {"status": 504, "accepted": True}),
    Case("truncated_json"),
    Case("rate_limited", providers=ALL),
    Case("rate_limited_date"),
    Case("rate_limited_ms"),
    Case("rate_limited_long"),
    Case("quota_exhausted", providers=ALL, alerts=("circuit_opened",)),
    Case("slow_down"),
    Case("overloaded", providers=ALL),
    Case("overloaded_529", providers=ALL),
    Case("key_rotated", providers=ALL, alerts=("circuit_opened",)),
    Case("forbidden", alerts=("circuit_opened",)),
    Case("conflict", providers=ALL),
    Case("too_large", charged=JOBS),
    Case("upload_answer_lost", providers=("openai", "gemini", "mistral")),
    Case("file_not_visible", providers=("openai", "gemini", "mistral")),
    Case("file_deleted_before_validation", charged=JOBS),
    Case("upload_name_taken", providers=("gemini",)),
    Case("upload_interrupted", providers=("openai", "gemini", "mistral")),
    # -- listing: only after a create without an answer
    Case("list_lag"),
    Case("list_page_shifts", {"variant": "repeat"}),
    Case("list_page_shifts", {"variant": "skip"}),
    Case("list_without_metadata"),
    Case("metadata_altered"),
    Case("foreign_batches"),
    Case("has_more_wrong"),
    Case("list_500"),
    # -- lifecycle
    Case("stuck_validating", charged=JOBS, providers=ALL),
    Case("token_limit_async"),
    Case("token_limit_at_create"),
    # A line with an error at first and a result the next time: it does not count as an attempt.
    Case("validation_failed"),
    Case("validation_failed", {"numbered": False}, charged=JOBS),
    Case("long_finalizing"),
    Case("expired_partial", charged=JOBS // 2, providers=("openai", "mistral", "anthropic")),
    Case("expired_nothing", charged=JOBS, providers=ALL),
    Case("canceled_partial", charged=JOBS // 2, providers=ALL),
    Case("cancel_races_completion", runs=60.0, cancels=True),
    Case("unknown_status", alerts=("unknown_status",), runs=60.0),
    Case("status_regresses"),
    Case("error_file_only", charged=JOBS, providers=ALL),
    Case("empty_string_ids"),
    Case("empty_error_file"),
    Case("counts_disagree"),
    Case("batch_vanishes"),
    Case("batch_vanishes", {"calls": None}, completed=0, held=JOBS, alerts=("quarantined",)),
    # -- results
    Case("shuffled", providers=ALL),
    Case(
        "missing_line",
        completed=JOBS - 1,
        held=1,
        alerts=("missing_result", "quarantined"),
        providers=ALL,
    ),
    Case("duplicate_identical", providers=ALL),
    Case(
        "duplicate_conflicting",
        completed=JOBS - 1,
        dead={"RESULT_CONFLICT": 1},
        charged=1,
        alerts=("conflicting_result",),
        providers=ALL,
    ),
    Case("unknown_custom_id", alerts=("unknown_item",), providers=ALL),
    Case(
        "cross_wired",
        completed=0,
        dead={"OUTPUT_INVALID": 2},
        held=JOBS - 2,
        charged=2,
        alerts=("cross_wired", "quarantined"),
        providers=(*ALL, "azure"),
    ),
    Case("truncated_download", {"framing": "fixed"}, providers=ALL),
    Case("truncated_download", {"framing": "chunked"}, providers=ALL),
    Case("slow_download", {"variant": "slow"}),
    Case("slow_download", {"variant": "range_416"}),
    Case("slow_download", {"variant": "gone_404"}),
    Case("odd_usage", {"variant": "missing"}, providers=ALL),
    # -- faults of normal operation
    Case("item_error", {"status": 500, "count": 2}, charged=2, providers=ALL),
]

# Faults of a listing matter only during a lookup.
LISTED = {
    "list_lag",
    "list_page_shifts",
    "list_without_metadata",
    "metadata_altered",
    "foreign_batches",
    "has_more_wrong",
    "list_500",
}


# The variants of these run side by side, each in a separate batch.
SIDE_BY_SIDE = {"odd_lines", "odd_answers", "odd_usage"}


def class_of(fault: str) -> str:
    """The phase of a batch in which a fault happens."""
    classes = {"submit": SUBMIT, "listing": LISTING, "lifecycle": LIFECYCLE, "results": RESULTS}
    for name, scripts in classes.items():
        if fault in {script.name for script in scripts}:
            return name
    return "items"


def choose(cases: list[Case]) -> list[tuple[Case, str]]:
    """Each case with the provider that has had the fewest faults of its class."""
    met = Counter[tuple[str, str]]()
    chosen = []
    for case in cases:
        of = class_of(case.fault)
        provider = min(case.providers, key=lambda name: met[name, of])
        met[provider, of] += 1
        chosen.append((case, provider))
    return chosen


EVERY = [(case, provider) for case in CASES for provider in case.providers]
PLAYED = EVERY if TABLE else choose(CASES)


def test_every_fault_script_is_played() -> None:
    assert {case.fault for case, _ in PLAYED} | SIDE_BY_SIDE == set(SCRIPTS)


def test_every_provider_has_faults_of_each_class() -> None:
    def met(played: list[tuple[Case, str]]) -> set[tuple[str, str]]:
        return {(provider, class_of(case.fault)) for case, provider in played}

    # Only one script is of the class "items".
    assert met(EVERY) - met(PLAYED) <= {(provider, "items") for provider in ALL}


@pytest.fixture(params=range(SEEDS))
def seed(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def sim(clock: FakeClock, seed: int) -> Iterator[Simulator]:
    with Simulator(clock=clock, seed=seed) as made:
        yield made


def play(house: House, case: Case) -> Rule:
    """Enqueue, inject the fault, and continue until no work is left."""
    house.sim.state.pace = Pace(running=60 * case.runs)
    house.enqueue(JOBS)
    rule = house.sim.faults.add(case.fault, **case.options)
    if case.fault in LISTED:
        house.sim.faults.add("accept_then_reset")
    if case.cancels:
        house.turn()
        (batch,) = house.batches()
        desk = house.hf.operate(actor="user:op", role="admin")
        desk.batches(house.hf.batch.service).cancel(batch["id"], reason="not needed")
    house.go_on()
    return rule


def judge(house: House, what: str, tally: Tally) -> None:
    """Check the invariants of every case, and write a row of the table."""
    if TABLE:
        row = {"fault": what, "db": house.hf.store.dialect.name, **tally.row()}
        with Path(TABLE).open("a") as file:
            file.write(json.dumps(row) + "\n")
    assert tally.paid_twice == 0, house.sim.ledger.double_paid()
    assert tally.lost == 0, (tally.states, house.batches())
    assert tally.leaked == 0, house._leaks(house.rows())
    assert tally.wrong == {}
    assert [entry.defect for entry in house.sim.journal.find() if entry.defect] == []


# -- faults of a provider


# Faults that end when the caller stops waiting.
SILENT = ("accept_then_hang", "slow_download")


@pytest.mark.req("E-17", "P-19", "P-21", "P-22", "P-13", "P-14")
@pytest.mark.parametrize(
    ("case", "provider"), PLAYED, ids=[f"{provider}-{case.name}" for case, provider in PLAYED]
)
def test_a_fault_costs_nothing_twice_and_loses_nothing(
    url: str, clock: FakeClock, sim: Simulator, case: Case, provider: str
) -> None:
    patience = 0.5 if case.fault in SILENT else PATIENCE
    with House(url, clock, sim, provider, case.settings, patience) as house:
        rule = play(house, case)

        tally = house.tally()
        judge(house, case.fault, tally)
        assert rule.fired
        assert tally.states["completed"] == case.completed
        assert dict(tally.errors) == case.dead
        assert (tally.held, tally.charged) == (case.held, case.charged)
        assert set(case.alerts) <= set(house.alerts), house.alerts


def enqueue_batches(house: House, count: int, jobs: int) -> None:
    """This many batches of this many jobs, one batch for each language."""
    for number in range(count):
        house.enqueue(jobs, routing_decision={"target_locale": f"x{chr(ord('a') + number)}"})


# The error of the job by variant of an answer. Of the last two, one is completed at its second
# attempt, the other at once.
ODD_ANSWERS = {
    "incomplete": "OUTPUT_TRUNCATED",
    "filtered": "POLICY_REJECTED",
    "refusal": "POLICY_REJECTED",
    "empty": "OUTPUT_INVALID",
    "reasoning_only": "OUTPUT_INVALID",
    "wrong_locale": "SCHEMA_INVALID",
    "invalid_json": "OUTPUT_INVALID",
    "all_null": "OUTPUT_INVALID",
    "failed": None,
    "several_messages": None,
}


@pytest.mark.req("E-17", "P-19", "P-21", "P-22")
def test_an_odd_answer_decides_about_its_own_job_only(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    with House(url, clock, sim) as house:
        enqueue_batches(house, len(ODD_ANSWERS), jobs=2)
        # Each create uses the next one.
        rules = [sim.faults.add("odd_answers", variant=variant) for variant in ODD_ANSWERS]
        house.go_on()

        tally = house.tally()
        judge(house, "odd_answers", tally)
        assert [rule.options["variant"] for rule in rules if not rule.fired] == []
        assert tally.errors == Counter(word for word in ODD_ANSWERS.values() if word)
        assert (tally.states["completed"], tally.held) == (len(ODD_ANSWERS) + 2, 0)
        assert tally.charged == len(ODD_ANSWERS) - 1


UNREADABLE = ("malformed", "long_line", "invalid_utf8")
READABLE = ("blank", "crlf", "bom", "no_final_newline", "separators")


@pytest.mark.req("E-17", "P-19", "P-21", "P-22")
def test_a_line_that_cannot_be_read_holds_its_own_job_only(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    lines = (*UNREADABLE, *READABLE)
    with House(url, clock, sim) as house:
        enqueue_batches(house, len(lines), jobs=2)
        rules = [sim.faults.add("odd_lines", variant=variant) for variant in lines]
        house.go_on()

        tally = house.tally()
        judge(house, "odd_lines", tally)
        assert [rule.options["variant"] for rule in rules if not rule.fired] == []
        held = len(UNREADABLE)
        assert (tally.states["completed"], tally.held) == (len(house.jobs) - held, held)
        assert (tally.errors, tally.charged) == ({}, 0)
        for alert in ("malformed_line", "missing_result", "quarantined"):
            assert house.alerts[alert] == held


@pytest.mark.req("E-17", "P-19")
def test_an_answer_with_odd_usage_reaches_its_job(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    with House(url, clock, sim) as house:
        enqueue_batches(house, 3, jobs=2)
        rules = [
            sim.faults.add("odd_usage", variant=variant)
            for variant in ("missing", "huge", "other_model")
        ]
        house.go_on()

        tally = house.tally()
        judge(house, "odd_usage", tally)
        assert [rule.options["variant"] for rule in rules if not rule.fired] == []
        assert tally.states == {"completed": 6}
        assert (tally.held, tally.charged) == (0, 0)


OWN = {"rid": {"type": "string"}, "text": {"type": "string"}}
OWN_RID = {"type": "object", "properties": OWN, "required": list(OWN)}


@pytest.mark.req("P-14", "P-16")
@pytest.mark.parametrize(
    ("provider", "asked"),
    [
        ("gemini", {}),
        ("gemini", {"schema": OWN_RID}),
        ("openai", {"wants_echo": True}),
    ],
    ids=["plain", "own_rid", "asked_for"],
)
def test_no_form_of_an_answer_lets_another_tenants_through(
    url: str,
    clock: FakeClock,
    sim: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    asked: dict[str, Any],
) -> None:
    monkeypatch.setattr(
        Shorten, "request", lambda _, item: Request((item.payload["text"],), **asked)
    )
    monkeypatch.setattr(Shorten, "accept", lambda _, item, reply: {"text": reply.text})
    with House(url, clock, sim, provider) as house:
        house.enqueue(4)
        sim.faults.add("cross_wired")
        house.go_on()

        tally = house.tally()
        judge(house, "cross_wired", tally)
        assert dict(tally.errors) == {"OUTPUT_INVALID": 2}
        assert (tally.states["completed"], tally.held) == (0, 2)
        assert {"cross_wired", "quarantined"} <= set(house.alerts)


def quote(prompt: Prompt) -> Said:
    """A model that repeats its request in every field that allows it."""
    number = int(re.findall(r"number (\d+)", prompt.text)[0])
    good, quoted = respond(prompt), prompt.text[:60]
    return (
        Said(f"No JSON at all, but your text: {quoted}"),
        Said(json.dumps({"text": quoted, "more": quoted})),
        Said(error=ItemError(400, "invalid_value", f"This is wrong: {quoted}")),
        Said(error=ItemError(400, quoted, quoted)),
        Said(good.text[:-1], finish=Finish.LENGTH),
        Said(good.text, finish=Finish.REFUSED),
        Said(good.text, model=quoted),
        good,
    )[number]


@pytest.mark.req("P-25")
@pytest.mark.parametrize("provider", ALL)
def test_a_provider_that_quotes_a_text_in_its_errors_leaks_nothing(
    url: str, clock: FakeClock, provider: str
) -> None:
    with (
        Simulator(clock=clock, responder=quote) as sim,
        House(url, clock, sim, provider) as house,
    ):
        house.enqueue(8)
        house.go_on()

        tally = house.tally()
        judge(house, "texts in errors", tally)
        assert tally.states["failed"] >= 5


# -- kills of a worker


@dataclass(frozen=True)
class Death:
    """A point, and the steps by which a worker reaches it."""

    point: Point
    run: str
    # The earlier runs of both workers, each with the minutes that pass.
    before: tuple[tuple[str, float], ...] = ()
    fault: str | None = None
    nth: int = 1


def _collecting(point: Point, nth: int = 1) -> Death:
    return Death(point, COLLECTOR, ((SUBMITTER, 5.0),), nth=nth)


UNSURE = (SUBMITTER, 1.0)
FENCE = (SUBMITTER, 20.0)
STEP_BACK = (SUBMITTER, 3.0)


DEATHS = [
    *(
        Death(point, SUBMITTER)
        for point in (
            Point.CLAIMED,
            Point.PREPARED,
            Point.UPLOADED,
            Point.UPLOAD_RECORDED,
            Point.CREATING_RECORDED,
            Point.CREATED,
            Point.CREATE_RECORDED,
        )
    ),
    # A refused create: the jobs are released.
    Death(Point.BACK_RECORDED, SUBMITTER, fault="slow_down"),
    Death(Point.BACK_GROUP_RECORDED, SUBMITTER, fault="slow_down"),
    # A create without an answer: lookup, fence, second lookup.
    Death(Point.SCANNED, SUBMITTER, (UNSURE,), "reset_before"),
    Death(Point.SCANNED, SUBMITTER, (UNSURE,), "accept_then_reset"),
    Death(Point.FENCED, SUBMITTER, (FENCE,), "zombie_create"),
    Death(Point.FENCE_RECORDED, SUBMITTER, (FENCE,), "reset_before"),
    Death(Point.STEPPED_BACK, SUBMITTER, (FENCE, STEP_BACK), "zombie_create"),
    *(
        [
            Death(Point.FENCED, SUBMITTER, (FENCE,), "reset_before"),
            Death(Point.FENCE_RECORDED, SUBMITTER, (FENCE,), "zombie_create"),
            Death(Point.STEPPED_BACK, SUBMITTER, (FENCE, STEP_BACK), "reset_before"),
        ]
        if TABLE
        else []
    ),
    *(
        _collecting(point)
        for point in (
            Point.POLLED,
            Point.END_RECORDED,
            Point.READING,
            Point.GROUP_RECORDED,
            Point.READ,
            Point.COLLECT_RECORDED,
            Point.FILES_DELETED,
            Point.DELETE_RECORDED,
        )
    ),
]


def test_a_worker_dies_at_every_point_of_submitting_and_collecting() -> None:
    of_calls = {Point.CALL_RECORDED, Point.CALLED}

    assert {death.point for death in DEATHS} == set(Point) - of_calls


@pytest.mark.req("P-13")
@pytest.mark.parametrize(
    "death", DEATHS, ids=[f"{one.point}-{one.fault or 'calm'}" for one in DEATHS]
)
def test_a_worker_that_is_killed_leaves_what_the_next_run_resolves(
    url: str, clock: FakeClock, sim: Simulator, death: Death
) -> None:
    with House(url, clock, sim) as house:
        house.enqueue(JOBS)
        if death.fault is not None:
            # A create that arrives after its fence finds no input to run.
            late = {"minutes": 40.0} if death.fault == "zombie_create" else {}
            sim.faults.add(death.fault, **late)
        for name, minutes in death.before:
            house.both(name)
            clock.advance(minutes=minutes)

        die(house, death.point, death.run, nth=death.nth)
        house.go_on()

        tally = house.tally()
        judge(house, f"killed at {death.point}", tally)
        assert tally.states == {"completed": JOBS}
        # Once the job is an item of a batch, a killed worker does not count as an attempt.
        assert tally.charged == (JOBS if death.point is Point.CLAIMED else 0)


def test_both_workers_may_die_at_every_point_one_after_the_other(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    with House(url, clock, sim) as house:
        house.enqueue(JOBS)
        submitting = [
            death.point for death in DEATHS if death.run == SUBMITTER and not death.before
        ]
        collecting = [death.point for death in DEATHS if death.run == COLLECTOR]
        for point in submitting[1:]:
            die(house, point, SUBMITTER, must=False)
            clock.advance(minutes=15)
        for point in collecting:
            die(house, point, COLLECTOR, must=False)
            clock.advance(minutes=15)
        house.go_on()

        tally = house.tally()
        judge(house, "killed at all points in turn", tally)
        assert tally.states == {"completed": JOBS}


# -- direct calls


@pytest.mark.req("B-18")
@pytest.mark.parametrize("point", [Point.CALL_RECORDED, Point.CALLED])
def test_a_call_whose_worker_is_killed_is_recorded_as_unknown(
    url: str, clock: FakeClock, sim: Simulator, point: Point
) -> None:
    """No provider has a lookup for calls. A call that may have been paid twice is recorded."""
    with House(url, clock, sim) as house:
        house.enqueue(3, routing_decision={"execution_mode": "async"})

        die(house, point, "worker")
        for _ in range(8):
            clock.advance(minutes=5)
            for hf in house.workers:
                hf.worker().run_once()
            house.both(COLLECTOR)

        tally = house.tally()
        unknown = look(
            house.hf.store, "SELECT job_id FROM holdfast.provider_call WHERE kind = 'unknown'"
        )
        assert tally.states == {"completed": 3}
        assert (tally.lost, tally.leaked, tally.wrong) == (0, 0, {})
        assert len(unknown) >= 1
        paid = sim.ledger.double_paid()
        assert len(paid) == (0 if point is Point.CALL_RECORDED else len(unknown))
