"""An account at a provider: base URL, credential and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast_llm.provider.adapter import Adapter, Capabilities, Limits, ProviderClient
from holdfast_llm.provider.route import Route


@dataclass(frozen=True, slots=True)
class Account:
    """One credential at one base URL.

    *key* identifies it without revealing the credential: provider, URL and a short hash.
    """

    key: str
    provider: str
    base_url: str
    adapter: Adapter
    limits: Limits
    capabilities: Capabilities
    client: ProviderClient


class Accounts(Protocol):
    """The accounts of a deployment."""

    def for_route(self, route: Route) -> Account:
        """Return the account for the requests of a route. Raises ConfigError if there is none."""

    def by_key(self, key: str) -> Account | None:
        """Return the account with that key; None if its credential or URL has changed."""

    def in_place_of(self, key: str) -> Account | None:
        """Return the account with the same URL as that one, possibly with another credential."""
