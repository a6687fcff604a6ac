"""holdfast dead-letters list|show|triage|remediate|validate|replay|verify|resolve|discard|…"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TypeVar

import click

from holdfast.cli.format import counted
from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_fields,
    print_json,
    print_table,
    short_id_argument,
    shorten,
)
from holdfast.operate.bulk import LIMIT, LONGEST, BulkAnswer
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.dead_letter_plan import next_step_of
from holdfast.operate.dead_letters import DeadLetters, DeadLetterView

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (
    "job_id", "version", "state", "kind", "job_type", "stage", "error_class", "attempts",
    "created_at",
)  # fmt: skip
REPLAY_COLUMNS = (
    "number",
    "replay_job_id",
    "stage",
    "outcome",
    "error_class",
    "actor_id",
    "reason",
)
KINDS = [kind.value for kind in DeadLetterKind]


@click.group("dead-letters")
def dead_letters() -> None:
    """Inspect and recover failed jobs."""


def filter_options(command: F) -> F:
    """Options that select dead letters."""
    for option in (
        click.option(
            "--older-than",
            metavar="HOURS",
            type=click.FloatRange(min=0, min_open=True),
            help="Only dead letters older than this many hours.",
        ),
        click.option(
            "--state",
            type=click.Choice([state.value for state in DeadLetterState]),
            help="Only this state.",
        ),
        click.option("--kind", type=click.Choice(KINDS), help="Only this kind of failure."),
        click.option("--stage", help="Only this failed stage."),
        click.option("--queue", help="Only this queue."),
        click.option("--error-class", help="Only this error class."),
        click.option("--type", "job_type", help="Only this job type."),
    ):
        command = option(command)
    return command


def version_option(command: F) -> F:
    """The option for the expected version."""
    return click.option(
        "--version", type=int, help="Fail unless the dead letter has this version."
    )(command)


def step(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """The options of every step, after its own."""

    def decorate(command: F) -> F:
        made: Any = click.pass_context(command)
        for option in (json_option, operator_options, version_option, *reversed(options)):
            made = option(made)
        decorated: F = short_id_argument("job_id", "dead_letters")(made)
        return decorated

    return decorate


@contextmanager
def letters_of(ctx: click.Context, who: Mapping[str, Any]) -> Iterator[DeadLetters]:
    """The dead letters that the actor of the options may see."""
    with app_of(ctx, required=False) as hf:
        yield operator_of(hf, who["actor"], who["role"], who["org_id"]).dead_letters


@dead_letters.command("list")
@filter_options
@click.option("--all", "with_ended", is_flag=True, help="Include ended dead letters.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option("--before", help="Cursor of the next page, as printed by the previous one.")
@operator_options
@json_option
@click.pass_context
def list_letters(
    ctx: click.Context,
    /,
    with_ended: bool,
    limit: int,
    before: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """List dead letters, newest first."""
    wanted, who = _read(given)
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, who["actor"], who["role"], who["org_id"])
        page = operator.dead_letters.list(wanted, with_ended=with_ended, limit=limit, before=before)
        rows = [asdict(letter) for letter in page.letters]
        if as_json:
            print_json({"dead_letters": rows, "next": page.next})
            return
        ids = shorten(operator, "dead_letters", [row["job_id"] for row in rows])
    print_table(rows, COLUMNS, ids=ids, empty="No dead letters: no job needs an operator.")
    if rows:
        click.echo(f"\n{counted(len(rows), 'dead letter')}")
        click.echo(f"Next: holdfast dead-letters show {ids[rows[0]['job_id']]}")
    if page.next is not None:
        click.echo(f"More: holdfast dead-letters list --before {page.next}")


@dead_letters.command()
@short_id_argument("job_id", "dead_letters")
@operator_options
@json_option
@click.pass_context
def show(ctx: click.Context, /, job_id: str, as_json: bool, **who: Any) -> None:
    """Show a dead letter with its replays and next steps."""
    with letters_of(ctx, who) as letters:
        view = letters.show(job_id)
    if as_json:
        print_json(asdict(view))
    else:
        _print_view(view)


@dead_letters.command()
@step(click.option("--kind", required=True, type=click.Choice(KINDS), help="Kind of the failure."))
def triage(
    ctx: click.Context, /, job_id: str, kind: str, version: int | None, as_json: bool, **who: Any
) -> None:
    """Confirm the failure and classify it."""
    with letters_of(ctx, who) as letters:
        letter = letters.triage(job_id, kind=kind, version=version)
    _print_step(letter, as_json)
    if not as_json:
        for name, says in CHECKLISTS[DeadLetterKind(kind)].items():
            click.echo(f"  --done {name:26} {says}")


@dead_letters.command()
@step(click.option("--done", multiple=True, help="Confirmed point of the checklist; repeatable."))
def remediate(
    ctx: click.Context,
    /,
    job_id: str,
    done: tuple[str, ...],
    version: int | None,
    as_json: bool,
    **who: Any,
) -> None:
    """Confirm the checklist for this kind of failure."""
    with letters_of(ctx, who) as letters:
        _print_step(letters.remediate(job_id, done=done, version=version), as_json)


@dead_letters.command()
@step(
    click.option("--evidence", required=True, help="Reference to the evidence of the fix."),
    click.option("--safe-to-repeat", is_flag=True, help="Confirm that repeating the job is safe."),
)
def validate(
    ctx: click.Context,
    /,
    job_id: str,
    evidence: str,
    safe_to_repeat: bool,
    version: int | None,
    as_json: bool,
    **who: Any,
) -> None:
    """Record evidence and confirm that a replay is safe."""
    with letters_of(ctx, who) as letters:
        letter = letters.validate(
            job_id, evidence_ref=evidence, is_safe_to_repeat=safe_to_repeat, version=version
        )
    _print_step(letter, as_json)


@dead_letters.command()
@step(
    click.option(
        "--reason", required=True, help="Reason recorded with the replay and in the audit."
    ),
    click.option("--full-restart", is_flag=True, help="Start at the first stage."),
)
def replay(
    ctx: click.Context,
    /,
    job_id: str,
    reason: str,
    full_restart: bool,
    version: int | None,
    as_json: bool,
    **who: Any,
) -> None:
    """Replay the job from the failed stage."""
    with letters_of(ctx, who) as letters:
        made = letters.replay(job_id, reason=reason, full_restart=full_restart, version=version)
    if as_json:
        print_json(asdict(made))
        return
    click.echo(
        f"replay {made.number} of {made.letter.job_id} is job {made.replay_job_id}"
        f" at stage {one_line(made.stage)}"
    )


@dead_letters.command()
@step()
def verify(
    ctx: click.Context, /, job_id: str, version: int | None, as_json: bool, **who: Any
) -> None:
    """Confirm that the replay and its deliveries completed."""
    with letters_of(ctx, who) as letters:
        _print_step(letters.verify_replay(job_id, version=version), as_json)


@dead_letters.command()
@step(click.option("--notes", required=True, help="Closing notes."))
def resolve(
    ctx: click.Context, /, job_id: str, notes: str, version: int | None, as_json: bool, **who: Any
) -> None:
    """Close a dead letter whose replay was verified."""
    with letters_of(ctx, who) as letters:
        _print_step(letters.resolve(job_id, notes=notes, version=version), as_json)


@dead_letters.command()
@step(click.option("--reason", required=True, help="Reason recorded in the audit."))
def discard(
    ctx: click.Context, /, job_id: str, reason: str, version: int | None, as_json: bool, **who: Any
) -> None:
    """Discard a dead letter."""
    with letters_of(ctx, who) as letters:
        _print_step(letters.discard(job_id, reason=reason, version=version), as_json)


@dead_letters.command("fix-forward")
@step(
    click.option("--reason", required=True, help="Reason recorded in the audit."),
    click.option("--reference", required=True, help="Reference to the replacement."),
)
def fix_forward(
    ctx: click.Context,
    /,
    job_id: str,
    reason: str,
    reference: str,
    version: int | None,
    as_json: bool,
    **who: Any,
) -> None:
    """Close a dead letter that something else replaces."""
    with letters_of(ctx, who) as letters:
        letter = letters.fix_forward(job_id, reason=reason, reference=reference, version=version)
    _print_step(letter, as_json)


@dead_letters.command()
@short_id_argument("job_id", "dead_letters")
@click.argument("body")
@operator_options
@json_option
@click.pass_context
def note(ctx: click.Context, /, job_id: str, body: str, as_json: bool, **who: Any) -> None:
    """Add a note to a dead letter."""
    with letters_of(ctx, who) as letters:
        made = letters.add_note(job_id, body)
    if as_json:
        print_json(asdict(made))
    else:
        click.echo(f"{made.id}  noted")


def bulk_options(command: F) -> F:
    """The options of a bulk action."""
    made: Any = filter_options(operator_options(json_option(click.pass_context(command))))
    for option in (
        click.option(
            "--limit",
            default=LIMIT,
            show_default=True,
            type=click.IntRange(1, LONGEST),
            help="Maximum number of rows.",
        ),
        click.option("--confirm", type=int, help="Number of items that --all affects."),
        click.option(
            "--all", "everything", is_flag=True, help="Apply to everything; needs --confirm."
        ),
        click.option(
            "--dry-run",
            "is_dry_run",
            is_flag=True,
            help="Print what would be done, and change nothing.",
        ),
        click.option("--reason", required=True, help="Reason recorded in the audit of each item."),
    ):
        made = option(made)
    decorated: F = made
    return decorated


@dead_letters.command("replay-all")
@click.option("--full-restart", is_flag=True, help="Start at the first stage.")
@bulk_options
def replay_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Replay all validated dead letters that match a filter."""
    wanted, rest = _read(given)
    with letters_of(ctx, rest) as letters:
        _print_bulk(letters.replay_all(wanted, **_without_who(rest)), as_json)


@dead_letters.command("discard-all")
@bulk_options
def discard_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Discard all dead letters that match a filter.

    Dead letters with a replay in progress are skipped.
    """
    wanted, rest = _read(given)
    with letters_of(ctx, rest) as letters:
        _print_bulk(letters.discard_all(wanted, **_without_who(rest)), as_json)


def _read(given: dict[str, Any]) -> tuple[DeadLetterFilter, dict[str, Any]]:
    """The filter, and the remaining options."""
    names = ("job_type", "error_class", "queue", "stage", "kind", "state")
    hours = given.pop("older_than")
    wanted = {name: given.pop(name) for name in names}
    older_than = None if hours is None else timedelta(hours=hours)
    return DeadLetterFilter(given["org_id"], **wanted, older_than=older_than), given


def _without_who(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in given if name not in ("actor", "role", "org_id")}


def _print_step(letter: DeadLetter, as_json: bool) -> None:
    if as_json:
        print_json(asdict(letter))
        return
    said = f"{letter.job_id}  {letter.state}, version {letter.version}"
    if not letter.state.is_ended:
        said += f"; next step: {one_line(next_step_of(letter))}"
    click.echo(said)


def _print_view(view: DeadLetterView) -> None:
    long = ("last_stack", "sanitized_context", "checklist")
    fields = asdict(view.letter)
    print_fields({name: value for name, value in fields.items() if name not in long})
    for name, value in view.letter.sanitized_context.items():
        click.echo(f"  {one_line(name):26} {one_line(value)}")
    for line in view.letter.last_stack.splitlines():
        click.echo(f"  {one_line(line)}")
    if view.replays:
        click.echo()
        print_table([asdict(replay) for replay in view.replays], REPLAY_COLUMNS)
    for note in view.notes:
        click.echo(f"note by {one_line(note.actor_id)}: {one_line(note.body)}")
    click.echo(f"\nnext step: {one_line(view.plan.next_step)}")
    for offer in view.plan.offers:
        mark = "offered" if offer.is_offered else "not offered"
        click.echo(f"{offer.action:12} {mark}: {one_line(offer.says)}")


def _print_bulk(answer: BulkAnswer, as_json: bool) -> None:
    if as_json:
        print_json(asdict(answer))
        return
    done = f"{answer.ready} would be done" if answer.is_dry_run else f"{answer.done} done"
    click.echo(f"{answer.action}: {answer.matched} fit, {answer.ready} ready, {done}")
    for left_out in answer.left_out:
        click.echo(f"left out {left_out.letters}: {one_line(left_out.why)}")
    if answer.stopped is not None:
        click.echo(f"stopped: {one_line(answer.stopped)}")
    print_table(
        answer.named, ("job_id", "job_type", "error_class", "state", "replay_job_id", "why")
    )
