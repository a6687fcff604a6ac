"""Circuits: an account that says no to everything is left alone for a while.

A wrong key, a spent quota or an empty purse hits every job of an account. Nothing is sent there
until the time is over; then one call asks again, and either closes the circuit or opens it for four
times as long. After ten refusals in a row it stays open, until an operator allows another call or
the account has another credential. No job pays for it.
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

# So often in a row an account is asked with the same credential.
MOST_REFUSALS = 10
# Until somebody does something: longer than any job waits.
SHUT = timedelta(days=3_650)
# A call that was kept back while another one finds out whether the account answers.
PROBE_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Circuit:
    """An account that said no, how often in a row, and until when it is left alone."""

    account: str
    provider: str
    error_code: str
    http_status: int | None
    times: int
    opened_at: datetime
    open_until: datetime
    closed_at: datetime | None


def find_open_circuits(tx: Tx) -> set[str]:
    """The keys of the accounts that nothing may be sent to just now."""
    return {row["account"] for row in tx.many(SQL.find_open_circuits)}


class Passage(Enum):
    """Whether a call may go to an account."""

    FREE = "free"
    # Only this one call, to find out whether the account answers again.
    PROBE = "probe"
    SHUT = "shut"


def find_passage(tx: Tx, settings: BatchSettings, account_key: str) -> Passage:
    """Whether a call may go to an account; who is told PROBE has taken the one that may."""
    if tx.maybe(SQL.find_circuit, account=account_key) is None:
        return Passage.FREE
    lease = ms(settings.circuit_seconds)
    taken = tx.affected(SQL.take_probe, account=account_key, lease_ms=lease)
    return Passage.PROBE if taken else Passage.SHUT


def passage_of(store: Store, settings: BatchSettings, account_key: str) -> Passage:
    """:func:`find_passage` for a call that is in no transaction; most find nothing to write."""
    if store.maybe(SQL.find_circuit, account=account_key) is None:
        return Passage.FREE
    return store.write(lambda tx: find_passage(tx, settings, account_key))


def allow_probe(tx: Tx, account_key: str) -> bool:
    """Let the next call go to an account that is left alone. Whether it was left alone."""
    return tx.affected(SQL.allow_probe, account=account_key) > 0


def open_circuit(
    tx: Tx, settings: BatchSettings, account_key: str, provider: str, failure: Failure
) -> datetime | None:
    """Leave an account alone; until when, or None if somebody has opened its circuit already.

    What comes back is worth an alert, ``circuit_opened``, after commit.
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
        """Open the circuit of an account and tell of it, unless somebody has.

        What is wrong with an account is no job's fault, and hits all of them.
        """
        until = self.store.write(
            lambda tx: open_circuit(tx, self.settings.batch, account_key, provider, failure)
        )
        if until is not None:
            code = safe_code(failure.code)
            self.events.emit(BatchAlert(batch_id, account_key, BatchTrouble.CIRCUIT_OPENED, code))


def close_circuit(tx: Tx, account_key: str) -> bool:
    """The account has done what it was asked: it may be used. Whether it was open before."""
    return tx.affected(SQL.close_circuit, account=account_key) > 0


def list_circuits(tx: Tx) -> list[Circuit]:
    """Every account that ever said no, closed ones included."""
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
