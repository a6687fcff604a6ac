"""The provider: a server that implements OpenAI's chat API with its own key and address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

from holdfast import SettingType, setting
from holdfast_llm import CommonProviderSettings, Limits, OpenAICompatible

LIMITS = Limits(max_items=1_000, max_bytes=10_000_000)
WARD = SettingType("the name of a ward", lambda value: isinstance(value, str) and value.isalnum())


@dataclass(frozen=True, slots=True)
class PagerChatSettings(CommonProviderSettings):
    """The keys of ``[providers.NAME]`` with ``kind = "pager_chat"``."""

    ward: str = setting("all", WARD)


@dataclass(frozen=True, slots=True)
class PagerChat(OpenAICompatible):
    """The provider kind that the entry point registers."""

    kind: str = "pager_chat"
    base_url: str = "https://llm.pager.example/v1"
    limits: Limits = LIMITS
    ward: str = "all"

    settings = PagerChatSettings

    def problem(self, settings: Any) -> str | None:
        """Accept addresses of the hospital only."""
        host = urlsplit(settings.base_url).hostname or ""
        if settings.allow_private or host.endswith(".pager.example"):
            return None
        return "base_url must be in pager.example"

    def configured(self, settings: Any) -> Self:
        """Send the ward of the settings."""
        return replace(self, ward=settings.ward)

    def headers(self, credential: str) -> dict[str, str]:
        """Send the ward with every call."""
        return {**OpenAICompatible.headers(self, credential), "x-ward": self.ward}
