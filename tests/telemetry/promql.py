"""The metrics and labels of a PromQL expression, for the syntax that our files use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<length>\[[^\]]*\])
    | (?P<number>\d+(?:\.\d+)?(?:[smhdw]|\b))
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^=<>(){},])
    )""",
    re.X,
)
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})
_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_LENGTH = re.compile(r"\[\d+[smhdw]\]")


class BadQuery(ValueError):
    """The expression cannot be read."""


@dataclass
class Query:
    """The metrics and labels of an expression."""

    selectors: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    grouped_by: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def parse(text: str) -> Query:
    """Raises BadQuery for an invalid expression."""
    tokens = list(_tokens(text))
    _check_brackets(tokens, text)
    found = Query()
    at = 0
    while at < len(tokens):
        kind, token = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind == "length" and not _LENGTH.fullmatch(token):
            raise BadQuery(f"{token} in {text}")
        if kind != "name" or token in _WORDS:
            at += 1
        elif token in _LISTS:
            names, at = _names(tokens, at + 1, text)
            found.grouped_by |= names
        elif after == "(" or after in ("by", "without"):
            found.functions.add(token)
            at += 1
        else:
            matchers, at = _matchers(tokens, at + 1, text)
            found.selectors.append((token, matchers))
    if not found.selectors:
        raise BadQuery(f"no metric in {text}")
    return found


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise BadQuery(f"{text[at : at + 20]!r} in {text}")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _check_brackets(tokens: list[tuple[str, str]], text: str) -> None:
    open_: list[str] = []
    for _, token in tokens:
        if token in "({" and token:
            open_.append({"(": ")", "{": "}"}[token])
        elif token in (")", "}") and (not open_ or open_.pop() != token):
            raise BadQuery(f"brackets of {text}")
    if open_:
        raise BadQuery(f"brackets of {text}")


def _names(tokens: list[tuple[str, str]], at: int, text: str) -> tuple[set[str], int]:
    if at >= len(tokens) or tokens[at][1] != "(":
        raise BadQuery(f"a list is missing in {text}")
    names: set[str] = set()
    at += 1
    while tokens[at][1] != ")":
        if tokens[at][0] == "name":
            names.add(tokens[at][1])
        elif tokens[at][1] != ",":
            raise BadQuery(f"{tokens[at][1]} in a list of {text}")
        at += 1
    return names, at + 1


def _matchers(tokens: list[tuple[str, str]], at: int, text: str) -> tuple[dict[str, str], int]:
    matchers: dict[str, str] = {}
    if at >= len(tokens) or tokens[at][1] != "{":
        return matchers, at
    at += 1
    while tokens[at][1] != "}":
        (kind, name), (_, sign), (value_kind, value) = tokens[at : at + 3]
        if kind != "name" or sign not in ("=", "!=", "=~", "!~") or value_kind != "string":
            raise BadQuery(f"matcher {name}{sign}{value} in {text}")
        matchers[name] = value[1:-1]
        at += 3
        if tokens[at][1] == ",":
            at += 1
    return matchers, at + 1
