"""Credentials: read from the environment or a secret file, never from settings, never shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from holdfast.config import ProviderSettings
from holdfast.errors import ConfigError

_LONGEST = 16 * 1024


class Credential:
    """A secret that does not print itself; :meth:`reveal` is for the wire alone."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    @property
    def digest(self) -> str:
        """Twelve characters that tell two credentials apart and tell nothing of either."""
        return hashlib.sha256(b"holdfast account\0" + self._value.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return "Credential(…)"

    def __reduce__(self) -> str:
        raise TypeError("a credential is not copied to where others may read it")


def read_credential(
    name: str, provider: ProviderSettings, env: Mapping[str, str]
) -> Credential | None:
    """The credential of the provider *name*: its file's, or its variable's. None if it has none.

    Raises ConfigError, which says where it was looked for and never what was found.
    """
    if provider.credential_file is not None:
        return _checked(_file(name, provider.credential_file), f"the file of providers.{name}")
    if provider.credential_env is None:
        return None
    found = env.get(provider.credential_env, "")
    if not found:
        raise ConfigError(
            f"The provider {name} has no credential: set the variable {provider.credential_env}, "
            f"or name a secret file: providers.{name}.credential_file."
        )
    return _checked(found, f"the variable {provider.credential_env}")


def _file(name: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST + 1).decode("ascii").strip()
    except OSError as exc:
        raise ConfigError(
            f"The secret file of the provider {name} cannot be read: {exc.strerror}. Check "
            f"providers.{name}.credential_file."
        ) from None
    except UnicodeDecodeError:
        return ""


def _checked(value: str, where: str) -> Credential:
    # A line break in a header would be a second header.
    if not (0 < len(value) <= _LONGEST and value.isascii() and value.isprintable()):
        raise ConfigError(
            f"What {where} holds is no credential: it must be one line of printable ASCII."
        )
    return Credential(value)
