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
        "A provider returned answers for unknown items; they were dropped",
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
        "An answer was returned under another item's id; its batch is quarantined",
    ),
    BatchTrouble.UNKNOWN_STATUS: (
        Severity.WARNING,
        "A provider returned an unknown batch status",
    ),
    BatchTrouble.ZOMBIE_BATCH: (
        Severity.CRITICAL,
        "A duplicate batch at a provider was canceled, and its cost was recorded",
    ),
    BatchTrouble.UNKNOWN_CALL: (
        Severity.WARNING,
        "It is unknown whether a call was answered and billed",
    ),
    BatchTrouble.CREATE_UNANSWERED: (
        Severity.WARNING,
        "A provider rejects batches; the jobs wait and are submitted again",
    ),
    BatchTrouble.ANSWERS_HELD: (
        Severity.CRITICAL,
        "accept() fails on paid answers; fix it, then: holdfast batches accept",
    ),
    BatchTrouble.QUARANTINED: (
        Severity.CRITICAL,
        "A batch is quarantined until an operator decides: holdfast batches show",
    ),
    BatchTrouble.DEADLINE_PASSED: (
        Severity.ERROR,
        "A batch passed its deadline and is being canceled",
    ),
    BatchTrouble.UNCOLLECTED: (
        Severity.ERROR,
        "The results of a batch cannot be downloaded; it is retried: holdfast batches show",
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
        "Usage has no price; its cost is unknown",
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
        "Whether a delivery was sent is unknown; it is held: holdfast deliveries list",
    ),
    DeliveryTrouble.SEVERAL_MATCHES: (
        Severity.ERROR,
        "A lookup found several matching messages; the delivery is held: holdfast deliveries list",
    ),
    DeliveryTrouble.MARKED_UNSENT: (
        Severity.CRITICAL,
        "A delivery marked as sent was not found at its channel; it is sent again",
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
        "A delivery failed: its channel rejected it permanently",
    ),
    DeliveryTrouble.DIFFERS: (
        Severity.WARNING,
        "A delivery was intended again with another content or address; the first version is kept",
    ),
    DeliveryTrouble.LOOKUP_DOWN: (
        Severity.WARNING,
        "Lookups at a channel fail; its deliveries wait",
    ),
    DeliveryTrouble.CHANNEL_REFUSED: (
        Severity.CRITICAL,
        "A channel rejects the credential or address; its deliveries wait",
    ),
    DeliveryTrouble.CHANNEL_UNUSABLE: (
        Severity.ERROR,
        "Deliveries wait for a channel that cannot be used here; what is missing: holdfast doctor",
    ),
}
