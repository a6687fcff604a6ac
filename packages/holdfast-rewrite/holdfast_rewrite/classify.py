"""Call a classifier for a message, and use safe defaults if it fails.

A classifier is third-party code and advisory. It may be slow, fail or return invalid values; no
request fails because of it. Its result is stored, so only closed enum values are accepted: no text
of a message can pass through it.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast_rewrite.enums import Level, Surface
from holdfast_rewrite.language import BadLocale, normalize
from holdfast_rewrite.model import SAFE_DEFAULTS, BadRewrite, ClassifierResult

TIMEOUT = "classifier_timeout"
FAILED = "classifier_failed"
INVALID = "classifier_invalid"
BUSY = "classifier_busy"

UNKNOWN = "und"
# The maximum of timed-out calls that still run. Above it, no call starts until one ends.
MOST_ABANDONED = 32

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class Message:
    """The classifier's input: nothing about the recipient, roles or the home."""

    classifier_request_id: str
    sender_message: str = field(repr=False)
    sender_user_id: str
    surface: Surface


class Classifier(Protocol):
    """Classifies topic, intent and tone of a message. It may raise.

    A classifier that never blocks may set ``waits = False``. It is then called directly, so that
    machine load cannot turn its answers into defaults.
    """

    def classify(self, message: Message) -> ClassifierResult: ...


class ClassifierFailed(Exception):
    """A classifier has no answer; *code* is a stable reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def waits(classifier: Classifier) -> bool:
    """Return whether the classifier may block, for example on a model. True by default."""
    return bool(getattr(classifier, "waits", True))


def classify_safely(
    classifier: Classifier, message: Message, *, timeout_seconds: float
) -> tuple[ClassifierResult, str | None]:
    """Return the classification, or the safe defaults and an error code.

    A call that exceeds the timeout is abandoned.
    """
    try:
        if waits(classifier):
            return _checked(_within(classifier, message, timeout_seconds)), None
        return _checked(_at_once(classifier, message)), None
    except ClassifierFailed as failed:
        code = failed.code if _CODE.fullmatch(failed.code) else FAILED
        return SAFE_DEFAULTS, code


# -- the call


def _at_once(classifier: Classifier, message: Message) -> object:
    try:
        return classifier.classify(message)
    except ClassifierFailed:
        raise
    except Exception:
        # The exception may quote the message.
        raise ClassifierFailed(FAILED) from None


class _Call(threading.Thread):
    """One call in a daemon thread."""

    def __init__(self, classifier: Classifier, message: Message) -> None:
        super().__init__(name="holdfast-classifier", daemon=True)
        self._classifier = classifier
        self._message = message
        self.answer: object = None
        self.code: str | None = FAILED

    def run(self) -> None:
        try:
            self.answer = self._classifier.classify(self._message)
            self.code = None
        except ClassifierFailed as failed:
            self.code = failed.code
        except BaseException:  # noqa: S110 — its words may quote the message
            pass


class _Abandoned:
    """The calls that timed out and still run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[_Call] = []

    @property
    def is_full(self) -> bool:
        with self._lock:
            self._calls = [call for call in self._calls if call.is_alive()]
            return len(self._calls) >= MOST_ABANDONED

    def add(self, call: _Call) -> None:
        with self._lock:
            self._calls.append(call)


_abandoned = _Abandoned()


def _within(classifier: Classifier, message: Message, timeout_seconds: float) -> object:
    if _abandoned.is_full:
        raise ClassifierFailed(BUSY)
    call = _Call(classifier, message)
    call.start()
    call.join(timeout_seconds)
    if call.is_alive():
        _abandoned.add(call)
        raise ClassifierFailed(TIMEOUT)
    if call.code is not None:
        raise ClassifierFailed(call.code)
    return call.answer


# -- the answer


def _checked(answer: object) -> ClassifierResult:
    """Validate an answer. Raises ClassifierFailed; an invalid language gets low confidence."""
    try:
        if not isinstance(answer, ClassifierResult):
            raise BadRewrite("a classifier must answer with a ClassifierResult")
        found = ClassifierResult.read(answer.document)
        if not _VERSION.fullmatch(found.classifier_version):
            raise BadRewrite("classifier_version is not a version")
    except (BadRewrite, AttributeError, TypeError):
        raise ClassifierFailed(INVALID) from None
    try:
        normalize(found.detected_language)
    except BadLocale:
        # No language, or an invalid tag.
        confidence = replace(found.confidence, language_confidence=Level.LOW)
        found = replace(found, detected_language=UNKNOWN, confidence=confidence)
    return found
