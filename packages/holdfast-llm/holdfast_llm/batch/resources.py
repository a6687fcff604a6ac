"""The resources of batch processing: the store, the settings and the accounts at providers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from holdfast.clock import ms
from holdfast.config import RunProfile, Settings
from holdfast.engine.handler import Registry
from holdfast.event import Events
from holdfast.ids import IdSource
from holdfast.store import Store
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.price import Prices
from holdfast_llm.provider.account import Account, Accounts
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure


@dataclass(frozen=True, slots=True)
class BatchResources:
    """The parts of an application that batch processing uses."""

    store: Store
    settings: Settings
    registry: Registry
    ids: IdSource
    events: Events
    accounts: Accounts
    rng: random.Random = field(default_factory=random.Random)

    @property
    def prices(self) -> Prices:
        return Prices(self.settings.prices)

    @property
    def overflow_seconds(self) -> float:
        """The pause of a job that a run releases unused."""
        profile = RunProfile(retry_backoff_seconds=tuple(self.registry.backoff_seconds))
        return profile.overflow_seconds

    @property
    def overflow_ms(self) -> int:
        return ms(self.overflow_seconds)

    def resolve_account(
        self, account_key: str, batch_id: str, provider_batch_id: str | None
    ) -> Account | None:
        """The account of a batch, or None if no configured account can read it.

        After a key rotation the account has another key. The batch belongs to the account that
        replaced it if the provider shows the batch to that account.
        """
        account = self.accounts.by_key(account_key)
        if account is not None or provider_batch_id is None:
            return account
        other = self.accounts.in_place_of(account_key)
        if other is None:
            return None
        try:
            seen = other.adapter.get(other.client, provider_batch_id)
        except (ProviderRefused, ProviderUnsure):
            return None
        return other if seen.key in (None, key_of(batch_id)) else None
