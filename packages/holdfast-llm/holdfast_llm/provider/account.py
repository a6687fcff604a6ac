"""An account at a provider: where requests go, with which credential, and what may go there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast_llm.provider.adapter import Adapter, Capabilities, Limits, ProviderClient
from holdfast_llm.provider.route import Route


@dataclass(frozen=True, slots=True)
class Account:
    """One credential at one address.

    *key* names it without telling the credential: provider, address and a short hash.
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
        """The account that a route's requests go to; ConfigError if there is none."""

    def by_key(self, key: str) -> Account | None:
        """The account of that key; None where its credential or address is not ours any more."""

    def in_place_of(self, key: str) -> Account | None:
        """The account that stands where that one did: same address, perhaps another credential."""
