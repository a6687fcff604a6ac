"""The first stage: fetches a change, redacts its secrets and stores it as an artifact of the job.

Only the redacted change is stored. Like any artifact it has a checksum and a time to live. The
stage's output names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_never

from holdfast.app import Holdfast
from holdfast.artifacts.read import ArtifactReader
from holdfast.engine.context import Context
from holdfast.errors import ArtifactNotFound, ChecksumMismatch
from holdfast_review.enums import SourceKind
from holdfast_review.git import Range, Repositories
from holdfast_review.model import Origin, Review, Source
from holdfast_review.origin import origin_of_commits, origin_of_patch
from holdfast_review.patch import Change, Limits, parse_patch, write_patch
from holdfast_review.refusal import ChangeMissing, ChangeTooLarge
from holdfast_review.seal import find_key, seal
from holdfast_review.secrets import redact_change

NAME = "change.diff"
MEDIA_TYPE = "text/x-diff"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The output of the stage: ids, counts and checksums, no text."""

    artifact_id: str
    sha256: str
    bytes: int
    files: int
    lossy_files: int
    binary_files: int
    base: str = ""
    head: str = ""
    merge_base: str = ""

    @property
    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches changes from allowed repositories and from posted patches."""

    repositories: Repositories = field(default_factory=lambda: Repositories(()))
    limits: Limits = field(default_factory=Limits)
    keep: timedelta | None = None

    def __call__(self, job: Context, review: Review) -> Mapping[str, Any]:
        """Store the change of a review and return its description."""
        fetched, _ = self.fetch(job, review)
        return fetched

    def fetch(self, job: Context, review: Review) -> tuple[Mapping[str, Any], Origin]:
        """Store the change of a review; return the stage's output and the change's origin."""
        job.raise_if_canceled()
        change, wanted, origin = self._read(job, review)
        job.raise_if_canceled()
        change = redact_change(change)
        stored = job.artifacts.put(
            write_patch(change), name=NAME, media_type=MEDIA_TYPE, keep=self.keep
        )
        assert stored.bytes is not None
        assert stored.sha256 is not None
        fetched = Fetched(
            stored.id,
            stored.sha256,
            stored.bytes,
            len(change.files),
            sum(file.is_lossy for file in change.files),
            sum(file.is_binary for file in change.files),
            wanted.base,
            wanted.head,
            wanted.merge_base,
        )
        return fetched.document, origin

    def check(self, source: Source) -> None:
        """Raise PathRefused or ChangeMissing for a change that can never be fetched.

        Passes if none of the allowed folders exists here: the worker's machine may have them.
        """
        allowed = self.repositories.allowed
        if source.kind is not SourceKind.GIT or (
            allowed and not any(folder.exists() for folder in allowed)
        ):
            return
        self.repositories.open(source.repository).find_range(source.head, source.base)

    def _read(self, job: Context, review: Review) -> tuple[Change, Range, Origin]:
        source = review.source
        match source.kind:
            case SourceKind.GIT:
                repository = self.repositories.open(source.repository)
                wanted = repository.find_range(source.head, source.base)
                data = repository.read_diff(
                    wanted, max_bytes=self.limits.max_bytes, step=job.raise_if_canceled
                )
                commits, count = repository.read_commits(wanted, is_single=not source.base)
                origin = origin_of_commits(
                    commits, base=wanted.merge_base, head=wanted.head, count=count
                )
                return parse_patch(data, self.limits, may_be_empty=True), wanted, origin
            case SourceKind.PATCH:
                # A redacted patch may be longer than the posted one.
                most = self.limits.max_bytes * 9 // 8
                data = read_artifact(job, source.artifact_id, most, source.sha256)
                if source.is_sealed:
                    data = seal(data, find_key(job, review))
                limits = replace(self.limits, max_bytes=most)
                return parse_patch(data, limits), Range("", "", ""), origin_of_patch(data)
        assert_never(source.kind)


def make_fetch(hf: Holdfast) -> Fetcher:
    """Build the stage from the settings."""
    said = hf.settings.review
    allowed = tuple(map(Path, said.repositories))
    return Fetcher(
        Repositories(allowed, seconds=said.git_seconds),
        Limits(said.max_bytes, said.max_files),
        timedelta(days=said.keep_days),
    )


def read_artifact(job: Context, artifact_id: str, max_bytes: int, checksum: str = "") -> bytes:
    """Read an artifact and verify its checksum. Raises ChangeTooLarge."""
    try:
        reader: ArtifactReader = job.artifacts.open(artifact_id)
    except ArtifactNotFound:
        raise ChangeMissing(what="artifact") from None
    with reader:
        if checksum and reader.artifact.sha256 != checksum:
            raise ChecksumMismatch(artifact_id=artifact_id, reason="another")
        if (reader.artifact.bytes or 0) > max_bytes:
            raise ChangeTooLarge(limit_bytes=max_bytes)
        return reader.read()
