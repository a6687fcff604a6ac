"""Requests with an idempotency key: each is carried out once, and its answer is kept for a while.

A request claims its key before it does anything. When it has succeeded its answer is stored, and a
repeated request is given that answer. A request that was refused gives its key back. If the process
ends in between, the key stays claimed: it is unknown whether the request did anything, so repeating
it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.clock import ms
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.errors import Conflict, InvalidArgument
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.operate", "idempotent_requests.sql")

# No request takes longer. An older one without an answer was cut off.
LONGEST_REQUEST_MS = 60_000


class IdempotencyKeyReused(InvalidArgument):
    """The idempotency key was used for another request, or by another caller. Use a new key for a
    new request."""

    outcome = "The idempotency key was used for another request. Nothing was done."

    def __init__(self) -> None:
        super().__init__({"Idempotency-Key": "was used for another request, or by another caller"})


class RequestInProgress(Conflict):
    """A request with this idempotency key is being carried out. Repeat the request in a moment."""

    def __init__(self) -> None:
        super().__init__("A request with this idempotency key is in progress. Nothing was done.")


class RequestOutcomeUnknown(Conflict):
    """The request with this idempotency key was cut off, and may have been carried out. Read the
    object first; if nothing was done, send the request with a new idempotency key."""

    def __init__(self) -> None:
        super().__init__(
            "The first request with this idempotency key was cut off. It may have been carried out."
        )


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer that a request got: its status, its document and where the result is."""

    status: int
    document: str
    location: str | None = None


@dataclass(frozen=True, slots=True)
class RequestClaim:
    """A claimed idempotency key of one tenant, or of operations."""

    org_id: str
    idempotency_key: str
    claim_token: str

    def keep(self, store: Store, answer: KeptAnswer) -> None:
        """Store the answer of the request."""
        found = {"status": answer.status, "answer": answer.document, "location": answer.location}
        store.execute(SQL.keep_answer, **self._names, **found)

    def release(self, store: Store) -> None:
        """Give the key back, because the request changed nothing."""
        store.execute(SQL.release_request, **self._names)

    @property
    def _names(self) -> dict[str, str]:
        return {
            "org_id": self.org_id,
            "idempotency_key": self.idempotency_key,
            "claim_token": self.claim_token,
        }


def claim_request(
    store: Store,
    org_id: str | None,
    idempotency_key: str,
    request_hash: str,
    *,
    claim_token: str,
    keep: timedelta,
) -> RequestClaim | KeptAnswer:
    """Claim an idempotency key for a request, or return the answer that this request got before.

    *claim_token* is a new UUID. Raises IdempotencyKeyReused, RequestInProgress, or
    RequestOutcomeUnknown.
    """
    claim = RequestClaim(org_id or PLATFORM_ORG, idempotency_key, claim_token)
    row = {**claim._names, "request_hash": request_hash, "keep_ms": ms(keep)}

    def work(tx: Tx) -> bool:
        tx.affected(SQL.prune_requests)
        return tx.affected(SQL.claim_request, **row) == 1

    if store.write(work):
        return claim
    found = store.maybe(
        SQL.find_request, org_id=claim.org_id, idempotency_key=claim.idempotency_key
    )
    if found is None:
        # The earlier request was refused just now.
        raise RequestInProgress
    if found["request_hash"] != request_hash:
        raise IdempotencyKeyReused
    if found["status"] is None:
        is_over = found["age_ms"] >= LONGEST_REQUEST_MS
        raise RequestOutcomeUnknown if is_over else RequestInProgress
    return KeptAnswer(found["status"], found["answer"], found["location"])
