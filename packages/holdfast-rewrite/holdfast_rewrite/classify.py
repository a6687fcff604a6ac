"""Ask a classifier about a message, and go on with safe answers where it fails.

A classifier is foreign code and advisory. It may be slow, break or answer nonsense, and no request
fails for that. What it says is stored, so it is held to closed words here: nothing of a message can
come out of it.
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
# Calls that nobody waits for any more and that still run. Past it nobody is asked until one ends.
MOST_ABANDONED = 32

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class Message:
    """What a classifier gets to see: nothing of the recipient, of roles or of the home."""

    classifier_request_id: str
    sender_message: str = field(repr=False)
    sender_user_id: str
    surface: Surface


class Classifier(Protocol):
    """Says what a message is about, what it wants and how sharp it is. It may raise.

    One that never waits for anything may say so with ``waits = False``. It is called as it is, and
    no load of the machine turns its answers into defaults.
    """

    def classify(self, message: Message) -> ClassifierResult: ...


class ClassifierFailed(Exception):
    """A classifier has no answer; *code* says why in a stable word."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def waits(classifier: Classifier) -> bool:
    """Whether it may wait for somebody else, such as a model: true unless it says otherwise."""
    return bool(getattr(classifier, "waits", True))


def classify_safely(
    classifier: Classifier, message: Message, *, timeout_seconds: float
) -> tuple[ClassifierResult, str | None]:
    """What a classifier says, or the safe defaults and a code for why it does not.

    A call that takes longer than the timeout is left to itself.
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
        # Its words may quote the message.
        raise ClassifierFailed(FAILED) from None


class _Call(threading.Thread):
    """One call in a thread of its own, which a process does not wait for at its end."""

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
    """Calls that nobody waits for any more."""

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
    """An answer with nothing but closed words in it; whoever wrote the classifier may err."""
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
        # No language at all, or words that pose as one.
        confidence = replace(found.confidence, language_confidence=Level.LOW)
        found = replace(found, detected_language=UNKNOWN, confidence=confidence)
    return found
