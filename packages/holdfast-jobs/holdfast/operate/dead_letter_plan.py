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
        Action.DISCARD: "give it up, with a reason: holdfast dead-letters discard",
        Action.FIX_FORWARD: "replace it by something else, and say by what:"
        " holdfast dead-letters fix-forward",
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
        return LetterEnded(f"{item} is {words_of(state)} and stays so. Nothing was done.")
    never = never_replayed(letter.standing)
    if action is Action.REPLAY and never is not None:
        return NeverReplayed(f"{item} is not replayed: {never}.")
    if action in (Action.TRIAGE, Action.DISCARD, Action.FIX_FORWARD):
        # A successful replay is verified; a triage would contradict its result.
        late = state is DeadLetterState.REPLAYED and action is Action.TRIAGE
        if state is DeadLetterState.REPLAYING or late:
            return StepRefused(f"{item}: {_reason(letter)}.")
        return None
    begins = BEGINS[action]
    if _WAY.index(state) < _WAY.index(begins):
        return StepRefused(
            f"{item} is {words_of(state)}; {_named(action)} comes after it is {words_of(begins)}."
            f" Next step: {next_step_of(letter)}."
        )
    if state is not begins:
        return StepRefused(
            f"{item} is {words_of(state)}: this step was taken before."
            f" Next step: {next_step_of(letter)}."
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
                "a full restart begins at the first stage, which only the application knows;"
                " name it: --app"
            )
        return None
    if handler is None:
        return None
    if handler.stage(item.stage) is None:
        return f"its pipeline has no stage {item.stage!r} any more; ask for a full restart"
    if not handler.can_run(item.pipeline_version):
        return (
            f"its pipeline does not accept what version {item.pipeline_version or 'none'!r} has"
            " stored; ask for a full restart, or let the pipeline accept it"
        )
    return None


def next_step_of(letter: DeadLetter) -> str:
    """Return the next step as a CLI command."""
    match letter.state:
        case DeadLetterState.OPEN:
            return "triage, which says of what kind the problem is"
        case DeadLetterState.TRIAGED if letter.kind is not None:
            points = ", ".join(CHECKLISTS[letter.kind])
            return f"remediate, which confirms {points}"
        case DeadLetterState.REMEDIATED:
            return "validate, with a reference to the evidence"
        case DeadLetterState.VALIDATED:
            return "replay, with a reason"
        case DeadLetterState.REPLAYING:
            return f"wait for replay {letter.replay_count}, which is under way"
        case DeadLetterState.REPLAYED if letter.verified_at is None:
            return "verify, which looks at the replay and at what it set off"
        case DeadLetterState.REPLAYED:
            return "resolve, with notes"
        case _:
            return "none: it has ended"


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
        says += "; it failed the same way before, so an engineer has to look at it first"
    problem = why_not_from(letter.standing, handler, full_restart=False)
    if problem is not None:
        says += f"; from the failed stage it cannot go on: {problem}"
    return Offer(Action.REPLAY, True, says)


def _reason(letter: DeadLetter) -> str:
    """Return why no action is available now."""
    match letter.state:
        case DeadLetterState.REPLAYING:
            return f"replay {letter.replay_count} is under way; wait for its end, or cancel it"
        case DeadLetterState.REPLAYED:
            return f"replay {letter.replay_count} completed; verify and resolve it"
        case _:
            return f"it is {words_of(letter.state)} and stays so"


def words_of(state: DeadLetterState) -> str:
    """Return a state as words."""
    return state.replace("_", " ")


def _named(action: Action) -> str:
    return "verify" if action is Action.VERIFY_REPLAY else action.replace("_", " ")
