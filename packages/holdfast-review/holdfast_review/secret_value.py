"""Decides whether a value under a secret name may be the secret itself. Pure.

Under a password's name, plain words are redacted too, because they may be a pass phrase.
"""

from __future__ import annotations

import re

from holdfast.sensitive import is_secret_name

_PASSWORD_NAME = re.compile(r"(?:pass(?:word|wd|phrase|code)?|pwd|pw)s?[0-9_.-]*$", re.I)
# Values that are not secrets: placeholders, types, names of formats and hashes.
_PLACEHOLDER = re.compile(
    r"""(?:\$\{[A-Za-z_][\w.]*+(?::?\?[^}]*+|:?-["']{0,2})?\}|[/:@._-]
          |(?-i:\$(?:[A-Z_][A-Z0-9_]*+|[a-z_]++)(?![A-Za-z0-9])))++
      | \$\{\{.*\}\} | \$\(.*\) | \{.*\} | \#\{.*\} | <[^>]*> | %\(.*\)s | %s | %[A-Z_]+%
      | --[a-z-]+ | \*+ | x+ | \.{3} | … | \[[a-z]+\] | env:.*
      | none | null | nil | true | false | undefined | changeme | example | secret | password
      | token | test | str | string | bearer | required | optional | default | function | object
      | utf-?8 | ascii | latin-?1 | base64 | hex | md5 | sha-?\d+ | [hre]s\d{3} | bcrypt | scrypt
      | argon2\w* | pbkdf2\w*
    """,
    re.VERBOSE | re.I,
)
_NAME = re.compile(r"[#.@-]{0,2}[A-Za-z][A-Za-z0-9_.-]*")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)")
# Text after the end of a literal, misread as the beginning of one.
_BETWEEN = re.compile(r"\s*(?:[,)\]};+:.|&]\s|[)\]}][,;.)\]}])")
# "Your password", "Wrong. Try again.": messages to users, not pass phrases.
_SAID = re.compile(
    r"(?-i:[A-Z]).*[.:?…]|.*\b(?:pass ?(?:word|phrase|code)|secret|token|credential)s?\b.*",
    re.I | re.S,
)
_SHORTEST, _SHORTEST_PASSWORD = 4, 3


def is_password_name(name: str) -> bool:
    """Return whether a name denotes a password, so that plain words under it are redacted."""
    return _PASSWORD_NAME.search(name) is not None and is_secret_name(name)


def may_be_secret(value: str, *, is_password: bool = False) -> bool:
    """Return whether a value is neither a placeholder nor, except for passwords, plain words."""
    value = value.strip(" \t\r\0")
    if len(value) < (_SHORTEST_PASSWORD if is_password else _SHORTEST):
        return False
    if _PLACEHOLDER.fullmatch(value) or _BETWEEN.match(value):
        return False
    if not any(map(str.isalnum, _ESCAPE.sub("", value))):
        return False
    if " " not in value or any(map(str.isdigit, value)):
        return True
    return is_password and not _SAID.fullmatch(value)


def is_name(value: str) -> bool:
    """Return whether a value is the name of a secret, used to look it up."""
    return _NAME.fullmatch(value) is not None and is_secret_name(value)


def is_reference(value: str) -> bool:
    """Return whether a value is certainly a name: of a variable, an option, a page element."""
    return is_name(value) and (value == value.upper() or not value[0].isalpha())


def looks_made(value: str) -> bool:
    """Return whether a value has both letters and digits, unlike words."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))
