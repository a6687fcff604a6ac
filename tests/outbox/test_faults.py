"""With every channel fault, kill and stall, no message is lost or duplicated.

The cases are every fault of the channels, a kill at every point of the outbox, and two workers that
take the same deliveries, on both databases. ``make outbox-faults SEEDS=1000`` runs all of them and
prints the counts; a plain test run covers a part.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast import FakeClock
from holdfast_simulator.message_scripts import MESSAGE_SCRIPTS
from holdfast_simulator.resend import WINDOW
from holdfast_simulator.simulator import Simulator
from tests.failpoints import OutboxPoint as Point
from tests.outbox.carriers import (
    ASKED,
    CHANNELS,
    IMPATIENCE,
    KNOWING,
    LOCAL,
    MUTE,
    PATIENCE,
)
from tests.outbox.grid import (
    ASKING,
    CALM,
    RECIPIENTS,
    STALLS,
    Run,
    alone,
    committed_at,
    crossed,
    expected,
    faults_of,
    may_be,
    plan,
    sample,
)
from tests.outbox.post_office import EXPIRED, LEASE_OVER, LOST, MARKED, WIRE, PostOffice, Tally

SEEDS = int(os.environ.get("HOLDFAST_FAULT_SEEDS", "0"))
TABLE = os.environ.get("HOLDFAST_FAULT_TABLE")
SAMPLE = 36
RUNS = plan(SEEDS) if SEEDS else sample(SAMPLE)

pytestmark = pytest.mark.timeout(120)


def test_the_grid_has_every_channel_with_every_fault_and_every_kill() -> None:
    cells = set(alone())
    for channel in CHANNELS:
        assert {(channel, CALM, point, None) for point in Point} < cells
        assert {(channel, CALM, None, point) for point in STALLS} < cells
        assert {(channel, fault, None, None) for fault in faults_of(channel)} < cells
    played = {fault for _, fault, _, _ in cells}
    assert played == {CALM, MARKED, "no_room", *MESSAGE_SCRIPTS}
    pairs = {(channel, fault, kill) for channel, fault, kill, _ in crossed()}
    assert {(fault, kill) for _, fault, kill in pairs} >= {
        (fault, kill) for fault in played - {CALM, EXPIRED} for kill in Point
    }


def test_a_plain_test_run_has_every_channel_fault_and_kill_somewhere() -> None:
    runs = sample(SAMPLE)
    assert {run.channel for run in runs} == set(CHANNELS)
    assert {run.fault for run in runs} == {CALM, MARKED, "no_room", *MESSAGE_SCRIPTS}
    assert {(run.kill, run.database) for run in runs} == {
        (kill, database) for kill in (None, *Point) for database in ("sqlite", "postgres")
    }
    assert {run.stall for run in runs} == {None, *STALLS}


@pytest.fixture
def run_url(request: pytest.FixtureRequest, run: Run) -> str:
    name = {"sqlite": "migrated_sqlite_url", "postgres": "postgres_url"}[run.database]
    found: str = request.getfixturevalue(name)
    return found


def arm(office: PostOffice, run: Run) -> None:
    """The fault, and the recipient of the affected message."""
    nth = 1 if run.kill or run.stall or run.channel in LOCAL else 1 + run.seed % RECIPIENTS
    where = {} if run.channel in LOCAL else {"nth": nth}
    is_lookup = run.kill is Point.AFTER_LOOKUP and run.channel in MUTE
    if run.fault in (*ASKING, EXPIRED) or is_lookup:
        # A lookup and a repeated send happen because an answer was lost.
        office.fault("accept_then_drop", **where)
    match run.fault:
        case "none" | "marked_unsent":
            pass
        case "answer_hangs":
            office.fault(run.fault, seconds=30.0, **where)
        case "lookup_down":
            office.fault(run.fault)
        case "two_matches" | "another_recipient":
            # In every lookup: a provider that has a message twice returns it twice the next time
            # too.
            office.fault(run.fault, times=None)
        case "window_expired" if run.channel == "webhook":
            office.fault(run.fault, times=None)
        case "window_expired":
            # Resend's own deduplication window: no fault is injected, a day passes.
            pass
        case _:
            office.fault(run.fault, **where)


def play(office: PostOffice, run: Run) -> None:
    """Inject the fault, and continue until no work is left."""
    arm(office, run)
    if run.kill is Point.AFTER_INTENT:
        assert office.die(run.kill, "post")
    else:
        office.post(RECIPIENTS)
    if run.fault == MARKED or (run.kill is Point.AFTER_LOOKUP and run.channel == "resend"):
        office.mark_one()
        # So old that its provider would list it.
        office.clock.advance(LEASE_OVER)
    if run.kill:
        kill(office, run)
        office.clock.advance(LEASE_OVER)
    if run.stall:
        office.stall(run.stall)
    else:
        office.race()
    if run.fault == EXPIRED and run.channel == "resend":
        office.clock.advance(WINDOW)
        assert all(
            office.sim.messages.known(one.letter, WINDOW) is None
            for one in office.sim.messages.accepted
        )
    office.go_on()


def kill(office: PostOffice, run: Run) -> None:
    """Kill a worker at the point; check that it was killed, or that the point is not reached."""
    assert run.kill is not None
    if run.kill is Point.AFTER_INTENT:
        pass
    elif run.kill is not Point.AFTER_LOOKUP:
        assert office.die(run.kill, "work")
    elif run.channel in MUTE:
        assert not office.die(run.kill, "work")
        return
    elif run.channel == "resend":
        # The lookup uses the provider's id, which is known for marked deliveries.
        assert office.die(run.kill, "work")
    else:
        # A worker that is killed around a send leaves the lookup to the next, which is killed after
        # it.
        assert office.die(Point.AFTER_SEND, "work")
        office.clock.advance(LEASE_OVER)
        assert office.die(run.kill, "work")
    assert office.killed[-1] == run.kill


def note(run: Run, office: PostOffice, tally: Tally) -> None:
    """Return a row of the table."""
    if TABLE:
        row = {
            "channel": run.channel,
            "fault": run.fault,
            "kill": run.kill,
            "stall": run.stall,
            "db": run.database,
            "kills": len(office.killed),
            "fired": sum(fault.fired for fault in office.faults),
            **tally.row(),
        }
        with Path(TABLE).open("a") as file:
            file.write(json.dumps(row) + "\n")


def judge(run: Run, tally: Tally) -> None:
    """Check the invariants of every case."""
    assert tally.twice == tally.not_ours
    if run.channel in (*ASKED, *LOCAL) and run.fault != WIRE:
        assert tally.twice == 0
    assert (tally.unreasoned, tally.unrecorded) == (0, 0)
    assert (tally.lost, tally.leaked) == (0, 0)
    assert tally.unsent == tally.believed
    assert set(tally.reasons) <= {"first", "proven_not_taken", *MAY_REPEAT.get(run.channel, ASK)}
    assert sum(tally.states.values()) == RECIPIENTS
    assert set(tally.wrong) - findings(run) == set(), tally.wrong


def findings(run: Run) -> set[str]:
    """The findings of verify about a case with the expected end."""
    if run.fault == MARKED and run.channel in MUTE:
        # A mark that cannot be proven remains a finding, until an operator decides.
        return {"I16", "I49"}
    if run.fault == LOST and run.stall:
        # The provider gave an id to one worker, told the other that it has nothing, and accepted
        # the message again under another id. By its own answers it has two.
        return {"I18"}
    return set()


ASK = ("looked_up_not_found",)
# The other reasons for which a channel may get a message again.
MAY_REPEAT = {
    "resend": (*ASK, "idempotent_window"),
    "webhook": ("receiver_dedupes",),
    "smtp": (),
    "smtp_drop": (),
    "smtp_resend": ("policy_resend",),
}


def judge_alone(run: Run, tally: Tally) -> None:
    """Check the exact outcome of a single fault."""
    assert dict(tally.states) == expected(run), tally
    if run.fault == MARKED:
        assert tally.alerts["marked_unsent"] == 1
        assert tally.believed == int(run.channel in MUTE)
        assert set(tally.wrong) == findings(run)
    if run.fault == LOST:
        # The provider confirmed the message and gave it an id: that is evidence, and not the case
        # of a mark "before provider confirmation". There is no lookup after that, and no second
        # send.
        assert (tally.believed, tally.reasons) == (1, {"first": RECIPIENTS})
    if run.fault in ("lookup_down", "two_matches", "another_recipient"):
        assert tally.verdicts["unreachable" if run.fault == "lookup_down" else "several"] >= 1
    if run.fault == EXPIRED:
        # A receiver that forgets tokens too early gets it twice; one that keeps them for a day does
        # not.
        assert tally.twice == int(run.channel == "webhook")
    if run.fault == WIRE:
        assert tally.twice == int(run.channel not in KNOWING)
    if run.channel == "smtp_resend":
        # A worker that takes over from a stalled one has none of its answers.
        of_smtp = expected(Run(0, "smtp", run.fault, run.kill))
        is_unknown = committed_at(run.stall) if run.stall else of_smtp.get("held", 0)
        assert tally.reasons["policy_resend"] == is_unknown
        assert tally.alerts["maybe_twice"] == is_unknown
    if run.channel == "smtp_drop" and not run.kill:
        assert tally.alerts["maybe_lost"] >= tally.states["dropped"]


@pytest.mark.req("N-08", "N-10", "N-11", "N-15", "N-17", "N-19", "N-20", "N-21", "N-23")
@pytest.mark.req("E-17", "I-18")
@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_no_message_is_lost_or_duplicated(
    run: Run, run_url: str, clock: FakeClock, tmp_path: Path
) -> None:
    patience = IMPATIENCE if run.fault == "answer_hangs" else PATIENCE
    with (
        Simulator(clock=clock, seed=run.seed) as sim,
        PostOffice(run_url, clock, sim, run.channel, tmp_path, run.seed, patience) as office,
    ):
        play(office, run)

        tally = office.tally()
        note(run, office, tally)
        assert [one.name for one in office.faults if not one.fired] == []
        judge(run, tally)
        if run.is_alone:
            judge_alone(run, tally)
        else:
            assert set(tally.states) <= may_be(run), tally
