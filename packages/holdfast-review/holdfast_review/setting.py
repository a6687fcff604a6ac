"""Finds unquoted secrets in settings, commands, queries and markup. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.sensitive import Span
from holdfast_review.regions import Regions
from holdfast_review.secret_value import is_name, looks_made, may_be_secret

# -- in every file

# <password>…</password>, and parts of a query or a connection string.
_TAGGED = re.compile(r"<([A-Za-z0-9_.:-]{2,80}+)(?:[ ][^<>\n]{0,200}+)?>([^<\n]{4,}+)</")
_PART = re.compile(r"(?<=[?&;\"'`-])([A-Za-z0-9_ .-]{2,80}+)=([^\s;&\"'`<>]{4,}+)")


def find_parts(regions: Regions) -> Iterator[Span]:
    """Find parts of markup, queries and connection strings with a secret name."""
    for pattern in (_TAGGED, _PART):
        for found in regions.finditer(pattern):
            if regions.is_secret_name(found[1]) and may_be_secret(found[2]):
                yield *found.span(2), "secret"


# {"name": "DB_PASSWORD", "value": "…"}, <add key="Password" value="…"/>, and reversed.
_KEY = r"""["']?(?<![A-Za-z0-9_.-])(?:name|key|id)["']?\s{0,4}[:=]\s{0,4}["']?"""
_KEY += r"""([A-Za-z0-9_.:-]{2,80}+)["']?"""
_OF = r"""["']?(?<![A-Za-z0-9_.-])(?:value|content|default)["']?\s{0,4}[:=]\s{0,4}"""
_BETWEEN = r"""(?:[\s,;]{1,100}+|[ ,][^<>{}\n:]{0,200}?[ ])"""
_QUOTED = r"""(?:"([^"\n]++)"|'([^'\n]++)')"""
_BARE = r"""([^\s"'<>{},;]{4,}+)"""
_PAIR = re.compile(_KEY + _BETWEEN + _OF + _QUOTED, re.I)
_TURNED_PAIR = re.compile(_OF + _QUOTED + _BETWEEN + _KEY, re.I)
# variable "db_password" { default = "…" }
_VARIABLE = re.compile(
    r"""variable[ ]{1,4}"([A-Za-z0-9_-]{2,80}+)"\s{0,4}\{[^{}]{0,400}?\sdefault\s{0,8}=\s{0,4}"""
    + _QUOTED
)
_BARE_PAIR = re.compile(_KEY + _BETWEEN + _OF + _BARE, re.I)


def find_pairs(regions: Regions) -> Iterator[Span]:
    """Find values beside a secret name that is a value itself."""
    for pattern, name, values in (
        (_PAIR, 1, (2, 3)),
        (_TURNED_PAIR, 3, (1, 2)),
        (_VARIABLE, 1, (2, 3)),
    ):
        for found in regions.finditer(pattern):
            for group in values:
                if (
                    found[group]
                    and regions.is_secret_name(found[name])
                    and may_be_secret(found[group])
                ):
                    yield *found.span(group), "secret"


_BLOCK = re.compile(
    r"""^([ \t]*+(?:-[ ]+)?)["']?([A-Za-z0-9_.-]{2,80}+)["']?[ \t]{0,4}:[ \t]{1,4}
        (?:[!&]\S{1,40}[ ])?[|>][0-9+-]{0,2}[ \t]{0,40}\r?\n""",
    re.VERBOSE | re.M,
)
_LONGEST_BLOCK = 100
_LINE = re.compile(r"([ \t]*+)([^\r\n]*+)\r?\n?")


def find_blocks(regions: Regions) -> Iterator[Span]:
    """Find the lines below ``password: |`` in YAML."""
    text = regions.text
    for found in regions.finditer(_BLOCK):
        if not regions.is_secret_name(found[2]):
            continue
        at = found.end()
        for number in range(_LONGEST_BLOCK):
            line = _LINE.match(text, at)
            if line is None or line.end() == at or (not line[2] and not number):
                break
            if line[2] and len(line[1]) <= len(found[1]):
                break
            if may_be_secret(line[2], is_password=True):
                yield *line.span(2), "secret"
            at = line.end()


# DB_PASSWORD=… of an environment. Calls and lookups are code.
_ENVIRONMENT = re.compile(
    r"(?<![A-Za-z0-9_.$-])([A-Z][A-Z0-9_]{1,79}+)"
    r"=([^\s=\"'`<>()\[\]{},;&|][^\s\"'`<>()\[\]{},;&|]{3,}+)([(\[{]?)"
)
_PATH = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+")
_OPTION = re.compile(
    r"(?<![A-Za-z0-9_-])--?([A-Za-z][A-Za-z0-9_-]{1,79}+)[ ]{1,4}"
    r"([^\s\"'`<>()\[\]{},;&|-][^\s\"'`<>;&|]{3,}+)"
)
_WORD = r"(?P<value>[^\s\"'`$,][^\s\"'`,]{2,}+)"
_CURL = re.compile(
    r"(?<![A-Za-z0-9_-])(?:-u|--user|--proxy-user)(?:[ =]{1,2}|[\"'],[ ]?)[\"']?"
    r"(?P<user>[^\s:\"'`/$]{1,100}+):(?!/)" + _WORD
)
_MYSQL = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<user>mysql|mariadb)[a-z-]{0,20}+[^\n;|]{0,200}?[ \"']-p[\"']?" + _WORD
)
_SSHPASS = re.compile(
    r"(?P<user>sshpass[ ]{1,4}-p|redis-cli[^\n;|]{0,200}?[ ]-a)[ ]?[\"']?" + _WORD
)
_NETRC = re.compile(r"login[ \t]{1,4}(?P<user>\S{1,100}+)[ \t]{1,4}password[ \t]{1,4}" + _WORD)
_IDENTIFIED = re.compile(
    r"identified[ ]{1,4}(?:with[ ]{1,4}\S{1,60}+[ ]{1,4})?(?:by|as)[ ]{1,4}(?:password[ ]{1,4})?"
    r"(?P<user>[\"'])(?P<value>[^\"'\n]{3,}+)",
    re.I,
)
# Ports, user ids and group ids.
_NUMBERS = re.compile(r"[0-9.:/]+")


def find_commands(regions: Regions) -> Iterator[Span]:
    """Find secrets in arguments of commands: variables, options, logins."""
    for found in regions.finditer(_ENVIRONMENT):
        name, value, is_code = found[1], found[2], found[3] or _PATH.fullmatch(found[2])
        if (
            regions.is_secret_name(name)
            and may_be_secret(value)
            and not (is_code or is_name(value))
        ):
            yield *found.span(2), "secret"
    for found in regions.finditer(_OPTION):
        if regions.is_secret_name(found[1]) and may_be_secret(found[2]) and looks_made(found[2]):
            yield *found.span(2), "secret"
    for pattern in (_CURL, _MYSQL, _SSHPASS, _NETRC, _IDENTIFIED):
        for found in regions.finditer(pattern):
            value = found["value"]
            is_number = value == found["user"] or _NUMBERS.fullmatch(value)
            if not is_number and may_be_secret(value, is_password=True):
                yield *found.span("value"), "secret"


# -- in settings

_SETTINGS = re.compile(
    r"""(?:^|/)(?:\.env[^/]*|[^/]*\.(?:env|ini|cfg|conf|cnf|toml|ya?ml|properties|tfvars|netrc
      |htpasswd|pgpass|envrc|sh|bash|zsh|ksh|bat|cmd|ps1|mk|md|rst|adoc|txt)
      |\.(?:netrc|pgpass|npmrc|pypirc|htpasswd)|(?:Docker|Make|GNUmake|Proc|just)file[^/]*
      |README)$""",
    re.VERBOSE | re.I,
)
_VALUE = re.compile(
    r"""^[ \t-]{0,40}(?:export[ ]|ENV[ ]|ARG[ ]|set[ ])?["']?([A-Za-z0-9_./:-]{2,80}?)["']?
        [ \t]{0,4}([?:+]?=|:[ \t]|[ ])[ \t]{0,4}([^\s"'#][^\r\n#]*+)""",
    re.VERBOSE | re.M,
)
_MARK = re.compile(r"\[(?:secret|key)\]")
# Expressions in examples of documents.
_EXPRESSION = re.compile(r"[A-Za-z_.]+(?:\(.*|\[.*|,)")


def is_setting(path: str) -> bool:
    """Return whether a file holds settings, commands or examples, where values need no quotes."""
    return _SETTINGS.search(path) is not None


def find_values(regions: Regions) -> Iterator[Span]:
    """Find the value of a line that begins with a secret name, and other unquoted values."""
    for found in regions.finditer(_VALUE):
        name, sign, value = found[1], found[2], found[3].rstrip(" \t\\")
        # Without a sign, several words are a sentence.
        if sign == " " and " " in value:
            continue
        if not regions.is_secret_name(name) or _MARK.search(value) or _EXPRESSION.fullmatch(value):
            continue
        if may_be_secret(value, is_password=regions.is_password_name(name)):
            yield found.start(3), found.start(3) + len(value), "secret"
    for pattern in (_OPTION, _BARE_PAIR):
        for found in regions.finditer(pattern):
            if regions.is_secret_name(found[1]) and may_be_secret(found[2]):
                yield *found.span(2), "secret"
