"""Posted patches: parsed before the deduplication gate, stored only if a review is created."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from holdfast.actor import Actor
from holdfast.app import Holdfast
from holdfast.artifacts.artifact import Access
from holdfast.errors import ArtifactNotFound
from holdfast_review.failure import InvalidReview
from holdfast_review.model import Source
from holdfast_review.patch import Limits, parse_patch, write_patch
from holdfast_review.refusal import ChangeTooLarge, PatchInvalid, RedactionFailed
from holdfast_review.seal import MEDIA_TYPE as SEALED_TYPE
from holdfast_review.seal import NAME as SEALED_NAME
from holdfast_review.seal import new_key, seal
from holdfast_review.secrets import redact_change

NAME = "change.patch"
MEDIA_TYPE = "text/x-diff"


@dataclass(frozen=True, slots=True)
class Posted:
    """A patch to be stored, or its error.

    *data* is redacted, or raw if it will be sealed. *digest* is the checksum of the normalized
    patch, without surrounding text.
    """

    data: bytes = field(default=b"", repr=False)
    digest: str = field(default="", repr=False)
    is_sealed: bool = False
    bad: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        """Return the source before the patch is stored; enough to recognize the same patch."""
        return replace(Source.patch(""), digest=self.digest)


def read_posted(hf: Holdfast, patch: bytes, *, is_sealed: bool = False) -> Posted:
    """Parse a patch and redact it. If it will be sealed, the first stage redacts it instead.

    An invalid patch does not raise yet, because its key may be a duplicate.
    """
    said = hf.settings.review
    limits = Limits(said.max_bytes, said.max_files)
    try:
        change = parse_patch(patch, limits)
        data = write_patch(change if is_sealed else redact_change(change))
    except ChangeTooLarge:
        return _bad(too_large(limits.max_bytes, limits.max_files))
    except PatchInvalid as exc:
        line = exc.context.get("line")
        where = f": see line {line}" if line else ""
        return _bad(f"is not a valid patch{where}")
    except RedactionFailed:
        return _bad("may still contain a secret after redaction, so it was not stored")
    # A sealed patch is stored unchanged.
    if not is_sealed and len(data) > limits.max_bytes:
        return _bad(too_large(limits.max_bytes))
    digest = hashlib.sha256(data).hexdigest()
    return Posted(patch if is_sealed else data, digest, is_sealed)


def _bad(problem: str) -> Posted:
    return Posted(bad={"patch": problem})


def too_large(max_bytes: int, max_files: int | None = None) -> str:
    files = "" if max_files is None else f" and {max_files} files"
    return f"is larger than what is reviewed, {max_bytes} bytes{files}; see [review]"


def store_posted(hf: Holdfast, posted: Posted, *, org_id: str, actor: Actor | str) -> Source:
    """Store a patch for the first stage. Raises InvalidReview if it is invalid."""
    if posted.bad:
        raise InvalidReview(posted.bad)
    key = new_key() if posted.is_sealed else ""
    stored = hf.artifacts.put(
        seal(posted.data, key) if key else posted.data,
        org_id=org_id,
        name=SEALED_NAME if key else NAME,
        media_type=SEALED_TYPE if key else MEDIA_TYPE,
        owner=actor,
        access=Access.OWNER if key else Access.TENANT,
        keep=timedelta(days=hf.settings.review.keep_days),
    )
    source = Source.patch(stored.id, stored.sha256 or "")
    return replace(source, digest=posted.digest, sealed="1" if key else "", seal_key=key)


def drop_posted(hf: Holdfast, source: Source, *, org_id: str, actor: Actor) -> None:
    """Delete the stored patch of a review that was not created."""
    with suppress(ArtifactNotFound):
        hf.artifacts.remove(source.artifact_id, org_id=org_id, actor=actor, reason="no review")
