"""Reviews: the review critic of one Holdfast application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from holdfast.actor import SYSTEM, Actor
from holdfast.app import Holdfast
from holdfast.arguments import anything, checked, each, instance, text, uuid
from holdfast.engine.context import Context
from holdfast.engine.job import DEFAULT_QUEUE
from holdfast_review import show
from holdfast_review.criticise import make_critic
from holdfast_review.enums import FETCH, JOB_TYPE, LLM, NOTIFY
from holdfast_review.erase import Erased, erase_changelist, erase_recipient
from holdfast_review.extension import ReviewExtension
from holdfast_review.failure import (
    InvalidReview,
    ReviewErased,
    ReviewNotFound,
    ReviewOvertaken,
    ReviewUnfit,
)
from holdfast_review.fetch import make_fetch
from holdfast_review.findings import keep_criticism
from holdfast_review.model import Criticise, Fetch, Recipient, Review, Source, read_version
from holdfast_review.notify import notify
from holdfast_review.origin import FetchesOrigin
from holdfast_review.part import make_batch_critic
from holdfast_review.posted import read_posted, store_posted
from holdfast_review.retention import RUN, RetentionTask
from holdfast_review.seal import keep_fetched
from holdfast_review.submit import (
    Sender,
    Submitted,
    read_request,
    recipients_of,
    submit,
)


def _redacted_source(review: Review) -> Source:
    if review.source.is_sealed:
        problem = f"the patch of version {review.review_version} is not redacted yet; post it again"
        raise InvalidReview({"source": problem})
    return review.source


@checked(
    InvalidReview,
    checks={
        "changelist_id": text,
        "correlation_id": text,
        "patch": instance(bytes),
        "recipients": each(anything),
        "request_id": text,
        **dict.fromkeys(("idempotency_key", "recipient", "review_version", "source"), anything),
        "review_id": uuid,
    },
    without=("install",),
)
class Reviews(ReviewExtension):
    """The review critic of one application.

    Enabling it declares the pipeline ``review.process``: fetch, llm, notify, each with five
    attempts. *fetch* fetches a change and *critic* reviews it; the defaults use git and the model
    of the settings. With *hf* it is enabled at once.
    """

    hf: Holdfast

    def __init__(
        self,
        hf: Holdfast | None = None,
        *,
        fetch: Fetch | None = None,
        critic: Criticise | None = None,
    ) -> None:
        self._given_fetch = fetch
        self._given_critic = critic
        if hf is not None:
            hf.add_extension(self)

    def install(self, app: Holdfast) -> None:
        """Declare the pipeline and the retention run."""
        self.hf = hf = app
        if self._given_critic is None and hf.settings.review.mode == "batch":
            self._given_critic = make_batch_critic(hf)
        pipeline = hf.pipeline(JOB_TYPE, queue=DEFAULT_QUEUE)
        pipeline.stage(FETCH)(self._fetch)
        pipeline.stage(LLM)(self._criticise)
        pipeline.stage(NOTIFY)(self._notify)
        hf.registry.tasks[RUN] = RetentionTask(hf)

    @classmethod
    def for_app(cls, hf: Holdfast) -> Reviews:
        """Return the instance that is enabled on *hf*, or one with the defaults."""
        return hf.extension(cls)

    # -- submitting

    def submit(
        self,
        changelist_id: str,
        review_version: int | str,
        idempotency_key: str,
        *,
        org_id: str,
        source: Source,
        recipients: Sequence[Recipient] = (),
        rerun: bool = False,
        actor: Actor | str = SYSTEM,
        request_id: str | None = None,
        correlation_id: str | None = None,
    ) -> Submitted:
        """Submit a version of a changelist for review, or return the existing review.

        A known key returns its review. Once a version has succeeded, another one needs *rerun* and
        a higher version. Raises InvalidReview, and nothing is written.
        """
        given = read_request(
            org_id=org_id,
            changelist_id=changelist_id,
            review_version=review_version,
            idempotency_key=idempotency_key,
            source=source,
            recipients=recipients,
            is_rerun=rerun,
        )
        who = Actor.read(actor) if isinstance(actor, str) else actor
        sender = Sender(who, request_id, correlation_id)
        return submit(self.hf, given, sender, self._fetch_change)

    def rerun(
        self,
        changelist_id: str,
        review_version: int | str,
        idempotency_key: str,
        *,
        org_id: str,
        source: Source | None = None,
        recipients: Sequence[Recipient] | None = None,
        actor: Actor | str = SYSTEM,
    ) -> Submitted:
        """Submit another version; omitted values are those of the highest version."""
        if source is None or recipients is None:
            last = self._last(changelist_id, org_id)
            source = _redacted_source(last) if source is None else source
            recipients = recipients_of(self.hf, last) if recipients is None else recipients
        return self.submit(
            changelist_id,
            review_version,
            idempotency_key,
            org_id=org_id,
            source=source,
            recipients=recipients,
            rerun=True,
            actor=actor,
        )

    def store_patch(self, patch: bytes, *, org_id: str, actor: Actor | str = SYSTEM) -> Source:
        """Store a patch, without its secrets, for a later submission.

        Raises InvalidReview if it is not a patch or is too large. To submit at once use
        ``Source.posted``, which stores nothing if no review is created.
        """
        return store_posted(self.hf, read_posted(self.hf, patch), org_id=org_id, actor=actor)

    # -- reading

    def find(self, review_id: str, *, org_id: str) -> show.Shown:
        """Return a review with its findings and recipients. Raises ReviewNotFound."""
        return show.find_shown(self.hf.store, org_id=org_id, review_id=review_id)

    def find_version(
        self, changelist_id: str, review_version: int | str | None = None, *, org_id: str
    ) -> show.Shown:
        """Return the review of a version of a changelist, by default the highest."""
        if review_version is not None:
            bad: dict[str, str] = {}
            review_version = read_version(review_version, bad)
            if bad:
                raise InvalidReview(bad)
        review_id = show.find_version(
            self.hf.store,
            org_id=org_id,
            changelist_id=changelist_id,
            review_version=review_version,
        )
        return self.find(review_id, org_id=org_id)

    # -- erasure

    def erase(
        self, changelist_id: str, *, org_id: str, reason: str, actor: Actor | str = SYSTEM
    ) -> Erased:
        """Erase the texts, recipients and files of all versions of a changelist.

        A review in progress is canceled. What a worker is processing at this moment remains: call
        it again.
        """
        who = Actor.read(actor) if isinstance(actor, str) else actor
        return erase_changelist(self.hf, changelist_id, org_id=org_id, actor=who, reason=reason)

    def erase_recipient(
        self, recipient: str, *, org_id: str, reason: str, actor: Actor | str = SYSTEM
    ) -> Erased:
        """Erase a person from all reviews of a tenant, with their messages."""
        who = Actor.read(actor) if isinstance(actor, str) else actor
        return erase_recipient(self.hf, recipient, org_id=org_id, actor=who, reason=reason)

    def _last(self, changelist_id: str, org_id: str) -> Review:
        try:
            return self.find_version(changelist_id, org_id=org_id).review
        except ReviewNotFound:
            problem = "has no review to run again; submit one"
            raise InvalidReview({"changelist_id": problem}) from None

    # -- stages

    @cached_property
    def _fetch_change(self) -> Fetch:
        return self._given_fetch or make_fetch(self.hf)

    @cached_property
    def _criticise_change(self) -> Criticise:
        return self._given_critic or make_critic(self.hf)

    def _review_of(self, job: Context, payload: Mapping[str, Any]) -> Review:
        """Return the review of a job. Jobs that were not created by submitting have none."""
        review_id = payload.get("review_id")
        try:
            review = show.find_review(self.hf.store, org_id=job.org_id, review_id=str(review_id))
        except (InvalidReview, ReviewNotFound):
            raise ReviewUnfit(job_id=job.id, missing="review") from None
        key = review.idempotency_key
        if job.idempotency_key != key and not job.idempotency_key.startswith(f"{key}:replay-"):
            raise ReviewUnfit(job_id=job.id, review_id=review.review_id, missing="key")
        if review.is_erased:
            raise ReviewErased(review_id=review.review_id)
        if review.is_overtaken:
            # Checked before anything is read or billed; the last stage checks again.
            raise ReviewOvertaken(review_id=review.review_id)
        return review

    def _fetch(self, job: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
        review = self._review_of(job, payload)
        fetch = self._fetch_change
        if not isinstance(fetch, FetchesOrigin):
            return dict(fetch(job, review))
        fetched, origin = fetch.fetch(job, review)
        keep_fetched(job, review, fetched, origin)
        return dict(fetched)

    def _criticise(self, job: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
        review = self._review_of(job, payload)
        if review.is_told:
            # Recipients may have read it: a restart returns the same result.
            return {"finding_count": review.finding_count, "is_told": True}
        said = self._criticise_change(job, review, job.outputs[FETCH])
        return keep_criticism(job, review, said)

    def _notify(self, job: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
        return notify(self.hf, job, self._review_of(job, payload))
