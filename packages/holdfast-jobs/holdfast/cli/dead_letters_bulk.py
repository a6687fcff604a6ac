"""Dead letters by filter: the options of the steps, and holdfast dead-letters recover|…-all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, TypeVar

import click

from holdfast.cli.audit import Instant
from holdfast.cli.given import (
    ShortId,
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    print_table,
)
from holdfast.operate.bulk import LIMIT, LONGEST, BulkAnswer
from holdfast.operate.dead_letter import DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.dead_letters import DeadLetters
from holdfast.operate.plural import counted
from holdfast.operate.refusal import NothingMatches

F = TypeVar("F", bound=Callable[..., Any])

KINDS = [kind.value for kind in DeadLetterKind]
NAMED_COLUMNS = ("job_id", "job_type", "error_class", "state", "replay_job_id", "why")
# The options of a filter, as arguments of a command.
_CONDITIONS = ("job_type", "error_class", "queue", "stage", "kind", "state", "older_than", "since")
_BULK = ("is_dry_run", "everything", "confirm", "limit")
_LOOK_SECONDS = 1.0

kind_filter_option = click.option(
    "--kind", type=click.Choice(KINDS), help="Only this kind of failure."
)


def filter_options(command: F) -> F:
    """Options that select dead letters."""
    return _conditions(kind_filter_option(command))


def _conditions(command: F) -> F:
    """Those options without ``--kind``, which a step may have of its own."""
    for option in (
        click.option(
            "--since", type=Instant(), help="Only those that failed since, like 2h or an ISO time."
        ),
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
        click.option("--stage", help="Only this failed stage."),
        click.option("--queue", help="Only this queue."),
        click.option("--error-class", help="Only this error class."),
        click.option("--type", "job_type", help="Only this job type."),
    ):
        command = option(command)
    return command


def bulk_options(command: F) -> F:
    """The options of a bulk action without its filter and its reason."""
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
            # --reason depends on it.
            is_eager=True,
            help="Print what would be done, and change nothing.",
        ),
    ):
        command = option(command)
    return command


def reason_option(*, required: bool) -> Callable[[F], F]:
    """The option for the reason of a step or a bulk; a dry run, which records none, needs none."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is None and ctx.params.get("is_dry_run"):
            return "dry run"
        if value is None and required:
            raise click.MissingParameter(ctx=ctx, param=param)
        return value

    return click.option("--reason", callback=read, help="Reason recorded in the audit.")


def step(*options: Callable[[Any], Any], kind: bool = True) -> Callable[[F], F]:
    """The options of a step that takes one dead letter, or a filter, after its own.

    Without *kind* the step has its own option of that name.
    """

    def decorate(command: F) -> F:
        made: Any = click.pass_context(command)
        shared = (json_option, operator_options, bulk_options, version_option)
        for option in (*shared, filter_options if kind else _conditions, *reversed(options)):
            made = option(made)
        decorated: F = click.argument("job_id", type=ShortId("dead_letters"), required=False)(made)
        return decorated

    return decorate


def version_option(command: F) -> F:
    """The option for the expected version."""
    return click.option(
        "--version", type=int, help="Fail unless the dead letter has this version."
    )(command)


@contextmanager
def letters_of(ctx: click.Context, who: Mapping[str, Any]) -> Iterator[DeadLetters]:
    """The dead letters that the actor of the options may see."""
    with app_of(ctx, required=False) as hf:
        yield operator_of(hf, who["actor"], who["role"], who["org_id"]).dead_letters


def read_filter(given: dict[str, Any]) -> tuple[DeadLetterFilter, dict[str, Any]]:
    """The filter, and the remaining options."""
    wanted = {name: given.pop(name, None) for name in _CONDITIONS}
    hours = wanted.pop("older_than")
    older_than = None if hours is None else timedelta(hours=hours)
    return DeadLetterFilter(given["org_id"], **wanted, older_than=older_than), given


def is_bulk(job_id: str | None, given: Mapping[str, Any]) -> bool:
    """Whether a step has a filter instead of an id. Both together, or neither, is wrong usage."""
    conditions = [name for name in _CONDITIONS if given.get(name) is not None]
    if job_id is None:
        if not conditions and not given["everything"] and given["org_id"] is None:
            raise click.UsageError(
                "Missing argument 'JOB_ID', or a filter such as --error-class or --type."
            )
        return True
    if conditions or given["everything"] or given["is_dry_run"]:
        raise click.UsageError("Give JOB_ID or a filter, not both.")
    return False


def needs(value: str | None, option: str) -> str:
    """An option that this form of the command needs."""
    if value is None:
        raise click.UsageError(f"Missing option '{option}'.")
    return value


def perform_step(
    ctx: click.Context, name: str, given: dict[str, Any], as_json: bool, **stated: Any
) -> None:
    """Take one step of the workflow for every dead letter that matches."""
    reason = needs(given.pop("reason"), "--reason")
    wanted, rest = read_filter(given)
    options = {option: rest[option] for option in _BULK}
    with letters_of(ctx, rest) as letters:
        answer = letters.recover(
            wanted, reason=reason, steps=(name,), on_progress=_progress(name), **options, **stated
        )
    finish(ctx, answer, as_json)


@click.command()
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="Kind of the failure.  [default: transient failures only]",
)
@click.option("--evidence", help="Reference to the evidence of the fix.  [default: the reason]")
@click.option("--full-restart", is_flag=True, help="Start at the first stage.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Wait for the replays, then verify and resolve.",
)
@reason_option(required=True)
@_conditions
@bulk_options
@operator_options
@json_option
@click.pass_context
def recover(
    ctx: click.Context,
    /,
    kind: str | None,
    evidence: str | None,
    full_restart: bool,
    wait_seconds: float | None,
    reason: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Recover all dead letters that match a filter.

    Takes each as far through the workflow as its state allows: triage, remediate, validate and
    replay; verify and resolve once its replay has completed. Run it when the cause is fixed: it
    confirms the checklist of each kind, and that repeating the jobs is safe. Job types that refuse
    replays are skipped.
    """
    wanted, rest = read_filter(given)
    options = {name: rest[name] for name in _BULK}
    with letters_of(ctx, rest) as letters:
        answer = letters.recover(
            wanted,
            reason=reason,
            kind=kind,
            evidence_ref=evidence,
            full_restart=full_restart,
            on_progress=_progress("recover"),
            **options,
        )
        resolved: int | None = None
        if wait_seconds is not None and not answer.is_dry_run:
            _await_replays(letters, wanted, wait_seconds)
            resolved = answer.done - answer.replayed + _close(letters, wanted, reason, options)
    _print_bulk(answer, as_json, more={} if resolved is None else {"resolved": resolved})
    if not as_json and answer.replayed and resolved is None:
        click.echo("Next: when the replays have completed, repeat the command to resolve them.")
    _exit(ctx, answer)
    if resolved is not None and resolved < answer.done:
        missing = counted(answer.done - resolved, "dead letter")
        click.echo(f"holdfast: {missing} could not be resolved yet.", err=True)
        ctx.exit(1)


def _await_replays(letters: DeadLetters, wanted: DeadLetterFilter, seconds: float) -> None:
    """Wait until no replay of a matching dead letter is in progress."""
    until = time.monotonic() + seconds
    replaying = replace(wanted, state=DeadLetterState.REPLAYING)
    while letters.list(replaying, limit=1).letters and time.monotonic() < until:
        time.sleep(min(_LOOK_SECONDS, max(0.0, until - time.monotonic())))


def _close(
    letters: DeadLetters, wanted: DeadLetterFilter, reason: str, options: Mapping[str, Any]
) -> int:
    """Verify and resolve what was replayed; return how many are resolved."""
    replayed = replace(wanted, state=DeadLetterState.REPLAYED)
    steps = ("verify_replay", "resolve")
    try:
        answer = letters.recover(replayed, reason=reason, steps=steps, limit=options["limit"])
    except NothingMatches:
        return 0
    return answer.done


@click.command("replay-all")
@click.option("--full-restart", is_flag=True, help="Start at the first stage.")
@reason_option(required=True)
@filter_options
@bulk_options
@operator_options
@json_option
@click.pass_context
def replay_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Replay all validated dead letters that match a filter."""
    wanted, rest = read_filter(given)
    with letters_of(ctx, rest) as letters:
        answer = letters.replay_all(wanted, **_without_who(rest))
    finish(ctx, answer, as_json)


@click.command("discard-all")
@reason_option(required=True)
@filter_options
@bulk_options
@operator_options
@json_option
@click.pass_context
def discard_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Discard all dead letters that match a filter.

    Dead letters with a replay in progress are skipped.
    """
    wanted, rest = read_filter(given)
    with letters_of(ctx, rest) as letters:
        answer = letters.discard_all(wanted, **_without_who(rest))
    finish(ctx, answer, as_json)


def _without_who(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in given if name not in ("actor", "role", "org_id")}


def _progress(name: str) -> Callable[[int, int], None]:
    """Print the progress on standard error, so that the answer can be piped."""
    verb = name.removesuffix("_replay")
    return lambda done, ready: click.echo(f"{verb}: {done} of {ready}", err=True)


def finish(ctx: click.Context, answer: BulkAnswer, as_json: bool) -> None:
    """Print the answer of a bulk; exit with 1 if it did nothing."""
    _print_bulk(answer, as_json)
    _exit(ctx, answer)


def _exit(ctx: click.Context, answer: BulkAnswer) -> None:
    if answer.ready if answer.is_dry_run else answer.done:
        return
    why = "; ".join(f"{out.letters}: {one_line(out.why)}" for out in answer.left_out)
    why = why or one_line(answer.stopped or "they were changed concurrently")
    verb = "would be" if answer.is_dry_run else "was"
    click.echo(f"holdfast: Nothing {verb} done. {why}.".replace("..", "."), err=True)
    ctx.exit(1)


def _print_bulk(answer: BulkAnswer, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    if as_json:
        print_json({**asdict(answer), **(more or {})})
        return
    done = f"{answer.ready} would be done" if answer.is_dry_run else f"{answer.done} done"
    told = "".join(f", {count} {name}" for name, count in (more or {}).items())
    click.echo(f"{answer.action}: {answer.matched} fit, {answer.ready} ready, {done}{told}")
    for left_out in answer.left_out:
        click.echo(f"skipped {left_out.letters}: {one_line(left_out.why)}")
    if answer.stopped is not None:
        click.echo(f"stopped: {one_line(answer.stopped)}")
    print_table(answer.named, NAMED_COLUMNS)
