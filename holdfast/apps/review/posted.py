"""A posted patch: read before the gate, and stored behind it, once it is known to make a review."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.actor import Actor
from holdfast.apps.review.failure import InvalidReview
from holdfast.apps.review.model import Source
from holdfast.apps.review.patch import Limits, parse_patch, write_patch
from holdfast.apps.review.refusal import ChangeTooLarge, PatchInvalid, RedactionFailed
from holdfast.apps.review.secrets import redact_change
from holdfast.errors import ArtifactNotFound
from holdfast.holdfast import Holdfast

NAME = "change.patch"
MEDIA_TYPE = "text/x-diff"


@dataclass(frozen=True, slots=True)
class Posted:
    """A patch as it would be stored, without its secrets; or what is wrong with it."""

    data: bytes = field(default=b"", repr=False)
    bad: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        """What is known of it before it is stored: enough to know the same patch again."""
        return Source.patch("", "" if self.bad else hashlib.sha256(self.data).hexdigest())


def read_posted(hf: Holdfast, patch: bytes) -> Posted:
    """Read a patch and take its secrets out. A bad one is no error yet: its key may be known."""
    said = hf.settings.review
    limits = Limits(said.max_bytes, said.max_files)
    try:
        data = write_patch(redact_change(parse_patch(patch, limits)))
    except ChangeTooLarge:
        return _bad(too_large(limits.max_bytes, limits.max_files))
    except PatchInvalid as exc:
        line = exc.context.get("line")
        where = f": see line {line}" if line else ""
        return _bad(f"is no patch that can be read{where}")
    except RedactionFailed:
        return _bad("may still hold a secret after it was redacted, so it is not kept")
    if len(data) > limits.max_bytes:
        return _bad(too_large(limits.max_bytes))
    return Posted(data)


def _bad(problem: str) -> Posted:
    return Posted(bad={"patch": problem})


def too_large(max_bytes: int, max_files: int | None = None) -> str:
    files = "" if max_files is None else f" and {max_files} files"
    return f"is larger than what is reviewed, {max_bytes} bytes{files}; see [review]"


def store_posted(hf: Holdfast, posted: Posted, *, org_id: str, actor: Actor | str) -> Source:
    """Keep a patch until the first stage reads it. Raises InvalidReview if it is a bad one."""
    if posted.bad:
        raise InvalidReview(posted.bad)
    stored = hf.artifacts.put(
        posted.data,
        org_id=org_id,
        name=NAME,
        media_type=MEDIA_TYPE,
        owner=actor,
        keep=timedelta(days=hf.settings.review.keep_days),
    )
    return Source.patch(stored.id, stored.sha256 or "")


def drop_posted(hf: Holdfast, source: Source, *, org_id: str, actor: Actor) -> None:
    """Take away what was stored for a review that was not made after all."""
    with suppress(ArtifactNotFound):
        hf.artifacts.remove(source.artifact_id, org_id=org_id, actor=actor, reason="no review")
