"""Credentials: read from the environment or a secret file, never from settings, never shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import ConfigError

_LONGEST = 16 * 1024


class Credential:
    """A secret whose repr hides it. Call :meth:`reveal` only to send it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret."""
        return self._value

    @property
    def digest(self) -> str:
        """Twelve characters that distinguish credentials without revealing them."""
        return hashlib.sha256(b"holdfast account\0" + self._value.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return "Credential(…)"

    def __reduce__(self) -> str:
        raise TypeError("credentials cannot be copied or pickled")


def read_secret(
    owner: str,
    key: str,
    *,
    variable: str | None,
    file: str | None,
    env: Mapping[str, str],
) -> Credential | None:
    """Read a secret from a file or a variable; None if neither is configured.

    *owner* is its owner, such as ``provider openai``, and *key* its setting without the suffix,
    such as ``providers.openai.credential``. Raises ConfigError, which names the source and never
    the value.
    """
    place, _, word = key.rpartition(".")
    if file is not None:
        return _checked(_file(owner, key, file), f"the file of {place}", word)
    if variable is None:
        return None
    found = env.get(variable, "")
    if not found:
        raise ConfigError(
            f"The {owner} has no {word}: set the variable {variable}, or name a secret file: "
            f"{key}_file."
        )
    return _checked(found, f"the variable {variable}", word)


def _file(owner: str, key: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST + 1).decode("ascii").strip()
    except OSError as exc:
        raise ConfigError(
            f"The secret file of the {owner} cannot be read: {exc.strerror}. Check {key}_file."
        ) from None
    except UnicodeDecodeError:
        return ""


def _checked(value: str, where: str, word: str) -> Credential:
    # A line break would start a second header.
    if not (0 < len(value) <= _LONGEST and value.isascii() and value.isprintable()):
        raise ConfigError(f"{where} is not a valid {word}: it must be one line of printable ASCII.")
    return Credential(value)
