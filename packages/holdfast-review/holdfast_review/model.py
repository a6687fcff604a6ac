"""Data types of reviews: sources, recipients, findings, and validation of input. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from holdfast.artifacts.artifact import read_id
from holdfast.document import stable_hash
from holdfast.engine.context import Context
from holdfast.engine.job import State
from holdfast.errors import ArtifactNotFound
from holdfast_review.coverage import Coverage, Outcome
from holdfast_review.enums import Confidence, ReviewProgress, Severity, SourceKind

LONGEST_NAME = 200
LONGEST_ADDRESS = 2_000
MOST_RECIPIENTS = 500
MOST_FINDINGS = 1_000
LONGEST_PATH = 1_000
LONGEST_FINDING = 4_000
LONGEST_SUMMARY = 4_000
# The maximum length of a quoted line of code.
LONGEST_QUOTE = 200
LARGEST_VERSION = 2_147_483_647
_VERSION = re.compile(r"v?([1-9][0-9]{0,9})")
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Source:
    """The change to review: commits of a repository, or a patch.

    *head* alone is one commit; with *base* it is the changes of *head* since the merge base.
    """

    kind: SourceKind
    repository: str = ""
    base: str = ""
    head: str = ""
    artifact_id: str = ""
    # Checksum of the patch, which identifies it across artifacts.
    sha256: str = ""
    # Set while a posted patch is encrypted, until the first stage redacts it.
    sealed: str = ""
    # The patch itself until its review is created, its checksum, and the key that seals it. They
    # are not part of the document.
    data: bytes | None = field(default=None, repr=False)
    digest: str = field(default="", repr=False)
    seal_key: str = field(default="", repr=False)

    @classmethod
    def git(cls, repository: str, head: str, base: str = "") -> Source:
        """A commit or a range of commits of a repository."""
        return cls(SourceKind.GIT, repository=repository, base=base, head=head)

    @classmethod
    def patch(cls, artifact_id: str, sha256: str = "") -> Source:
        """A patch that is stored as an artifact."""
        return cls(SourceKind.PATCH, artifact_id=artifact_id, sha256=sha256)

    @classmethod
    def posted(cls, patch: bytes) -> Source:
        """A patch that is stored, without its secrets, when the review is created."""
        return cls(SourceKind.PATCH, data=patch)

    @property
    def document(self) -> dict[str, Any]:
        """Return the stored form: the fields of its kind."""
        if self.kind is SourceKind.GIT:
            parts = {"repository": self.repository, "base": self.base, "head": self.head}
        else:
            parts = {"artifact_id": self.artifact_id, "sha256": self.sha256}
            if self.sealed:
                parts["sealed"] = self.sealed
        return {"kind": self.kind.value, **parts}

    @property
    def is_sealed(self) -> bool:
        """True if the source carries a seal."""
        return bool(self.sealed)

    @property
    def content(self) -> dict[str, Any]:
        """The identity of the content, independent of where it is stored."""
        if checksum := self.digest or self.sha256:
            return {"kind": self.kind.value, "sha256": checksum}
        return self.document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Source:
        """Parse a stored document."""
        parts: dict[str, Any] = {
            name: str(value) for name, value in document.items() if name != "kind"
        }
        return cls(SourceKind(document["kind"]), **parts)


@dataclass(frozen=True, slots=True)
class Recipient:
    """A recipient of a review. *name* identifies the recipient within a version."""

    name: str
    channel: str
    address: str = field(repr=False)
    # The review is not done until its required recipients are notified.
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a change. *line* is None if it is about the whole file."""

    file: str
    line: int | None
    severity: Severity
    message: str = field(repr=False)
    confidence: Confidence = Confidence.MEDIUM
    # Whether *file* is part of the change. If not, it is the model's wording.
    is_placed: bool = True
    # The line itself, redacted.
    quote: str = field(default="", repr=False)

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Sort key: the most severe first, then by place."""
        return (-self.severity.rank, self.file, self.line or 0, self.message)


@dataclass(frozen=True, slots=True)
class Criticism:
    """The critic's findings about a change; *detail* has counts, ids and versions, no text.

    The counts that :class:`~holdfast_review.coverage.Coverage` defines say how much of the change
    was reviewed.
    """

    findings: Sequence[Finding]
    summary: str = field(default="", repr=False)
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a change, as far as it is known."""

    author: str = field(default="", repr=False)
    title: str = field(default="", repr=False)
    # Commit ids. The patch leads from *base* to *head*.
    base: str = ""
    head: str = ""
    commits: int = 0

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Origin:
        return cls(
            str(document.get("author", "")),
            str(document.get("title", "")),
            str(document.get("base", "")),
            str(document.get("head", "")),
            int(document.get("commits", 0)),
        )

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Review:
    """The review of one version of a changelist."""

    review_id: str
    org_id: str
    changelist_id: str
    review_version: int
    job_id: str
    state: State
    word: ReviewProgress | None
    source: Source
    idempotency_key: str
    created_at: datetime
    succeeded_at: datetime | None = None
    dead_letter_id: str | None = None
    finding_count: int | None = None
    # The deliveries are in the outbox; findings and recipients are fixed.
    is_told: bool = False
    # No recipient is notified any more: a higher version is in the outbox.
    is_overtaken: bool = False
    is_erased: bool = False
    # How much of the change was reviewed; None until the critic is done.
    coverage: Coverage | None = None
    origin: Origin | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Return the result of the review; None until the critic is done."""
        if self.coverage is None or self.finding_count is None:
            return None
        return self.coverage.outcome(self.finding_count)

    @property
    def subject(self) -> str:
        """Return the subject of its deliveries."""
        return subject_of(self.changelist_id)


def subject_of(changelist_id: str) -> str:
    """Return the subject that deliveries for all versions of a changelist share."""
    return f"changelist:{changelist_id}"


Fetch = Callable[[Context, Review], Mapping[str, Any]]
"""The first stage: gets the change and stores it as an artifact of the job. What it returns (ids,
counts and checksums, no text) is kept as the stage's output."""

Criticise = Callable[[Context, Review, Mapping[str, Any]], Criticism]
"""The second stage: redacts what the first one stored, has it criticised, and merges the answers.
The third argument is what Fetch returned."""


@dataclass(frozen=True, slots=True)
class Given:
    """A validated review request."""

    org_id: str
    changelist_id: str
    review_version: int
    idempotency_key: str
    source: Source
    recipients: tuple[Recipient, ...]
    is_rerun: bool

    @property
    def hash(self) -> str:
        """Hash the request. Equal requests have equal hashes; addresses cannot be recovered."""
        told = [[one.name, one.channel, one.address, one.is_required] for one in self.recipients]
        content = self.source.content
        if checksum := content.get("sha256"):
            content["sha256"] = slow_hash(checksum, self.org_id)
        return stable_hash(self.changelist_id, self.review_version, content, sorted(told))


@lru_cache(maxsize=64)
def slow_hash(checksum: str, org_id: str) -> str:
    """Return a checksum that is safe to store for text with secrets.

    With a plain hash, a reader of the database who knows all other lines could guess short
    passwords. It takes 50 ms.
    """
    made = hashlib.scrypt(checksum.encode(), salt=org_id.encode(), n=2**14, r=8, p=1, dklen=32)
    return made.hex()


def read_version(value: object, errors: dict[str, str]) -> int:
    """Parse a positive integer; ``v3`` is 3."""
    if isinstance(value, str) and (found := _VERSION.fullmatch(value)):
        value = int(found[1])
    if type(value) is int and 1 <= value <= LARGEST_VERSION:
        return value
    errors["review_version"] = "must be a positive whole number, like 3 or v3"
    return 0


def read_name(field_name: str, value: object, errors: dict[str, str], longest: int) -> str:
    """Validate a text of one line without control characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        errors[field_name] = f"must be a text of 1 to {longest} characters"
        return ""
    if not value.isprintable() or value != value.strip():
        errors[field_name] = (
            "must be one line of printable characters that does not start or end with whitespace"
        )
        return ""
    return value


def read_source(source: object, errors: dict[str, str]) -> Source:
    """Validate a source: the fields that its kind needs."""
    if not isinstance(source, Source):
        errors["source"] = "must be Source.git(…) or Source.patch(…)"
        return Source(SourceKind.PATCH)
    if source.data is not None:
        if not isinstance(source.data, bytes):
            errors["patch"] = "must be bytes"
        return source
    if source.kind is SourceKind.PATCH:
        read_name("source.artifact_id", source.artifact_id, errors, LONGEST_NAME)
        with suppress(ArtifactNotFound):
            return replace(source, artifact_id=read_id(source.artifact_id))
        return source
    read_name("source.repository", source.repository, errors, LONGEST_PATH)
    read_name("source.head", source.head, errors, LONGEST_NAME)
    if source.base:
        read_name("source.base", source.base, errors, LONGEST_NAME)
    return source


def read_recipients(
    recipients: Sequence[Recipient], errors: dict[str, str]
) -> tuple[Recipient, ...]:
    """Validate the recipients; names are unique."""
    if len(recipients) > MOST_RECIPIENTS:
        errors["recipients"] = f"may be {MOST_RECIPIENTS} at most"
        return ()
    names: set[str] = set()
    for at, one in enumerate(recipients):
        place = f"recipients[{at}]"
        if not isinstance(one, Recipient):
            errors[place] = "must be a Recipient"
            continue
        read_name(f"{place}.name", one.name, errors, LONGEST_NAME)
        read_name(f"{place}.address", one.address, errors, LONGEST_ADDRESS)
        if not isinstance(one.channel, str) or not _CHANNEL.fullmatch(one.channel):
            errors[f"{place}.channel"] = "must be the name of a channel"
        if one.name in names:
            errors[f"{place}.name"] = "is named twice"
        names.add(one.name)
    return () if errors else tuple(recipients)
