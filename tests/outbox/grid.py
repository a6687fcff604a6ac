"""The test cases: every channel with every fault, kill and stall, and combinations.

A combination is left out only where its fault is impossible; each such place gives the reason.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.failpoints import OutboxPoint as Point
from tests.outbox.carriers import ASKED, BLIND, CHANNELS, KNOWING, LOCAL, MUTE
from tests.outbox.post_office import EXPIRED, LOST, MARKED, WIRE

RECIPIENTS = 2
CALM = "none"
DATABASES = ("sqlite", "postgres")
# Faults of a send, on every channel.
SENDING = (
    "accept_then_drop",
    "error_after_accept",
    "truncated_answer",
    "answer_hangs",
    "drop_before_accept",
    WIRE,
    "throttled",
    "refused",
    LOST,
)
# Faults of a lookup, after a send whose answer was lost.
ASKING = ("given_up", "lookup_lag", "lookup_down", "two_matches", "another_recipient")
# Points at which a worker can stall while another worker takes its delivery.
STALLS = (Point.AFTER_ATTEMPT, Point.AFTER_SEND, Point.BEFORE_MARK)


@dataclass(frozen=True, slots=True)
class Run:
    """One case: the channel, the fault, the kill or stall of a worker, and the database."""

    seed: int
    channel: str
    fault: str
    kill: Point | None = None
    stall: Point | None = None
    database: str = "sqlite"

    @property
    def name(self) -> str:
        where = (
            f"kill.{self.kill}" if self.kill else f"stall.{self.stall}" if self.stall else "race"
        )
        return f"{self.seed}-{self.channel}-{self.fault}-{where}-{self.database}"

    @property
    def is_alone(self) -> bool:
        """Whether there is only one fault, so that the outcome is known exactly."""
        return self.fault == CALM or not (self.kill or self.stall)


Cell = tuple[str, str, Point | None, Point | None]


def faults_of(channel: str) -> tuple[str, ...]:
    if channel in LOCAL:
        # There is no network that could cut an answer or repeat a request, and no provider that
        # could refuse. A feed has room as long as its database has.
        room = ("no_room",) if channel == "mailbox" else ()
        return (CALM, "accept_then_drop", "drop_before_accept", *room, "lookup_down", MARKED)
    match channel:
        case "slack":
            # A posted message is in its conversation: Slack forwards it no further, so that nothing
            # bounces. A lookup reads one conversation, and its answer has no ids: a message that it
            # finds is there, and another sender's message cannot match.
            return (CALM, *SENDING, "lookup_lag", "lookup_down", "two_matches", MARKED)
        case "postmark" | "gateway":
            return (CALM, *SENDING, *ASKING, MARKED)
        case "resend" | "webhook":
            return (CALM, *SENDING, EXPIRED, MARKED)
        case _:
            return (CALM, *SENDING, MARKED)


def alone() -> list[Cell]:
    """Every channel with every fault, every kill and every stall, one at a time."""
    found: list[Cell] = []
    for channel in CHANNELS:
        found += [(channel, fault, None, None) for fault in faults_of(channel)]
        found += [(channel, CALM, point, None) for point in Point]
        found += [(channel, CALM, None, point) for point in STALLS]
    return found


def crossed() -> list[Cell]:
    """A fault, and a kill or a stall."""
    found: list[Cell] = []
    for channel in CHANNELS:
        for fault in faults_of(channel):
            if fault == CALM:
                continue
            found += [(channel, fault, point, None) for point in Point]
            found += [(channel, fault, None, point) for point in STALLS]
    return [cell for cell in found if _can_be(*cell)]


def _can_be(channel: str, fault: str, kill: Point | None, stall: Point | None) -> bool:
    if kill is Point.AFTER_LOOKUP and (channel in MUTE or channel == "resend"):
        # Only alone: it uses up the fault of the lookup.
        return False
    if fault == EXPIRED and channel == "resend":
        # An attempt that may not have been made is not repeated after the window either.
        return stall is None and kill is not Point.AFTER_ATTEMPT
    return True


def plan(runs: int) -> list[Run]:
    """This many cases: all single faults on both databases, then combinations."""
    cells = alone()
    grid = [(cell, base) for place in (0, 1) for cell, base in _on(cells, place)]
    rng = random.Random(7)
    rest = list(itertools.product(crossed(), DATABASES))
    rng.shuffle(rest)
    found = itertools.chain(grid, itertools.cycle(rest))
    return [
        Run(seed, *cell, database)
        for seed, (cell, database) in enumerate(itertools.islice(found, runs))
    ]


def _on(cells: list[Cell], place: int) -> Iterator[tuple[Cell, str]]:
    return ((cell, DATABASES[(number + place) % 2]) for number, cell in enumerate(cells))


def sample(most: int) -> list[Run]:
    """A sample with every channel, fault, kill and stall at least once, on either database.

    The case that adds most to the sample comes first; a few combinations follow.
    """
    rng = random.Random(11)
    whole = [run for run in plan(2 * len(alone())) if run.fault != "answer_hangs" or run.seed % 2]
    rng.shuffle(whole)
    pairs = crossed()
    rng.shuffle(pairs)
    rest = [Run(seed, *cell, DATABASES[seed % 2]) for seed, cell in enumerate(pairs, start=5_000)]
    seen: set[object] = set()
    found: list[Run] = []
    for runs, count in ((whole, most * 3 // 4), (rest, most - most * 3 // 4)):
        for _ in range(count):
            best = max(runs, key=lambda run: (len(_essentials(run) - seen), len(_news(run) - seen)))
            seen |= _news(best) | _essentials(best)
            runs.remove(best)
            found.append(best)
    return found


def _essentials(run: Run) -> set[object]:
    """The parts that every sample must contain."""
    return {run.channel, ("fault", run.fault), (run.kill, run.database), (None, run.stall)}


def _news(run: Run) -> set[object]:
    """The parts of a case: each alone, and each with its kind of channel."""
    kind = "blind" if run.channel in BLIND else "knowing" if run.channel in KNOWING else "asked"
    where = (run.kill, run.stall)
    things = {run.channel, ("fault", run.fault), where, run.database}
    pairs = {(run.channel, run.kill), (run.channel, run.stall), (kind, run.fault), (kind, where)}
    return {*things, *pairs, (run.database, *where), (run.channel, run.database)}


def expected(run: Run) -> dict[str, int]:
    """The final states of the deliveries after a single fault."""
    if run.kill:
        return _after_kill(run)
    if run.stall:
        # The next worker sends a mail that was cut before its final dot. For a mail after the dot,
        # as for any other message, the late answer is recorded.
        return {"sent": RECIPIENTS}
    all_sent, other = {"sent": RECIPIENTS}, RECIPIENTS - 1
    match run.fault:
        case "refused" | "given_up":
            return {"sent": other, "failed": 1}
        case "two_matches" | "another_recipient":
            return {"sent": other, "held": 1}
        case "window_expired" if run.channel == "resend":
            # There is no lookup without an id, and a repeat would be a second mail.
            return {"sent": other, "held": 1}
        case (
            "accept_then_drop"
            | "error_after_accept"
            | "truncated_answer"
            | "answer_hangs"
            | "drop_before_accept"
        ):
            # Also mails that were lost before they were taken: after the final dot the outcome is
            # unknown.
            return (
                {"sent": other, _UNKNOWN[run.channel]: 1} if _UNKNOWN.get(run.channel) else all_sent
            )
        case _:
            return all_sent


_UNKNOWN = {"smtp": "held", "smtp_drop": "dropped"}


def _after_kill(run: Run) -> dict[str, int]:
    word = _UNKNOWN.get(run.channel)
    match run.kill:
        case Point.AFTER_INTENT | Point.AFTER_MARK:
            return {"sent": RECIPIENTS}
        case Point.AFTER_LOOKUP if word:
            # There is no lookup; only the lost answer is unknown.
            return {"sent": RECIPIENTS - 1, word: 1}
        case _ if word:
            # Only a mail that passed the final dot without a recorded answer is unknown.
            unknown = committed_at(run.kill)
            return {name: n for name, n in (("sent", RECIPIENTS - unknown), (word, unknown)) if n}
        case _:
            return {"sent": RECIPIENTS}


def committed_at(point: Point | None) -> int:
    """The number of mails past the final dot at a point, without a recorded answer.

    They are sent one after the other.
    """
    return {Point.AFTER_SEND: 1, Point.BEFORE_MARK: RECIPIENTS}.get(point, 0) if point else 0


def may_be(run: Run) -> set[str]:
    """The possible final states of deliveries after several faults."""
    found = {"sent"}
    if run.channel in _UNKNOWN:
        found.add(_UNKNOWN[run.channel])
    if run.fault in ("refused", "given_up"):
        found.add("failed")
    if run.fault in ("two_matches", "another_recipient") or (run.channel, run.fault) == (
        "resend",
        EXPIRED,
    ):
        found.add("held")
    if run.fault == WIRE and run.channel in ASKED:
        # The answer was lost with a worker, so a lookup finds both.
        found.add("held")
    return found
