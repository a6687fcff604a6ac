"""Record an attempt, call the channel once, and mark the outcome.

The attempt is committed before the call, and its outcome after it. A channel's answer can affect
every other message to the same channel or endpoint: its circuit opens, and the rest of the page
waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from holdfast.channel.channel import (
    Accepted,
    Channel,
    ChannelRefused,
    CommitPointChannel,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.clock import read_instant
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.retry import RETRY_AFTER_CEILING, RetryPolicy
from holdfast.errors import StoreError
from holdfast.event import DeliveryTrouble
from holdfast.outbox.circuit import OPEN, REFUSED, UNAVAILABLE, Circuit, Trip, fingerprint_of
from holdfast.outbox.decide import Done, LookupFirst, Send, Wait
from holdfast.outbox.delivery import Attempt, Delivery, Phase, Reason
from holdfast.outbox.delivery_lease import (
    DeliveryLease,
    DeliveryState,
    Key,
    LeaseGuard,
    each,
    get_code,
    lease_ms,
    name_at,
    read_again,
    renewing,
)
from holdfast.outbox.intend import read_content
from holdfast.outbox.mark import Ending, mark
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

_log = logging.getLogger("holdfast.outbox")

# A finished attempt, and the pause that its channel requested.
Answer = tuple[Attempt, timedelta | None]

# Retries of a notification are at most half an hour apart.
RETRY = RetryPolicy(longest=timedelta(minutes=30))
# Refusals before the channel was called. They say nothing about the channel.
NOT_CALLED = frozenset(
    {"address_refused", "bad_message", "bad_token", "content_gone", "no_connection_free"}
)


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """A delivery to send now, and the reason."""

    case: DeliveryState
    channel: Channel
    reason: Reason

    @property
    def delivery(self) -> Delivery:
        return self.case.delivery

    @property
    def attempts(self) -> Sequence[Attempt]:
        return self.case.attempts

    @property
    def phase(self) -> Phase | None:
        """The phase in which the attempt begins."""
        has_commit_point = isinstance(self.channel, CommitPointChannel)
        return Phase.BEFORE_COMMIT if has_commit_point else None


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """An attempt that is stored."""

    wanted: PlannedAttempt
    case: DeliveryState
    attempt: Attempt
    message: Message | None


def wait_for_circuit(
    case: DeliveryState, circuit: Circuit, attempt: Attempt | None = None
) -> Ending:
    """Postpone a delivery until its channel may be probed."""
    return Ending(case, Wait(circuit.open_until, OPEN), attempt)


def send_attempts(
    lease: DeliveryLease, sends: Sequence[PlannedAttempt], worker_id: str
) -> PassCounts:
    """Store the attempts, make them, and mark the outcomes."""
    if not sends:
        return PassCounts()
    outbox = lease.outbox
    with renewing(lease, [one.case for one in sends]) as grip:
        begun = _begin(lease, sends, worker_id)
        ended = each(
            outbox,
            begun,
            lambda one: one.case.delivery.channel,
            lambda one: _hand_over(lease, one, grip),
        )
    ends = [_end(lease, one, *answer) for one, answer in zip(begun, ended, strict=True)]
    counts = PassCounts()
    counts.done["tried"] += len(begun)
    counts.done["lost"] += len(sends) - len(begun)
    counts.add(mark(lease, ends))
    return counts


def _begin(
    lease: DeliveryLease, sends: Sequence[PlannedAttempt], worker_id: str
) -> list[RecordedAttempt]:
    outbox = lease.outbox

    def work(tx: Tx) -> tuple[list[Row], dict[Key, PlannedAttempt]]:
        still = _decide_again(tx, lease, sends)
        tries = [
            {**one.case.named, "nth": one.case.delivery.attempts + 1} for one in still.values()
        ]
        if not tries:
            return [], still
        rows = tx.many(SQL.begin_attempts, tries=tries, lease_ms=lease_ms(outbox))
        if rows:
            tx.affected(
                SQL.insert_attempts,
                tries=[_attempt_row(row, still) for row in rows],
                worker_id=worker_id,
            )
        return rows, still

    rows, still = outbox.store.write(work)
    begun = []
    for row in rows:
        one = still[str(row["org_id"]), str(row["id"])]
        now = read_instant(row["now"])
        delivery = replace(
            one.case.delivery,
            attempts=row["attempts"],
            first_sent_at=read_instant(row["first_sent_at"]),
        )
        attempt = Attempt(
            row["attempts"],
            one.reason,
            now,
            body_hash=one.case.delivery.content_hash,
            phase=one.phase,
        )
        case = replace(one.case, delivery=delivery)
        begun.append(RecordedAttempt(one, case, attempt, _message(row, case, one.channel)))
        if one.reason is Reason.POLICY_RESEND:
            outbox.app.events.emit(delivery.alert(DeliveryTrouble.MAYBE_TWICE))
    return begun


def _decide_again(
    tx: Tx, lease: DeliveryLease, sends: Sequence[PlannedAttempt]
) -> dict[Key, PlannedAttempt]:
    """Return the deliveries that still have to be sent.

    Their state may have changed during the lookups of other deliveries. The rest keep their lease
    and are decided after it expires.
    """
    known = read_again(tx, [one.case for one in sends])
    still = {}
    for one in sends:
        case = known[one.case.key]
        decision = lease.decide(case, one.channel)
        if isinstance(decision, Send):
            still[case.key] = PlannedAttempt(case, one.channel, decision.reason)
    return still


def _attempt_row(row: Row, by_key: dict[Key, PlannedAttempt]) -> dict[str, str | int | None]:
    one = by_key[str(row["org_id"]), str(row["id"])]
    return {
        "org_id": one.case.delivery.org_id,
        "delivery_id": one.case.delivery.id,
        "number": row["attempts"],
        "reason": str(one.reason),
        "fence": one.case.delivery.fence,
        "body_hash": one.case.delivery.content_hash,
        "phase": one.phase,
    }


def _message(row: Row, case: DeliveryState, channel: Channel) -> Message | None:
    """Return the message; None if the stored content is missing or was changed."""
    try:
        content = read_content(row["content"])
        is_frozen = content.hash == case.delivery.content_hash
    except Exception:
        # The tenant changed the stored content. The rest of the page is not affected.
        return None
    if not is_frozen:
        return None
    return Message(
        token=case.delivery.token[: channel.capabilities.longest_token],
        address=row["address"],
        subject=content.subject,
        text=content.text,
        html=content.html,
        data=content.data,
        # The time of the first attempt, so that a repeat is identical to the byte.
        at=case.delivery.first_sent_at,
        org_id=case.delivery.org_id,
    )


def _hand_over(lease: DeliveryLease, one: RecordedAttempt, grip: LeaseGuard) -> Answer:
    """Call the channel once. An exception or an unreadable answer leaves the outcome unknown."""
    outbox, wanted = lease.outbox, one.wanted
    if one.message is None:
        return _ended(one, Rejected("content_gone", is_permanent=True))
    # The lease may have expired, or the reason may no longer apply.
    is_ours = grip.holds(one.case, outbox.app.clock.monotonic())
    if not is_ours or lease.decide(wanted.case, wanted.channel) != Send(wanted.reason):
        return _ended(one, Rejected("not_begun", is_permanent=False))
    if lease.circuits.has_tripped(one.case.delivery) is not None:
        return _ended(one, ChannelRefused(OPEN))
    point = _CommitPoint(outbox, one)
    try:
        sent = point.send(one.message)
        answer = _ended(one, sent)
    except Exception as exc:
        # The text may quote the message, so only the exception type is logged.
        _log.warning("channel %s raised %s", wanted.channel.name, type(exc).__name__)
        sent = Unsure("error") if point.may_be_passed else Rejected("error", is_permanent=False)
        answer = _ended(one, sent)
    _hear(lease, one, sent, answer[1])
    return answer


@dataclass(slots=True)
class _CommitPoint:
    """The point of one attempt after which the channel may have taken the message."""

    outbox: Outbox
    one: RecordedAttempt
    is_recorded: bool = False

    @property
    def may_be_passed(self) -> bool:
        return self.is_recorded or self.one.attempt.phase is None

    def send(self, message: Message) -> Sent:
        channel = self.one.wanted.channel
        if isinstance(channel, CommitPointChannel):
            return channel.send_committing(message, self.record)
        return channel.send(message)

    def record(self) -> bool:
        """Commit that the point is passed, if the delivery is still leased to this worker.

        The lease is checked under the lock of the delivery. A worker that takes the delivery over
        therefore either reads the record, or has made this attempt stop before the point.
        """
        named, number = self.one.case.named, self.one.attempt.number

        def work(tx: Tx) -> bool:
            lease = lease_ms(self.outbox)
            if not tx.many(SQL.hold_deliveries, held=[named], lease_ms=lease):
                return False
            delivery = self.one.case.delivery
            key = {"org_id": delivery.org_id, "delivery_id": delivery.id, "fence": delivery.fence}
            return tx.affected(SQL.commit_attempt, **key, number=number) == 1

        try:
            self.is_recorded = self.outbox.store.write(work)
        except StoreError:
            # Whether the record was written is unknown, so the attempt stops before the point.
            return False
        return self.is_recorded


def _end(
    lease: DeliveryLease, one: RecordedAttempt, attempt: Attempt, retry_after: timedelta | None
) -> Ending:
    """Decide what follows from an answer, by the same rules as a later pass."""
    case = replace(one.case, attempts=(*one.case.attempts, attempt))
    decision = lease.decide(case, one.wanted.channel)
    circuit = lease.circuits.has_tripped(case.delivery)
    if circuit is not None and isinstance(decision, Send | Wait):
        return wait_for_circuit(case, circuit, attempt)
    delay = timedelta(0)
    if isinstance(decision, Send | LookupFirst | Wait | Done):
        delay = RETRY.delay(attempt.number, lease.outbox.rng, retry_after)
    return Ending(case, decision, attempt, delay)


def _ended(one: RecordedAttempt, sent: Sent) -> Answer:
    """Return the attempt with its outcome, in codes that can be stored. Raises for a wrong type."""
    attempt = one.attempt
    match sent:
        case Accepted():
            name = name_at(sent.provider_id) or one.case.delivery.token
            return replace(attempt, outcome="accepted", provider_id=name), None
        case Rejected():
            outcome = "refused" if sent.is_permanent else "rejected"
            return replace(attempt, outcome=outcome, code=get_code(sent.code)), None
        case ChannelRefused():
            return replace(attempt, outcome="channel_refused", code=get_code(sent.code)), None
        case Throttled():
            longest = RETRY_AFTER_CEILING.total_seconds()
            wait = None if sent.retry_after is None else min(sent.retry_after, longest)
            after = None if wait is None else timedelta(seconds=wait)
            return replace(attempt, outcome="throttled", code=get_code(sent.code)), after
        case Unsure():
            told = replace(attempt, outcome="unsure", code=get_code(sent.reason))
            return replace(told, provider_id=name_at(sent.provider_id)), None
        case _:
            assert_never(sent)


def _hear(
    lease: DeliveryLease, one: RecordedAttempt, sent: Sent, retry_after: timedelta | None
) -> None:
    """Update the circuit of the channel from its answer."""
    delivery, circuits = one.case.delivery, lease.circuits
    is_endpoint = one.wanted.channel.capabilities.is_per_endpoint
    trip: Trip | None = None
    match sent:
        case ChannelRefused():
            is_endpoint = sent.is_endpoint
            trip = Trip(REFUSED, get_code(sent.code))
        case Throttled():
            trip = Trip(UNAVAILABLE, get_code(sent.code), retry_after or timedelta(0))
        case Rejected(code="unreachable"):
            trip = Trip(UNAVAILABLE, sent.code)
        case Accepted() | Rejected() if getattr(sent, "code", "") not in NOT_CALLED:
            found = circuits.blocking(delivery)
            if found is not None and circuits.has_tripped(delivery) is None:
                circuits.close(found.key)
    if trip is not None:
        key = (delivery.channel, delivery.endpoint if is_endpoint else "")
        fingerprint = fingerprint_of(lease.outbox, delivery.channel)
        circuits.trip(key, trip, fingerprint, lease.now, lease.outbox.settings.outbox)
