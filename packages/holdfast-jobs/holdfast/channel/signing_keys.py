"""Signing keys of webhooks: one for the channel, or one for each endpoint or tenant.

During a rotation two secrets are in use. A message is then signed with both, so receivers that know
either of them accept it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.config import signing_key
from holdfast.errors import ConfigError
from holdfast.ids import read_uuid
from holdfast.outbound.credential import Credential
from holdfast.outbound.signature import sign

# The new secret and the previous one.
MOST_SECRETS = 2
LONGEST_FILE = 4 * 1024 * 1024

Keys = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The keys that sign a message: those of its endpoint, else its tenant, else the channel."""

    default: Keys = field(default=(), repr=False)
    endpoints: Mapping[str, Keys] = field(default_factory=dict, repr=False)
    tenants: Mapping[str, Keys] = field(default_factory=dict, repr=False)

    def find(self, url: str, org_id: str | None) -> Keys:
        """Return the keys for a message of *org_id* that is posted to *url*."""
        for name in (url, _origin(url)):
            if name in self.endpoints:
                return self.endpoints[name]
        if org_id is not None and org_id in self.tenants:
            return self.tenants[org_id]
        return self.default


def signature_header(keys: Keys, message_id: str, stamp: str, body: bytes) -> str:
    """One signature per key, separated by spaces, as Standard Webhooks defines it."""
    return " ".join(sign(key, message_id, stamp, body) for key in keys)


def make_signing_keys(channel: str, secrets: Mapping[str, Credential | None]) -> SigningKeys:
    """Create the keys of a channel from its settings. Raises ConfigError."""
    place = f"channels.{channel}"
    found = [
        _key(secret.reveal(), f"{place}.{name}_env or {name}_file")
        for name in ("secret", "previous_secret")
        if (secret := secrets.get(name)) is not None
    ]
    own = secrets.get("secrets")
    if own is None:
        return SigningKeys(tuple(found))
    document = _document(own.reveal(), place)
    return SigningKeys(
        tuple(found),
        _mapping(document, "endpoints", place, _endpoint),
        _mapping(document, "tenants", place, _tenant),
    )


def read_secrets_file(channel: str, path: str | None) -> Credential | None:
    """Read the file with the secrets of endpoints and tenants."""
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            text = file.read(LONGEST_FILE + 1).decode()
    except OSError as exc:
        raise ConfigError(
            f"The secrets file of channel {channel} cannot be read: {exc.strerror}. Check"
            f" channels.{channel}.secrets_file."
        ) from None
    except UnicodeDecodeError:
        text = ""
    if not 0 < len(text) <= LONGEST_FILE:
        raise _bad(f"channels.{channel}", f"must be JSON of up to {LONGEST_FILE} bytes")
    return Credential(text)


def _document(text: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise _bad(place, "must be JSON") from None
    if not isinstance(found, dict) or set(found) - {"endpoints", "tenants"}:
        raise _bad(place, 'must be an object with "endpoints" and "tenants", and nothing else')
    return found


def _mapping(document: Mapping[str, Any], name: str, place: str, read: Any) -> dict[str, Keys]:
    given = document.get(name, {})
    if not isinstance(given, dict):
        raise _bad(place, f'"{name}" must be an object')
    found = {}
    for number, (key, secrets) in enumerate(given.items(), 1):
        where = f'entry {number} of "{name}"'
        listed = [secrets] if isinstance(secrets, str) else secrets
        if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_SECRETS:
            raise _bad(place, f"{where} must be one secret, or a list of one or two")
        if not all(isinstance(one, str) and one for one in listed):
            raise _bad(place, f"{where} must contain non-empty strings")
        known = read(key)
        if known is None:
            raise _bad(place, f"{where} has a name that cannot be used")
        found[known] = tuple(_key(one, f"{where} in {place}.secrets_file") for one in listed)
    return found


def _endpoint(name: str) -> str | None:
    """A complete URL, or a scheme and a host for all URLs there."""
    origin = _origin(name)
    if not origin.startswith(("https://", "http://")) or origin.endswith("//"):
        return None
    return origin if name.rstrip("/").lower() == origin else name


def _tenant(name: str) -> str | None:
    try:
        return read_uuid(name)
    except ValueError:
        return None


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _key(secret: str, where: str) -> bytes:
    try:
        return signing_key(secret)
    except ValueError:
        raise ConfigError(
            "A signing secret that starts with whsec_ must be base64 after the prefix. Check"
            f" {where}."
        ) from None


def _bad(place: str, says: str) -> ConfigError:
    # The message repeats neither secrets nor URLs.
    return ConfigError(f"{place}.secrets_file cannot be used: it {says}.")
