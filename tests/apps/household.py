"""A home with two people, and an orchestrator whose classifier returns what the test sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import FakeClock, Holdfast
from holdfast.engine.audit import subject_id
from holdfast.store import Row, Store
from holdfast_rewrite.classify import Message
from holdfast_rewrite.decide import Captured, StoredSubmission
from holdfast_rewrite.enums import (
    HomeRole,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Surface,
    Topic,
)
from holdfast_rewrite.model import ClassifierResult, Confidences
from holdfast_rewrite.rewrites import Rewrites
from holdfast_rewrite.settings import RewriteSettings, RouteSettings
from holdfast_rewrite.validation import Submission
from tests.story import look, make_holdfast

HOME = "0198c0de-0000-7000-8000-0000000000f1"
OTHER_HOME = "0198c0de-0000-7000-8000-0000000000f2"
SENDER = "0198c0de-0000-7000-8000-000000000051"
RECIPIENT = "0198c0de-0000-7000-8000-000000000052"
STRANGER = "0198c0de-0000-7000-8000-000000000053"
MESSAGE = "Could you please take the bins out tonight? It would help me."

ROUTE = RouteSettings(
    provider="openai",
    adapter_kind="openai_responses",
    model="gpt-5.2",
    high_quality=True,
    supports_translation=True,
)


def result_of(
    strength: Strength = Strength.LIGHT_TOUCH,
    *,
    language: str = "en",
    confidence: Level | None = Level.HIGH,
    topics: tuple[Topic, ...] = (Topic.CLEANLINESS,),
    intent: MessageIntent = MessageIntent.REQUEST,
    flags: tuple[SafetyFlag, ...] = (SafetyFlag.NONE,),
) -> ClassifierResult:
    """What a classifier might say."""
    confidences = Confidences(Level.HIGH, Level.HIGH, confidence)
    return ClassifierResult("v1", language, topics, intent, strength, confidences, flags)


def nothing() -> None:
    """What happens during a classification, unless the test says otherwise."""


@dataclass(slots=True)
class Heard:
    """A classifier that says what the test wants, and remembers what it was asked."""

    result: ClassifierResult = field(default_factory=result_of)
    meanwhile: Callable[[], object] = nothing
    asked: list[Message] = field(default_factory=list)
    waits: bool = False

    def classify(self, message: Message) -> ClassifierResult:
        self.asked.append(message)
        self.meanwhile()
        return self.result


def rewriting(
    url: str,
    clock: FakeClock | None = None,
    *,
    routes: Sequence[RouteSettings] = (ROUTE,),
    settings: Any = None,
    **rewrite: Any,
) -> Holdfast:
    """A Holdfast that knows where rewrites go."""
    # Most stories are about the gate and what follows from it.
    rewrites = RewriteSettings(routes=tuple(routes), **{"without_judge": "gate_only", **rewrite})
    return make_holdfast(url, clock, rewrite=rewrites, **(settings or {}))


def furnish(rewrites: Rewrites) -> None:
    """The home with its owner, who sends, and a housemate, who receives in German."""
    directory: Any = rewrites.directory
    directory.add_home(HOME)
    directory.add_member(HOME, SENDER, role=HomeRole.OWNER, locale="en-GB")
    directory.add_member(HOME, RECIPIENT, role=HomeRole.HOUSEMATE, locale="de-DE")


def submission(message: str = MESSAGE, **changes: Any) -> Submission:
    given: dict[str, Any] = {
        "home_id": HOME,
        "sender_user_id": SENDER,
        "recipient_user_id": RECIPIENT,
        "surface": "weekly_feedback",
    }
    return Submission(sender_message=message, **{**given, **changes})


def intake(text: str = MESSAGE, **changes: Any) -> StoredSubmission:
    """A message as it is stored, without a store."""
    given: dict[str, Any] = {
        "rewrite_request_id": "0198c0de-0000-7000-8000-000000000001",
        "home_id": HOME,
        "sender_user_id": SENDER,
        "recipient_user_id": RECIPIENT,
        "recipient_snapshot_id": "0198c0de-0000-7000-8000-000000000002",
        "recipient_preference_snapshot_id": "0198c0de-0000-7000-8000-000000000003",
        "surface": Surface.WEEKLY_HARMONY,
        "iso_week_year": 2026,
        "iso_week": 2,
        "request_id": "r",
        "correlation_id": "c",
        "created_at": "2026-01-05T09:00:00.000Z",
        "captured": Captured(HomeRole.OWNER, HomeRole.HOUSEMATE, "en-GB", "de-DE", {}),
    }
    return StoredSubmission(original_text=text, **{**given, **changes})


def request_row(store: Store, rewrite_request_id: str) -> Row:
    (row,) = look(
        store,
        "SELECT * FROM holdfast.rewrite_request WHERE rewrite_request_id = :id",
        id=rewrite_request_id,
    )
    return row


def told(store: Store, rewrite_request_id: str) -> list[Row]:
    """The audit of a request, in order."""
    return look(
        store,
        "SELECT * FROM holdfast.job_event WHERE job_id = :id ORDER BY id",
        id=subject_id(f"rewrite:{rewrite_request_id}"),
    )


def count(store: Store, table: str) -> int:
    (row,) = look(store, f"SELECT count(*) AS n FROM holdfast.{table}")
    return int(row["n"])
