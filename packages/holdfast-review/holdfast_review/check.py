"""Check a review request before anything is written, and reject what can never be reviewed or sent.

The deduplication gate runs first: a duplicate request is not checked again.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.actor import Actor
from holdfast.app import Holdfast
from holdfast.artifacts.artifact import ArtifactState
from holdfast.errors import ArtifactNotFound, ConfigInvalid
from holdfast_review.enums import SourceKind
from holdfast_review.failure import InvalidReview
from holdfast_review.model import Given, Recipient, Source, subject_of
from holdfast_review.posted import Posted, too_large
from holdfast_review.refusal import ChangeMissing, ChangeTooLarge, GitFailed, PathRefused
from holdfast_review.seal import NAME as SEALED_NAME


@runtime_checkable
class ChecksSource(Protocol):
    """A fetch that can detect in advance that a change will never be available."""

    def check(self, source: Source) -> None: ...


def check_given(
    hf: Holdfast, given: Given, actor: Actor, fetch: object, posted: Posted | None = None
) -> None:
    """Raise InvalidReview for unreachable recipients and missing changes."""
    errors: dict[str, str] = {} if posted is None else dict(posted.bad)
    for at, one in enumerate(given.recipients):
        _check_recipient(hf, f"recipients[{at}]", one, given, errors)
    # A posted patch was already parsed and is not stored yet.
    if given.source.kind is SourceKind.PATCH and posted is None:
        _check_patch(hf, given, actor, errors)
    elif isinstance(fetch, ChecksSource):
        _check_repository(fetch, given.source, errors)
    if errors:
        raise InvalidReview(errors)


def _check_recipient(
    hf: Holdfast, place: str, one: Recipient, given: Given, errors: dict[str, str]
) -> None:
    if not hf.outbox.channels.knows(one.channel):
        errors[f"{place}.channel"] = "is not a declared channel; add [channels.NAME]"
        return
    # The real subject is built from this one and fixed words.
    says = hf.outbox.channels.problem(one.channel, one.address, subject_of(given.changelist_id))
    if says is not None:
        errors[place] = says


def _check_patch(hf: Holdfast, given: Given, actor: Actor, errors: dict[str, str]) -> None:
    try:
        found = hf.artifacts.get(given.source.artifact_id, org_id=given.org_id, actor=actor)
    except ArtifactNotFound:
        errors["source.artifact_id"] = "is not an artifact of this tenant"
        return
    if found.state is not ArtifactState.STORED:
        errors["source.artifact_id"] = "is an artifact that was removed or is not stored yet"
    elif found.name == SEALED_NAME:
        errors["source.artifact_id"] = "is a posted patch that is not redacted yet; post it again"
    elif (found.bytes or 0) > hf.settings.review.max_bytes:
        errors["source.artifact_id"] = too_large(hf.settings.review.max_bytes)
    elif given.source.sha256 and given.source.sha256 != found.sha256:
        errors["source.sha256"] = "is not the checksum of the artifact"


def _check_repository(fetch: ChecksSource, source: Source, errors: dict[str, str]) -> None:
    try:
        fetch.check(source)
    except PathRefused:
        errors["source.repository"] = "is not there, or not below a folder of [review] repositories"
    except ChangeMissing as exc:
        what = exc.context.get("what")
        if what == "repository":
            errors["source.repository"] = "is not a git repository"
        else:
            errors[f"source.{what}"] = _revision_problem(exc.context.get("problem"))
    except ChangeTooLarge:
        errors["source.head"] = "is a commit whose message is too large"
    except (GitFailed, ConfigInvalid):
        # Unknown here. The first stage checks again and has several attempts.
        return


def _revision_problem(problem: object) -> str:
    match problem:
        case "shallow":
            return "has its history outside of the repository, a shallow clone; fetch it all"
        case "unrelated":
            return "has no history in common with the head"
        case _:
            return "is not a revision of the repository"
