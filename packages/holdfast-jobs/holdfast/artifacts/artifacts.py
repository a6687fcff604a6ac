"""Artifacts: the enabled extension, for applications and for jobs."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.actor import SYSTEM, Actor, read_actor
from holdfast.arguments import anything, checked, text, uuid, word
from holdfast.artifacts import cleanup
from holdfast.artifacts.artifact import (
    ANY_MEDIA_TYPE,
    Access,
    Artifact,
    ArtifactState,
    Kind,
    disposition,
    read_id,
)
from holdfast.artifacts.audit import record_artifacts
from holdfast.artifacts.blob_store import BlobStore, open_blob_store
from holdfast.artifacts.extension import ArtifactsExtension
from holdfast.artifacts.link import AUDIENCE_BYTES, LONGEST_LINK, Link, read_link, sign_link
from holdfast.artifacts.read import ArtifactReader
from holdfast.artifacts.settings import ArtifactSettings
from holdfast.artifacts.write import Content, Draft, Guard, opened, write_artifact
from holdfast.clock import read_instant
from holdfast.engine.context import Context, JobSession
from holdfast.engine.reference import REF
from holdfast.engine.worker.housekeeping import Chore
from holdfast.errors import ArtifactNotFound, ChecksumMismatch, InvalidArtifact, LinkRefused
from holdfast.ids import read_named_id, read_uuid
from holdfast.store import Row, Session, Statements, Store, Tx

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SQL = Statements("holdfast.artifacts", "artifact.sql")

NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
HOUR = timedelta(hours=1)
# Bytes are erased one artifact at a time, and each may need a request to a remote store.
UPKEEP_LIMIT = 50
UPKEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads an artifact: a member of a tenant, an operator or a job."""

    actor: Actor | None = None
    is_operator: bool = False
    job_id: str | None = None

    def may_see(self, artifact: Artifact) -> bool:
        return (
            artifact.access is Access.TENANT
            or self.is_operator
            or artifact.owner == self.actor
            or (artifact.job_id is not None and artifact.job_id == self.job_id)
        )


# Arguments marked `anything` are validated where they are used.
_CHECKS = {
    **dict.fromkeys(("access", "content", "expires_in", "keep", "media_type", "name"), anything),
    "audience": text,
    "list.job_id": uuid,
    "owner": read_actor,
    "put.job_id": anything,
    "state": word(ArtifactState),
    "token": anything,
}


@checked(
    InvalidArtifact,
    checks=_CHECKS,
    # Hooks of the extension and methods that the engine calls.
    without=(
        "install",
        "load",
        "maintenance",
        "for_job",
        "find_missing",
        "verify_checks",
        "test_settings",
    ),
)
class Artifacts(ArtifactsExtension):
    """The files of one application's jobs. The blob store is opened on first use."""

    _app: Holdfast

    def __init__(self) -> None:
        self._blobs: BlobStore | None = None
        self._blobs_of: tuple[int, ArtifactSettings, str] | None = None
        self._opening = threading.Lock()

    def install(self, app: Holdfast) -> None:
        self._app = app

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        """Expire, erase and prune artifacts in a separate thread: a blob store may be slow."""
        every = max(app.settings.rescue_seconds, UPKEEP_SECONDS)
        return [Chore("artifacts", every, self.upkeep)]

    @property
    def _settings(self) -> ArtifactSettings:
        found: ArtifactSettings = self._app.settings.artifacts
        return found

    def _store(self) -> Store:
        return self._app.store

    @property
    def blobs(self) -> BlobStore:
        """The blob store. A forked process opens its own."""
        wanted = (os.getpid(), self._settings, self._app.settings.db)
        with self._opening:
            if self._blobs is None or self._blobs_of != wanted:
                self._blobs = open_blob_store(self._settings, self._app.settings.db)
                self._blobs_of = wanted
            return self._blobs

    def put(
        self,
        content: Content,
        *,
        org_id: str,
        name: str,
        media_type: str = ANY_MEDIA_TYPE,
        owner: Actor | str = SYSTEM,
        job_id: str | None = None,
        keep: timedelta | None = None,
        access: Access = Access.TENANT,
    ) -> Artifact:
        """Store *content* as the input of a job: bytes, a Path, a binary file or chunks of bytes.

        It is kept for *keep*, by default for the setting ``artifacts.keep_days``.
        """
        draft = self._draft(
            org_id=org_id,
            name=name,
            media_type=media_type,
            owner=read_actor(owner),
            job_id=job_id,
            keep=keep,
            access=access,
            kind=Kind.INPUT,
        )
        return self._write(draft, content)

    def _draft(self, *, keep: timedelta | None, stage: str = "", **fields: Any) -> Draft:
        try:
            org_id = read_named_id(fields.pop("org_id"))
            job_id = fields.pop("job_id")
            job_id = None if job_id is None else read_uuid(job_id)
            access = Access(fields.pop("access"))
        except ValueError as exc:
            raise InvalidArtifact({"org_id, job_id or access": str(exc)}) from exc
        days = self._settings.keep_days
        return Draft(
            id=self._app.ids.new(),
            org_id=org_id,
            job_id=job_id,
            stage=stage,
            access=access,
            keep=timedelta(days=days) if keep is None else keep,
            **fields,
        )

    def _write(
        self,
        draft: Draft,
        content: Content,
        session: Session | None = None,
        first: Session | None = None,
        guard: Guard | None = None,
    ) -> Artifact:
        return write_artifact(
            session or self._store(),
            self.blobs,
            draft,
            content,
            max_bytes=self._settings.max_bytes,
            first=first,
            guard=guard,
        )

    def get(
        self,
        artifact_id: str,
        *,
        org_id: str,
        actor: Actor | str | None = None,
        is_operator: bool = False,
    ) -> Artifact:
        """Return the record of an artifact in any state.

        Raises ArtifactNotFound for another tenant's artifact, and for an artifact that only its
        owner may see unless *actor* is the owner. Pass *is_operator* only for a user whose role you
        have checked.
        """
        return self._see(artifact_id, org_id, _reader(actor, is_operator))[0]

    def open(
        self,
        artifact_id: str,
        *,
        org_id: str,
        actor: Actor | str | None = None,
        is_operator: bool = False,
    ) -> ArtifactReader:
        """Open an artifact; its checksum is verified during the read. Close it after use."""
        return self._open(artifact_id, org_id, _reader(actor, is_operator))

    def list(
        self,
        org_id: str,
        *,
        job_id: str | None = None,
        actor: Actor | str | None = None,
        is_operator: bool = False,
        state: ArtifactState = ArtifactState.STORED,
        limit: int = 100,
        before: str = NEWEST,
    ) -> list[Artifact]:
        """A tenant's artifacts, newest first; with *job_id*, the inputs and outputs of one job."""
        reader = _reader(actor, is_operator)
        params: dict[str, Any] = {
            "org_id": read_named_id(org_id),
            "before": read_uuid(before),
            "state": ArtifactState(state),
            "limit": limit,
            "sees_all": int(reader.is_operator),
            "owner_type": None if reader.actor is None else reader.actor.type,
            "owner_id": None if reader.actor is None else reader.actor.id,
        }
        statement = SQL.list_artifacts
        if job_id is not None:
            statement = SQL.list_artifacts_of_job
            params["job_id"] = read_uuid(job_id)
        return [
            Artifact.from_row(row)
            for row in self._store().read(lambda tx: tx.many(statement, **params))
        ]

    def remove(
        self,
        artifact_id: str,
        *,
        org_id: str,
        actor: Actor | str,
        reason: str,
        is_operator: bool = False,
    ) -> None:
        """Remove an artifact before it expires. Its bytes are erased at once or soon after."""
        who = read_actor(actor)
        if not reason.strip():
            raise InvalidArtifact({"reason": "is required; it is recorded in the audit"})
        found, row = self._see(artifact_id, org_id, Reader(who, is_operator))

        def work(tx: Tx) -> int:
            removed = tx.affected(SQL.remove_artifact, org_id=found.org_id, id=found.id)
            if removed:
                about = {"reason": "asked", "why": reason[:200], "sha256": found.sha256}
                record_artifacts(tx, who, "artifact.removed", [(row, about)])
            return removed

        if not self._store().write(work):
            raise ArtifactNotFound(artifact_id)
        cleanup.erase_artifacts(self._store(), lambda: self.blobs, limit=UPKEEP_LIMIT)

    # -- links

    def link(
        self,
        artifact_id: str,
        *,
        org_id: str,
        actor: Actor | str,
        expires_in: timedelta = HOUR,
        audience: str = "",
        is_operator: bool = False,
        reason: str = "",
    ) -> str:
        """Create a token that opens this artifact for its bearer, for at most seven days."""
        who = read_actor(actor)
        _check_length(expires_in)
        if len(audience.encode()) > AUDIENCE_BYTES:
            raise InvalidArtifact({"audience": f"must not be longer than {AUDIENCE_BYTES} bytes"})
        found, row = self._usable(artifact_id, org_id, Reader(who, is_operator))
        expires_at = read_instant(row["now"]) + expires_in
        token = sign_link(
            Link(found.org_id, found.id, str(found.sha256), expires_at, audience), self._key()
        )
        self._tell_linked(who, row, expires_at, reason)
        return token

    def open_link(self, token: str, *, audience: str = "") -> ArtifactReader:
        """Open the artifact of *token*. Every invalid token raises the same error."""
        link = read_link(token, self._key())
        try:
            found, row = self._usable(link.artifact_id, link.org_id, Reader(is_operator=True))
            expired = link.expires_at <= read_instant(row["now"])
            if expired or found.sha256 != link.sha256 or audience != link.audience:
                raise LinkRefused
            return self._open(link.artifact_id, link.org_id, Reader(is_operator=True))
        except ArtifactNotFound:
            raise LinkRefused from None

    def presigned_url(
        self,
        artifact_id: str,
        *,
        org_id: str,
        actor: Actor | str,
        expires_in: timedelta = HOUR,
        is_operator: bool = False,
    ) -> str:
        """Return an S3 URL. Downloads bypass Holdfast, and their checksum is not verified."""
        who = read_actor(actor)
        _check_length(expires_in)
        found, row = self._usable(artifact_id, org_id, Reader(who, is_operator))
        address = self.blobs.presign(
            found.place,
            media_type=found.media_type,
            disposition=disposition(found.name),
            lasts=expires_in,
        )
        self._tell_linked(who, row, read_instant(row["now"]) + expires_in)
        return address

    def _key(self) -> str:
        return self._settings.link_key or self.blobs.link_key()

    def _tell_linked(self, who: Actor, row: Row, expires_at: datetime, reason: str = "") -> None:
        about = {"expires_at": expires_at.isoformat(timespec="milliseconds")}
        if reason:
            about["why"] = reason[:200]
        self._store().write(lambda tx: record_artifacts(tx, who, "artifact.linked", [(row, about)]))

    # -- lookup

    def _see(
        self, artifact_id: str, org_id: str, reader: Reader, session: Session | None = None
    ) -> tuple[Artifact, Row]:
        wanted, tenant = read_id(artifact_id), read_named_id(org_id)
        row = (session or self._store()).read(
            lambda tx: tx.maybe(SQL.find_artifact, org_id=tenant, id=wanted)
        )
        if row is None:
            raise ArtifactNotFound(artifact_id)
        found = Artifact.from_row(row)
        if not reader.may_see(found):
            raise ArtifactNotFound(artifact_id)
        return found, row

    def _usable(
        self, artifact_id: str, org_id: str, reader: Reader, session: Session | None = None
    ) -> tuple[Artifact, Row]:
        """Return an artifact that is stored and not expired, even if no cleanup has run yet."""
        found, row = self._see(artifact_id, org_id, reader, session)
        if found.state is not ArtifactState.STORED or found.expires_at <= read_instant(row["now"]):
            raise ArtifactNotFound(artifact_id)
        return found, row

    def _open(
        self, artifact_id: str, org_id: str, reader: Reader, session: Session | None = None
    ) -> ArtifactReader:
        found, _ = self._usable(artifact_id, org_id, reader, session)
        source = self.blobs.read(found.place)
        if source is None:
            # It may have expired between the two reads.
            self._usable(artifact_id, org_id, reader, session)
            raise ChecksumMismatch(
                f"The content of artifact {found.id} is missing.",
                artifact_id=found.id,
                reason="missing",
            )
        return ArtifactReader(found, source)

    # -- cleanup

    def upkeep(self, *, limit: int = UPKEEP_LIMIT) -> Counter[str]:
        """Run one bounded cleanup pass. Safe to run concurrently."""
        store = self._store()
        return Counter(
            swept=cleanup.sweep_artifacts(store, lambda: self.blobs, limit=limit),
            expired=cleanup.expire_artifacts(store, lambda: self.blobs, limit=limit),
            pruned=cleanup.prune_artifacts(store, limit=limit),
        )

    def for_job(self, job: Context) -> JobArtifacts:
        """The artifacts of a running job: see :func:`write_artifact`."""
        return JobArtifacts(
            self,
            org_id=job.org_id,
            job_id=job.id,
            stage=job.stage,
            actor=job.actor,
            session=job.session,
            # SQLite has one writer, and an open handler transaction occupies it.
            first=JobSession(job, asks=False, joins=job.store.is_embedded),
            guard=job.guard,
            step=job.raise_if_canceled,
        )

    def find_missing(
        self, session: Session, org_id: str, refs: Sequence[str], *, job_id: str | None = None
    ) -> Sequence[str]:
        """Return those of *refs* that match no stored artifact of the tenant, or of the job."""
        if not refs:
            return []
        rows = [{"id": ref.removeprefix(REF), "job_id": job_id} for ref in refs]
        found = session.read(lambda tx: tx.many(SQL.find_missing, wanted=rows, org_id=org_id))
        missing = {REF + str(row["id"]) for row in found}
        return [ref for ref in refs if ref in missing]


@checked(InvalidArtifact, checks=_CHECKS)
@dataclass(frozen=True, slots=True)
class JobArtifacts:
    """Artifacts for a handler: those of its tenant, while the job holds its lease."""

    artifacts: Artifacts
    org_id: str
    job_id: str
    stage: str
    actor: Actor
    session: Session
    first: Session
    guard: Guard
    step: Callable[[], None]

    def put(
        self,
        content: Content,
        *,
        name: str,
        media_type: str = ANY_MEDIA_TYPE,
        keep: timedelta | None = None,
        access: Access = Access.TENANT,
    ) -> Artifact:
        """Store *content* as output of this job, owned by the actor that enqueued the job.

        Stops between two chunks if the job is canceled or its lease is lost. Inside the job's
        transaction the artifact is stored only if that transaction commits.
        """
        draft = self.artifacts._draft(
            org_id=self.org_id,
            name=name,
            media_type=media_type,
            owner=self.actor,
            job_id=self.job_id,
            keep=keep,
            access=access,
            kind=Kind.OUTPUT,
            stage=self.stage,
        )
        with opened(content) as chunks:
            stepping = self._stepping(chunks)
            return self.artifacts._write(draft, stepping, self.session, self.first, self.guard)

    def _stepping(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.step()
            yield chunk

    def open(self, artifact_id: str) -> ArtifactReader:
        """Open an artifact of the job's tenant that the job's actor may see."""
        return self.artifacts._open(
            artifact_id, self.org_id, Reader(self.actor, job_id=self.job_id), self.session
        )


def _reader(actor: Actor | str | None, is_operator: bool) -> Reader:
    return Reader(None if actor is None else read_actor(actor), is_operator)


def _check_length(expires_in: timedelta) -> None:
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= LONGEST_LINK:
        must = "must be a positive timedelta of at most 7 days"
        raise InvalidArtifact({"expires_in": must})
