"""Decide what to do with a delivery, given its attempts and evidence. Pure.

Only this module allows a message to be sent again. After an attempt with unknown outcome, the
decision depends on the lookup that the channel offers and on the policy for unknown outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.channel.channel import Capabilities, Lookup, OnUnknown
from holdfast.outbox.delivery import Attempt, Delivery, Evidence, Reason, State

# The channel may forget a token near the end of its window; a repeat would be a second message.
WINDOW_MARGIN = timedelta(seconds=60)
# The maximum number of attempts, including those that are not counted.
MOST_TRIES = 10


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a channel for the cases in which there is a choice."""

    on_unknown: OnUnknown = OnUnknown.HOLD
    # The maximum number of counted attempts, whatever their outcome.
    max_attempts: int = 10
    # How long a failing lookup is repeated.
    patience: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message, for this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class LookupFirst:
    """Look the message up at the channel first."""

    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before *until*."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The outcome cannot be determined; an operator decides."""

    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the delivery, as the channel's policy says."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The delivery has certainly failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Backfill:
    """The channel has the message: mark it without sending."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Done:
    """There is nothing to do."""


Decision = Send | LookupFirst | Wait | Hold | Drop | Fail | Backfill | Done


@dataclass(slots=True)
class _Known:
    """A summary of the evidence.

    Later evidence overrides earlier evidence, but a lookup never overrides an acceptance.
    """

    # Attempts up to this one certainly had no effect, and why.
    cleared: int = 0
    cleared_as: Reason | None = None
    # An operator's resend resets the attempt budget and overrides an earlier acceptance.
    floor: int = 0
    # The channel's id of the message; empty if it assigned none.
    taken: str | None = None
    is_undelivered: bool = False
    # Number of attempts made when a fuzzy lookup last found nothing, or more than one.
    vaguely_absent: int | None = None
    several: int | None = None
    unreachable_since: datetime | None = None
    # The job was canceled, and no operator has requested a resend since.
    is_canceled: bool = False
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def live(self) -> list[Attempt]:
        """The attempts that may have had an effect."""
        return [one for one in self.attempts if one.number > self.cleared]

    @property
    def unclear(self) -> list[Attempt]:
        return [one for one in self.live if one.is_unclear]

    @property
    def refusal(self) -> str | None:
        """The code of a permanent refusal; None if an operator requested a resend since."""
        last = self.attempts[-1] if self.attempts else None
        if last is None or last.number <= self.floor or last.outcome != "refused":
            return None
        return last.code or "refused"

    def is_spent(self, policy: Policy) -> bool:
        """Whether the attempt budget is exhausted.

        An attempt that the channel itself refused, for example for a wrong credential, is not
        counted. The total is still limited by MOST_TRIES and by the policy.
        """
        made = [one for one in self.attempts if one.number > self.floor and one.was_made]
        charged = sum(one.outcome != "channel_refused" for one in made)
        is_over = len(made) >= max(policy.max_attempts, MOST_TRIES)
        return is_over or charged >= policy.max_attempts


def decide(
    delivery: Delivery,
    attempts: Sequence[Attempt],
    evidence: Sequence[Evidence],
    capabilities: Capabilities,
    policy: Policy,
    now: datetime,
    *,
    canceled_at: datetime | None = None,
) -> Decision:
    """Decide what the holder of the lease may do with this delivery now.

    Messages of a canceled job are not sent, but an unknown outcome is still looked up.
    """
    if delivery.state is not State.PENDING or delivery.notified_at is not None:
        return Done()
    known = _weigh(evidence, attempts, capabilities, canceled_at)
    # The channel accepted it and later reported it undeliverable.
    if known.is_undelivered:
        return Fail("undelivered")
    # A late answer still counts, even if its mark was refused.
    for one in reversed(attempts):
        if one.outcome == "accepted" and one.number > known.floor:
            return Backfill(one.provider_id or delivery.token)
    if known.taken is not None:
        return Backfill(known.taken or delivery.token)
    if known.unclear or (delivery.notification_id is not None and known.cleared_as is None):
        return _resolve(delivery, known, capabilities, policy, now)
    return _go_on(delivery, known, policy, now)


def _weigh(
    evidence: Sequence[Evidence],
    attempts: Sequence[Attempt],
    capabilities: Capabilities,
    canceled_at: datetime | None,
) -> _Known:
    known = _Known(attempts=list(attempts), is_canceled=canceled_at is not None)
    for said in evidence:
        match said.verdict:
            case "taken" | "confirmed":
                known.taken = said.provider_id or known.taken or ""
            case "undelivered":
                known.is_undelivered = True
            case "not_found" if capabilities.lookup is Lookup.FUZZY:
                known.vaguely_absent = said.after_attempt
            case "not_found":
                # The lookup may have run before the acceptance arrived, so it does not override it.
                _clear(known, said.after_attempt, Reason.LOOKED_UP_NOT_FOUND)
            case "resend":
                _clear(known, said.after_attempt, Reason.OPERATOR_RESEND)
                known.floor = said.after_attempt
                known.taken, known.is_undelivered = None, False
                if canceled_at is not None and said.at >= canceled_at:
                    known.is_canceled = False
            case "several":
                known.several = said.after_attempt
            case "unreachable":
                known.unreachable_since = known.unreachable_since or said.at
        if said.verdict != "unreachable":
            known.unreachable_since = None
    return known


def _clear(known: _Known, through: int, reason: Reason) -> None:
    known.cleared = max(known.cleared, through)
    known.cleared_as = reason
    known.several = known.vaguely_absent = None


def _go_on(delivery: Delivery, known: _Known, policy: Policy, now: datetime) -> Decision:
    """Decide for a delivery whose attempts certainly had no effect."""
    if known.refusal is not None:
        return Fail(known.refusal)
    if known.is_canceled:
        return Drop("canceled")
    if known.is_spent(policy):
        return Fail("attempts_spent")
    if delivery.not_before_at is not None and delivery.not_before_at > now:
        return Wait(delivery.not_before_at, "not_before")
    if known.live:
        return Send(Reason.PROVEN_NOT_TAKEN)
    return Send(known.cleared_as or Reason.FIRST)


def _resolve(
    delivery: Delivery, known: _Known, capabilities: Capabilities, policy: Policy, now: datetime
) -> Decision:
    """Decide for an attempt with unknown outcome; the strongest proof comes first."""
    may_send = known.refusal is None and not known.is_canceled
    may_repeat = may_send and bool(known.unclear) and not known.is_spent(policy)
    if may_repeat and _is_in_window(delivery, known, capabilities, now):
        return _send_when_due(delivery, Reason.IDEMPOTENT_WINDOW, now)
    asked = _ask(delivery, known, capabilities, policy, now)
    if asked is not None:
        return asked
    if known.several is not None:
        return Hold("several_found")
    if not may_send:
        return _leave(known, policy)
    if known.is_spent(policy):
        return Hold("attempts_spent")
    if capabilities.receiver_dedupes and capabilities.lookup is Lookup.NONE:
        return _send_when_due(delivery, Reason.RECEIVER_DEDUPES, now)
    return _by_policy(delivery, policy, now)


def _is_in_window(
    delivery: Delivery, known: _Known, capabilities: Capabilities, now: datetime
) -> bool:
    """Whether the channel still knows the token, and received the same content under it."""
    if capabilities.idempotency_seconds is None:
        return False
    # Counted from the first attempt, since a channel may not extend the window on repeats.
    began = min(one.began_at for one in known.live)
    if delivery.first_sent_at is not None and known.cleared == 0:
        began = min(began, delivery.first_sent_at)
    window = timedelta(seconds=capabilities.idempotency_seconds)
    is_same = all(one.body_hash == delivery.content_hash for one in known.live)
    return is_same and now < began + window - min(WINDOW_MARGIN, window / 10)


def _ask(
    delivery: Delivery, known: _Known, capabilities: Capabilities, policy: Policy, now: datetime
) -> Decision | None:
    """Decide what a lookup can still prove; None if it can prove nothing."""
    provider_id = delivery.notification_id
    for one in known.unclear:
        provider_id = one.provider_id or provider_id
    match capabilities.lookup:
        case Lookup.NONE:
            return None
        case Lookup.BY_PROVIDER_ID if provider_id is None:
            return None
        case Lookup.FUZZY if known.vaguely_absent == delivery.attempts:
            return None
        case _ if known.several == delivery.attempts:
            return None
    tries = [one.began_at for one in known.unclear] or [delivery.created_at]
    if capabilities.retention_seconds is not None:
        forgotten = min(tries) + timedelta(seconds=capabilities.retention_seconds)
        if now >= forgotten:
            return Hold("lookup_expired")
    # Before this age, "not found" proves nothing.
    settled = max(tries) + timedelta(seconds=capabilities.settle_seconds)
    if now < settled:
        return Wait(settled, "settle")
    if known.unreachable_since is not None:
        if now >= known.unreachable_since + policy.patience:
            return Hold("lookup_unreachable")
        if delivery.not_before_at is not None and delivery.not_before_at > now:
            return Wait(delivery.not_before_at, "lookup_unreachable")
    return LookupFirst(provider_id)


def _leave(known: _Known, policy: Policy) -> Decision:
    """Decide for an unknown outcome after the last attempt."""
    if policy.on_unknown is OnUnknown.DROP:
        return Drop("unknown")
    # Another attempt would be refused as well, and would not resolve the unknown one.
    return Hold("unknown" if known.refusal is None else "refused_after_unclear")


def _by_policy(delivery: Delivery, policy: Policy, now: datetime) -> Decision:
    match policy.on_unknown:
        case OnUnknown.HOLD:
            return Hold("unknown")
        case OnUnknown.DROP:
            return Drop("unknown")
        case OnUnknown.RESEND:
            return _send_when_due(delivery, Reason.POLICY_RESEND, now)


def _send_when_due(delivery: Delivery, reason: Reason, now: datetime) -> Decision:
    if delivery.not_before_at is not None and delivery.not_before_at > now:
        return Wait(delivery.not_before_at, "backoff")
    return Send(reason)
