"""Decide: turn a stored message and its classification into a request or a failure.

Pure and deterministic: the same message, snapshot, classification and routing table give the same
request and decision, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from holdfast.document import canonical
from holdfast_rewrite.context_pack import build_pack
from holdfast_rewrite.enums import (
    JOB_TYPE,
    POLICY_VERSION,
    FailureCode,
    HomeRole,
    Step,
    Strength,
    Surface,
)
from holdfast_rewrite.language import BadLocale, Locales, resolve
from holdfast_rewrite.model import (
    BadRewrite,
    ClassifierResult,
    ContextPack,
    Policy,
    RewriteRequest,
)
from holdfast_rewrite.policy import policy_of, strength_of
from holdfast_rewrite.route import NoRoute, RouteRequest, Routes

_log = logging.getLogger("holdfast.rewrite")

# Fields that differ for every request.
_OF_ITS_OWN = frozenset(
    {
        "rewrite_request_id",
        "recipient_snapshot_id",
        "recipient_preference_snapshot_id",
        "created_at",
    }
)


@dataclass(frozen=True, slots=True)
class Captured:
    """The directory's answer when the message arrived. It is not queried again."""

    sender_role: HomeRole
    recipient_role: HomeRole
    sender_locale: str | None
    recipient_locale: str | None
    answers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A stored message with its snapshots: the input of a request."""

    rewrite_request_id: str
    home_id: str
    sender_user_id: str
    recipient_user_id: str
    recipient_snapshot_id: str
    recipient_preference_snapshot_id: str
    surface: Surface
    iso_week_year: int
    iso_week: int
    request_id: str
    correlation_id: str
    created_at: str
    captured: Captured
    original_text: str = field(repr=False)

    @property
    def week(self) -> tuple[str, int, int]:
        """Return the sender and week that a full reframe counts for."""
        return self.sender_user_id, self.iso_week_year, self.iso_week


@dataclass(frozen=True, slots=True)
class Written:
    """A request as a document, its canonical text, and the hash of that."""

    document: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)
    hash: str

    @classmethod
    def from_request(cls, request: RewriteRequest) -> Written:
        document = request.document
        text = canonical(document)
        return cls(document, text, sha256(text.encode()).hexdigest())

    @property
    def content_hash(self) -> str:
        """Return the hash of everything that determines the output.

        It includes home, sender and recipient, so requests of other people never match.
        """
        content = {name: value for name, value in self.document.items() if name not in _OF_ITS_OWN}
        return sha256(canonical(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """The progress of a request and its results so far.

    Without a failure it is complete, and the request is enqueued.
    """

    intake: StoredSubmission
    classifier_result: ClassifierResult | None = None
    # Why the safe defaults replace the classification.
    classifier_error: str | None = None
    locales: Locales | None = None
    context_pack: ContextPack | None = None
    policy: Policy | None = None
    request: RewriteRequest | None = field(default=None, repr=False)
    # The serialized request: its canonical form takes longer than building it.
    written: Written | None = field(default=None, repr=False)
    routing_decision: Mapping[str, Any] | None = None
    failure: FailureCode | None = None

    @property
    def strength(self) -> Strength | None:
        result = self.classifier_result
        return None if result is None else strength_of(result)

    @property
    def step(self) -> Step:
        return Step.ENQUEUED if self.failure is None else Step.FAILED

    def failed(self, code: FailureCode) -> Decision:
        """Return the decision, marked as failed."""
        return replace(self, request=None, written=None, failure=code)

    def over_cadence(self) -> Decision:
        """Return the decision for a sender who has used the week's full reframe."""
        return Decision(
            self.intake,
            self.classifier_result,
            self.classifier_error,
            failure=FailureCode.CADENCE,
        )


def decide(
    intake: StoredSubmission, result: ClassifierResult, classifier_error: str | None, routes: Routes
) -> Decision:
    """Decide on one message. A bug fails only this message, and is logged without text."""
    made = Decision(intake, result, classifier_error)
    try:
        return _decide(made, result, routes)
    except Exception as exc:
        # Only the type: the exception's message may quote text.
        _log.error(
            "request %s failed unexpectedly: %s", intake.rewrite_request_id, type(exc).__name__
        )
        return made.failed(FailureCode.DEFECT)


def _decide(made: Decision, result: ClassifierResult, routes: Routes) -> Decision:
    intake, captured = made.intake, made.intake.captured
    try:
        locales = resolve(
            result.detected_language,
            result.language_confidence,
            captured.sender_locale,
            captured.recipient_locale,
        )
    except BadLocale:
        return made.failed(FailureCode.LOCALE_INVALID)
    try:
        pack = build_pack(
            recipient_user_id=intake.recipient_user_id,
            target_language=locales.target,
            sender_role=captured.sender_role,
            recipient_role=captured.recipient_role,
            topics=result.topics,
            answers=captured.answers,
        )
    except BadRewrite:
        return made.failed(FailureCode.CONTEXT_PACK_FAILED)
    policy = policy_of(result, pack)
    made = replace(made, locales=locales, context_pack=pack, policy=policy)
    try:
        request = _assemble(intake, result, locales, pack, policy)
    except BadRewrite:
        return made.failed(FailureCode.REQUEST_INVALID)
    try:
        decision = routes.decide(_route_request(request))
    except NoRoute:
        return made.failed(FailureCode.NO_ROUTE)
    return replace(
        made, request=request, written=Written.from_request(request), routing_decision=decision
    )


def _assemble(
    intake: StoredSubmission,
    result: ClassifierResult,
    locales: Locales,
    pack: ContextPack,
    policy: Policy,
) -> RewriteRequest:
    return RewriteRequest(
        rewrite_request_id=intake.rewrite_request_id,
        home_id=intake.home_id,
        sender_user_id=intake.sender_user_id,
        recipient_user_id=intake.recipient_user_id,
        recipient_snapshot_id=intake.recipient_snapshot_id,
        recipient_preference_snapshot_id=intake.recipient_preference_snapshot_id,
        surface=intake.surface,
        original_text=intake.original_text,
        topics=result.topics,
        intent=result.intent,
        rewrite_strength=policy.rewrite_strength,
        source_locale=locales.source,
        target_locale=locales.target,
        lane=locales.lane,
        classifier_result=result,
        context_pack=pack,
        policy=policy,
        classifier_version=result.classifier_version,
        context_pack_version=pack.context_version,
        policy_version=POLICY_VERSION,
        created_at=intake.created_at,
    )


def _route_request(request: RewriteRequest) -> RouteRequest:
    """Build the router's input: codes and languages, never the message."""
    return RouteRequest(
        task=JOB_TYPE,
        surface=request.surface,
        rewrite_strength=request.rewrite_strength,
        source_locale=request.source_locale,
        target_locale=request.target_locale,
        lane=request.lane,
        policy_version=request.policy_version,
    )
