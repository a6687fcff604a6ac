"""The configured accounts, each with one base URL and one credential."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from holdfast.clock import Clock
from holdfast.config import Settings
from holdfast.errors import ConfigError
from holdfast.outbound.client import Timeouts
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Capabilities, Limits, Lookup
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.credential import read_credential
from holdfast_llm.provider.http_client import HttpAdapter, open_client
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import CommonProviderSettings

# Replaces the credential of a server that needs none.
OPEN = "open"


class ConfiguredAccounts:
    """Accounts from ``[providers.NAME]``. Safe to share between threads.

    A credential is read when its account is first needed, and kept as long as this object.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._env = os.environ if env is None else env
        self._clock = clock
        self._made: dict[tuple[str, str], Account] = {}
        self._lock = threading.Lock()

    def for_route(self, route: Route) -> Account:
        """Return the account for the requests of a route. Raises ConfigError if there is none."""
        provider = self._settings.providers.get(route.provider)
        if provider is None:
            known = ", ".join(sorted(self._settings.providers))
            raise ConfigError(
                f"Provider {route.provider!r} is not declared: add [providers.{route.provider}] to"
                f" holdfast.toml. Declared: {known}."
            )
        if route.base_url is not None and not is_same(route.base_url, provider.base_url):
            raise ConfigError(
                f"A job's route has another base URL than providers.{route.provider}.base_url, and"
                " credentials are sent only to that URL. Declare a provider for the other URL."
            )
        return self._account(route.provider, route.adapter_kind)

    def by_key(self, key: str) -> Account | None:
        """Return the account with that key; None if its credential or URL has changed."""
        found = self.in_place_of(key)
        return found if found is not None and found.key == key else None

    def in_place_of(self, key: str) -> Account | None:
        """Return the account with the same URL as that one, possibly with another credential."""
        name, _, rest = key.partition("|")
        kind, _, _ = rest.partition("|")
        if name not in self._settings.providers or kind not in ADAPTERS:
            return None
        try:
            found = self._account(name, kind)
        except ConfigError:
            # Its credential is missing here. A process that has it finds the batch.
            return None
        return found if key.startswith(_place_of(found.key)) else None

    def _account(self, name: str, kind: str) -> Account:
        with self._lock:
            if (name, kind) not in self._made:
                self._made[name, kind] = self._make(name, kind)
            return self._made[name, kind]

    def _make(self, name: str, kind: str) -> Account:
        provider = self._settings.providers[name]
        adapter = adapter_of(name, provider, kind)
        credential = read_credential(name, provider, self._env)
        who = provider.account or (OPEN if credential is None else credential.digest)
        client = open_client(
            adapter,
            provider.base_url,
            "" if credential is None else credential.reveal(),
            allow_private=provider.allow_private,
            timeouts=Timeouts(connect=provider.connect_seconds, read=provider.read_seconds),
            clock=self._clock,
        )
        return Account(
            "|".join((name, kind, provider.base_url.rstrip("/"), who)),
            name,
            provider.base_url,
            adapter,
            limits_of(provider, adapter.limits),
            capabilities_of(provider, adapter.capabilities),
            client,
        )


def adapter_of(name: str, provider: CommonProviderSettings, kind: str) -> HttpAdapter:
    """The adapter of that kind, configured with the settings of the provider."""
    adapter: Any = ADAPTERS.get(kind)
    if adapter is None:
        raise ConfigError(
            f"A job's route names the unknown adapter {kind!r}. Known adapters:"
            f" {', '.join(sorted(ADAPTERS))}."
        )
    if provider.kind not in (None, kind):
        raise ConfigError(
            f"A job is routed to the provider {name!r} through the adapter {kind!r}, but "
            f"providers.{name}.kind is {provider.kind!r}."
        )
    if not isinstance(provider, adapter.settings):
        raise ConfigError(
            f'The adapter {kind} has settings of its own: set providers.{name}.kind = "{kind}".'
        )
    version = getattr(provider, "api_version", None)
    if version is not None and not hasattr(adapter, "api_version"):
        raise ConfigError(
            f"The adapter {kind} knows one version of its API only; leave "
            f"providers.{name}.api_version out."
        )
    if says := adapter.problem(provider):
        raise ConfigError(f"The provider {name!r} cannot be used with the adapter {kind}: {says}.")
    found: HttpAdapter = adapter.configured(provider)
    return found


def limits_of(provider: CommonProviderSettings, limits: Limits) -> Limits:
    """The adapter's limits, overridden by the settings of the account."""
    return replace(limits, **_declared(provider, Limits))


def capabilities_of(provider: CommonProviderSettings, capabilities: Capabilities) -> Capabilities:
    """The adapter's capabilities, overridden by the settings of the server."""
    said = _declared(provider, Capabilities)
    if "lookup" in said:
        said["lookup"] = Lookup(said["lookup"])
    return replace(capabilities, **said)


def _declared(provider: CommonProviderSettings, kind: type) -> dict[str, Any]:
    found = ((item.name, getattr(provider, item.name, None)) for item in fields(kind))
    return {name: value for name, value in found if value is not None}


def _place_of(key: str) -> str:
    """The common prefix of account keys with one provider, adapter and URL."""
    return key.rpartition("|")[0] + "|"


def is_same(one: str, other: str) -> bool:
    """Whether two URLs are equal except for a trailing slash."""
    return one.rstrip("/") == other.rstrip("/")
