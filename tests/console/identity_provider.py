"""A small OpenID provider on loopback, with real keys and signed tokens.

It checks PKCE, the client secret and the redirect URL, and it accepts a code once. A test changes
what it signs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

CLIENT_ID = "holdfast-console"
CLIENT_SECRET = "a secret/of the client"


def encode(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


class IdentityProvider:
    """One provider with one person. *claims* are added to the person's ID token."""

    def __init__(self, algorithm: str = "RS256") -> None:
        self.algorithm = algorithm
        self.claims: dict[str, Any] = {"sub": "ann", "groups": ["staff", "jobs-admins"]}
        self.forge: Callable[[dict[str, Any]], str] | None = None
        self.discovery: dict[str, Any] = {}
        self.now = time.time
        self.calls: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}/realm"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def rotate(self) -> None:
        """Use a new key from now on."""
        parameters = {"kid": secrets.token_hex(4), "use": "sig"}
        self.key: Any = (
            RSAKey.generate_key(2048, parameters)
            if self.algorithm == "RS256"
            else ECKey.generate_key("P-256", parameters)
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- tokens

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        """A token with a valid signature of this provider."""
        return jwt.encode({"alg": self.algorithm, "kid": self.key.kid, **header}, claims, self.key)

    def unsigned(self, claims: dict[str, Any]) -> str:
        """A token of the algorithm "none"."""
        head = encode(json.dumps({"alg": "none", "kid": self.key.kid}).encode())
        return f"{head}.{encode(json.dumps(claims).encode())}."

    def signed_with_public_key(self, claims: dict[str, Any]) -> str:
        """A token whose secret of HS256 is the public key."""
        head = encode(json.dumps({"alg": "HS256", "kid": self.key.kid}).encode())
        body = f"{head}.{encode(json.dumps(claims).encode())}"
        secret = self.key.as_pem(private=False)
        return f"{body}.{encode(hmac.digest(secret, body.encode(), 'sha256'))}"

    # -- requests

    def authorize(self, query: dict[str, str]) -> str:
        """Log the person in at once, and return the redirect of the browser."""
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def _token(self, form: dict[str, str], login: str) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(form.get("code", ""), None)
        name, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        challenge = encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (unquote(name), unquote(secret)) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        if asked is None or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        if asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(self.now())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
        }
        token = self.sign(claims) if self.forge is None else self.forge(claims)
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": token}

    def _answer(self, method: str, target: str, body: bytes, login: str) -> tuple[int, Any]:
        path = urlsplit(target).path.removeprefix("/realm")
        self.calls.append(path)
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.discovery,
            }
        if path == "/keys":
            return 200, KeySet([self.key]).as_dict(private=False)
        if path == "/token" and method == "POST":
            given = {name: value[0] for name, value in parse_qs(body.decode()).items()}
            return self._token(given, login)
        return 404, {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply("GET", b"")

            def do_POST(self) -> None:
                self._reply("POST", self.rfile.read(int(self.headers["content-length"])))

            def _reply(self, method: str, body: bytes) -> None:
                login = self.headers.get("authorization", "")
                status, found = provider._answer(method, self.path, body, login)
                text = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
