"""The severity and the message of each alert about batches and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.event import BatchTrouble, DeliveryTrouble


class Severity(StrEnum):
    """The urgency of an alert."""

    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return tuple(Severity).index(self)


BATCH_TROUBLES: Mapping[BatchTrouble, tuple[Severity, str]] = {
    BatchTrouble.UNKNOWN_ITEM: (
        Severity.ERROR,
        "A provider answered for items that no batch of ours has; the answers were dropped",
    ),
    BatchTrouble.MALFORMED_LINE: (
        Severity.ERROR,
        "A provider's results have lines that cannot be read; they were dropped",
    ),
    BatchTrouble.MISSING_RESULT: (
        Severity.ERROR,
        "A batch ended without an answer for some of its items",
    ),
    BatchTrouble.CONFLICTING_RESULT: (
        Severity.ERROR,
        "A provider gave two different answers for one item",
    ),
    BatchTrouble.CROSS_WIRED: (
        Severity.CRITICAL,
        "An answer came under another item's name; its batch is quarantined",
    ),
    BatchTrouble.UNKNOWN_STATUS: (
        Severity.WARNING,
        "A provider calls the state of a batch by a word that is not known",
    ),
    BatchTrouble.ZOMBIE_BATCH: (
        Severity.CRITICAL,
        "A provider has a second batch under one name; it was canceled, and what it cost recorded",
    ),
    BatchTrouble.UNKNOWN_CALL: (
        Severity.WARNING,
        "It is unknown whether a call was answered and billed",
    ),
    BatchTrouble.CREATE_UNANSWERED: (
        Severity.WARNING,
        "A provider does not take batches; the jobs wait and are sent again",
    ),
    BatchTrouble.ANSWERS_HELD: (
        Severity.CRITICAL,
        "The application's code fails on paid answers; mend it, then: holdfast batches accept",
    ),
    BatchTrouble.QUARANTINED: (
        Severity.CRITICAL,
        "A batch is quarantined until an operator decides: holdfast batches show",
    ),
    BatchTrouble.DEADLINE_PASSED: (
        Severity.ERROR,
        "A batch did not end within its time, and is being canceled",
    ),
    BatchTrouble.UNCOLLECTED: (
        Severity.ERROR,
        "The answers of a batch cannot be brought back; it is tried again: holdfast batches show",
    ),
    BatchTrouble.ACCOUNT_UNUSABLE: (
        Severity.CRITICAL,
        "Jobs wait for an account that cannot be used here; what is missing: holdfast doctor",
    ),
    BatchTrouble.CIRCUIT_OPENED: (
        Severity.CRITICAL,
        "An account is out of quota or credit, or its key is refused; nothing is sent to it",
    ),
    BatchTrouble.UNPRICED: (
        Severity.WARNING,
        "What was used has no price: its cost is not known",
    ),
    BatchTrouble.BUDGET_HELD: (
        Severity.WARNING,
        "The budget of a tenant does not allow its next jobs; they wait: holdfast explain",
    ),
    BatchTrouble.BUDGET_UNPRICED: (
        Severity.ERROR,
        "A model has no price, so tenants with a budget cannot use it; add it to [[prices]]",
    ),
}

DELIVERY_TROUBLES: Mapping[DeliveryTrouble, tuple[Severity, str]] = {
    DeliveryTrouble.HELD: (
        Severity.ERROR,
        "It is unknown whether a delivery went out; it is held: holdfast deliveries list",
    ),
    DeliveryTrouble.SEVERAL_MATCHES: (
        Severity.ERROR,
        "Several messages of a channel may be one delivery; it is held: holdfast deliveries list",
    ),
    DeliveryTrouble.MARKED_UNSENT: (
        Severity.CRITICAL,
        "A delivery was marked as sent and its channel knows nothing of it; it is sent again",
    ),
    DeliveryTrouble.MAYBE_TWICE: (
        Severity.WARNING,
        "A delivery with an unknown outcome was sent again, as its channel is configured",
    ),
    DeliveryTrouble.MAYBE_LOST: (
        Severity.WARNING,
        "A delivery with an unknown outcome was dropped, as its channel is configured",
    ),
    DeliveryTrouble.FAILED: (
        Severity.ERROR,
        "A delivery cannot be made: its channel refuses it for good",
    ),
    DeliveryTrouble.DIFFERS: (
        Severity.WARNING,
        "A delivery was intended again with another content or address; the first one stands",
    ),
    DeliveryTrouble.LOOKUP_DOWN: (
        Severity.WARNING,
        "A channel does not say what it has taken; its deliveries wait",
    ),
    DeliveryTrouble.CHANNEL_REFUSED: (
        Severity.CRITICAL,
        "A channel refuses our credential or its address is wrong; its deliveries wait",
    ),
    DeliveryTrouble.CHANNEL_UNUSABLE: (
        Severity.ERROR,
        "Deliveries wait for a channel that cannot be used here; what is missing: holdfast doctor",
    ),
}
