"""Installed extensions, found by entry point, and the settings that they declare.

Nothing is imported before a name is needed that the core does not know: a section of the settings
file, a run, a command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from holdfast.config.run import BUILT_IN_RUNS, RunSettings
from holdfast.config.setting_type import Section, section
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdfast.config.settings import Settings

GROUP = "holdfast.extensions"

SettingsItem = type[Section] | Field[Any]
"""A section, or the result of ``table(…)`` or ``rows(…)`` of holdfast.config.setting_type."""


class DeclaresSettings(Protocol):
    """The part of an extension that the settings use."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, SettingsItem]]
    runs: ClassVar[Mapping[str, RunSettings]]
    replaces_runs: ClassVar[Mapping[str, str]]
    nouns: ClassVar[Mapping[str, str]]

    def check_settings(self, settings: Settings) -> Sequence[str]:
        """Return problems of its sections that involve other settings."""


_registered: dict[str, DeclaresSettings] = {}


@lru_cache(maxsize=1)
def installed() -> Mapping[str, Any]:
    """Return the extensions of the installed distributions, by name."""
    from importlib.metadata import entry_points

    found: dict[str, Any] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found[point.name] = point.load()()
        except ModuleNotFoundError as exc:
            # An installation may leave out an extension of the core distribution.
            if not (point.module.startswith("holdfast.") and exc.name in _above(point.module)):
                raise ConfigError(_unloadable(point, exc)) from exc
        except Exception as exc:
            raise ConfigError(_unloadable(point, exc)) from exc
    return found


def _above(module: str) -> list[str]:
    """Return a module and the packages that contain it."""
    names = module.split(".")
    return [".".join(names[:end]) for end in range(1, len(names) + 1)]


def _unloadable(point: EntryPoint, exc: Exception) -> str:
    said = f"{type(exc).__name__}: {exc}"
    return f"The extension {point.name!r} ({point.value}) cannot be loaded: {said}"


def register(extension: DeclaresSettings) -> None:
    """Register the settings of an extension that is enabled without being installed."""
    _registered[extension.name] = extension


def declared() -> Mapping[str, DeclaresSettings]:
    """Return every extension whose settings this process knows."""
    return {**installed(), **_registered}


def known_sections() -> Mapping[str, Field[Any]]:
    """Return the settings of all extensions as fields, by their names in the settings file."""
    return _fields_of(tuple(declared().values()))


@lru_cache(maxsize=1)
def _fields_of(extensions: tuple[DeclaresSettings, ...]) -> Mapping[str, Field[Any]]:
    return {
        name: item if isinstance(item, Field) else section(item)
        for extension in extensions
        for name, item in extension.settings.items()
    }


def default_of(item: Field[Any]) -> Any:
    """Return the default of an extension's setting."""
    return _default_of(item) if "section" in item.metadata else _make_default(item)


# Sections are immutable. Building and validating one took 100 us, for each item of a batch.
@lru_cache(maxsize=256)
def _default_of(item: Field[Any]) -> Any:
    return _make_default(item)


def _make_default(item: Field[Any]) -> Any:
    return item.default_factory() if callable(item.default_factory) else item.default


def known_runs() -> dict[str, RunSettings]:
    """Return the bounded runs of all extensions, with their defaults."""
    return {name: run for extension in declared().values() for name, run in extension.runs.items()}


def built_in_run(name: str) -> RunSettings | None:
    """Return the defaults of a run of the core or of an extension."""
    return BUILT_IN_RUNS.get(name) or known_runs().get(name)


def run_in_use(name: str, runs: Collection[str]) -> str:
    """Return the run in *runs* that does the work of *name*: itself, or its replacement."""
    for extension in declared().values():
        own = extension.replaces_runs.get(name)
        if own in runs:
            return str(own)
    return name
