"""Login with OpenID Connect, at a provider with real keys, and the attacks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from starlette.testclient import TestClient

from holdfast import ConfigError, FakeClock, Holdfast
from holdfast.api import create_app
from holdfast.api.authentication import COOKIE as SESSION
from holdfast.api.openid import COOKIE
from holdfast.api.server import check_address
from holdfast.config.serve import OidcSettings, ServeSettings
from tests.console.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider
from tests.story import ORG, look, make_holdfast

OWN_SITE = {"sec-fetch-site": "same-origin"}
BACK = "/console/oidc/callback"


both_algorithms = pytest.mark.parametrize("provider", ["RS256", "ES256"], indirect=True)


@pytest.fixture
def provider(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[IdentityProvider]:
    made = IdentityProvider(getattr(request, "param", "RS256"))
    made.now = lambda: clock.now().timestamp()
    yield made
    made.close()


class Browser:
    """A browser at the console of an application that trusts a provider."""

    def __init__(self, hf: Holdfast, provider: IdentityProvider) -> None:
        self.hf, self.provider = hf, provider
        self.app = create_app(hf)
        self.web = self.another()

    def another(self) -> TestClient:
        """A window without cookies."""
        return TestClient(self.app, base_url="http://127.0.0.1", follow_redirects=False)

    def begin(self, after: str = "") -> dict[str, str]:
        """Begin a login, and return the parameters of the request to the provider."""
        answer = self.web.get("/console/oidc/login", params={"next": after})
        assert answer.status_code == 303, answer.text
        where = urlsplit(answer.headers["location"])
        assert where.geturl().startswith(f"{self.provider.issuer}/authorize?")
        return dict(parse_qsl(where.query))

    def come_back(self, asked: dict[str, str]) -> Any:
        """Log in at the provider, and follow its redirect."""
        return self.web.get(self.provider.authorize(asked))

    def log_in(self, after: str = "") -> Any:
        return self.come_back(self.begin(after))

    @property
    def sessions(self) -> int:
        (row,) = look(self.hf.store, "SELECT count(*) AS n FROM holdfast.console_session")
        return int(row["n"])

    def is_refused(self, answer: Any) -> bool:
        """Whether a login failed: no session, and no reason in the answer."""
        return (
            answer.status_code == 403
            and SESSION not in self.web.cookies
            and self.sessions == 0
            and "The login with your organization failed" in answer.text
        )


@pytest.fixture
def open_browser(
    sqlite_url: str, clock: FakeClock, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Browser]]:
    monkeypatch.setenv("CONSOLE_SECRET", CLIENT_SECRET)
    opened = []

    def make(**given: Any) -> Browser:
        settings = replace(
            OidcSettings(
                issuer=provider.issuer,
                client_id=CLIENT_ID,
                client_secret_env="CONSOLE_SECRET",
                admins=("jobs-admins",),
                operators=("jobs-operators",),
                viewers=("staff",),
                allow_private=True,
            ),
            **given,
        )
        hf = make_holdfast(sqlite_url, clock, serve=ServeSettings(oidc=settings))
        opened.append(hf)
        return Browser(hf, provider)

    yield make
    for hf in opened:
        hf.close()


@pytest.fixture
def browser(open_browser: Callable[..., Browser]) -> Browser:
    return open_browser()


@both_algorithms
def test_a_person_logs_in_at_the_provider_and_out_again(browser: Browser) -> None:
    assert "/console/oidc/login" in browser.web.get("/console/login").text

    answer = browser.log_in("/console/jobs")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs")
    shown = browser.web.get("/console/")
    assert "ann · admin" in shown.text
    paused = browser.web.post(
        "/console/queues/q:default/pause", data={"reason": "INC-7"}, headers=OWN_SITE
    )
    assert paused.status_code == 303
    cookie = browser.web.cookies[SESSION]
    assert browser.web.post("/console/logout", headers=OWN_SITE).status_code == 303
    browser.web.cookies.set(SESSION, cookie)
    assert browser.web.get("/console/").headers["location"].startswith("/console/login")
    named = look(
        browser.hf.store, "SELECT actor_id FROM holdfast.job_event WHERE name LIKE 'queue.%'"
    )
    assert {row["actor_id"] for row in named} == {"ann"}


def test_the_session_is_a_new_one_and_ends_an_earlier_one(browser: Browser) -> None:
    browser.log_in()
    first = browser.web.cookies[SESSION]
    browser.log_in()

    assert browser.web.cookies[SESSION] != first
    other = browser.another()
    other.cookies.set(SESSION, first)
    assert other.get("/console/").status_code == 303


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["jobs-operators", "staff"]}, "operator"),
        ({"groups": "staff"}, "viewer"),
        ({"groups": ["guests"]}, None),
        ({"groups": {"jobs-admins": True}}, None),
        ({"groups": None}, None),
    ],
)
def test_the_strongest_mapped_group_is_the_role_and_no_group_is_refused(
    browser: Browser, provider: IdentityProvider, claims: dict[str, Any], role: str | None
) -> None:
    provider.claims |= claims

    answer = browser.log_in()

    if role is None:
        assert browser.is_refused(answer)
    else:
        assert f"ann · {role}" in browser.web.get("/console/").text


@pytest.mark.req("X-01")
@pytest.mark.parametrize(
    ("org", "seen"),
    [
        (ORG, "tenant"),
        ("name:acme", "tenant"),
        ("everyone", "all"),
        (["a", "b"], None),
        ("acme", None),
        ("", None),
        (None, None),
        # The value that stands for all tenants in the database.
        ("00000000-0000-0000-0000-000000000000", None),
    ],
)
def test_the_tenant_comes_from_its_claim(
    open_browser: Callable[..., Browser], provider: IdentityProvider, org: Any, seen: str | None
) -> None:
    browser = open_browser(
        tenant_claim="shop.tenant", all_tenants=("everyone",), role_claim="shop.roles"
    )
    provider.claims["shop"] = {"tenant": org, "roles": ["jobs-admins"]}

    answer = browser.log_in()

    if seen is None:
        assert browser.is_refused(answer)
    else:
        text = browser.web.get("/console/").text
        assert ("· tenant" in text) is (seen == "tenant")


def test_a_new_key_of_the_provider_is_found_once_it_signs(
    browser: Browser, provider: IdentityProvider, clock: FakeClock
) -> None:
    assert browser.log_in().status_code == 303
    provider.rotate()
    # At most once a minute, so that forged tokens cannot cause unlimited requests.
    assert browser.log_in().status_code == 403
    clock.advance(minutes=2)
    assert browser.log_in().status_code == 303


# -- attacks


Forge = Callable[[IdentityProvider, dict[str, Any]], str]
FORGED: dict[str, Forge] = {
    "none": lambda provider, claims: provider.unsigned(claims),
    "public key as a secret": lambda provider, claims: provider.signed_with_public_key(claims),
    "another key": lambda provider, claims: _other(provider).sign(claims, kid=provider.key.kid),
    "no signature": lambda provider, claims: provider.sign(claims).rpartition(".")[0] + ".",
    "changed claims": lambda provider, claims: _swap(provider, claims),
    "another audience": lambda provider, claims: provider.sign({**claims, "aud": "other"}),
    "shared audience": lambda provider, claims: provider.sign(
        {**claims, "aud": [CLIENT_ID, "other"], "azp": "other"}
    ),
    "another issuer": lambda provider, claims: provider.sign(
        {**claims, "iss": "https://evil.example"}
    ),
    "another nonce": lambda provider, claims: provider.sign({**claims, "nonce": "x" * 32}),
    "no nonce": lambda provider, claims: provider.sign(_without(claims, "nonce")),
    "expired": lambda provider, claims: provider.sign({**claims, "exp": claims["iat"] - 3600}),
    "no expiry": lambda provider, claims: provider.sign(_without(claims, "exp")),
    "of the future": lambda provider, claims: provider.sign(
        {**claims, "iat": claims["iat"] + 3600}
    ),
    "no subject": lambda provider, claims: provider.sign(_without(claims, "sub")),
    "a name that breaks a line": lambda provider, claims: provider.sign(
        {**claims, "sub": "ann\nlogin.refused"}
    ),
    "no token": lambda provider, claims: "x",
}


def _without(claims: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key != name}


def _other(provider: IdentityProvider) -> IdentityProvider:
    """A provider with the same algorithm and another key, without a server."""
    made = object.__new__(IdentityProvider)
    made.algorithm = provider.algorithm
    made.rotate()
    return made


def _swap(provider: IdentityProvider, claims: dict[str, Any]) -> str:
    head, _, signature = provider.sign(claims).split(".")
    body = provider.sign({**claims, "sub": "root"}).split(".")[1]
    return f"{head}.{body}.{signature}"


@pytest.mark.req("X-07")
@both_algorithms
@pytest.mark.parametrize("attack", FORGED)
def test_a_forged_token_opens_no_session(
    browser: Browser, provider: IdentityProvider, attack: str
) -> None:
    provider.forge = lambda claims: FORGED[attack](provider, claims)

    assert browser.is_refused(browser.log_in())


def test_a_wrong_state_is_refused_before_the_provider_is_asked(
    browser: Browser, provider: IdentityProvider
) -> None:
    asked = browser.begin()
    provider.calls.clear()

    for query in (
        {"code": "x", "state": "x"},
        {"code": "x"},
        {"error": "access_denied", "state": asked["state"]},
        {"code": "x", "state": asked["state"], "iss": "https://evil.example"},
    ):
        cookie = browser.web.cookies.get(COOKIE, domain="127.0.0.1", path="/console/oidc")
        assert browser.is_refused(browser.web.get(BACK, params=query))
        browser.web.cookies.set(COOKIE, cookie or "", domain="127.0.0.1", path="/console/oidc")
    assert provider.calls == []


def test_a_code_works_once_and_only_in_the_browser_that_asked_for_it(browser: Browser) -> None:
    address = browser.provider.authorize(browser.begin())
    # Another person has the address, without the cookie of the login.
    assert browser.another().get(address).status_code == 403
    kept = browser.web.cookies.get(COOKIE)

    assert browser.web.get(address).status_code == 303
    assert COOKIE not in browser.web.cookies
    again = browser.another()
    again.cookies.set(COOKIE, kept or "", domain="127.0.0.1", path="/console/oidc")
    assert again.get(address).status_code == 403
    assert browser.sessions == 1


def test_a_code_of_another_login_is_refused(browser: Browser) -> None:
    """An attacker sends a victim the code of the attacker's own login."""
    attacker = Browser(browser.hf, browser.provider)
    stolen = dict(parse_qsl(urlsplit(browser.provider.authorize(attacker.begin())).query))
    asked = browser.begin()

    answer = browser.web.get(BACK, params={"code": stolen["code"], "state": asked["state"]})

    assert browser.is_refused(answer)


def test_the_cookie_of_a_login_is_signed_and_expires(browser: Browser, clock: FakeClock) -> None:
    address = browser.provider.authorize(browser.begin())
    kept = browser.web.cookies.get(COOKIE) or ""
    for cookie in (f"x{kept}", f"{kept}0", kept.partition(".")[0], "", "."):
        forged = browser.another()
        forged.headers["cookie"] = f"{COOKIE}={cookie}"
        assert forged.get(address).status_code == 403

    clock.advance(minutes=11)
    assert browser.is_refused(browser.web.get(address))


@pytest.mark.parametrize(
    "after", ["https://evil.example/", "//evil.example", "/\\evil.example", "/console//evil", "/x"]
)
def test_a_login_leads_to_a_page_of_the_console_only(browser: Browser, after: str) -> None:
    answer = browser.log_in(after)

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")


def test_a_provider_that_names_another_issuer_or_a_plain_address_is_not_used(
    open_browser: Callable[..., Browser], provider: IdentityProvider
) -> None:
    provider.discovery = {"issuer": "https://evil.example"}
    browser = open_browser()
    assert browser.web.get("/console/oidc/login").status_code == 503
    provider.discovery = {"token_endpoint": "ftp://127.0.0.1/token"}
    assert browser.web.get("/console/oidc/login").status_code == 503


def test_a_private_provider_must_be_allowed_and_a_public_address_needs_no_key(
    open_browser: Callable[..., Browser],
) -> None:
    with pytest.raises(ConfigError, match="https"):
        open_browser(allow_private=False)
    browser = open_browser()
    check_address(browser.hf, "0.0.0.0", is_dev=False)


def test_too_many_failed_logins_of_an_address_are_refused(
    browser: Browser, provider: IdentityProvider
) -> None:
    provider.forge = lambda claims: provider.unsigned(claims)
    statuses = [browser.log_in().status_code for _ in range(61)]

    assert statuses == [403] * 60 + [429]


def test_settings_without_a_client_or_a_role_are_refused() -> None:
    for wrong in (
        {"issuer": "https://login.example.com"},
        {"issuer": "https://login.example.com", "client_id": "x"},
        {"issuer": "http://login.example.com", "client_id": "x", "admins": ("a",)},
        {"scopes": ("profile",)},
        {"all_tenants": ("x",)},
        {"client_secret_env": "A", "client_secret_file": "/b"},
    ):
        with pytest.raises(ConfigError):
            OidcSettings(**wrong)  # type: ignore[arg-type]
