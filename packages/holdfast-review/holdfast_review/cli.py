"""holdfast review submit|show|rerun|erase"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.given import (
    actor_option,
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    print_table,
)
from holdfast.operate.authorization import Action

if TYPE_CHECKING:
    from holdfast_review.model import Recipient, Review, Source
    from holdfast_review.show import Shown
    from holdfast_review.submit import Submitted

F = TypeVar("F", bound=Callable[..., Any])

org_option = click.option("--org", "org_id", required=True, help="Tenant (UUID).")
asked_options = (
    click.option("--changelist", "changelist_id", required=True, help="Changelist id."),
    click.option("--version", "review_version", required=True, help="Version, like 3 or v3."),
    click.option("--key", "idempotency_key", required=True, help="Idempotency key of the caller."),
    click.option("--repository", help="Path of a git repository."),
    click.option("--base", default="", help="Base revision: changes since the merge base with it."),
    click.option("--head", help="Head revision; without --base, this commit only."),
    click.option("--patch", help="Patch file, instead of a repository; - reads standard input."),
    click.option(
        "--to",
        "required",
        multiple=True,
        help="Required recipient, as [NAME=]CHANNEL:ADDRESS; repeatable.",
    ),
    click.option(
        "--cc", "others", multiple=True, help="Optional recipient, as for --to; repeatable."
    ),
)


def asked(command: F) -> F:
    """Add the shared options of a review request to a command."""
    for option in reversed((org_option, *asked_options)):
        command = option(command)
    return json_option(actor_option(command))


@click.group()
def review() -> None:
    """Submit and inspect code reviews."""


@review.command()
@asked
@click.option("--rerun", is_flag=True, help="Allow another version after one has succeeded.")
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    rerun: bool,
    as_json: bool,
    required: Sequence[str],
    others: Sequence[str],
    **given: Any,
) -> None:
    """Submit a version of a change for review.

    An existing review of the same version is returned.
    """
    from holdfast_review.reviews import Reviews

    recipients = read_recipients(required, others)
    source = read_source(given)
    if source is None:
        raise click.UsageError("Pass --repository with --head, or --patch.")
    with app_of(ctx, required=False) as hf:
        asked_for = Reviews.for_app(hf).submit(
            **given, source=source, recipients=recipients, rerun=rerun
        )
        print_submitted(asked_for, as_json)


@review.command()
@asked
@click.pass_context
def rerun(
    ctx: click.Context,
    /,
    as_json: bool,
    required: Sequence[str],
    others: Sequence[str],
    **given: Any,
) -> None:
    """Submit a higher version of a review.

    Values that are not given are those of the highest existing version.
    """
    from holdfast_review.reviews import Reviews

    recipients = read_recipients(required, others) or None
    source = read_source(given)
    with app_of(ctx, required=False) as hf:
        asked_for = Reviews.for_app(hf).rerun(**given, source=source, recipients=recipients)
        print_submitted(asked_for, as_json)


@review.command()
@click.argument("review_id", required=False)
@org_option
@click.option("--changelist", "changelist_id", help="Changelist id, instead of REVIEW_ID.")
@click.option("--version", "review_version", help="Version, like 3 or v3.  [default: latest]")
@json_option
@click.pass_context
def show(
    ctx: click.Context,
    review_id: str | None,
    org_id: str,
    changelist_id: str | None,
    review_version: str | None,
    as_json: bool,
) -> None:
    """Show a review, its findings and its recipients."""
    from holdfast_review.reviews import Reviews

    if (review_id is None) == (changelist_id is None):
        raise click.UsageError("Name the review by its id or by --changelist.")
    with app_of(ctx, required=False) as hf:
        reviews = Reviews.for_app(hf)
        if review_id is not None:
            found = reviews.find(review_id, org_id=org_id)
        else:
            found = reviews.find_version(str(changelist_id), review_version, org_id=org_id)
    if as_json:
        print_json(found.document)
    else:
        print_shown(found)


@review.command()
@click.option("--changelist", "changelist_id", help="All versions of this changelist.")
@click.option("--recipient", help="Person to erase from all reviews of the tenant.")
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@operator_options
@click.pass_context
def erase(
    ctx: click.Context,
    changelist_id: str | None,
    recipient: str | None,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Erase the text and the recipients of reviews.

    This cannot be undone.
    """
    from holdfast_review.reviews import Reviews

    if (changelist_id is None) == (recipient is None) or org_id is None:
        raise click.UsageError("Pass --org, and --changelist or --recipient.")
    with app_of(ctx, required=False) as hf:
        # The audit is permanent, so it must not contain a person's name.
        subject = "recipient" if changelist_id is None else f"changelist:{changelist_id}"
        operator_of(hf, actor, role, org_id).context.check(
            Action.ERASE, org_id=org_id, subject=subject
        )
        reviews, why = Reviews.for_app(hf), {"org_id": org_id, "reason": reason, "actor": actor}
        if changelist_id is not None:
            erased = reviews.erase(changelist_id, **why)
        else:
            erased = reviews.erase_recipient(str(recipient), **why)
        print_json(asdict(erased))


def read_source(given: dict[str, Any]) -> Source | None:
    """Return the source that the options name, and remove those options from *given*."""
    from holdfast_review.model import Source

    repository, head, base, patch = (
        given.pop(name) for name in ("repository", "head", "base", "patch")
    )
    if patch is not None:
        if repository or head or base:
            raise click.UsageError(
                "--patch cannot be combined with --repository, --head or --base."
            )
        return Source.posted(read_patch(patch))
    if repository is None and head is None and not base:
        return None
    if not (repository and head):
        raise click.UsageError("A change of a repository takes --repository and --head.")
    return Source.git(str(Path(repository).absolute()), head, base)


def read_patch(place: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes()
    except OSError as exc:
        raise click.BadParameter(str(exc.strerror), param_hint="--patch") from None


def read_recipients(required: Sequence[str], others: Sequence[str]) -> list[Recipient]:
    return [
        *(_recipient(text, is_required=True) for text in required),
        *(_recipient(text, is_required=False) for text in others),
    ]


def _recipient(text: str, *, is_required: bool) -> Recipient:
    """Parse ``[NAME=]CHANNEL:ADDRESS``. Without a name, the address identifies the recipient."""
    from holdfast_review.model import Recipient

    place, _, _ = text.partition(":")
    name, equals, _ = place.partition("=")
    rest = text[len(name) + 1 :] if equals else text
    channel, colon, address = rest.partition(":")
    if not colon or not channel or not address:
        raise click.BadParameter("write [NAME=]CHANNEL:ADDRESS", param_hint="--to or --cc")
    return Recipient(name if equals else address, channel, address, is_required)


def print_submitted(found: Submitted, as_json: bool) -> None:
    told = {
        "review_id": found.review.review_id,
        "job_id": found.review.job_id,
        "changelist_id": found.review.changelist_id,
        "review_version": found.review.review_version,
        "status": found.review.word,
        "answer": found.answer,
        "created": found.created,
        "differs": found.differs,
        "dead_letter_id": found.review.dead_letter_id,
    }
    if as_json:
        print_json(told)
    else:
        state = "submitted" if found.created else f"already exists ({found.answer})"
        click.echo(f"{found.review.review_id}  {state}  {found.review.word or 'canceled'}")
    if found.differs:
        click.echo("A review with other options exists; it was not changed.", err=True)


def print_origin(review: Review) -> None:
    """Print repository, commits, author and title, as far as they are known."""
    origin = review.origin
    if review.source.repository:
        click.echo(f"repository {one_line(review.source.repository)}")
    if origin is None:
        return
    if origin.head:
        click.echo(f"commits {f'{origin.base}..' if origin.base else ''}{origin.head}")
    if origin.title:
        author = f" ({one_line(origin.author)})" if origin.author else ""
        click.echo(f"title {one_line(origin.title)}{author}")


def print_shown(found: Shown) -> None:
    one = found.review
    click.echo(
        f"{one_line(one.changelist_id)} version {one.review_version}: {one.word or 'canceled'}"
    )
    if one.dead_letter_id:
        click.echo(f"dead letter {one.dead_letter_id}")
    if one.is_erased:
        click.echo("The findings and recipients were erased.")
    print_origin(one)
    if found.summary:
        click.echo(one_line(found.summary))
    if one.outcome is not None:
        click.echo(f"outcome: {one.outcome.replace('_', ' ')}")
    for line in one.coverage.sentences() if one.coverage else ():
        click.echo(line)
    findings = [
        {
            "severity": item.severity,
            "place": (item.file if item.line is None else f"{item.file}:{item.line}")
            + ("" if item.is_placed else " (not in the change)"),
            "message": item.message,
        }
        for item in found.findings
    ]
    print_table(findings, ["severity", "place", "message"])
    told = [
        {
            "recipient": item.recipient,
            "channel": item.channel,
            "state": item.state,
            "notified_at": item.notified_at,
        }
        for item in found.recipients
    ]
    print_table(told, ["recipient", "channel", "state", "notified_at"])
