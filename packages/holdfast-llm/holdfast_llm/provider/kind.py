"""ProviderKind: the part of an adapter that defines its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from holdfast_llm.settings import CommonProviderSettings, ProviderSettings


class ProviderKind:
    """The settings of one kind of provider. Adapters subclass it.

    A distribution registers an adapter in the entry point group ``holdfast.providers``. The name of
    the entry point is the adapter's ``kind``.
    """

    __slots__ = ()

    settings: ClassVar[type[CommonProviderSettings]] = CommonProviderSettings
    """The keys of ``[providers.NAME]`` with this ``kind``."""

    def problem(self, settings: Any) -> str | None:
        """Why these settings cannot be used, such as a wrong URL; None if they can.

        It is called when settings are loaded, without the credential. The answer must not repeat
        the URL.
        """
        return None

    def configured(self, settings: Any) -> Self:
        """The adapter with these settings applied."""
        return self


class VersionedProviderKind(ProviderKind):
    """A provider with a versioned API; the adapter has the field ``api_version``."""

    __slots__ = ()

    settings = ProviderSettings

    def configured(self, settings: Any) -> Self:
        """The adapter for the configured API version."""
        if settings.api_version is None:
            return self
        changed: Self = replace(self, api_version=settings.api_version)  # type: ignore[type-var]
        return changed
