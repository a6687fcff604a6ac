"""Send: lease deliveries, decide, look up where useful, make attempts, and mark.

The attempt is committed before the call and the mark after it. A worker that crashes in between
leaves an attempt without outcome, and decide.py determines what may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.channel.channel import Capabilities, Channel, LookupFailed
from holdfast.engine.pass_counts import PassCounts
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.attempt import RETRY, PlannedAttempt, send_attempts, wait_for_circuit
from holdfast.outbox.circuit import (
    Circuit,
    CircuitKey,
    Circuits,
    allow_changed,
    choose_probe,
    fingerprint_of,
    read_circuits,
    take_probe,
)
from holdfast.outbox.decide import Decision, Drop, LookupFirst, Policy, Send, Wait, decide
from holdfast.outbox.delivery_lease import (
    DeliveryLease,
    DeliveryState,
    lease_deliveries,
    lease_ms,
    read_again,
)
from holdfast.outbox.lookup import LookupQuestion, look_up
from holdfast.outbox.mark import Ending, mark
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

# Deliveries per lease. With four parallel calls they finish long before the lease expires.
PAGE = 50
# A channel that is not configured here may be configured elsewhere, as during a deployment.
UNKNOWN_CHANNEL = timedelta(minutes=5)
# The pause while another worker probes a channel, and after an inconclusive probe.
PROBE_PAUSE = timedelta(minutes=5)
# The pause after a lookup that the credential does not permit.
REFUSED_LOOKUP = timedelta(hours=6)


def deliver_once(
    outbox: Outbox, ids: Sequence[tuple[str, str]], *, worker_id: str = ""
) -> PassCounts:
    """Handle those of these deliveries (tenant, id) that are due and not leased."""
    counts = PassCounts()
    wanted = list(dict.fromkeys(ids))
    circuits = find_circuits(outbox)
    for at in range(0, len(wanted), PAGE):
        named = [{"home": org_id, "delivery_id": one} for org_id, one in wanted[at : at + PAGE]]

        def take(tx: Tx, named: list[dict[str, str]] = named) -> list[Row]:
            return tx.many(SQL.take_named, named=named, owner=worker_id, lease_ms=lease_ms(outbox))

        page = lease_deliveries(outbox, take, circuits)
        if page is not None:
            counts.add(deliver_page(page, worker_id=worker_id))
    return counts


def find_circuits(outbox: Outbox) -> Circuits:
    """Read the open circuits; those of changed channels may be probed at once."""
    circuits = outbox.store.read(read_circuits)
    allow_changed(outbox, circuits)
    return circuits


def deliver_page(lease: DeliveryLease, *, worker_id: str) -> PassCounts:
    """Decide on every delivery of a page, and carry the decisions out."""
    counts = PassCounts(now=lease.taken_at)
    counts.done["taken"] += len(lease.cases)
    ends: list[Ending] = []
    sends: list[PlannedAttempt] = []
    questions: list[LookupQuestion] = []
    for case in lease.cases:
        channel = lease.channel(case)
        if channel is None:
            ends.append(_leave(lease, case))
            continue
        decision = lease.decide(case, channel)
        circuit = lease.circuits.blocking(case.delivery)
        if (
            isinstance(decision, LookupFirst)
            and circuit is not None
            and circuit.open_until > lease.now
        ):
            # A channel that refuses our messages also refuses our lookups.
            ends.append(wait_for_circuit(case, circuit))
        elif isinstance(decision, LookupFirst):
            questions.append(LookupQuestion(case, channel, decision.provider_id))
        else:
            _sort(case, channel, decision, sends, ends)
    counts.done["asked"] += len(questions)
    _resolve(lease, questions, sends, ends, counts)
    counts.add(mark(lease, ends))
    counts.add(_send_through(lease, sends, worker_id))
    return counts


def _sort(
    case: DeliveryState,
    channel: Channel,
    decision: Decision,
    sends: list[PlannedAttempt],
    ends: list[Ending],
) -> None:
    match decision:
        case Send():
            sends.append(PlannedAttempt(case, channel, decision.reason))
        case _:
            ends.append(Ending(case, decision))


def _leave(lease: DeliveryLease, case: DeliveryState) -> Ending:
    if not case.attempts:
        # A delivery without attempts can be dropped without its channel.
        about = (case.delivery, (), case.evidence, Capabilities(), Policy(), lease.now)
        decision = decide(*about, canceled_at=case.canceled_at)
        if isinstance(decision, Drop):
            return Ending(case, decision)
    name = case.delivery.channel
    detail = "cannot_be_opened" if lease.outbox.channels.knows(name) else "not_configured"
    lease.outbox.app.events.emit(
        DeliveryAlert(name, DeliveryTrouble.CHANNEL_UNUSABLE, detail=detail)
    )
    return Ending(case, Wait(lease.now + UNKNOWN_CHANNEL, "channel_not_configured"))


def _resolve(
    lease: DeliveryLease,
    questions: Sequence[LookupQuestion],
    sends: list[PlannedAttempt],
    ends: list[Ending],
    counts: PassCounts,
) -> None:
    """Look up at the channels, and decide again with the results."""
    answers = look_up(lease, questions)
    asked = [one for one in questions if one.case.key in answers]
    counts.done["lost"] += len(questions) - len(asked)
    if not asked:
        return
    cases = [one.case for one in asked]
    known = lease.outbox.store.read(lambda tx: read_again(tx, cases))
    for one in asked:
        case = known[one.case.key]
        decision = lease.decide(case, one.channel)
        if isinstance(decision, LookupFirst):
            # The lookup failed. The pause depends on the number of failures.
            times = sum(said.verdict == "unreachable" for said in case.evidence)
            delay = RETRY.delay(max(times, 1), lease.outbox.rng)
            answer = answers[case.key]
            if isinstance(answer, LookupFailed) and answer.is_refused:
                delay = max(delay, REFUSED_LOOKUP)
            ends.append(Ending(case, decision, delay=max(delay, timedelta(seconds=1))))
        else:
            _sort(case, one.channel, decision, sends, ends)


# -- circuits


def _send_through(
    lease: DeliveryLease, sends: Sequence[PlannedAttempt], worker_id: str
) -> PassCounts:
    """Send deliveries without an open circuit; behind an open one, send a probe first."""
    free: list[PlannedAttempt] = []
    kept: dict[CircuitKey, list[PlannedAttempt]] = {}
    for one in sends:
        circuit = lease.circuits.blocking(one.delivery)
        if circuit is None:
            free.append(one)
        else:
            kept.setdefault(circuit.key, []).append(one)
    counts = PassCounts()
    waiting: list[Ending] = []
    for key, behind in kept.items():
        probed = _probe(lease, lease.circuits.open[key], behind, worker_id, counts)
        rest = [one for one in behind if one is not probed]
        found = lease.circuits.open.get(key)
        if found is None:
            free += rest
        else:
            waiting += [wait_for_circuit(one.case, found) for one in rest]
    counts.add(mark(lease, waiting))
    counts.add(send_attempts(lease, free, worker_id))
    return counts


def _probe(
    lease: DeliveryLease,
    circuit: Circuit,
    behind: Sequence[PlannedAttempt],
    worker_id: str,
    counts: PassCounts,
) -> PlannedAttempt | None:
    """Send one message behind a circuit as a probe, if it is due and no other worker does."""
    outbox = lease.outbox
    fingerprint = fingerprint_of(outbox, circuit.channel)
    one = choose_probe(circuit, fingerprint, behind)
    if one is None:
        # Each delivery reached its probe limit; a new message or credential or an operator is
        # needed.
        longest = timedelta(seconds=outbox.settings.outbox.max_circuit_seconds)
        lease.circuits.open[circuit.key] = replace(circuit, open_until=lease.now + longest)
        return None
    if not circuit.may_probe(fingerprint, lease.now) or not take_probe(
        outbox, circuit, fingerprint
    ):
        until = max(circuit.open_until, lease.now + PROBE_PAUSE)
        lease.circuits.open[circuit.key] = replace(circuit, open_until=until)
        return None
    counts.add(send_attempts(lease, [one], worker_id))
    left = lease.circuits.open.get(circuit.key)
    if left is not None and left.open_until <= lease.now:
        # The probe was inconclusive; the next pass decides.
        lease.circuits.open[circuit.key] = replace(left, open_until=lease.now + PROBE_PAUSE)
    return one
