"""A classifier is advisory: whatever it does, the orchestrator has an answer, and in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast_rewrite import classify
from holdfast_rewrite.classify import ClassifierFailed, Message, classify_safely
from holdfast_rewrite.enums import Level, MessageIntent, SafetyFlag, Strength, Surface, Topic
from holdfast_rewrite.model import SAFE_DEFAULTS, ClassifierResult, Confidences

SECRET = "the neighbour's cat is called Mortimer"
MESSAGE = Message("7d1f", SECRET, "a3c0", Surface.DIRECT_MESSAGE)
SOUND = ClassifierResult(
    "v1",
    "pt-BR",
    (Topic.NOISE,),
    MessageIntent.REQUEST,
    Strength.LIGHT_TOUCH,
    Confidences(Level.HIGH, Level.MEDIUM, Level.HIGH),
    (SafetyFlag.NONE,),
)


def spoiled(**fields: Any) -> ClassifierResult:
    """Values that foreign code may return in spite of the types."""
    return replace(SOUND, **fields)


class Saying:
    """Answers with one thing, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def classify(self, message: Message) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class SayingAtOnce(Saying):
    waits = False


@pytest.fixture(params=[Saying, SayingAtOnce])
def saying(request: pytest.FixtureRequest) -> type[Saying]:
    kind: type[Saying] = request.param
    return kind


def ask(classifier: Any, timeout_seconds: float = 5) -> tuple[ClassifierResult, str | None]:
    return classify_safely(classifier, MESSAGE, timeout_seconds=timeout_seconds)


def test_a_sound_answer_is_taken_as_it_is(saying: type[Saying]) -> None:
    assert ask(saying(SOUND)) == (SOUND, None)


def test_a_classifier_that_breaks_leaves_the_safe_defaults_and_none_of_its_words(
    saying: type[Saying],
) -> None:
    result, code = ask(saying(RuntimeError(SECRET)))

    assert (result, code) == (SAFE_DEFAULTS, "classifier_failed")
    assert result.topics == (Topic.OTHER,)
    assert result.intent is MessageIntent.CONCERN
    assert result.rewrite_strength is Strength.FULL_REFRAME
    assert result.language_confidence is Level.LOW


def test_a_thread_that_exits_is_a_classifier_that_breaks() -> None:
    assert ask(Saying(SystemExit(3))) == (SAFE_DEFAULTS, "classifier_failed")


def test_a_keyboard_interrupt_stops_the_classifier() -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(SayingAtOnce(KeyboardInterrupt()))


def test_a_classifier_may_say_why_it_has_no_answer(saying: type[Saying]) -> None:
    assert ask(saying(ClassifierFailed("classifier_no_account")))[1] == "classifier_no_account"


@pytest.mark.parametrize("code", [SECRET, "", "Not A Code", "x" * 65, "1st"])
def test_a_reason_that_is_no_code_is_not_repeated(saying: type[Saying], code: str) -> None:
    assert ask(saying(ClassifierFailed(code))) == (SAFE_DEFAULTS, "classifier_failed")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        SOUND.document,
        spoiled(classifier_version=SECRET),
        spoiled(topics=("weather",)),
        spoiled(intent=None),
        spoiled(confidence={"topic_confidence": "high"}),
        spoiled(detected_language=None),
    ],
    ids=["nothing", "a dict", "version", "topic", "intent", "confidence", "language"],
)
def test_an_answer_of_the_wrong_kind_is_no_answer(saying: type[Saying], answer: Any) -> None:
    assert ask(saying(answer)) == (SAFE_DEFAULTS, "classifier_invalid")


@pytest.mark.parametrize("tag", [SECRET, "und", "mul", "", "x-secret", "mortimer", "unknown"])
def test_words_that_pose_as_a_language_are_dropped(saying: type[Saying], tag: str) -> None:
    result, code = ask(saying(replace(SOUND, detected_language=tag)))

    assert code is None
    assert (result.detected_language, result.language_confidence) == ("und", Level.LOW)
    assert result.topics == SOUND.topics


def test_a_message_does_not_show_its_words() -> None:
    assert SECRET not in repr(MESSAGE)


# -- time


class Hanging:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def classify(self, message: Message) -> ClassifierResult:
        self.asked.release()
        self.go.wait(60)
        return SOUND


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.go.set()
    for thread in threading.enumerate():
        if thread.name == "holdfast-classifier":
            thread.join(10)


def test_a_classifier_that_hangs_is_left_alone_after_the_timeout(hanging: Hanging) -> None:
    assert ask(hanging, 0.01) == (SAFE_DEFAULTS, "classifier_timeout")


def test_an_answer_in_the_last_moment_counts(hanging: Hanging) -> None:
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(ask(hanging, 30)))
    asking.start()
    assert hanging.asked.acquire(timeout=60)

    hanging.go.set()
    asking.join(10)

    assert found == [(SOUND, None)]


def test_calls_that_hang_do_not_pile_up(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify, "MOST_ABANDONED", 2)
    for _ in range(2):
        assert ask(hanging, 0.01)[1] == "classifier_timeout"

    assert ask(Saying(SOUND)) == (SAFE_DEFAULTS, "classifier_busy")
    assert hanging.asked.acquire(timeout=60)
    assert hanging.asked.acquire(timeout=60)
    assert not hanging.asked.acquire(blocking=False)

    hanging.go.set()
    for thread in threading.enumerate():
        if thread.name == "holdfast-classifier":
            thread.join(10)
    assert ask(Saying(SOUND)) == (SOUND, None)


def test_interactive_calls_use_no_worker_capacity(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify, "MOST_ABANDONED", 1)
    found: list[Any] = []
    asking = [threading.Thread(target=lambda: found.append(ask(hanging, 60))) for _ in range(3)]
    for thread in asking:
        thread.start()
    for _ in asking:
        assert hanging.asked.acquire(timeout=60)

    hanging.go.set()
    for thread in asking:
        thread.join(60)
    assert found == [(SOUND, None)] * 3
