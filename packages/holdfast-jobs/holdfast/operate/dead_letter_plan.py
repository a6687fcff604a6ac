"""The available actions on a dead letter, and why others are refused. Pure.

The displayed plan and the refusal of a step come from the same functions, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.engine.handler import Handler
from holdfast.errors import Conflict
from holdfast.operate.authorization import Action
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterState, Standing
from holdfast.operate.refusal import LetterEnded, NeverReplayed, StepRefused

_WAY = (
    DeadLetterState.OPEN,
    DeadLetterState.TRIAGED,
    DeadLetterState.REMEDIATED,
    DeadLetterState.VALIDATED,
    DeadLetterState.REPLAYING,
    DeadLetterState.REPLAYED,
)
# The state that each step requires.
BEGINS: Mapping[Action, DeadLetterState] = {
    Action.TRIAGE: DeadLetterState.OPEN,
    Action.REMEDIATE: DeadLetterState.TRIAGED,
    Action.VALIDATE: DeadLetterState.REMEDIATED,
    Action.REPLAY: DeadLetterState.VALIDATED,
    Action.VERIFY_REPLAY: DeadLetterState.REPLAYED,
    Action.RESOLVE: DeadLetterState.REPLAYED,
}


@dataclass(frozen=True, slots=True)
class Offer:
    """One action: whether it is available, with its command, or the reason why not."""

    action: str
    is_offered: bool
    says: str


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The available actions for a dead letter."""

    next_step: str
    offers: tuple[Offer, ...]


def plan_of(letter: DeadLetter, handler: Handler | None = None) -> RecoveryPlan:
    """Return the plan of a letter; *handler* is the one of its job type, if registered here."""
    ways_out = {
        Action.DISCARD: "discard it with a reason: holdfast dead-letters discard",
        Action.FIX_FORWARD: "record a replacement: holdfast dead-letters fix-forward",
    }
    offers = [_offer_replay(letter, handler)]
    for action, says in ways_out.items():
        why = why_not(action, letter)
        offers.append(Offer(action, why is None, says if why is None else _reason(letter)))
    return RecoveryPlan(next_step_of(letter), tuple(offers))


def why_not(action: Action, letter: DeadLetter) -> Conflict | None:
    """Return the error that refuses *action* in the letter's state, if any."""
    state, item = letter.state, f"Dead letter {letter.job_id}"
    if state.is_ended:
        return LetterEnded(f"{item} is {words_of(state)}, which is final. Nothing was done.")
    never = never_replayed(letter.standing)
    if action is Action.REPLAY and never is not None:
        return NeverReplayed(f"{item} cannot be replayed: {never}.")
    if action in (Action.TRIAGE, Action.DISCARD, Action.FIX_FORWARD):
        # A successful replay is verified; a triage would contradict its result.
        late = state is DeadLetterState.REPLAYED and action is Action.TRIAGE
        if state is DeadLetterState.REPLAYING or late:
            return StepRefused(f"{item}: {_reason(letter)}.")
        return None
    begins = BEGINS[action]
    if _WAY.index(state) < _WAY.index(begins):
        return StepRefused(
            f"{item} is {words_of(state)}; {_named(action)} requires {words_of(begins)}. Next"
            f" step: {next_step_of(letter)}."
        )
    if state is not begins:
        return StepRefused(
            f"{item} is {words_of(state)}: this step is already done. Next step:"
            f" {next_step_of(letter)}."
        )
    if action is Action.RESOLVE and letter.verified_at is None:
        return StepRefused(
            f"{item} is replayed, but the replay has not been verified."
            f" Next step: {next_step_of(letter)}."
        )
    return None


def never_replayed(item: Standing) -> str | None:
    """Return why jobs of this type are never replayed; None if they may be."""
    return item.replay_refusal


def why_not_from(item: Standing, handler: Handler | None, *, full_restart: bool) -> str | None:
    """Return why a replay cannot start; *handler* is the job type's, if registered here."""
    if full_restart:
        if handler is None:
            return (
                "a full restart starts at the first stage, which the application declares: pass"
                " --app"
            )
        return None
    if handler is None:
        return None
    if handler.stage(item.stage) is None:
        return f"its pipeline no longer has the stage {item.stage!r}; use a full restart"
    if not handler.can_run(item.pipeline_version):
        return (
            f"its pipeline does not accept data of version {item.pipeline_version or 'none'!r};"
            " use a full restart, or let the pipeline accept that version"
        )
    return None


def next_step_of(letter: DeadLetter) -> str:
    """Return the next step as a CLI command."""
    match letter.state:
        case DeadLetterState.OPEN:
            return "triage: classify the failure"
        case DeadLetterState.TRIAGED if letter.kind is not None:
            points = ", ".join(CHECKLISTS[letter.kind])
            return f"remediate: confirm {points}"
        case DeadLetterState.REMEDIATED:
            return "validate: add a reference to the evidence"
        case DeadLetterState.VALIDATED:
            return "replay: give a reason"
        case DeadLetterState.REPLAYING:
            return f"wait for replay {letter.replay_count}"
        case DeadLetterState.REPLAYED if letter.verified_at is None:
            return "verify: check the replay and its deliveries"
        case DeadLetterState.REPLAYED:
            return "resolve: add notes"
        case _:
            return "none: the dead letter is closed"


def _offer_replay(letter: DeadLetter, handler: Handler | None) -> Offer:
    never = never_replayed(letter.standing)
    if letter.state.is_ended or letter.state is DeadLetterState.REPLAYING:
        return Offer(Action.REPLAY, False, _reason(letter))
    if letter.state is DeadLetterState.REPLAYED:
        says = f"replay {letter.replay_count} completed; next step: {next_step_of(letter)}"
        return Offer(Action.REPLAY, False, says)
    if never is not None:
        return Offer(Action.REPLAY, False, never)
    says = f"next step: {next_step_of(letter)}"
    if letter.escalated_at is not None:
        says += "; it failed the same way before: fix the cause first"
    problem = why_not_from(letter.standing, handler, full_restart=False)
    if problem is not None:
        says += f"; it cannot resume at the failed stage: {problem}"
    return Offer(Action.REPLAY, True, says)


def _reason(letter: DeadLetter) -> str:
    """Return why no action is available now."""
    match letter.state:
        case DeadLetterState.REPLAYING:
            return f"replay {letter.replay_count} is running; wait for it, or cancel it"
        case DeadLetterState.REPLAYED:
            return f"replay {letter.replay_count} completed; verify and resolve it"
        case _:
            return f"it is {words_of(letter.state)}, which is final"


def words_of(state: DeadLetterState) -> str:
    """Return a state as words."""
    return state.replace("_", " ")


def _named(action: Action) -> str:
    return "verify" if action is Action.VERIFY_REPLAY else action.replace("_", " ")
