"""Why a change is not reviewed. The contexts hold words of ours, counts and places, no text.

* Failure
  x Transient
    + GitFailed          git ended badly or took too long
  x Permanent
    + ChangeMissing      there is no such repository or revision, or its history is missing
    + PathRefused        the repository is not one that may be read
    + ChangeTooLarge     the change is larger than what is reviewed
    + PatchInvalid       what was given is no patch
    + RedactionFailed    the change may still hold a secret, so no model sees it
"""

from __future__ import annotations

from holdfast.errors import Gone, Permanent, PolicyRejected, SchemaInvalid, Transient


class GitFailed(Transient):
    """Git ended badly or took too long; the repository may be busy."""

    error_class = "GIT_FAILED"


class ChangeMissing(Gone):
    """There is no such repository or revision. Check the source of the review."""

    error_class = "CHANGE_MISSING"


class PathRefused(PolicyRejected):
    """The repository is not below a folder that may be read. Add it to the repositories."""

    error_class = "PATH_REFUSED"


class ChangeTooLarge(Permanent):
    """The change is larger than what is reviewed. Submit it in smaller changes."""

    error_class = "CHANGE_TOO_LARGE"


class PatchInvalid(SchemaInvalid):
    """What was given is no patch: the context says at which line and why."""

    error_class = "PATCH_INVALID"


class RedactionFailed(PolicyRejected):
    """The change may still hold a secret after it was redacted, so no model sees it."""

    error_class = "REDACTION_FAILED"
    pages_operator = True
