"""Send: take deliveries under a lease, decide, ask where asking helps, try, and mark.

The order is the contract. The try is committed before the call, the mark after it; whoever dies in
between leaves a try without an outcome, and decide.py says what may follow that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.channel.channel import Capabilities, Channel, LookupDown
from holdfast.engine.pass_counts import PassCounts
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.ask import Question, ask
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
from holdfast.outbox.decide import Ask, Decision, Drop, Policy, Send, Wait, decide
from holdfast.outbox.mark import Ending, mark
from holdfast.outbox.page import Case, Page, lease_ms, read_again, take_page
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

# One lease holds so many: with four calls at once they are through long before it ends.
PAGE = 50
# A channel that is not configured here may be elsewhere, for example during a deployment.
UNKNOWN_CHANNEL = timedelta(minutes=5)
# While another worker probes a channel, and after a probe that said nothing.
PROBE_PAUSE = timedelta(minutes=5)
# A credential that may not ask is not asked with every half an hour.
REFUSED_LOOKUP = timedelta(hours=6)


def deliver_once(
    outbox: Outbox, ids: Sequence[tuple[str, str]], *, worker_id: str = ""
) -> PassCounts:
    """Do what may be done for these deliveries, given as tenant and id, that are due and free."""
    counts = PassCounts()
    wanted = list(dict.fromkeys(ids))
    circuits = find_circuits(outbox)
    for at in range(0, len(wanted), PAGE):
        named = [{"home": org_id, "delivery_id": one} for org_id, one in wanted[at : at + PAGE]]

        def take(tx: Tx, named: list[dict[str, str]] = named) -> list[Row]:
            return tx.many(SQL.take_named, named=named, owner=worker_id, lease_ms=lease_ms(outbox))

        page = take_page(outbox, take, circuits)
        if page is not None:
            counts.add(deliver_page(page, worker_id=worker_id))
    return counts


def find_circuits(outbox: Outbox) -> Circuits:
    """The open circuits; those of channels that were changed since may be probed at once."""
    circuits = outbox.store.read(read_circuits)
    allow_changed(outbox, circuits)
    return circuits


def deliver_page(page: Page, *, worker_id: str) -> PassCounts:
    """Decide on every delivery of a page, and do it."""
    counts = PassCounts(now=page.taken_at)
    counts.done["taken"] += len(page.cases)
    ends: list[Ending] = []
    sends: list[PlannedAttempt] = []
    questions: list[Question] = []
    for case in page.cases:
        channel = page.channel(case)
        if channel is None:
            ends.append(_leave(page, case))
            continue
        decision = page.decide(case, channel)
        circuit = page.circuits.blocking(case.delivery)
        if isinstance(decision, Ask) and circuit is not None and circuit.open_until > page.now:
            # Whoever refuses our messages refuses our questions.
            ends.append(wait_for_circuit(case, circuit))
        elif isinstance(decision, Ask):
            questions.append(Question(case, channel, decision.provider_id))
        else:
            _sort(case, channel, decision, sends, ends)
    counts.done["asked"] += len(questions)
    _resolve(page, questions, sends, ends, counts)
    counts.add(mark(page, ends))
    counts.add(_send_through(page, sends, worker_id))
    return counts


def _sort(
    case: Case,
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


def _leave(page: Page, case: Case) -> Ending:
    if not case.attempts:
        # What was never tried can be given up without its channel.
        about = (case.delivery, (), case.evidence, Capabilities(), Policy(), page.now)
        decision = decide(*about, canceled_at=case.canceled_at)
        if isinstance(decision, Drop):
            return Ending(case, decision)
    name = case.delivery.channel
    detail = "cannot_be_opened" if page.outbox.channels.knows(name) else "not_configured"
    page.outbox.app.events.emit(
        DeliveryAlert(name, DeliveryTrouble.CHANNEL_UNUSABLE, detail=detail)
    )
    return Ending(case, Wait(page.now + UNKNOWN_CHANNEL, "channel_not_configured"))


def _resolve(
    page: Page,
    questions: Sequence[Question],
    sends: list[PlannedAttempt],
    ends: list[Ending],
    counts: PassCounts,
) -> None:
    """Ask the channels, and decide again with what they said."""
    answers = ask(page, questions)
    asked = [one for one in questions if one.case.key in answers]
    counts.done["lost"] += len(questions) - len(asked)
    if not asked:
        return
    cases = [one.case for one in asked]
    known = page.outbox.store.read(lambda tx: read_again(tx, cases))
    for one in asked:
        case = known[one.case.key]
        decision = page.decide(case, one.channel)
        if isinstance(decision, Ask):
            # It could not be asked. How often that happened says how long to leave it alone.
            times = sum(said.verdict == "unreachable" for said in case.evidence)
            delay = RETRY.delay(max(times, 1), page.outbox.rng)
            answer = answers[case.key]
            if isinstance(answer, LookupDown) and answer.is_refused:
                delay = max(delay, REFUSED_LOOKUP)
            ends.append(Ending(case, decision, delay=max(delay, timedelta(seconds=1))))
        else:
            _sort(case, one.channel, decision, sends, ends)


# -- circuits


def _send_through(page: Page, sends: Sequence[PlannedAttempt], worker_id: str) -> PassCounts:
    """Send what no circuit keeps back; behind an open one, a probe first and then the rest."""
    free: list[PlannedAttempt] = []
    kept: dict[CircuitKey, list[PlannedAttempt]] = {}
    for one in sends:
        circuit = page.circuits.blocking(one.delivery)
        if circuit is None:
            free.append(one)
        else:
            kept.setdefault(circuit.key, []).append(one)
    counts = PassCounts()
    waiting: list[Ending] = []
    for key, behind in kept.items():
        probed = _probe(page, page.circuits.open[key], behind, worker_id, counts)
        rest = [one for one in behind if one is not probed]
        found = page.circuits.open.get(key)
        if found is None:
            free += rest
        else:
            waiting += [wait_for_circuit(one.case, found) for one in rest]
    counts.add(mark(page, waiting))
    counts.add(send_attempts(page, free, worker_id))
    return counts


def _probe(
    page: Page,
    circuit: Circuit,
    behind: Sequence[PlannedAttempt],
    worker_id: str,
    counts: PassCounts,
) -> PlannedAttempt | None:
    """Send one of the messages behind a circuit, if it is time and nobody else does."""
    outbox = page.outbox
    fingerprint = fingerprint_of(outbox, circuit.channel)
    one = choose_probe(circuit, fingerprint, behind)
    if one is None:
        # Each was refused often enough. A new message, a new credential or a person goes on.
        longest = timedelta(seconds=outbox.settings.outbox.max_circuit_seconds)
        page.circuits.open[circuit.key] = replace(circuit, open_until=page.now + longest)
        return None
    if not circuit.may_probe(fingerprint, page.now) or not take_probe(outbox, circuit, fingerprint):
        until = max(circuit.open_until, page.now + PROBE_PAUSE)
        page.circuits.open[circuit.key] = replace(circuit, open_until=until)
        return None
    counts.add(send_attempts(page, [one], worker_id))
    left = page.circuits.open.get(circuit.key)
    if left is not None and left.open_until <= page.now:
        # Neither taken nor refused: the next look decides.
        page.circuits.open[circuit.key] = replace(left, open_until=page.now + PROBE_PAUSE)
    return one
