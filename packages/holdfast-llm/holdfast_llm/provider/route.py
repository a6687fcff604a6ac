"""The destination of a model request, fixed at enqueue and equal on every attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any


class ExecutionMode(StrEnum):
    """How a request is executed: in a provider batch, or by a direct call."""

    BATCH = "batch"
    ASYNC = "async"


# The fields that must be equal for items that share a batch.
GROUP = (
    "provider",
    "model",
    "prompt_version",
    "policy_version",
    "execution_mode",
    "lane",
    "source_locale",
    "target_locale",
)


@dataclass(frozen=True, slots=True)
class Route:
    """A routing decision: provider, adapter, model, versions, mode, lane and locales."""

    provider: str
    """Provider of `[providers.NAME]`."""
    adapter_kind: str
    """Adapter for the provider's API, such as `openai_responses`."""
    model: str
    """Model name."""
    base_url: str | None = None
    """Base URL; it must be the provider's own."""
    prompt_version: str = ""
    """Version of the prompt."""
    policy_version: str = ""
    """Version of the policy."""
    execution_mode: ExecutionMode = ExecutionMode.BATCH
    """`batch` or `async`."""
    lane: str = ""
    """Language lane, if the application has one."""
    source_locale: str = ""
    """Language of the input."""
    target_locale: str = ""
    """Language of the output."""
    max_retries: int | None = None
    """Number of retries; None for the default of the job type."""

    @classmethod
    def read(cls, decision: Mapping[str, Any]) -> Route:
        """Parse a stored or given decision. Unknown fields are ignored.

        Raises ValueError that names the wrong field.
        """
        found: dict[str, Any] = {}
        for item in fields(cls):
            value = decision.get(item.name)
            if value in (None, ""):
                if item.name in ("provider", "adapter_kind", "model"):
                    raise ValueError(f"needs {item.name}")
                continue
            _check(item.name, value)
            found[item.name] = value
        if "execution_mode" in found:
            if found["execution_mode"] not in tuple(ExecutionMode):
                raise ValueError("execution_mode must be batch or async")
            found["execution_mode"] = ExecutionMode(found["execution_mode"])
        return cls(**found)

    @property
    def decision(self) -> dict[str, Any]:
        """Return the route as a document."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in found.items() if value not in (None, "")}

    @property
    def group_key(self) -> str:
        """A key that is equal for requests that may share a batch."""
        return _join(tuple([str(getattr(self, name)) for name in GROUP]))

    @property
    def max_attempts(self) -> int | None:
        """The number of attempts that the route allows, the first included."""
        return None if self.max_retries is None else self.max_retries + 1


@lru_cache(maxsize=1024)
def _join(parts: tuple[str, ...]) -> str:
    return "|".join(part.replace("\\", "\\\\").replace("|", "\\|") for part in parts)


def _check(name: str, value: object) -> None:
    if name == "max_retries":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 99:
            raise ValueError("max_retries must be a whole number from 0 to 99")
    elif not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise ValueError(f"{name} must be text of 1 to 200 printable characters")
