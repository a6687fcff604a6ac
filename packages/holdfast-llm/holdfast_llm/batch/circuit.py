"""Circuits: pause an account that rejects every request.

A wrong key, an exhausted quota or a missing payment affects every job of an account. Nothing is
sent to it until the pause is over. Then one call probes it and either closes the circuit or opens
it for four times as long. After ten refusals in a row it stays open until an operator allows a
probe or the credential changes. Jobs lose no attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from holdfast.clock import ms, read_instant
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Statements, Store, Tx
from holdfast_llm.batch.item_outcome import safe_code
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.reply import Failure
from holdfast_llm.settings import BatchSettings

SQL = Statements("holdfast_llm.batch", "cost.sql")

# The maximum number of consecutive refusals with the same credential.
MOST_REFUSALS = 10
# Until an operator acts: longer than any job waits.
SHUT = timedelta(days=3_650)
# The pause of a call while another one probes the account.
PROBE_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Circuit:
    """An account that refused: consecutive refusals, and the end of the pause."""

    account: str
    provider: str
    error_code: str
    http_status: int | None
    times: int
    opened_at: datetime
    open_until: datetime
    closed_at: datetime | None


def find_open_circuits(tx: Tx) -> set[str]:
    """The keys of the accounts with an open circuit."""
    return {row["account"] for row in tx.many(SQL.find_open_circuits)}


class Passage(Enum):
    """Whether a call may go to an account."""

    FREE = "free"
    # Only this one call, as a probe.
    PROBE = "probe"
    SHUT = "shut"


def find_passage(tx: Tx, settings: BatchSettings, account_key: str) -> Passage:
    """Whether a call may be made. A caller that gets PROBE has reserved the probe."""
    if tx.maybe(SQL.find_circuit, account=account_key) is None:
        return Passage.FREE
    lease = ms(settings.circuit_seconds)
    taken = tx.affected(SQL.take_probe, account=account_key, lease_ms=lease)
    return Passage.PROBE if taken else Passage.SHUT


def passage_of(store: Store, settings: BatchSettings, account_key: str) -> Passage:
    """:func:`find_passage` for a call outside a transaction; it rarely writes."""
    if store.maybe(SQL.find_circuit, account=account_key) is None:
        return Passage.FREE
    return store.write(lambda tx: find_passage(tx, settings, account_key))


def allow_probe(tx: Tx, account_key: str) -> bool:
    """Allow the next call to a paused account. Returns whether it was paused."""
    return tx.affected(SQL.allow_probe, account=account_key) > 0


def open_circuit(
    tx: Tx, settings: BatchSettings, account_key: str, provider: str, failure: Failure
) -> datetime | None:
    """Open a circuit; return the end of the pause, or None if it is already open.

    A result should raise the alert ``circuit_opened`` after the commit.
    """
    longest = ms(settings.max_circuit_seconds)
    first = max(ms(settings.circuit_seconds), min(ms(failure.retry_after or 0), longest))
    row = tx.maybe(
        SQL.open_circuit,
        account=account_key,
        provider=provider,
        error_code=safe_code(failure.code),
        http_status=failure.status,
        first_ms=first,
        longest_ms=longest,
        most=MOST_REFUSALS,
        shut_ms=ms(SHUT),
    )
    return None if row is None else read_instant(row["open_until"])


class AccountCircuits:
    """Opens the circuits of accounts."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.events = resources.events

    def stop_account(
        self, account_key: str, provider: str, failure: Failure, batch_id: str | None = None
    ) -> None:
        """Open the circuit of an account and emit the alert, unless it is open already.

        An account error is not the fault of a job, and affects all of them.
        """
        until = self.store.write(
            lambda tx: open_circuit(tx, self.settings.batch, account_key, provider, failure)
        )
        if until is not None:
            code = safe_code(failure.code)
            self.events.emit(BatchAlert(batch_id, account_key, BatchTrouble.CIRCUIT_OPENED, code))


def close_circuit(tx: Tx, account_key: str) -> bool:
    """Close the circuit after a successful call. Returns whether it was open."""
    return tx.affected(SQL.close_circuit, account=account_key) > 0


def list_circuits(tx: Tx) -> list[Circuit]:
    """Every account that ever refused, including closed circuits."""
    return [
        Circuit(
            row["account"],
            row["provider"],
            row["error_code"],
            row["http_status"],
            row["times"],
            read_instant(row["opened_at"]),
            read_instant(row["open_until"]),
            None if row["closed_at"] is None else read_instant(row["closed_at"]),
        )
        for row in tx.many(SQL.list_circuits)
    ]
