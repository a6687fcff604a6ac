"""With every channel fault, kill and stall, no message is lost or duplicated.

Every fault of the carriers, a kill at every point of the outbox, two workers that reach for the
same deliveries, both databases. ``make outbox-faults SEEDS=1000`` plays the whole grid and prints
what is counted here; a plain test run plays a part of it.
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
    """What is to go wrong, and with whose message."""
    nth = 1 if run.kill or run.stall or run.channel in LOCAL else 1 + run.seed % RECIPIENTS
    where = {} if run.channel in LOCAL else {"nth": nth}
    is_lookup = run.kill is Point.AFTER_LOOKUP and run.channel in MUTE
    if run.fault in (*ASKING, EXPIRED) or is_lookup:
        # A question is asked, and a message repeated, because an answer was lost.
        office.fault("accept_then_drop", **where)
    match run.fault:
        case "none" | "marked_unsent":
            pass
        case "answer_hangs":
            office.fault(run.fault, seconds=30.0, **where)
        case "lookup_down":
            office.fault(run.fault)
        case "two_matches" | "another_recipient":
            # Whatever is asked: who has it twice has it twice the next time too.
            office.fault(run.fault, times=None)
        case "window_expired" if run.channel == "webhook":
            office.fault(run.fault, times=None)
        case "window_expired":
            # Resend's own memory: nothing is played, a day goes by.
            pass
        case _:
            office.fault(run.fault, **where)


def play(office: PostOffice, run: Run) -> None:
    """Let it go wrong, and go on until everything rests."""
    arm(office, run)
    if run.kill is Point.AFTER_INTENT:
        assert office.die(run.kill, "post")
    else:
        office.post(RECIPIENTS)
    if run.fault == MARKED or (run.kill is Point.AFTER_LOOKUP and run.channel == "resend"):
        office.mark_one()
        # So old that its carrier would know of it.
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
    """A worker is killed at the point; the test proves it, or that the point is not reached."""
    assert run.kill is not None
    if run.kill is Point.AFTER_INTENT:
        pass
    elif run.kill is not Point.AFTER_LOOKUP:
        assert office.die(run.kill, "work")
    elif run.channel in MUTE:
        assert not office.die(run.kill, "work")
        return
    elif run.channel == "resend":
        # It is asked by the name that it gave, and that is known of what is marked.
        assert office.die(run.kill, "work")
    else:
        # A worker that died around a send leaves the question to the next, which dies after asking.
        assert office.die(Point.AFTER_SEND, "work")
        office.clock.advance(LEASE_OVER)
        assert office.die(run.kill, "work")
    assert office.killed[-1] == run.kill


def note(run: Run, office: PostOffice, tally: Tally) -> None:
    """A row for the table."""
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
    """What holds whatever happened."""
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
    """What verify has to say of a story that ended as it should."""
    if run.fault == MARKED and run.channel in MUTE:
        # A mark that cannot be proven stays a finding, until a person decides.
        return {"I16", "I49"}
    if run.fault == LOST and run.stall:
        # The carrier gave a name to one worker, told the other that it has nothing, and took it
        # again under another name. By what it said it has two.
        return {"I18"}
    return set()


ASK = ("looked_up_not_found",)
# For what else a channel may be handed a message again.
MAY_REPEAT = {
    "resend": (*ASK, "idempotent_window"),
    "webhook": ("receiver_dedupes",),
    "smtp": (),
    "smtp_drop": (),
    "smtp_resend": ("policy_resend",),
}


def judge_alone(run: Run, tally: Tally) -> None:
    """What is exact where one thing went wrong."""
    assert dict(tally.states) == expected(run), tally
    if run.fault == MARKED:
        assert tally.alerts["marked_unsent"] == 1
        assert tally.believed == int(run.channel in MUTE)
        assert set(tally.wrong) == findings(run)
    if run.fault == LOST:
        # Its carrier said that it has it, and gave it a name: that is evidence, and the case of a
        # mark "before provider confirmation" is another. It is not asked about behind that, and
        # nothing is sent a second time.
        assert (tally.believed, tally.reasons) == (1, {"first": RECIPIENTS})
    if run.fault in ("lookup_down", "two_matches", "another_recipient"):
        assert tally.verdicts["unreachable" if run.fault == "lookup_down" else "several"] >= 1
    if run.fault == EXPIRED:
        # A receiver that forgets what it promised to know gets it twice; one that promised a day
        # does not.
        assert tally.twice == int(run.channel == "webhook")
    if run.fault == WIRE:
        assert tally.twice == int(run.channel not in KNOWING)
    if run.channel == "smtp_resend":
        # A worker that takes over from one that stalls knows of none of its answers.
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
