"""The settings in force, one row each, with their origin. Secrets are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any

from holdfast.clock import ms
from holdfast.config.extensions import known_sections
from holdfast.config.load import DEFAULT, Loaded, Place, spell
from holdfast.config.setting_type import Cadence, Rate, SettingType
from holdfast.config.settings import Settings
from holdfast.cron import write_every
from holdfast.secret import hide_passwords

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting for display."""

    key: str
    value: Any
    source: str
    where: str


def show(loaded: Loaded) -> list[Shown]:
    """Return every setting in force, in the order of the shipped file."""
    return [
        Shown(spell(place), value, *_source(loaded, place))
        for place, value in _values(loaded.settings)
    ]


def _values(settings: Settings) -> Iterator[tuple[Place, Any]]:
    known = {item.name: item for item in fields(settings) if "sections" not in item.metadata}
    for name, item in {**known, **known_sections()}.items():
        value = getattr(settings, name)
        if "kind" in item.metadata:
            yield (name,), _plain(value, item.metadata["kind"])
        elif "section" in item.metadata:
            yield from _section((name,), value)
        elif name == "runs":
            for inner in sorted(value):
                yield from _run(settings, inner)
        else:
            for inner in sorted(value):
                yield from _section((name, inner), value[inner])


def _section(place: Place, section: Any) -> Iterator[tuple[Place, Any]]:
    for item in fields(section):
        value = getattr(section, item.name)
        if "section" in item.metadata:
            yield from _section((*place, item.name), value)
        else:
            yield (*place, item.name), _plain(value, item.metadata.get("kind"))


def _run(settings: Settings, name: str) -> Iterator[tuple[Place, Any]]:
    """Yield the effective values of a run, including those of its profile."""
    run, effective = settings.runs[name], settings.run_of(name)
    for item in fields(run):
        value = getattr(effective, item.name, getattr(run, item.name))
        if item.name == "profile":
            value = run.profile or settings.profile
        yield ("runs", name, item.name), _plain(value, item.metadata["kind"])


def _source(loaded: Loaded, place: Place) -> tuple[str, str]:
    origin = loaded.origins.get(place)
    if origin is not None:
        return origin.kind.value, origin.where
    if place[0] == "runs" and place[2] in loaded.settings.profiles["example"].__slots__:
        return "profile", loaded.settings.runs[place[1]].profile or loaded.settings.profile
    return DEFAULT.kind.value, DEFAULT.where


def _plain(value: Any, kind: SettingType | None) -> Any:
    """Return *value* for JSON; a secret and the password of an address are hidden."""
    if isinstance(value, str):
        if kind is not None and kind.is_secret:
            return HIDDEN if value else ""
        return hide_passwords(value)
    if isinstance(value, (Rate, Cadence)):
        return str(value)
    if isinstance(value, timedelta):
        return write_every(ms(value))
    if isinstance(value, (tuple, list)):
        return [_plain(item, None) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item, None) for name, item in value.items()}
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), None) for item in fields(value)}
    return value
