"""Templates: text with placeholders for data, without executable code. Pure.

    {{ name }} {{ person.name }}     a value; {{ . }} is the item of the surrounding list
    {{# items }} … {{/ items }}      once per item, or once if it is a non-empty value
    {{^ items }} … {{/ items }}      only if it is empty

Templates are validated when they are declared, independent of the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from holdfast.errors import ConfigError, NotFound
from holdfast.outbox.markup import Place, Reading, Unsafe

LONGEST_SOURCE = 200_000
DEEPEST = 8

NAME = re.compile(r"[a-z][a-z0-9_.]{0,99}")
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"\.|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
# After this many repetitions, a section has reached every tokenizer state it can reach.
_PASSES = 4


class UnknownTemplate(NotFound):
    """No template of this name is declared. Declare it with `hf.outbox.template(…)`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"No template {name[:100]!r} is declared. Declare it with hf.outbox.template(…)."
        )


@dataclass(frozen=True, slots=True)
class Value:
    """A placeholder for a value. *is_address* if the value is used as a URL."""

    path: tuple[str, ...]
    is_address: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part that repeats for each item, or appears if a value is non-empty (inverted: empty)."""

    path: tuple[str, ...]
    is_inverted: bool
    parts: Parts


Parts = tuple["str | Value | Section", ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A message template: a subject, a text and optional HTML."""

    name: str
    subject: Parts = field(repr=False)
    text: Parts = field(repr=False)
    html: Parts | None = field(default=None, repr=False)

    @classmethod
    def read(cls, name: str, *, subject: str, text: str, html: str | None = None) -> Template:
        """Parse the sources. Raises ConfigError for a template that can never be rendered."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                f"Template {str(name)[:100]!r}: a name is up to 100 of a-z, 0-9, '.' and '_'."
            )
        if isinstance(subject, str) and not (subject.strip() and subject.isprintable()):
            raise ConfigError(f"Template {name!r}: subject must be one line that is not empty.")
        return cls(
            name,
            _parse(f"Template {name!r}: subject", subject),
            _parse(f"Template {name!r}: text", text),
            None if html is None else _parse_html(f"Template {name!r}: html", html),
        )


class Templates:
    """The templates of one application, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Template] = {}

    def add(self, template: Template) -> None:
        """Add a template. A repeated declaration must be identical."""
        if self._known.setdefault(template.name, template) != template:
            raise ConfigError(
                f"Template {template.name!r} is declared twice with different contents."
            )

    def get(self, name: str) -> Template:
        found = self._known.get(name)
        if found is None:
            raise UnknownTemplate(str(name))
        return found

    def __iter__(self) -> Iterator[Template]:
        return iter(self._known.values())


@dataclass(slots=True)
class _Open:
    """A section that is not closed yet; the outermost has no name."""

    name: str = ""
    is_inverted: bool = False
    parts: list[str | Value | Section] = field(default_factory=list)


def _parse(where: str, source: object) -> Parts:
    if not isinstance(source, str) or len(source) > LONGEST_SOURCE:
        raise ConfigError(f"{where} must be text of at most {LONGEST_SOURCE} characters.")
    opened = [_Open()]
    at = 0
    for tag in _TAG.finditer(source):
        literal = source[at : tag.start()]
        at = tag.end()
        if literal:
            opened[-1].parts.append(literal)
        sign, name = _read_tag(where, tag[1])
        if sign in ("#", "^"):
            if len(opened) > DEEPEST:
                raise ConfigError(f"{where} nests sections more than {DEEPEST} deep.")
            opened.append(_Open(name, sign == "^"))
        elif sign == "/":
            _close(where, opened, name)
        else:
            opened[-1].parts.append(Value(_path(name)))
    rest = source[at:]
    if len(opened) > 1:
        raise ConfigError(f"{where}: {{{{# {opened[-1].name} }}}} is never closed.")
    if "{{" in rest or "}}" in _TAG.sub("", source):
        raise ConfigError(f"{where} has unbalanced braces.")
    return (*opened[0].parts, rest) if rest else tuple(opened[0].parts)


def _read_tag(where: str, inner: str) -> tuple[str, str]:
    inner = inner.strip()
    sign = inner[0] if inner[:1] in ("#", "^", "/") else ""
    name = inner[len(sign) :].strip()
    if not _PATH.fullmatch(name):
        says = "a value is named like 'person.name'; nothing is computed in a template"
        raise ConfigError(f"{where}: {{{{ {inner[:50]} }}}}: {says}.")
    return sign, name


def _close(where: str, opened: list[_Open], name: str) -> None:
    if len(opened) == 1 or opened[-1].name != name:
        raise ConfigError(f"{where}: {{{{/ {name} }}}} closes a section that is not open.")
    ended = opened.pop()
    opened[-1].parts.append(Section(_path(ended.name), ended.is_inverted, tuple(ended.parts)))


def _path(name: str) -> tuple[str, ...]:
    return () if name == "." else tuple(name.split("."))


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path) or "."


def _parse_html(where: str, source: object) -> Parts:
    parts, readings = _judge(where, _parse(where, source), frozenset({Reading()}))
    if not all(reading.is_outside for reading in readings):
        raise ConfigError(f"{where} ends inside a tag or a comment, or in an element; close it.")
    return parts


def _judge(
    where: str, parts: Parts, readings: frozenset[Reading]
) -> tuple[Parts, frozenset[Reading]]:
    """Return the parts with their URLs marked, and the possible tokenizer states after them.

    A section may be omitted or repeated, so several states are possible. A value must be safe in
    all of them.
    """
    judged: list[str | Value | Section] = []
    for part in parts:
        if isinstance(part, str):
            readings = frozenset(reading.read(part) for reading in readings)
            judged.append(part)
        elif isinstance(part, Value):
            judged.append(_judge_value(f"{where}: {{{{ {_name(part.path)} }}}}", part, readings))
            readings = frozenset(reading.behind_value() for reading in readings)
        else:
            section, readings = _judge_section(where, part, readings)
            judged.append(section)
    return tuple(judged), readings


def _judge_value(where: str, value: Value, readings: frozenset[Reading]) -> Value:
    try:
        places = {reading.place for reading in readings}
    except Unsafe as exc:
        raise ConfigError(f"{where} {exc}.") from None
    is_address = Place.ADDRESS in places
    if Place.CONTINUED in places and not is_address:
        raise ConfigError(
            f"{where} follows another value in a URL and could change its host; put a slash"
            " between them."
        )
    return replace(value, is_address=is_address)


def _judge_section(
    where: str, section: Section, readings: frozenset[Reading]
) -> tuple[Section, frozenset[Reading]]:
    for _ in range(_PASSES):
        parts, ended = _judge(where, section.parts, readings)
        is_known = ended <= readings
        readings |= ended
        # An inverted section is rendered once.
        if is_known or section.is_inverted:
            return replace(section, parts=parts), readings
    raise ConfigError(
        f"{where}: {{{{# {_name(section.path)} }}}} leaves a tag or a URL incomplete; open and"
        " close it in the same section."
    )
