"""Completeness: the meaning of a missing line in the results of a batch. Pure.

A provider bills every answer. An item without a readable line may be sent again only if the
provider's counts show that it was not run.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum, StrEnum
from typing import assert_never

from holdfast_llm.batch.item_outcome import BATCH_FAILED, MISSING
from holdfast_llm.provider.adapter import BatchPhase, ProviderBatch
from holdfast_llm.provider.reply import Answer, Failure, FailureKind, Reply


class Mention(IntEnum):
    """How the results mention an item."""

    NONE = 0
    REPLY = 1
    FAILURE = 2
    NOT_RUN = 3


class Mentions:
    """The mentions of items in the lines of a batch: one byte per item, 50 KB for 50,000."""

    def __init__(self, items: int) -> None:
        self._of_item = bytearray(items)

    def add(self, index: int, answer: Answer) -> None:
        if isinstance(answer, Reply):
            mention = Mention.REPLY
        elif answer.kind is FailureKind.NOT_RUN:
            mention = Mention.NOT_RUN
        else:
            mention = Mention.FAILURE
        self._of_item[index] = mention

    def __len__(self) -> int:
        return len(self._of_item)

    def count(self, mention: Mention) -> int:
        return self._of_item.count(mention)


class Silence(StrEnum):
    """Why an item has no line."""

    # The counts show that the provider did not run it: sending it again pays once.
    NOT_RUN = "not_run"
    # The provider has finished, counts no answer for it, and gives no reason.
    MISSING = "missing"
    # The provider counts an answer that its results do not show, or has no counts.
    UNPROVEN = "unproven"


def silence_of(seen: ProviderBatch, mentions: Mentions, *, unreadable: int) -> Silence:
    """Why items without a line have none; *unreadable* is the number of unreadable lines."""
    without = Silence.MISSING if seen.phase is BatchPhase.COMPLETED else Silence.NOT_RUN
    if seen.succeeded is None or seen.failed is None:
        # Without counts, only a batch that failed as a whole and has no line proves anything.
        is_empty = not unreadable and mentions.count(Mention.NONE) == len(mentions)
        return without if seen.phase is BatchPhase.FAILED and is_empty else Silence.UNPROVEN
    if seen.succeeded != mentions.count(Mention.REPLY):
        return Silence.UNPROVEN
    failures, not_run = mentions.count(Mention.FAILURE), mentions.count(Mention.NOT_RUN)
    if seen.not_run is not None and seen.failed == failures and seen.not_run > not_run:
        return Silence.NOT_RUN
    # Some providers count an item that did not run as failed, others do not count it. A batch that
    # failed as a whole may count every item as failed and have no line.
    agrees = seen.failed in (failures, failures + not_run) or seen.phase is BatchPhase.FAILED
    return without if agrees else Silence.UNPROVEN


def failure_of(seen: ProviderBatch, silence: Silence) -> Failure:
    """The failure of an item that has no line in its ended batch."""
    match seen.phase:
        case BatchPhase.COMPLETED if silence is Silence.NOT_RUN:
            return Failure(FailureKind.NOT_RUN, "batch_expired")
        case BatchPhase.COMPLETED | BatchPhase.RUNNING:
            return Failure(FailureKind.INTEGRITY, MISSING)
        case BatchPhase.EXPIRED:
            return Failure(FailureKind.NOT_RUN, "batch_expired")
        case BatchPhase.CANCELED:
            return Failure(FailureKind.NOT_RUN, "batch_canceled")
        case BatchPhase.FAILED:
            found = seen.failure
            if found is not None and found.kind in (FailureKind.CAPACITY, FailureKind.ACCOUNT):
                return replace(found, usage=None)
            # An error of the whole batch does not apply to each item.
            return Failure(FailureKind.NOT_RUN, BATCH_FAILED)
        case _:
            assert_never(seen.phase)
