"""Two workers, one database, channels that misbehave, and the counts at the end.

Workers, database and channels use one fake clock. The ledgers of the providers show which messages
were really accepted, whatever was answered.
"""

from __future__ import annotations

import io
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import FakeClock, Holdfast, Settings
from holdfast.clock import write_instant
from holdfast.engine.maintenance import rescue_jobs
from holdfast.event import DeliveryAlert, Event
from holdfast.store import Row
from holdfast.telemetry import log
from holdfast_simulator.faults import Rule
from holdfast_simulator.simulator import Simulator
from tests.engine.planting import plant
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install, install_kill
from tests.forking import SPAWN
from tests.operate.sound import data_report_of, violations
from tests.outbox.carriers import (
    CANARY,
    KNOWING,
    LOCAL,
    PATIENCE,
    LocalFault,
    Place,
    break_channel,
    channels_at,
    intents,
    set_key,
)
from tests.story import ORG, look

# Longer than the lease of a delivery and of a job, and than any delay before a second attempt.
LEASE_OVER = timedelta(seconds=301)
WIRE = "duplicate_on_the_wire"
LOST = "lost_after_accept"
EXPIRED = "window_expired"
MARKED = "marked_unsent"


def make_app(url: str, place: Place, clock: FakeClock, *, seed: int = 0) -> Holdfast:
    """One worker's application: the same in every process, except for the ids that it makes."""
    set_key()
    settings = Settings(db=url, channels=channels_at(place))
    return Holdfast(settings=settings, clock=clock, rng=random.Random(seed))


def work(hf: Holdfast) -> None:
    """One pass of a worker: a rescue, its jobs, and then the reconciler's pass."""
    rescue_jobs(hf.store, limit=10)
    hf.worker().run_once()
    hf.outbox.reconcile()


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts at the end, when no work is left."""

    # Deliveries that their provider accepted more than once, and the part of them that the outbox
    # did not cause: by the network, by a receiver that forgot a token, or by the owner's policy.
    twice: int
    not_ours: int
    # Attempts without a recorded reason, and messages without a recorded attempt.
    unreasoned: int
    unrecorded: int
    # Deliveries that are neither sent, failed, dropped nor held.
    lost: int
    # Deliveries that are marked as sent, but their provider does not have them; and the part of
    # them that the provider confirmed, or that has no lookup and raised an alert.
    unsent: int
    believed: int
    leaked: int
    states: Counter[str]
    reasons: Counter[str]
    verdicts: Counter[str]
    alerts: Counter[str]
    wrong: dict[str, list[str]]

    def row(self) -> dict[str, Any]:
        return {
            "twice": self.twice,
            "not_ours": self.not_ours,
            "unreasoned": self.unreasoned + self.unrecorded,
            "lost": self.lost + self.unsent - self.believed,
            "believed": self.believed,
            "leaked": self.leaked,
            **{word: self.states[word] for word in ("sent", "held", "failed", "dropped")},
            "violated": sorted(self.wrong),
        }


@dataclass
class PostOffice:
    """The scene of a test: its workers, its channels, its steps and its counts."""

    url: str
    clock: FakeClock
    sim: Simulator
    channel: str
    folder: Path
    seed: int = 0
    # The timeout of an answer.
    read_seconds: float = PATIENCE
    workers: list[Holdfast] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    said: io.StringIO = field(default_factory=io.StringIO)
    faults: list[Rule | LocalFault] = field(default_factory=list)
    opened: int = 0
    # The points at which workers were killed, recorded by themselves.
    killed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        host, port = "localhost", 25
        if self.channel.startswith("smtp"):
            host, port = self.sim.smtp.host, self.sim.smtp.port
        self.place = Place(self.sim.origin, host, port, str(self.folder), self.read_seconds)

    def __enter__(self) -> PostOffice:
        log.configure_logging("debug", self.said)
        self.workers = [self.open() for _ in range(2)]
        return self

    def __exit__(self, *exc: object) -> None:
        log.uninstall()
        for hf in self.workers:
            hf.close()

    def open(self) -> Holdfast:
        """Another worker."""
        self.opened += 1
        hf = make_app(self.url, self.place, self.clock, seed=1_000 * self.seed + self.opened)
        hf.events.subscribe(self.told.append)
        hf.events.subscribe(log.log_event)
        return hf

    @property
    def hf(self) -> Holdfast:
        return self.workers[0]

    # -- set-up

    def fault(self, name: str, **options: Any) -> None:
        """Inject this fault."""
        if self.channel not in LOCAL:
            self.faults.append(self.sim.faults.add(name, **options))
            return
        self.faults.append(LocalFault(self.folder, name))
        for hf in self.workers:
            break_channel(hf, self.channel, self.place, [one.name for one in self.faults])

    def post(self, count: int = 2) -> None:
        """The number of recipients."""
        self.hf.outbox.post(intents(self.channel, self.place, count), org_id=ORG)

    def mark_one(self) -> None:
        """Mark a delivery that was never sent, without constraints."""
        plant(
            self.hf,
            "UPDATE holdfast.delivery SET state = 'sent', notification_id = 'made-up',"
            " notified_at = {now}, ended_at = {now}"
            " WHERE CAST(id AS text) = (SELECT min(CAST(id AS text)) FROM holdfast.delivery)",
            now=write_instant(self.clock.now()),
        )

    # -- two workers

    def race(self) -> None:
        """Both workers try to take the same deliveries at the same time; each goes to one.

        In turns both name them, or one has the job and the other is the reconciler.
        """
        before = self._due()
        ids = [str(row["id"]) for row in before]
        if self.seed % 2:
            self._together([partial(hf.outbox.deliver, ids, org_id=ORG) for hf in self.workers])
        else:
            # The reconciler does not take deliveries that are younger than this.
            self.clock.advance(seconds=61)
            before = self._due()
            first, second = self.workers
            rescue_jobs(first.store, limit=10)
            self._together([first.worker().run_once, second.outbox.reconcile])
        after = {str(row["id"]): row["fence"] for row in self._rows()}
        for row in before:
            taken = after[str(row["id"])] - row["fence"]
            assert taken == 1, f"a delivery was taken {taken} times by two who raced for it"

    def stall(self, point: Point) -> None:
        """One worker stalls at *point* past its lease, the other works, and the first continues."""
        ids = [str(row["id"]) for row in self._due()]
        slow, quick = self.workers
        stalled, freed = threading.Event(), threading.Event()

        def reached(at: Point) -> None:
            if at is point and not stalled.is_set():
                stalled.set()
                assert freed.wait(60)

        def other() -> None:
            try:
                assert stalled.wait(60), f"nobody came to {point}"
                self.clock.advance(LEASE_OVER)
                taken = quick.outbox.deliver(ids, org_id=ORG)["taken"]
                assert taken == len(ids), f"{taken} of {len(ids)} were taken over"
            finally:
                freed.set()

        lost: list[int] = []
        stop = install(slow, Point, reached)
        self._together([lambda: lost.append(slow.outbox.deliver(ids, org_id=ORG)["lost"]), other])
        stop()
        assert lost == [len(ids)], f"{lost} of {len(ids)} were lost by whoever stalled"

    def turn(self) -> None:
        """Both workers run a pass at the same time."""
        self._together([partial(work, hf) for hf in self.workers])

    def go_on(self, *, days: float = 4.0) -> None:
        """Repeat the passes until no work is left, for at most this many days."""
        end = self.clock.now() + timedelta(days=days)
        turns = 0
        while self.clock.now() < end:
            self.turn()
            if self.rests:
                return
            # Twice within the settle delay; then after the leases; then after backoff and patience.
            self.clock.advance(minutes=0.5 if turns < 2 else 6 if turns < 12 else 180)
            turns += 1

    @property
    def rests(self) -> bool:
        """Whether no further change will happen without an operator."""
        (row,) = look(
            self.hf.store,
            "SELECT (SELECT count(*) FROM holdfast.delivery WHERE state = 'pending'"
            " OR (state = 'sent' AND proof = 'none')) AS deliveries,"
            " (SELECT count(*) FROM holdfast.job WHERE finished_at IS NULL) AS jobs",
        )
        return not row["deliveries"] and not row["jobs"]

    def _together(self, calls: Sequence[Callable[[], Any]]) -> None:
        barrier = threading.Barrier(len(calls))
        failures: list[BaseException] = []

        def do(call: Callable[[], Any]) -> None:
            try:
                barrier.wait(30)
                call()
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=do, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads), "a worker did not come back"

    # -- kills

    def die(self, point: Point, doing: str) -> bool:
        """Start a separate worker process and kill it when it reaches *point*.

        Returns whether it reached it.
        """
        self.opened += 1
        note = self.folder / f"died-{self.opened}"
        told = {
            "url": self.url,
            "place": self.place,
            "now": self.clock.now().isoformat(),
            "channel": self.channel,
            "faults": [one.name for one in self.faults if isinstance(one, LocalFault)],
            "seed": 1_000 * self.seed + self.opened,
            "note": str(note),
        }
        process = SPAWN.Process(target=_live, args=(told, str(point), doing), daemon=True)
        process.start()
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError(f"the worker neither ended nor came to {point}")
        if not note.exists():
            assert process.exitcode == 0, f"the worker ended with {process.exitcode}"
            return False
        assert process.exitcode == -signal.SIGKILL
        self.killed.append(note.read_text())
        return True

    # -- inspection

    def taken(self) -> tuple[Counter[str], Counter[str]]:
        """How often the provider accepted each token, and how often it received it."""
        if self.channel == "mailbox":
            found = Counter(path.stem for path in self.place.mails.glob("*.eml"))
            return found, found
        if self.channel == "in_app":
            rows = look(self.hf.store, "SELECT token FROM holdfast.in_app_notification")
            found = Counter(row["token"] for row in rows)
            return found, found
        accepted = self.sim.messages.accepted
        handed = Counter[str]()
        for one in accepted:
            handed[one.token] += 1 + len(one.repeats)
        # The gateway does not deduplicate tokens: each time counts. The receiver that stands in for
        # it would, and hide a second message.
        taken = handed if self.channel == "gateway" else Counter(one.token for one in accepted)
        return taken, handed

    def tally(self) -> Tally:
        """Count all results."""
        rows, (taken, handed) = self._rows(), self.taken()
        tries = self._tries()
        wire = sum(one.fired for one in self.faults if one.name == WIRE)
        forgot = sum(one.fired for one in self.faults if one.name == EXPIRED)
        wrong = violations(data_report_of(self.hf, canaries=[CANARY]))
        words = self.said.getvalue() + repr(self.told)
        twice = [row for row in rows if taken[row["token"]] > 1]
        by_policy = sum(
            any(one["reason"] == "policy_resend" for one in tries[str(row["id"])]) for row in twice
        )
        by_wire = 0 if self.channel in KNOWING else wire
        unsent = [row for row in rows if row["state"] == "sent" and not taken[row["token"]]]
        evidence = look(
            self.hf.store,
            "SELECT delivery_id, verdict, after_attempt FROM holdfast.delivery_evidence",
        )
        return Tally(
            twice=len(twice),
            not_ours=min(len(twice), by_policy or by_wire or forgot),
            unreasoned=len(wrong.get("I21", []))
            + sum(
                not _is_justified(self.channel, before, one, evidence)
                for of_one in tries.values()
                for before, one in zip([None, *of_one], of_one, strict=False)
            ),
            unrecorded=sum(
                max(0, handed[row["token"]] - len(tries[str(row["id"])]) - wire) for row in rows
            ),
            lost=sum(row["state"] == "pending" for row in rows),
            unsent=len(unsent),
            believed=sum(self._is_believed(row, tries[str(row["id"])]) for row in unsent),
            leaked=int(CANARY in words) + int("@example.com" in words),
            states=Counter(row["state"] for row in rows),
            reasons=Counter(one["reason"] for of_one in tries.values() for one in of_one),
            verdicts=Counter(row["verdict"] for row in evidence),
            alerts=Counter(str(one.what) for one in self.told if isinstance(one, DeliveryAlert)),
            wrong=wrong,
        )

    def _is_believed(self, row: Row, tries: Sequence[Row]) -> bool:
        """Whether the channel confirmed the recorded id, or has no lookup."""
        said = any(
            one["outcome"] == "accepted" and one["provider_id"] == row["notification_id"]
            for one in tries
        )
        lost = sum(one.fired for one in self.faults if one.name == LOST)
        return bool(said and lost) or row["proof"] == "unknowable"

    def _rows(self) -> list[Row]:
        return look(
            self.hf.store,
            "SELECT id, token, state, proof, notification_id, fence, attempts"
            " FROM holdfast.delivery ORDER BY id",
        )

    def _tries(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {str(row["id"]): [] for row in self._rows()}
        rows = look(
            self.hf.store,
            "SELECT delivery_id, number, reason, outcome, phase, provider_id"
            " FROM holdfast.delivery_attempt ORDER BY number",
        )
        for row in rows:
            found[str(row["delivery_id"])].append(row)
        return found

    def _due(self) -> list[Row]:
        """The deliveries that a worker may take now."""
        return look(
            self.hf.store,
            "SELECT id, fence FROM holdfast.delivery WHERE state = 'pending'"
            " AND (lease_expires_at IS NULL OR lease_expires_at <= {now})"
            " AND (not_before_at IS NULL OR not_before_at <= {now}) ORDER BY id",
        )


def _is_justified(channel: str, before: Row | None, one: Row, evidence: Sequence[Row]) -> bool:
    """Whether the rows permit the recorded reason of an attempt."""
    if before is None or one["reason"] == "first":
        return before is None and one["reason"] in ("first", "looked_up_not_found")
    match one["reason"]:
        case "proven_not_taken":
            is_before_commit = before["outcome"] is None and before["phase"] == "before_commit"
            refusals = ("rejected", "channel_refused", "throttled")
            return is_before_commit or before["outcome"] in refusals
        case "looked_up_not_found":
            return any(
                (row["delivery_id"], row["verdict"]) == (one["delivery_id"], "not_found")
                and row["after_attempt"] >= before["number"]
                for row in evidence
            )
        case "idempotent_window":
            return channel == "resend"
        case "receiver_dedupes":
            return channel == "webhook"
        case "policy_resend":
            return channel == "smtp_resend"
        case _:
            return False


def _live(told: dict[str, Any], point: str, doing: str) -> None:
    clock = FakeClock(datetime.fromisoformat(told["now"]))
    hf = make_app(told["url"], told["place"], clock, seed=told["seed"])
    if told["faults"]:
        break_channel(hf, told["channel"], told["place"], told["faults"])

    install_kill(hf, Point(point), note=Path(told["note"]))
    does: dict[str, Callable[[], Any]] = {
        "post": lambda: hf.outbox.post(intents(told["channel"], told["place"], 2), org_id=ORG),
        "work": lambda: work(hf),
    }
    does[doing]()
