"""Kinds of channels and providers, registered by installed distributions as entry points.

The names are known without importing anything. A kind is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

CHANNELS = "holdfast.channels"
PROVIDERS = "holdfast.providers"


class Registered(Mapping[str, Any]):
    """The entry points of one group by name, with the objects that they refer to as values."""

    def __init__(self, group: str, word: str, points: Iterable[EntryPoint]) -> None:
        self._word = word
        self._points: dict[str, EntryPoint] = {}
        self._loaded: dict[str, Any] = {}
        for point in points:
            other = self._points.setdefault(point.name, point)
            if other is not point:
                raise ConfigError(
                    f"Two distributions register the {word} {point.name!r} in {group}:"
                    f" {_distribution(other)} ({other.value}) and {_distribution(point)}"
                    f" ({point.value}). Remove one of them."
                )

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._points))

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._load(self._points[name])
        return self._loaded[name]

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()()
        except Exception as exc:
            raise ConfigError(
                f"The {self._word} {point.name!r} ({point.value}, from {_distribution(point)})"
                f" cannot be loaded: {type(exc).__name__}: {exc}"
            ) from exc


def _distribution(point: EntryPoint) -> str:
    return "an unknown distribution" if point.dist is None else point.dist.name


def _points(group: str) -> Iterable[EntryPoint]:
    # Imported on first use, because it takes as long as all of the settings.
    from importlib.metadata import entry_points

    return entry_points(group=group)


@cache
def channel_kinds() -> Registered:
    """Return the kinds for ``[channels.NAME]``."""
    return Registered(CHANNELS, "channel kind", _points(CHANNELS))


@cache
def provider_kinds() -> Registered:
    """Return the adapters for routes."""
    return Registered(PROVIDERS, "provider", _points(PROVIDERS))
