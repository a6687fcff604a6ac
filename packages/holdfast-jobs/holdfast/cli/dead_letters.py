"""holdfast dead-letters list|show|triage|remediate|validate|replay|verify|resolve|discard|…"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.dead_letters_bulk import (
    KINDS,
    discard_all,
    filter_options,
    finish,
    is_bulk,
    letters_of,
    needs,
    perform_step,
    read_filter,
    reason_option,
    recover,
    replay_all,
    step,
    version_option,
)
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
from holdfast.cli.next_command import complete_commands, next_command, next_page
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind
from holdfast.operate.dead_letter_plan import next_step_of
from holdfast.operate.dead_letters import DeadLetterView
from holdfast.operate.plural import counted

COLUMNS = (
    "job_id", "version", "state", "kind", "job_type", "stage", "error_class", "attempts",
    "created_at",
)  # fmt: skip
# The fields of a dead letter by subject; fields that are not listed come last.
GROUPS = {
    "": (
        "state", "kind", "version", "org_id", "queue", "stage", "attempts", "pipeline_version",
        "created_at", "updated_at",
    ),
    "Error": ("error_class", "last_error", "first_failure_at", "last_failure_at"),
    "Recovery": (
        "evidence_ref", "is_safe_to_repeat", "replay_count", "failed_replay_id", "escalated_at",
        "verified_at", "replay_refusal",
    ),
    "Outcome": ("ending", "fixed_by", "ended_at"),
}  # fmt: skip
# Printed in another place.
_OMITTED = (
    "job_id", "job_type", "last_stack", "sanitized_context", "checklist", "max_attempts",
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


_BULK_OPTIONS = ("reason", "is_dry_run", "everything", "confirm", "limit")


class DeadLetterGroup(click.Group):
    """The commands of dead letters. ``confirm`` is another name of ``verify``."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "verify" if cmd_name == "confirm" else cmd_name)


@click.group("dead-letters", cls=DeadLetterGroup)
def dead_letters() -> None:
    """Inspect and recover failed jobs."""


for _command in (recover, replay_all, discard_all):
    dead_letters.add_command(_command)


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
    wanted, who = read_filter(given)
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
        show = next_command(ctx, "dead-letters", "show", ids[rows[0]["job_id"]])
        click.echo(f"Next: {show}")
    if page.next is not None:
        click.echo(f"More: {next_page(ctx, '--before', page.next)}")


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
        _print_view(ctx, view)


@dead_letters.command()
@step(
    click.option("--kind", required=True, type=click.Choice(KINDS), help="Kind of the failure."),
    reason_option(required=False),
    kind=False,
)
def triage(
    ctx: click.Context,
    /,
    job_id: str | None,
    kind: str,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Confirm the failure and classify it.

    Names one dead letter, or a filter with a reason; so do the other steps.
    """
    if is_bulk(job_id, given) or job_id is None:
        perform_step(ctx, "triage", given, as_json, kind=kind)
        return
    with letters_of(ctx, given) as letters:
        letter = letters.triage(job_id, kind=kind, version=version)
    _print_step(letter, as_json)
    if not as_json:
        for name, says in CHECKLISTS[DeadLetterKind(kind)].items():
            click.echo(f"  --done {name:26} {says}")


@dead_letters.command()
@step(
    click.option("--done", multiple=True, help="Confirmed point of the checklist; repeatable."),
    reason_option(required=False),
)
def remediate(
    ctx: click.Context,
    /,
    job_id: str | None,
    done: tuple[str, ...],
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Confirm the checklist for this kind of failure."""
    if is_bulk(job_id, given) or job_id is None:
        perform_step(ctx, "remediate", given, as_json, done=done)
        return
    with letters_of(ctx, given) as letters:
        _print_step(letters.remediate(job_id, done=done, version=version), as_json)


@dead_letters.command()
@step(
    click.option("--evidence", required=True, help="Reference to the evidence of the fix."),
    click.option("--safe-to-repeat", is_flag=True, help="Confirm that repeating the job is safe."),
    reason_option(required=False),
)
def validate(
    ctx: click.Context,
    /,
    job_id: str | None,
    evidence: str,
    safe_to_repeat: bool,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Record evidence and confirm that a replay is safe."""
    if is_bulk(job_id, given) or job_id is None:
        if not safe_to_repeat:
            raise click.UsageError("Confirm that repeating the jobs is safe: --safe-to-repeat.")
        perform_step(ctx, "validate", given, as_json, evidence_ref=evidence)
        return
    with letters_of(ctx, given) as letters:
        letter = letters.validate(
            job_id, evidence_ref=evidence, is_safe_to_repeat=safe_to_repeat, version=version
        )
    _print_step(letter, as_json)


@dead_letters.command()
@step(
    reason_option(required=True),
    click.option("--full-restart", is_flag=True, help="Start at the first stage."),
)
def replay(
    ctx: click.Context,
    /,
    job_id: str | None,
    full_restart: bool,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replay the job from the failed stage."""
    if is_bulk(job_id, given) or job_id is None:
        perform_step(ctx, "replay", given, as_json, full_restart=full_restart)
        return
    with letters_of(ctx, given) as letters:
        made = letters.replay(
            job_id, reason=given["reason"], full_restart=full_restart, version=version
        )
    if as_json:
        print_json(asdict(made))
        return
    click.echo(
        f"replay {made.number} of {made.letter.job_id} is job {made.replay_job_id}"
        f" at stage {one_line(made.stage)}"
    )


@dead_letters.command()
@step(reason_option(required=False))
def verify(
    ctx: click.Context,
    /,
    job_id: str | None,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Confirm that the replay and its deliveries completed."""
    if is_bulk(job_id, given) or job_id is None:
        perform_step(ctx, "verify_replay", given, as_json)
        return
    with letters_of(ctx, given) as letters:
        _print_step(letters.verify_replay(job_id, version=version), as_json)


@dead_letters.command()
@step(
    click.option("--notes", help="Closing notes."),
    click.option("--reason", help="The same as --notes."),
)
def resolve(
    ctx: click.Context,
    /,
    job_id: str | None,
    notes: str | None,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Close a dead letter whose replay was verified."""
    said = needs(notes if notes is not None else given["reason"], "--notes")
    if is_bulk(job_id, given) or job_id is None:
        perform_step(ctx, "resolve", {**given, "reason": said}, as_json)
        return
    with letters_of(ctx, given) as letters:
        _print_step(letters.resolve(job_id, notes=said, version=version), as_json)


@dead_letters.command()
@step(reason_option(required=True))
def discard(
    ctx: click.Context,
    /,
    job_id: str | None,
    version: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Discard a dead letter."""
    if is_bulk(job_id, given) or job_id is None:
        wanted, rest = read_filter(given)
        options = {name: rest[name] for name in _BULK_OPTIONS}
        with letters_of(ctx, rest) as letters:
            answer = letters.discard_all(wanted, **options)
        finish(ctx, answer, as_json)
        return
    with letters_of(ctx, given) as letters:
        letter = letters.discard(job_id, reason=given["reason"], version=version)
    _print_step(letter, as_json)


@dead_letters.command("fix-forward")
@short_id_argument("job_id", "dead_letters")
@reason_option(required=True)
@click.option("--reference", required=True, help="Reference to the replacement.")
@version_option
@operator_options
@json_option
@click.pass_context
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


def _print_step(letter: DeadLetter, as_json: bool) -> None:
    if as_json:
        print_json(asdict(letter))
        return
    said = f"{letter.job_id}  {letter.state}, version {letter.version}"
    if not letter.state.is_ended:
        said += f"; next step: {one_line(next_step_of(letter))}"
    click.echo(said)


def _print_view(ctx: click.Context, view: DeadLetterView) -> None:
    letter = view.letter
    fields = {**asdict(letter), "attempts": f"{letter.attempts} of {letter.max_attempts}"}
    click.echo(one_line(f"{letter.job_type}  {letter.job_id}"))
    listed = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in fields if name not in listed and name not in _OMITTED)
    for title, names in {**GROUPS, "Other": others}.items():
        print_fields({name: fields[name] for name in names}, title=title)
    print_fields(
        {one_line(name): value for name, value in letter.sanitized_context.items()}, title="Context"
    )
    if letter.last_stack:
        click.echo("\nStack")
        for line in letter.last_stack.splitlines():
            click.echo(f"  {one_line(line)}")
    if view.replays:
        click.echo("\nReplays")
        print_table([asdict(replay) for replay in view.replays], REPLAY_COLUMNS)
    if view.notes:
        click.echo("\nNotes")
        for note in view.notes:
            click.echo(f"  {one_line(note.actor_id)}: {one_line(note.body)}")
    click.echo(f"\nNext step: {one_line(view.plan.next_step)}")
    for offer in view.plan.offers:
        mark = "offered" if offer.is_offered else "not offered"
        says = complete_commands(ctx, one_line(offer.says))
        click.echo(f"  {offer.action:12} {mark}: {says}")
