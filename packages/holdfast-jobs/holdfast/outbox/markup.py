"""Track the HTML tokenizer's state, to know what a template value may do at a place. Pure.

It follows the tokenizer of the HTML standard. Elements and attributes are on an allow list; all
others take no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

_SPACE = frozenset(" \t\n\r\f")
# Browsers skip these characters at the start of a URL.
_SKIPPED = "".join(map(chr, range(33)))

# Attributes whose URL is displayed, not executed, submitted to or loaded as code.
_ADDRESSES = frozenset(
    {("a", "href"), ("area", "href"), ("img", "src"), ("audio", "src"), ("video", "src")}
    | {("source", "src"), ("video", "poster"), ("blockquote", "cite"), ("q", "cite")}
    | {(tag, "background") for tag in ("body", "table", "tr", "td", "th")}
)
# Attributes with plain text or numbers on every element.
_PLAIN = frozenset(
    {"abbr", "align", "alt", "bgcolor", "border", "cellpadding", "cellspacing", "class", "color"}
    | {"colspan", "datetime", "dir", "height", "label", "lang", "max", "min", "placeholder"}
    | {"role", "rowspan", "scope", "size", "span", "start", "summary", "title", "valign", "width"}
)
_SHOWN = "aria-"
# On other elements, such as <param>, these attributes may hold a URL.
_COUNTED = frozenset(
    (tag, "value") for tag in ("button", "data", "input", "li", "meter", "option", "progress")
)
# Raw-text elements: only their own end tag closes them.
_RAW = frozenset({"style", "textarea", "title"})
# Inside or after these elements, parsing depends on more than the characters read.
_LOST = frozenset(
    {"frameset", "iframe", "math", "noembed", "noframes", "noscript", "plaintext", "script"}
    | {"select", "svg", "xmp"}
)

# URL prefixes after which a value cannot change the destination: a complete host, a path on the
# same host, or a scheme that only names an address.
_FIXED = re.compile(
    r"(?:https?:)?//[\w.-]+(?::[0-9]*)?[/?#]|(?:mailto|tel|sms):|/[\w.~%-]|[\w.~-]+/|[?#]",
    re.IGNORECASE,
)
_LONGEST_BEGINNING = 100
# A representative of all prefixes of that kind.
_SETTLED = "/x"
_ADDRESSED = "https://x"


class Unsafe(Exception):
    """A value is at a place where escaping does not make it safe. The message says where."""


class Place(StrEnum):
    """The kind of place of a value."""

    TEXT = "text"
    # The value starts a URL, so it must be a complete one.
    ADDRESS = "address"
    # The value follows another value, possibly in the middle of a host name.
    CONTINUED = "continued"


class At(StrEnum):
    """The state of the tokenizer."""

    TEXT = "text"
    OPEN = "<"
    CLOSE = "</"
    DECLARED = "<!"
    COMMENT = "comment"
    # Anything up to the next ">", such as a doctype.
    IGNORED = "ignored"
    TAG = "tag"
    BETWEEN = "between attributes"
    SLASH = "slash"
    NAME = "attribute"
    NAMED = "behind an attribute's name"
    EQUALS = "equals"
    DOUBLE = '"'
    SINGLE = "'"
    BARE = "value without quotes"
    QUOTED = "behind a quote"
    RAW = "raw"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Reading:
    """The tokenizer state, with the characters that later decisions need."""

    at: At = At.TEXT
    # An end tag begins with a slash. Names without meaning here are truncated.
    tag: str = ""
    attribute: str = ""
    # The start of a URL, or a possible end of a comment or raw text.
    said: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether no tag, comment or raw text is open."""
        return self.at in (At.TEXT, At.LOST)

    @property
    def place(self) -> Place:
        """The kind of place for a value here. Raises Unsafe if a value is not allowed."""
        match self.at:
            case At.TEXT:
                return Place.TEXT
            case At.RAW if self.tag != "style" and not self.said:
                return Place.TEXT
            case At.RAW | At.LOST:
                raise Unsafe(f"is in or after a <{self.tag}>, where no value is safe")
            case At.DECLARED | At.COMMENT | At.IGNORED:
                raise Unsafe("is in a comment or a declaration, where no value is safe")
            case At.DOUBLE | At.SINGLE:
                return self._attribute_place()
        raise Unsafe("is inside a tag; put it between the quotes of an attribute")

    def _attribute_place(self) -> Place:
        where = (self.tag, self.attribute)
        if where in _ADDRESSES:
            if not self.said:
                return Place.ADDRESS
            if self.said == _ADDRESSED:
                return Place.CONTINUED
            if self.said == _SETTLED:
                return Place.TEXT
            raise Unsafe(
                "is in a URL without a fixed host; start the URL with a full origin such as"
                " https://example.com/, or use one value for the whole URL"
            )
        is_plain = self.attribute in _PLAIN or self.attribute.startswith(_SHOWN)
        if not is_plain and where not in _COUNTED:
            raise Unsafe(
                "is in a forbidden attribute; docs/concepts/outbox.md lists the allowed ones"
            )
        return Place.TEXT

    def behind_value(self) -> Reading:
        """The state after an escaped value, which cannot close anything."""
        if self.at in (At.DOUBLE, At.SINGLE) and self.place is Place.ADDRESS:
            return replace(self, said=_ADDRESSED)
        return self

    def read(self, letters: str) -> Reading:
        """The state after these characters."""
        reading = self
        for letter in letters:
            reading = _next(reading, letter)
        return reading


def _beginnings(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name[:end] for name in names for end in range(len(name) + 1))


_TAGS = _beginnings(_RAW | _LOST | {tag for tag, _ in _ADDRESSES | _COUNTED})
_ATTRIBUTES = _beginnings(_PLAIN | {_SHOWN} | {name for _, name in _ADDRESSES | _COUNTED})


def _next(now: Reading, letter: str) -> Reading:
    match now.at:
        case At.TEXT:
            return Reading(At.OPEN) if letter == "<" else now
        case At.OPEN | At.CLOSE:
            return _opened(now, letter)
        case At.DECLARED:
            if letter == "-":
                return Reading(At.COMMENT) if now.said else replace(now, said="-")
            return Reading() if letter == ">" else Reading(At.IGNORED)
        case At.IGNORED:
            return Reading() if letter == ">" else now
        case At.COMMENT:
            return _comment(now, letter)
        case At.RAW:
            return _raw(now, letter)
        case At.LOST:
            return now
        case At.DOUBLE | At.SINGLE | At.BARE | At.EQUALS:
            return _value(now, letter)
    return _tag(now, letter)


def _opened(now: Reading, letter: str) -> Reading:
    sign = "/" if now.at is At.CLOSE else ""
    if letter.isascii() and letter.isalpha():
        return Reading(At.TAG, sign + letter.lower())
    if sign:
        return Reading() if letter == ">" else Reading(At.IGNORED)
    match letter:
        case "/":
            return Reading(At.CLOSE)
        case "!":
            return Reading(At.DECLARED)
        case "?":
            return Reading(At.IGNORED)
    # A "<" that starts no tag is text.
    return _next(Reading(), letter)


def _comment(now: Reading, letter: str) -> Reading:
    """Read a comment. Comments also end with <!-->, <!---> and --!>."""
    if letter == ">" and now.said in ("", "-", "--", "--!"):
        return Reading()
    if letter == "-":
        said = {"": "-", ".": ".-", "--!": ".-"}.get(now.said, "--")
    else:
        said = "--!" if letter == "!" and now.said == "--" else "."
    return replace(now, said=said)


def _raw(now: Reading, letter: str) -> Reading:
    end = f"</{now.tag}"
    if now.said == end and (letter in _SPACE or letter in "/>"):
        return _tag(Reading(At.TAG, f"/{now.tag}"), letter)
    said = now.said + _small(letter)
    if end.startswith(said):
        return replace(now, said=said)
    return replace(now, said="<" if letter == "<" else "")


def _tag(now: Reading, letter: str) -> Reading:
    """Read inside a tag, outside of attribute values."""
    if letter == ">":
        return _entered(now.tag)
    if letter == "/":
        return Reading(At.SLASH, now.tag)
    if letter in _SPACE:
        if now.at in (At.NAME, At.NAMED):
            return replace(now, at=At.NAMED)
        return Reading(At.BETWEEN, now.tag)
    if now.at is At.TAG:
        return replace(now, tag=_grown(now.tag, letter, _TAGS))
    if now.at is At.NAME and letter != "=":
        return replace(now, attribute=_grown(now.attribute, letter, _ATTRIBUTES))
    if letter == "=" and now.at in (At.NAME, At.NAMED):
        return replace(now, at=At.EQUALS)
    return Reading(At.NAME, now.tag, _small(letter))


def _value(now: Reading, letter: str) -> Reading:
    match now.at:
        case At.DOUBLE | At.SINGLE:
            return Reading(At.QUOTED, now.tag) if letter == now.at else _begun(now, letter)
        case At.EQUALS if letter in ('"', "'"):
            return replace(now, at=At(letter))
    if letter == ">":
        return _entered(now.tag)
    if letter in _SPACE:
        return now if now.at is At.EQUALS else Reading(At.BETWEEN, now.tag)
    return Reading(At.BARE, now.tag)


def _begun(now: Reading, letter: str) -> Reading:
    """The start of a URL, for as long as its destination is open."""
    if (now.tag, now.attribute) not in _ADDRESSES or now.said == _SETTLED:
        return now
    said = (now.said + letter).lstrip(_SKIPPED)[:_LONGEST_BEGINNING]
    return replace(now, said=_SETTLED if _FIXED.match(said) else said)


def _entered(tag: str) -> Reading:
    if tag in _RAW:
        return Reading(At.RAW, tag)
    return Reading(At.LOST, tag) if tag in _LOST else Reading()


def _grown(name: str, letter: str, known: frozenset[str]) -> str:
    return name + _small(letter) if name in known else name


def _small(letter: str) -> str:
    # HTML folds ASCII only: "K" may also be the Kelvin sign.
    return letter.lower() if letter.isascii() else letter
