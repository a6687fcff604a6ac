"""Group: assign requests to batches, name the batches, and enforce their limits. Pure.

By default one batch holds one group: requests with equal provider, model, versions, lane and
locales. With ``merge_groups``, groups of one account and model share a batch, and the items of a
group are adjacent in it. Tenants share a batch only if every answer carries an echo.
"""

from __future__ import annotations

import base64
import hmac
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from holdfast.engine.job import Claimed
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import BatchTag, Limits
from holdfast_llm.provider.route import Route

# As long as any custom_id, so that the size of a line is known before its place.
LONGEST_ID = "x" * 36
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@lru_cache(maxsize=256)
def key_of(batch_id: str) -> str:
    """The tag of a batch at the provider: its id in 26 lower-case letters and digits."""
    return base64.b32encode(uuid.UUID(batch_id).bytes).decode().rstrip("=").lower()


def batch_of(key: str) -> str | None:
    """The batch id of a tag; None if it is not a tag of Holdfast."""
    try:
        found = uuid.UUID(bytes=base64.b32decode(key.upper() + "======"))
    except ValueError:
        return None
    # Several texts decode to the same bytes; only the canonical one is ours.
    return str(found) if key_of(str(found)) == key else None


def name_of(batch_id: str, attempt: int, environment: str) -> BatchTag:
    """The name of a batch at the provider for create number *attempt*."""
    return BatchTag(key_of(batch_id), attempt, environment)


def secret_of(key: str, account_key: str) -> bytes:
    """The key that signs custom ids: the deployment's key, or one derived from the account."""
    return (key or f"hf1:{account_key}").encode()


def custom_id(secret: bytes, batch_id: str, index: int, job_id: str, attempt: int) -> str:
    """The id of an item at the provider, bound to its place and its job. It reveals no id."""
    said = f"{batch_id}|{index}|{job_id}|{attempt}".encode()
    mac = hmac.digest(secret, said, "sha256").hex()[:8]
    return f"hf1_{key_of(batch_id)[:16]}_{_base36(index)}_{mac}"


def place_in(custom_id: str) -> int | None:
    """The place in its batch that a custom id names; None if it is not one of Holdfast."""
    found = _CUSTOM_ID.fullmatch(custom_id)
    place = -1 if found is None else int(found[1], 36)
    return place if 0 <= place < _NO_PLACE else None


_CUSTOM_ID = re.compile(r"hf1_[a-z2-7]{16}_([0-9a-z]{1,8})_[0-9a-f]{8}")
# Beyond the column of the place.
_NO_PLACE = 2**31


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def unit_of_item(job: Claimed) -> str:
    """The unit that must not be paid for twice: the job's execution unit, or the job itself."""
    return job.unit_key or job.id


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The common properties of all items of one batch."""

    account: str
    provider: str
    adapter_kind: str
    model: str
    group_key: str
    # The maximum number of items, if one of them may have made its last batch fail.
    most_items: int | None = None
    # The tenant, if answers cannot be distinguished between tenants.
    org_id: str | None = None

    @property
    def reserve(self) -> tuple[str, str]:
        """The account and model whose enqueued tokens a batch uses."""
        return self.account, self.model


def batch_key_of(
    route: Route,
    account: Account,
    *,
    merge: bool,
    most_items: int | None = None,
    org_id: str | None = None,
) -> BatchKey:
    """The key of the batch that a request belongs to."""
    shared = Route(route.provider, route.adapter_kind, route.model) if merge else route
    return BatchKey(
        account.key,
        route.provider,
        route.adapter_kind,
        route.model,
        shared.group_key,
        most_items,
        org_id,
    )


def smaller_batch_size(items: int, attempts: int) -> int:
    """Return how many items the next batch may have after a batch of *items* failed as a whole.

    At most half, and few enough that the bad item is alone by the last of *attempts*: 50,000 items
    and 5 attempts give 50,000, 3,343, 223, 14 and 1.
    """
    return max(1, min(items // 2, int(items ** (1 - 1 / attempts))))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that is ready to be placed: its size and its maximum cost, without its text."""

    job: Claimed
    key: BatchKey
    group_key: str
    limits: Limits
    size: int
    input_tokens: int
    echo: str
    reserve_pico: int | None
    schema_hash: str | None = None

    @property
    def unit(self) -> tuple[str, str, str]:
        return self.job.org_id, self.job.job_type, unit_of_item(self.job)


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch that may accept more items."""

    id: str
    key: BatchKey
    fence: int = 1
    items: int = 0
    bytes: int = 0
    input_tokens: int = 0

    def takes(self, wanted: Wanted) -> bool:
        """Whether it has room for one more."""
        limits = wanted.limits
        most = min(limits.max_items, self.key.most_items or limits.max_items)
        return self.items < most and self.bytes + wanted.size <= limits.max_bytes

    def plus(self, wanted: Wanted) -> Draft:
        return replace(
            self,
            items=self.items + 1,
            bytes=self.bytes + wanted.size,
            input_tokens=self.input_tokens + wanted.input_tokens,
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """An item and its place."""

    wanted: Wanted
    batch_id: str
    index: int


@dataclass(slots=True)
class Placement:
    """The places of the requests of one page, in new and existing batches."""

    placed: list[Placed] = field(default_factory=list)
    overflow: list[Wanted] = field(default_factory=list)
    # The batches that accept more items, and the full ones, as they are after this page.
    drafts: dict[BatchKey, Draft] = field(default_factory=dict)
    full: list[Draft] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)

    @property
    def changed(self) -> list[Draft]:
        """The batches that received an item."""
        touched = {place.batch_id for place in self.placed}
        return [draft for draft in (*self.full, *self.drafts.values()) if draft.id in touched]


def place(
    wanted: Sequence[Wanted],
    drafts: Mapping[BatchKey, Draft],
    taken: Mapping[tuple[str, str], int],
    ids: Iterator[str],
) -> Placement:
    """Place every request in a batch, up to the token limit of the account.

    *taken* are the tokens that open batches of an account and model use already.
    """
    found = Placement(drafts=dict(drafts))
    left: dict[tuple[str, str], int] = {}
    for one in wanted:
        limit = one.limits.enqueued_tokens
        key = one.key.reserve
        if limit is not None:
            room = left.setdefault(key, limit - taken.get(key, 0))
            if one.input_tokens > room:
                found.overflow.append(one)
                continue
            left[key] = room - one.input_tokens
        draft = found.drafts.get(one.key)
        if draft is not None and not draft.takes(one):
            found.full.append(draft)
            draft = None
        if draft is None:
            draft = Draft(next(ids), one.key)
            found.begun.add(draft.id)
        found.placed.append(Placed(one, draft.id, draft.items))
        found.drafts[one.key] = draft.plus(one)
    return found


def fits_nowhere(size: int, input_tokens: int, limits: Limits) -> bool:
    """Whether a request is too large for any batch of its account."""
    most_tokens = limits.enqueued_tokens
    return size > min(limits.max_line_bytes, limits.max_bytes) or (
        most_tokens is not None and input_tokens > most_tokens
    )
