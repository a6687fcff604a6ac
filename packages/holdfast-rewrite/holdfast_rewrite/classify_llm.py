"""The classifier that calls a model directly, through any batch adapter.

Only the message is sent: no ids, no surface, nothing about the home. Failed calls are not retried,
because the caller has safe defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from holdfast.errors import ConfigError, Permanent
from holdfast_llm.batch.circuit import Passage, close_circuit, passage_of
from holdfast_llm.batch.item_outcome import read_reply
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.account import Accounts
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
    Reply,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_rewrite.classify import INVALID, ClassifierFailed, Message
from holdfast_rewrite.enums import (
    CLASSIFIER_VERSION,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Topic,
)
from holdfast_rewrite.model import BadRewrite, ClassifierResult
from holdfast_rewrite.prompt import as_data

# An answer takes about 120 tokens; the rest is for reasoning models.
MAX_OUTPUT_TOKENS = 1_000
LEVELS = ("topic_confidence", "intent_confidence", "language_confidence")


def _words(kind: Any) -> dict[str, Any]:
    return {"type": "string", "enum": [word.value for word in kind]}


_PROPERTIES: dict[str, Any] = {
    "detected_language": {"type": "string"},
    "topics": {"type": "array", "items": _words(Topic)},
    "intent": _words(MessageIntent),
    "rewrite_strength": _words(Strength),
    **{name: _words(Level) for name in LEVELS},
    "safety_flags": {"type": "array", "items": _words(SafetyFlag)},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": list(_PROPERTIES),
    "additionalProperties": False,
}


class ModelClassifier:
    """Classifies with a model. Raises ClassifierFailed without a usable answer.

    With *lane*, no call is made while the account's circuit is open.
    """

    def __init__(
        self, accounts: Accounts, route: Route, *, service: Callable[[], BatchService] | None = None
    ) -> None:
        self._accounts = accounts
        self._route = route
        self._service = service

    def classify(self, message: Message) -> ClassifierResult:
        """Classify a message."""
        request = request_for(message)
        reply, echo = self._ask(request, message)
        try:
            data = read_reply(reply, request, echo).data
            return _result(data)
        except (Permanent, BadRewrite):
            # A validation error would quote the answer.
            raise ClassifierFailed(INVALID) from None

    def _ask(self, request: Request, message: Message) -> tuple[Reply, str]:
        try:
            account = self._accounts.for_route(self._route)
        except ConfigError:
            raise ClassifierFailed("classifier_no_account") from None
        echo = ""
        if account.capabilities.wants_echo:
            # Deterministic, and does not reveal the id.
            echo = sha256(message.classifier_request_id.encode()).hexdigest()[:8]
            request = request.with_echo(echo)
        body = account.adapter.body(self._route, request)
        service = None if self._service is None else self._service()
        passage = Passage.FREE
        if service is not None:
            passage = passage_of(
                service.resources.store, service.resources.settings.batch, account.key
            )
        if passage is Passage.SHUT:
            raise ClassifierFailed(f"classifier_{FailureKind.ACCOUNT}")
        try:
            answer = account.adapter.call(account.client, self._route, body)
        except ProviderRefused as refused:
            answer = refused.failure
        except ProviderUnsure as unsure:
            if unsure.failure is None:
                raise ClassifierFailed("classifier_unsure") from None
            answer = unsure.failure
        if isinstance(answer, Failure):
            if service is not None and answer.kind is FailureKind.ACCOUNT:
                service.stop_account(account.key, account.provider, answer)
            raise ClassifierFailed(f"classifier_{answer.kind.value}")
        if service is not None and passage is Passage.PROBE:
            service.resources.store.write(lambda tx: close_circuit(tx, account.key))
        return answer, echo


def request_for(message: Message) -> Request:
    """Build the request for a message. The same message gives the same request."""
    data = f"The message, as data:\n<message>\n{as_data(message.sender_message)}\n</message>"
    return Request(
        inputs=(data,),
        instructions=_instructions(),
        schema=SCHEMA,
        schema_name="classification",
        max_output_tokens=MAX_OUTPUT_TOKENS,
    )


@cache
def _instructions() -> str:
    name = f"classifier_{CLASSIFIER_VERSION}.md"
    return files("holdfast_rewrite").joinpath("prompts", name).read_text("utf-8")


def _result(data: dict[str, Any]) -> ClassifierResult:
    """Convert the answer to a result; contract rules beyond the schema are applied."""
    flags = [flag for flag in dict.fromkeys(data["safety_flags"]) if flag != SafetyFlag.NONE]
    topics = list(dict.fromkeys(data["topics"])) or [Topic.OTHER]
    is_low = Level.LOW in (data["topic_confidence"], data["intent_confidence"])
    must_reframe = is_low or SafetyFlag.EMOTIONAL_INTENSITY in flags
    return ClassifierResult.read(
        {
            "classifier_version": CLASSIFIER_VERSION,
            "detected_language": data["detected_language"],
            "topics": [topic for topic in topics if topic != Topic.OTHER] or [Topic.OTHER],
            "intent": data["intent"],
            "rewrite_strength": Strength.FULL_REFRAME if must_reframe else data["rewrite_strength"],
            "confidence": {name: data[name] for name in LEVELS},
            "safety_flags": flags or [SafetyFlag.NONE],
        }
    )
