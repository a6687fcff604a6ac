"""Dead letters: the board, one item with its next step, and steps for all items of a cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.console.pages.bulk_actions import read_count
from holdfast.console.pages.overview import ORDER, STEPS
from holdfast.console.visit import LONGEST_PAGE, Go, Page, PageContext, Shown
from holdfast.operate.authorization import Action
from holdfast.operate.bulk import BulkAnswer
from holdfast.operate.bulk_action import LetterAction
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.refusal import CountChanged, InvalidAction

FIELDS = ("state", "error_class", "job_type", "queue", "kind", "stage", "org_id")
ENDED = tuple(state.value for state in DeadLetterState if state.is_ended)
_ACTIONS: Mapping[str, Action] = {
    "triage": Action.TRIAGE,
    "remediate": Action.REMEDIATE,
    "validate": Action.VALIDATE,
    "verify": Action.VERIFY_REPLAY,
    "resolve": Action.RESOLVE,
}
_BULK_STEPS = (*_ACTIONS, "replay", "discard")
_BEGINS = {step: state for state, step in STEPS.items()} | {"resolve": "replayed"}
_DONE = {
    "triage": "triaged", "remediate": "remediated", "validate": "validated", "replay": "replayed",
    "verify": "verified", "resolve": "resolved", "discard": "discarded",
    "fix-forward": "fixed forward", "note": "noted",
}  # fmt: skip


def list_letters(visit: PageContext) -> Shown:
    """The board: counts by state, and the items of the chosen state."""
    kept: dict[str, Any] = visit.kept(*FIELDS)
    before = visit.maybe("before")
    letters = visit.operator.dead_letters
    found = letters.list(DeadLetterFilter(**kept), limit=LONGEST_PAGE, before=before)
    cause = {name: kept[name] for name in ("error_class", "job_type") if name in kept}
    groups = [
        group
        for group in visit.operator.overview.dead_letters(org_id=kept.get("org_id"))
        if all(getattr(group, name) == value for name, value in cause.items())
    ]
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update(group.states)
    state = kept.get("state")
    values = {
        "letters": found,
        "wanted": DeadLetterFilter(**kept),
        "kept": kept,
        "first": before is None,
        "board": [(name, counts[name], {**kept, "state": name}) for name in ORDER],
        "causes": sorted({group.error_class for group in groups}),
        "kinds": [kind.value for kind in DeadLetterKind],
        "ended": ENDED,
        "steps": _steps_of(state),
    }
    return Shown("dead_letters.html", "Dead letters", values)


def _steps_of(state: str | None) -> list[str]:
    """The bulk steps for items of a state."""
    if state in ENDED or state == "replaying":
        return []
    first = [] if state not in STEPS else [STEPS[str(state)]]
    return [*first, *(["resolve"] if state == "replayed" else []), "discard"]


def show_letter(visit: PageContext) -> Shown:
    """One item: its failure, its way through the workflow, and the next step."""
    view = visit.operator.dead_letters.show(visit.path["job_id"])
    letter = view.letter
    state = letter.state.value
    step = STEPS.get(state)
    if state == "replayed" and letter.verified_at is not None:
        step = "resolve"
    way = [*ORDER, "resolved"]
    at = way.index(state) if state in way else len(way)
    values = {
        "view": view,
        "letter": letter,
        "step": step,
        "way": [
            (name, "past" if place < at else "here" if place == at else "")
            for place, name in enumerate(way)
        ],
        "kinds": [kind.value for kind in DeadLetterKind],
        "checklist": {} if letter.kind is None else CHECKLISTS[letter.kind],
        "replay_offer": next(one for one in view.plan.offers if one.action == Action.REPLAY),
    }
    return Shown("dead_letter.html", f"Dead letter of {letter.job_type}", values)


def take_step(visit: PageContext) -> Go:
    """Take one step with one item."""
    job_id, step = visit.path["job_id"], visit.path["step"]
    take = _SINGLE.get(step)
    if take is None:
        raise InvalidAction({"step": f"must be one of {', '.join(_SINGLE)}"})
    version = visit.whole("version") if "version" in visit.form else None
    take(visit, job_id, {} if version is None else {"version": version})
    return Go(f"/dead-letters/{job_id}", f"The dead letter was {_DONE[step]}.")


def _validate(visit: PageContext, job_id: str, at: dict[str, Any]) -> Any:
    is_safe = visit.text("is_safe") == "yes"
    evidence = visit.text("evidence_ref")
    letters = visit.operator.dead_letters
    return letters.validate(job_id, evidence_ref=evidence, is_safe_to_repeat=is_safe, **at)


def _replay(visit: PageContext, job_id: str, at: dict[str, Any]) -> Any:
    whole = visit.text("full_restart") == "yes"
    letters = visit.operator.dead_letters
    return letters.replay(job_id, reason=visit.text("reason"), full_restart=whole, **at)


def _fix_forward(visit: PageContext, job_id: str, at: dict[str, Any]) -> Any:
    return visit.operator.dead_letters.fix_forward(
        job_id, reason=visit.text("reason"), reference=visit.text("reference"), **at
    )


Single = Callable[[PageContext, str, dict[str, Any]], Any]
_SINGLE: Mapping[str, Single] = {
    "triage": lambda visit, job_id, at: visit.operator.dead_letters.triage(
        job_id, kind=visit.text("kind"), **at
    ),
    "remediate": lambda visit, job_id, at: visit.operator.dead_letters.remediate(
        job_id, done=tuple(visit.form.get("done", ())), **at
    ),
    "validate": _validate,
    "replay": _replay,
    "verify": lambda visit, job_id, at: visit.operator.dead_letters.verify_replay(job_id, **at),
    "resolve": lambda visit, job_id, at: visit.operator.dead_letters.resolve(
        job_id, notes=visit.text("notes"), **at
    ),
    "discard": lambda visit, job_id, at: visit.operator.dead_letters.discard(
        job_id, reason=visit.text("reason"), **at
    ),
    "fix-forward": _fix_forward,
    "note": lambda visit, job_id, _at: visit.operator.dead_letters.add_note(
        job_id, visit.text("body")
    ),
}


# -- bulk


def plan_bulk(visit: PageContext) -> Shown:
    """The dry run of a step with all items of a filter."""
    visit.require_act()
    return _bulk_page(visit, visit.query.get("step", ""), visit.kept(*FIELDS))


def perform_bulk(visit: PageContext) -> Shown | Go:
    """Take the step with all items of the filter, if their number is the one that was shown."""
    kept = {name: visit.text(name) for name in FIELDS if visit.text(name)}
    step = visit.text("step")
    request = _request(visit, step, kept)
    try:
        return visit.start(request, expected=read_count(visit))
    except CountChanged as error:
        return _bulk_page(visit, step, kept, f"{error} Check the number and confirm it.")


def _bulk_page(visit: PageContext, step: str, kept: Mapping[str, str], says: str = "") -> Shown:
    if step not in _BULK_STEPS:
        raise InvalidAction({"step": f"must be one of {', '.join(_BULK_STEPS)}"})
    wanted = {**kept}
    if step in _BEGINS:
        wanted.setdefault("state", _BEGINS[step])
    kind = wanted.get("kind")
    if step == "remediate" and kind is None:
        raise InvalidAction({"kind": "choose one kind; each kind has its own checklist"})
    values = {
        "step": step,
        "kept": wanted,
        "back": {name: value for name, value in wanted.items() if name != "state"},
        "says": says,
        "answer": _plan(visit, step, wanted),
        "kinds": [one.value for one in DeadLetterKind],
        "checklist": CHECKLISTS[DeadLetterKind(kind)] if step == "remediate" and kind else {},
    }
    return Shown("dead_letters_bulk.html", f"{step.capitalize()} dead letters", values)


def _plan(visit: PageContext, step: str, kept: Mapping[str, Any]) -> BulkAnswer:
    """The dry run. It needs neither a reason nor other fields."""
    letters, wanted = visit.operator.dead_letters, DeadLetterFilter(**kept)
    how: dict[str, Any] = {"reason": "dry run", "is_dry_run": True, "everything": not kept}
    if step == "replay":
        return letters.replay_all(wanted, **how)
    if step == "discard":
        return letters.discard_all(wanted, **how)
    return letters.recover(wanted, steps=[_ACTIONS[step]], kind=DeadLetterKind.DATA, **how)


def _request(visit: PageContext, step: str, kept: Mapping[str, Any]) -> LetterAction:
    """The bulk action that a form asks for. Raises InvalidAction."""
    if step not in _BULK_STEPS:
        raise InvalidAction({"step": f"must be one of {', '.join(_BULK_STEPS)}"})
    how: dict[str, Any] = {}
    match step:
        case "replay":
            how["full_restart"] = visit.text("full_restart") == "yes"
        case "triage":
            how["kind"] = visit.text("kind_of")
        case "remediate":
            how["done"] = tuple(visit.form.get("done", ()))
        case "validate":
            how["evidence_ref"] = visit.text("evidence_ref")
            if visit.text("is_safe") != "yes":
                says = "confirm that replays are idempotent or safe for duplicate effects"
                raise InvalidAction({"is_safe": says})
    action = str(_ACTIONS.get(step, step))
    return LetterAction(action, DeadLetterFilter(**kept), visit.text("reason"), **how)


PAGES = (
    Page("/dead-letters", list_letters, title="Dead letters", group="Work"),
    Page("/dead-letters/bulk", plan_bulk),
    Page("/dead-letters/bulk", perform_bulk, "POST"),
    Page("/dead-letters/{job_id}", show_letter),
    Page("/dead-letters/{job_id}/{step}", take_step, "POST"),
)
