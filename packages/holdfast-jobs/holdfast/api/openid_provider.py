"""An OpenID provider: its discovery document, its keys, and the ID tokens that it signs.

Every call goes through the guarded HTTP client. Messages of refusals are codes, because an answer
of the provider may contain private data.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.clock import Clock
from holdfast.config.serve import OidcSettings
from holdfast.errors import ConfigError, HoldfastError
from holdfast.outbound.client import Client, NotSent, Timeouts, Unsure
from holdfast.outbound.credential import Credential, read_secret
from holdfast.outbound.guard import Guard, Origin

try:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ModuleNotFoundError as exc:
    raise ConfigError(
        "Login with OpenID Connect needs the extra oidc. Install it:"
        " pip install 'holdfast-jobs[oidc]'."
    ) from exc

# Signatures with a public key. A symmetric one would be signed with what everyone can read.
ALGORITHMS = ("RS256", "ES256")
KEY_TYPES = ("RSA", "EC")
KEEP_SECONDS = 3600.0
# How often an unknown key id makes us ask for the keys again.
RENEW_SECONDS = 60.0
LEEWAY_SECONDS = 60
LONGEST_TOKEN = 64 * 1024
_TIMEOUTS = Timeouts(connect=5.0, read=10.0, write=10.0, pool=5.0, answer=15.0)


class LoginRefused(HoldfastError):
    """A login with OpenID Connect was refused. *reason* is a code for the log. Log in again."""

    def __init__(self, reason: str) -> None:
        super().__init__("The login was refused.")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Discovery:
    """The addresses of a provider."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    takes_secret_in_body: bool


class OpenIdProvider:
    """A provider that was found by its issuer. Safe to share between threads."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        assert settings.issuer is not None
        assert settings.client_id is not None
        self.settings = settings
        self.issuer: str = settings.issuer
        self.client_id: str = settings.client_id
        self._clock = clock
        self._secret: Credential | None = read_secret(
            "OpenID client",
            "serve.oidc.client_secret",
            variable=settings.client_secret_env,
            file=settings.client_secret_file,
            env=os.environ,
        )
        self._lock = threading.Lock()
        self._discovery: tuple[float, Discovery] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def discover(self) -> Discovery:
        """Return the provider's addresses, read at most once an hour. Raises LoginRefused."""
        with self._lock:
            if self._discovery is not None and not self._is_old(self._discovery[0], KEEP_SECONDS):
                return self._discovery[1]
            found = self._get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.issuer:
                raise LoginRefused("discovery_of_another_issuer")
            methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            made = Discovery(
                self._address(found, "authorization_endpoint"),
                self._address(found, "token_endpoint"),
                self._address(found, "jwks_uri"),
                takes_secret_in_body="client_secret_basic" not in methods,
            )
            self._discovery = (self._clock.monotonic(), made)
            return made

    def exchange(self, code: str, verifier: str, redirect_url: str) -> str:
        """Exchange an authorization code for an ID token. Raises LoginRefused."""
        found = self.discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "client_id": self.client_id,
            "code_verifier": verifier,
        }
        headers = {"accept": "application/json", "content-type": _FORM}
        if self._secret is not None and found.takes_secret_in_body:
            form["client_secret"] = self._secret.reveal()
        elif self._secret is not None:
            pair = f"{quote(self.client_id, safe='')}:{quote(self._secret.reveal(), safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = self._call("POST", found.token_endpoint, headers, urlencode(form).encode())
        token = answer.get("id_token")
        if not isinstance(token, str) or len(token) > LONGEST_TOKEN:
            raise LoginRefused("no_id_token")
        return token

    def check(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that this provider signed for this client and login.

        Raises LoginRefused.
        """
        claims = self._verified(token)
        now = int(self._clock.now().timestamp())
        registry = jwt.JWTClaimsRegistry(
            now=now,
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            registry.validate(dict(claims))
        except JoseError as exc:
            raise LoginRefused(f"claims_{exc.error}") from None
        audience = claims["aud"]
        is_shared = isinstance(audience, list) and len(audience) > 1
        if (is_shared or "azp" in claims) and claims.get("azp") != self.client_id:
            raise LoginRefused("authorized_party")
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
            raise LoginRefused("nonce")
        return claims

    # -- signatures

    def _verified(self, token: str) -> Mapping[str, Any]:
        header = _header(token)
        if header.get("alg") not in ALGORITHMS:
            raise LoginRefused("algorithm")
        kid = header.get("kid")
        keys = self._key_set()
        if not _has(keys, kid):
            # The provider may have a new key.
            keys = self._key_set(renew=True)
        if not _has(keys, kid):
            raise LoginRefused("unknown_key")
        try:
            return jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError):
            raise LoginRefused("signature") from None

    def _key_set(self, *, renew: bool = False) -> KeySet:
        uri = self.discover().jwks_uri
        with self._lock:
            keep = RENEW_SECONDS if renew else KEEP_SECONDS
            if self._keys is not None and not self._is_old(self._keys[0], keep):
                return self._keys[1]
            listed = self._get(uri).get("keys")
            usable = [
                key
                for key in (listed if isinstance(listed, list) else [])
                if isinstance(key, dict)
                and key.get("kty") in KEY_TYPES
                and key.get("use", "sig") == "sig"
            ]
            try:
                made = KeySet.import_key_set({"keys": usable})
            except (JoseError, ValueError, TypeError, KeyError):
                raise LoginRefused("keys") from None
            self._keys = (self._clock.monotonic(), made)
            return made

    # -- calls

    def _address(self, found: Mapping[str, Any], name: str) -> str:
        address = found.get(name)
        if not isinstance(address, str) or not address.isascii() or not address.isprintable():
            raise LoginRefused(f"discovery_{name}")
        try:
            Origin.from_url(address, allow_private=self.settings.allow_private)
        except ConfigError:
            raise LoginRefused(f"discovery_{name}") from None
        return address

    def _get(self, address: str) -> dict[str, Any]:
        return self._call("GET", address, {"accept": "application/json"})

    def _call(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> dict[str, Any]:
        private = self.settings.allow_private
        parts = urlsplit(address)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        client = Client(
            Guard(Origin.from_url(address, allow_private=private), private),
            _TIMEOUTS,
            clock=self._clock,
        )
        try:
            answer = client.send(method, target, headers, body)
        except (NotSent, Unsure) as exc:
            raise LoginRefused(f"provider_{exc.reason}") from None
        finally:
            client.close()
        if answer.status != 200:
            raise LoginRefused(f"provider_status_{answer.status}")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise LoginRefused("provider_answer") from None
        if not isinstance(found, dict):
            raise LoginRefused("provider_answer")
        return found

    def _is_old(self, since: float, seconds: float) -> bool:
        return self._clock.monotonic() - since > seconds


_FORM = "application/x-www-form-urlencoded"


def _header(token: str) -> Mapping[str, Any]:
    """The header of a token, before its signature is checked."""
    head = token.partition(".")[0]
    try:
        found = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        raise LoginRefused("token") from None
    if not isinstance(found, dict):
        raise LoginRefused("token")
    return found


def _has(keys: KeySet, kid: object) -> bool:
    """Whether the key of a token is among *keys*. A single key needs no id."""
    return len(keys.keys) == 1 if kid is None else any(key.kid == kid for key in keys.keys)
