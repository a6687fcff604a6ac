"""All adapters, by the kind that a route names. Distributions register them as entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.config.registered import provider_kinds
from holdfast.errors import ConfigError
from holdfast_llm.provider.http_client import HttpAdapter


class Adapters(Mapping[str, HttpAdapter]):
    """The adapters of the group ``holdfast.providers``, each imported on first use."""

    def __iter__(self) -> Iterator[str]:
        return iter(provider_kinds())

    def __len__(self) -> int:
        return len(provider_kinds())

    def __contains__(self, kind: object) -> bool:
        return kind in provider_kinds()

    def __getitem__(self, kind: str) -> HttpAdapter:
        found: HttpAdapter = provider_kinds()[kind]
        if found.kind != kind:
            raise ConfigError(
                f"The provider {kind!r} is registered under another name than its kind,"
                f" {found.kind!r}."
            )
        return found


ADAPTERS: Mapping[str, HttpAdapter] = Adapters()
