"""Seals a posted patch until the first stage has redacted it.

Redacting 4 MiB takes seconds, which is too long for the caller, and a raw patch must not be stored.
So it is encrypted with its own key, which is stored in the database and never with the bytes. The
first stage replaces the patch with the redacted one and deletes the key. After that, no copy of the
sealed bytes can be read, such as a backup of the artifact store.

The cipher is a stream cipher: SHAKE-256 of the key, which is used once. The artifact's checksum
protects the integrity. 4 MiB take 25 ms, and only the standard library is needed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast.document import canonical
from holdfast.engine.context import Context
from holdfast.errors import ArtifactNotFound
from holdfast.store import Statements, Tx
from holdfast_review.model import Origin, Review, Source
from holdfast_review.refusal import ChangeMissing

SQL = Statements("holdfast_review", "seal.sql")

NAME = "change.patch.sealed"
MEDIA_TYPE = "application/octet-stream"
_KEY_BYTES = 32


def new_key() -> str:
    return secrets.token_hex(_KEY_BYTES)


def seal(data: bytes, key: str) -> bytes:
    """Encrypt or decrypt bytes: applying it twice with one key returns the input."""
    stream = hashlib.shake_256(bytes.fromhex(key)).digest(len(data))
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
    return mixed.to_bytes(len(data), "little")


def find_key(job: Context, review: Review) -> str:
    """Return the key of a review's patch. Raises ChangeMissing if it was erased."""
    ids = {"org_id": review.org_id, "review_id": review.review_id}
    row = job.store.read(lambda tx: tx.maybe(SQL.find_key, **ids))
    if row is None:
        raise ChangeMissing(what="key")
    key: str = row["seal_key"]
    return key


def keep_fetched(job: Context, review: Review, fetched: Mapping[str, Any], origin: Origin) -> None:
    """Store the origin. Replace a posted patch with the redacted one and delete its key.

    Nothing is written for a review that was erased or whose recipients were notified.
    """
    ids = {"org_id": review.org_id, "review_id": review.review_id}
    is_sealed = review.source.is_sealed
    redacted = Source.patch(str(fetched["artifact_id"]), str(fetched["sha256"])).document

    def work(tx: Tx) -> None:
        job.check_lease(tx)
        if origin != Origin():
            tx.affected(SQL.keep_origin, origin=canonical(origin.document), **ids)
        if is_sealed:
            tx.affected(SQL.replace_source, source=canonical(redacted), **ids)
            tx.affected(SQL.delete_key, **ids)

    job.store.write(work)
    if is_sealed:
        with suppress(ArtifactNotFound):
            job.artifacts.artifacts.remove(
                review.source.artifact_id, org_id=review.org_id, actor=job.actor, reason="redacted"
            )
