"""Loading settings: arguments first, then the environment, holdfast.toml and defaults.

All problems are collected and raised at once, each with its location and remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from holdfast.config.extensions import built_in_run, known_sections
from holdfast.config.setting_type import SettingType, UnfitSettings, error_message, is_valid
from holdfast.config.settings import Settings
from holdfast.errors import ConfigError

CONFIG_FILE = "holdfast.toml"

Place = tuple[str, ...]


class From(StrEnum):
    """The kind of source of a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a value: a file and line, a variable or an option."""

    kind: From
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.kind.value


DEFAULT = Origin(From.DEFAULT)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the origin of each value that is not a default."""

    settings: Settings
    origins: Mapping[Place, Origin]
    ignored: tuple[str, ...] = ()


def load(
    *,
    db: str | None = None,
    app: str | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Load all settings. Raises ConfigError with every problem."""
    env = os.environ if env is None else env
    reading = _Reading()
    path = file if file is not None else _chosen_file(env)
    tree = {} if path is None else _read_file(path)
    lines = {} if path is None else _lines(path.read_text(encoding="utf-8"))
    for place, value in _leaves(tree):
        reading.put(place, value, Origin(From.FILE, _where(path, place, lines)))
    for place in _branches(tree):
        reading.branches[place] = Origin(From.FILE, _where(path, place, lines))
    variables = {name: (place, kind) for name, place, kind in _plain_variables(Settings)}
    if any(name.startswith("HOLDFAST_") and name not in variables for name in env):
        variables |= {name: (place, kind) for name, place, kind in _variables()}
    for name, (place, kind) in variables.items():
        if name in env:
            reading.put_text(place, env[name], kind, Origin(From.ENVIRONMENT, name))
    for option, given in (("db", db), ("app", app)):
        if given is not None:
            reading.put((option,), given, Origin(From.ARGUMENT, f"--{option}"))
    settings = reading.settings()
    known = {*_OTHER_VARIABLES, *variables}
    ignored = sorted(name for name in env if name.startswith("HOLDFAST_") and name not in known)
    return Loaded(settings, {p: o for p, (_, o) in reading.found.items()}, tuple(ignored))


# The settings file, and development mode, which no settings file can turn on.
_OTHER_VARIABLES = ("HOLDFAST_CONFIG", "HOLDFAST_DEV")


def _chosen_file(env: Mapping[str, str]) -> Path | None:
    named = env.get("HOLDFAST_CONFIG")
    if named is not None:
        return Path(named) if named else None
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None


def _read_file(path: Path) -> dict[str, Any]:
    # Most commands have no file to read.
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise ConfigError(f"The settings file {path} does not exist.") from exc
    except OSError as exc:
        raise ConfigError(f"The settings file {path} cannot be read: {exc.strerror}.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc


# -- structure of the settings


def variable_names() -> list[str]:
    """Return every environment variable that is read."""
    return [*_OTHER_VARIABLES, *(name for name, _, _ in _variables())]


def _variables() -> Iterator[tuple[str, Place, SettingType]]:
    """Yield the variables of the plain settings and of the sections that exist once."""
    yield from _plain_variables(Settings)
    for name, item in known_sections().items():
        if section := item.metadata.get("section"):
            yield from _plain_variables(section, (name,))


def _plain_variables(section: type, above: Place = ()) -> Iterator[tuple[str, Place, SettingType]]:
    for place, kind in _plain(section, above):
        yield "HOLDFAST_" + "_".join(place).upper(), place, kind


def _plain(section: type, above: Place) -> Iterator[tuple[Place, SettingType]]:
    for item in fields(section):
        if inner := item.metadata.get("section"):
            yield from _plain(inner, (*above, item.name))
        elif (kind := item.metadata.get("kind")) is not None and "rows" not in item.metadata:
            yield (*above, item.name), kind


def _leaves(tree: Mapping[str, Any], above: Place = ()) -> Iterator[tuple[Place, Any]]:
    for name, value in tree.items():
        place = (*above, name)
        if isinstance(value, dict) and len(place) <= _depth(place):
            yield from _leaves(value, place)
        else:
            yield place, value


def _branches(tree: Mapping[str, Any], above: Place = ()) -> Iterator[Place]:
    for name, value in tree.items():
        place = (*above, name)
        if isinstance(value, dict) and len(place) <= _depth(place):
            yield place
            yield from _branches(value, place)


def _depth(place: Place) -> int:
    """Return how many names of a place are sections and not values."""
    item = Settings.__dataclass_fields__.get(place[0]) or known_sections().get(place[0])
    if item is None or "kind" in item.metadata or "sections" in item.metadata:
        return 0
    if "table" in item.metadata:
        return 2
    return _section_depth(item.metadata["section"], place)


def _section_depth(section: type, place: Place) -> int:
    inner = section.__dataclass_fields__.get(place[1]) if place[1:] else None  # type: ignore[attr-defined]
    return 2 if inner is not None and "section" in inner.metadata else 1


@dataclass(slots=True)
class _Reading:
    """Converts raw values to settings."""

    found: dict[Place, tuple[Any, Origin]] = field(default_factory=dict)
    branches: dict[Place, Origin] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, place: Place, value: Any, origin: Origin) -> None:
        self.found[place] = (value, origin)

    def put_text(self, place: Place, text: str, kind: SettingType, origin: Origin) -> None:
        try:
            self.put(place, kind.parse(text), origin)
        except ValueError:
            self.problems.append(error_message(origin.where, text, kind))

    def settings(self) -> Settings:
        values: dict[str, Any] = {}
        known = {item.name: item for item in fields(Settings) if "sections" not in item.metadata}
        for name in {place[0]: None for place in (*self.found, *sorted(self.branches))}:
            item = known.get(name)
            into = values if item is not None else values.setdefault("sections", {})
            item = item or known_sections().get(name)
            if item is None:
                self._unknown((name,), [*known, *known_sections()])
            elif "rows" in item.metadata:
                into[name] = self._rows((name,), item.metadata["rows"])
            elif "kind" in item.metadata:
                self._read((name,), item.metadata["kind"], into)
            elif "section" in item.metadata:
                into[name] = self._section((name,), item.metadata["section"], {})
            else:
                into[name] = self._table(name, item.metadata)
        self._refuse()
        made: Settings = self._make((), Settings, values)
        return made

    def _table(self, name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        made = {}
        if (name,) in self.found:
            self._complain((name,), f"must be a table: [{name}.NAME]")
            return {}
        for inner in sorted(place[1] for place in self._under((name,)) if len(place) == 2):
            if (name, inner) in self.found:
                self._complain((name, inner), f"must be a table: [{spell((name, inner))}]")
            elif not is_valid(metadata["names"], inner):
                self._complain(
                    (name, inner), f"is not a valid name: it must be {metadata['names'].must}"
                )
            else:
                built_in = metadata["built_in"].get(inner)
                if built_in is None and name == "runs":
                    built_in = built_in_run(inner)
                if (section := self._class_of((name, inner), metadata)) is not None:
                    start = {
                        item.name: getattr(built_in, item.name)
                        for item in fields(section)
                        if hasattr(built_in, item.name)
                    }
                    made[inner] = self._section((name, inner), section, start)
        return made

    def _class_of(self, place: Place, metadata: Mapping[str, Any]) -> type | None:
        """Return the class of a table's section; None if its key ``kind`` names none."""
        decide: Callable[[object], type | str] | None = metadata["class_of_kind"]
        at = (*place, "kind")
        if decide is None or at not in self.found:
            found: type = metadata["table"]
            return found
        given, _ = self.found[at]
        decided = decide(given)
        if isinstance(decided, str):
            self._complain(at, f"= {given!r} {decided}")
            return None
        return decided

    def _section(self, place: Place, kind: type, start: dict[str, Any]) -> Any:
        if place in self.found:
            self._complain(place, f"must be a table: [{spell(place)}]")
            return None
        known = {item.name: item for item in fields(kind)}
        values, before = dict(start), len(self.problems)
        for inner in self._under(place):
            item = known.get(inner[-1])
            if item is None:
                self._unknown(inner, known)
            elif "rows" in item.metadata:
                values[item.name] = self._rows(inner, item.metadata["rows"])
            elif "section" in item.metadata:
                values[item.name] = self._section(inner, item.metadata["section"], {})
            else:
                self._read(inner, item.metadata["kind"], values)
        return self._make(place, kind, values) if len(self.problems) == before else None

    def _rows(self, place: Place, kind: type) -> tuple[Any, ...]:
        tables, origin = self.found[place]
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._complain(place, f"must be tables: [[{spell(place)}]]")
            return ()
        made = []
        for number, table in enumerate(tables, 1):
            inner = _Reading(
                {(*place, name): (value, origin) for name, value in table.items()},
                {place: origin},
            )
            made.append(inner._section(place, kind, {}))
            word = place[-1].removesuffix("s")
            self.problems += [f"{problem} ({word} {number})" for problem in inner.problems]
        return tuple(made)

    def _under(self, place: Place) -> list[Place]:
        """Return the places directly below *place*, in file order."""
        below = {p[: len(place) + 1]: None for p in (*self.found, *sorted(self.branches))}
        return [p for p in below if p[:-1] == place]

    def _read(self, place: Place, kind: SettingType, into: dict[str, Any]) -> None:
        value, _ = self.found[place]
        try:
            read = kind.read(value)
        except (TypeError, ValueError, AttributeError):
            read = None
        if read is not None and is_valid(kind, read):
            into[place[-1]] = read
        else:
            said = error_message(spell(place), value, kind).removeprefix(spell(place))
            self._complain(place, said.strip())

    def _make(self, place: Place, kind: type, values: dict[str, Any]) -> Any:
        try:
            return kind(**values)
        except UnfitSettings as exc:
            for problem in exc.problems:
                self.problems.append(
                    f"{self._first_below(place)}: [{spell(place)}] {problem}"
                    if place
                    else self._located(problem)
                )
            if not place:
                self._refuse()
        return None

    def _located(self, problem: str) -> str:
        """Return a problem of several settings, with the location of the one that it names."""
        origins = {**self.branches, **{place: origin for place, (_, origin) in self.found.items()}}
        named = (
            place for place in origins if re.match(rf"{re.escape(spell(place))}[ .:]", problem)
        )
        place = max(named, key=len, default=None)
        return problem if place is None else f"{origins[place]}: {problem}"

    def _unknown(self, place: Place, known: Collection[str]) -> None:
        import difflib

        near = [
            *difflib.get_close_matches(place[-1], known, n=1),
            *(name for name in known if name.startswith(place[-1])),
        ]
        mend = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
        self._complain(place, f"is an unknown key; {mend}")

    def _complain(self, place: Place, what: str) -> None:
        origin = self.found[place][1] if place in self.found else self._first_below(place)
        self.problems.append(f"{origin}: {spell(place)} {what}")

    def _first_below(self, place: Place) -> Origin:
        if place in self.branches:
            return self.branches[place]
        below = (o for p, (_, o) in self.found.items() if p[: len(place)] == place)
        return next(below, Origin(From.FILE, CONFIG_FILE))

    def _refuse(self) -> None:
        if self.problems:
            listed = "".join(f"\n  {problem}" for problem in self.problems)
            raise ConfigError(f"Invalid settings:{listed}")


# -- location of a value in its file


def spell(place: Place) -> str:
    """Return the place in TOML notation."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in place)


def _where(path: Path | None, place: Place, lines: Mapping[Place, int]) -> str:
    line = min((at for found, at in lines.items() if found[: len(place)] == place), default=None)
    # A value in an inline table is on the line of the table.
    above = [lines[place[:depth]] for depth in range(1, len(place)) if place[:depth] in lines]
    line = line or (above[-1] if above else None)
    return f"{path}:{line}" if line else str(path)


_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _lines(text: str) -> dict[Place, int]:
    """Return the line of each key, for display. Keys that cannot be located are left out."""
    found: dict[Place, int] = {}
    above: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            above = _place_of(f"[{header[2]}]")
            found.setdefault(above, number)
        elif key := _KEY.match(line):
            found.setdefault((*above, *_place_of(f"{key[1]} = 0")), number)
    return found


def _place_of(line: str) -> Place:
    import tomllib

    try:
        tree: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    place: Place = ()
    while isinstance(tree, dict) and tree:
        name, tree = next(iter(tree.items()))
        place = (*place, name)
    return place
