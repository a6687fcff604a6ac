"""Why a change is not reviewed. The contexts hold fixed words, counts and places, no text.

* Failure
  x Transient
    + GitFailed          git failed or timed out
  x Permanent
    + ChangeMissing      the repository or revision does not exist, or its history is missing
    + PathRefused        the repository is not allowed
    + ChangeTooLarge     the change exceeds the limits
    + PatchInvalid       the text is not a patch
    + RedactionFailed    the change may still contain a secret, so no model sees it
"""

from __future__ import annotations

from holdfast.errors import Gone, Permanent, PolicyRejected, SchemaInvalid, Transient


class GitFailed(Transient):
    """Git failed or timed out; the repository may be busy.

    Fault: the repository. Remedy: inspect the repository; raise `git_seconds` for a large one.
    """

    error_class = "GIT_FAILED"


class ChangeMissing(Gone):
    """The repository, revision or posted patch does not exist. Check the source of the review.

    Fault: the request. In a shallow clone the history may be missing. Remedy: submit the review
    with a source that exists.
    """

    error_class = "CHANGE_MISSING"


class PathRefused(PolicyRejected):
    """The repository is not below an allowed folder. Add it to the repositories.

    Fault: the request. Remedy: add the folder to `repositories` in `[review]`, if it may be read.
    """

    error_class = "PATH_REFUSED"


class ChangeTooLarge(Permanent):
    """The change is larger than the limits for reviews. Submit it in smaller changes.

    Fault: the request. Remedy: submit smaller changes, or raise `max_bytes`.
    """

    error_class = "CHANGE_TOO_LARGE"


class PatchInvalid(SchemaInvalid):
    """The posted text is not a patch; the context names the line and the reason.

    Fault: the request. Remedy: post the output of `git diff`.
    """

    error_class = "PATCH_INVALID"


class RedactionFailed(PolicyRejected):
    """The change may still contain a secret after redaction, so no model received it.

    Fault: Holdfast: the redaction is incomplete. Remedy: find the cause, fix it, replay.
    """

    error_class = "REDACTION_FAILED"
    pages_operator = True
