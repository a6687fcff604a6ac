"""Reach: the account through which a batch that is at a provider can be asked about.

A key that was rotated is another account to us, and may be the same one to the provider. Whoever
shows the batch has it.
"""

from __future__ import annotations

from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure


def reach(
    lane: BatchLane, account_key: str, batch_id: str, provider_batch_id: str | None
) -> Account | None:
    """The account of a batch, or the one in its place if the provider shows it the batch."""
    account = lane.accounts.by_key(account_key)
    if account is not None or provider_batch_id is None:
        return account
    other = lane.accounts.in_place_of(account_key)
    if other is None:
        return None
    try:
        seen = other.adapter.get(other.wire, provider_batch_id)
    except (ProviderRefused, ProviderUnsure):
        return None
    return other if seen.key in (None, key_of(batch_id)) else None
