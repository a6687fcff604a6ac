"""Artifacts: list, open, share and remove the files of jobs.

A member sees what its whole tenant may see and what it owns; an operator sees every artifact of the
tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from holdfast.actor import Role
from holdfast.arguments import anything, checked, instance, named_id, uuid, word
from holdfast.artifacts.artifact import Artifact, ArtifactState, place_of
from holdfast.artifacts.artifact import read_id as read_artifact_id
from holdfast.artifacts.artifacts import HOUR, SQL, Artifacts
from holdfast.artifacts.read import ArtifactReader
from holdfast.engine.audit import record_action
from holdfast.errors import ArtifactNotFound
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import NEWEST, Page, check_limit, page_of, read_filter
from holdfast.operate.refusal import InvalidAction

SWEEP_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class ArtifactFilter:
    """Which artifacts to list; *job_id* needs the tenant of the job."""

    org_id: str | None = None
    job_id: str | None = None
    state: ArtifactState | str = ArtifactState.STORED

    def check(self) -> ArtifactFilter:
        """Return the filter in stored form; raises InvalidAction with every bad field."""
        return read_filter(self, {"org_id": named_id, "job_id": uuid, "state": word(ArtifactState)})


@checked(
    InvalidAction,
    checks={
        "wanted": instance(ArtifactFilter),
        # The method itself validates these, so that a refusal is audited.
        **dict.fromkeys(("audience", "expires_in", "reason"), anything),
    },
)
class OperatorArtifacts:
    """The artifacts that the actor of *context* may see."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: ArtifactFilter | None = None, *, limit: int = 50, before: str = NEWEST
    ) -> Page[Artifact]:
        """Artifacts, newest first."""
        wanted = (wanted or ArtifactFilter()).check()
        org_id = self.context.tenant_for(Action.LOOK, wanted.org_id, subject="artifacts")
        size, state = check_limit(limit) + 1, ArtifactState(wanted.state)
        if org_id is None:
            if wanted.job_id is not None:
                raise InvalidAction({"job_id": "needs org_id, the tenant of the job"})
            params = {"before": before, "state": state, "limit": size}
            rows = self.context.store.read(lambda tx: tx.many(SQL.list_all_artifacts, **params))
            found = [Artifact.from_row(row) for row in rows]
        else:
            found = self._artifacts.list(
                org_id,
                job_id=wanted.job_id,
                actor=self.context.actor,
                is_operator=self._sees_all,
                state=state,
                limit=size,
                before=before,
            )
        return page_of(found, limit, lambda artifact: artifact.id)

    def get(self, artifact_id: str) -> Artifact:
        """Return one artifact in any state. Raises ArtifactNotFound for another tenant's."""
        org_id = self._locate(Action.LOOK, artifact_id)
        return self._artifacts.get(
            artifact_id, org_id=org_id, actor=self.context.actor, is_operator=self._sees_all
        )

    def open(self, artifact_id: str) -> ArtifactReader:
        """Open an artifact; its checksum is verified during the read. Close it after use."""
        org_id = self._locate(Action.LOOK, artifact_id)
        return self._artifacts.open(
            artifact_id, org_id=org_id, actor=self.context.actor, is_operator=self._sees_all
        )

    def link(
        self, artifact_id: str, *, reason: str, expires_in: timedelta = HOUR, audience: str = ""
    ) -> str:
        """Create a token that opens this artifact for its bearer, for at most seven days."""
        action = Action.LINK_ARTIFACT
        org_id = self._locate(action, artifact_id)
        reason = self._admit(action, artifact_id, org_id, reason)
        return self._artifacts.link(
            artifact_id,
            org_id=org_id,
            actor=self.context.actor,
            expires_in=expires_in,
            audience=audience,
            is_operator=True,
            reason=reason,
        )

    def remove(self, artifact_id: str, *, reason: str) -> None:
        """Remove an artifact before it expires."""
        action = Action.REMOVE_ARTIFACT
        org_id = self._locate(action, artifact_id)
        reason = self._admit(action, artifact_id, org_id, reason)
        self._artifacts.remove(
            artifact_id, org_id=org_id, actor=self.context.actor, reason=reason, is_operator=True
        )

    def sweep(self, *, reason: str) -> Mapping[str, int]:
        """Run one bounded cleanup pass over expired and unfinished artifacts of all tenants."""
        action, subject = Action.SWEEP_ARTIFACTS, "artifacts:all"
        reason = admit(self.context, action, reason, org_id=None, subject=subject)
        done = dict(self._artifacts.upkeep(limit=SWEEP_LIMIT))
        detail = {"reason": reason, "role": self.context.role, **done}
        self.context.store.write(
            lambda tx: record_action(
                tx, self.context.actor, subject=subject, name="artifacts.swept", detail=detail
            )
        )
        return done

    @property
    def _artifacts(self) -> Artifacts:
        return cast(Artifacts, self.context.app.extensions.get("artifacts"))

    @property
    def _sees_all(self) -> bool:
        return self.context.role.rank >= Role.OPERATOR.rank

    def _admit(self, action: Action, artifact_id: str, org_id: str, reason: str) -> str:
        subject = f"artifact:{read_artifact_id(artifact_id)}"
        return admit(self.context, action, reason, org_id=org_id, subject=subject, longest=200)

    def _locate(self, action: Action, artifact_id: str) -> str:
        """Return the tenant of an artifact after checking that *action* is allowed.

        An unknown id and another tenant's artifact both raise ArtifactNotFound.
        """
        context, subject = self.context, f"artifact:{artifact_id[:100]}"
        place = place_of(read_artifact_id(artifact_id))
        row = context.store.read(lambda tx: tx.maybe(SQL.find_artifact_org, place=place))
        org_id = None if row is None else str(row["org_id"])
        if org_id is None or context.org_id not in (None, org_id):
            error = ArtifactNotFound(artifact_id)
            if context.org_id is None and action is Action.LOOK:
                raise error
            context.refuse(action, error, org_id=context.org_id, subject=subject)
        context.check(action, org_id=org_id, subject=subject)
        return org_id
