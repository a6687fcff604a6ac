"""Accounts from the settings: one address, one credential, and no secret in any output."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import ConfigError, Settings
from holdfast.outbound.credential import Credential
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.provider.adapter import Lookup
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.credential import read_credential
from holdfast_llm.provider.reply import ProviderRefused
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import BUILT_IN_PROVIDERS, ProviderSettings

KEY = "hunter2-hunter2-hunter2"
ENV = {"OPENAI_API_KEY": KEY, "OWN_KEY": KEY}
ROUTE = Route("openai", "openai_responses", "m1")


def accounts(env: dict[str, str] | None = None, **own: Any) -> ConfiguredAccounts:
    settings = Settings(providers={"own": ProviderSettings(**own)} if own else {})
    return ConfiguredAccounts(settings, env=ENV if env is None else env)


def test_a_route_leads_to_the_account_of_its_provider() -> None:
    account = accounts().for_route(ROUTE)

    assert (account.provider, account.base_url) == ("openai", "https://api.openai.com/v1")
    assert account.adapter.kind == "openai_responses"
    assert account.limits.max_items == 50_000


def test_an_account_is_found_again_by_its_key_which_reveals_no_credential() -> None:
    found = accounts()
    account = found.for_route(ROUTE)

    assert found.by_key(account.key) is account
    assert account.key.startswith("openai|openai_responses|https://api.openai.com/v1|")
    assert "hunter2" not in account.key
    assert "hunter2" not in repr(account)


def test_another_credential_is_another_account() -> None:
    key = accounts().for_route(ROUTE).key
    rotated = accounts({"OPENAI_API_KEY": "another-credential"})

    assert rotated.by_key(key) is None
    assert rotated.for_route(ROUTE).key != key
    assert rotated.in_place_of(key) is rotated.for_route(ROUTE)
    assert rotated.in_place_of("openai|openai_responses|https://other.example.com|abc") is None
    assert accounts({}).by_key(key) is None


def test_an_account_with_a_name_keeps_it_when_its_credential_is_rotated() -> None:
    own: dict[str, Any] = {
        "base_url": "https://a.example.com/v1",
        "credential_env": "OWN_KEY",
        "account": "main",
    }
    route = Route("own", "openai_chat", "m1")
    key = accounts(**own).for_route(route).key

    assert key == "own|openai_chat|https://a.example.com/v1|main"
    assert accounts({"OWN_KEY": "another"}, **own).by_key(key) is not None


@pytest.mark.parametrize(
    "key", ["", "openai", "openai|none|x|y", "nobody|openai_chat|x|y", "openai|openai_responses"]
)
def test_an_unknown_key_finds_nothing(key: str) -> None:
    assert accounts().by_key(key) is None


@pytest.mark.parametrize(
    ("route", "says"),
    [
        (Route("nobody", "openai_chat", "m"), r"add \[providers.nobody\] to holdfast.toml"),
        (Route("openai", "no_such", "m"), "unknown adapter 'no_such'"),
        (Route("openai", "openai_chat", "m", "https://evil.example.com/v1"), "another base URL"),
        (Route("gemini", "gemini_generate", "m"), "set the variable GEMINI_API_KEY"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused_with_the_way_out(route: Route, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        accounts().for_route(route)


def test_a_route_may_repeat_the_address_that_is_declared() -> None:
    route = Route("openai", "openai_chat", "m1", "https://api.openai.com/v1/")

    assert accounts().for_route(route).base_url == "https://api.openai.com/v1"


def test_what_is_said_about_a_server_goes_before_what_its_adapter_knows() -> None:
    own: dict[str, Any] = {
        "base_url": "https://a.example.com/v1", "max_items": 7, "enqueued_tokens": 99,
        "lookup": "count", "wants_echo": True, "supports_batches": False,
        "can_delete_file": False,
    }  # fmt: skip

    account = accounts(**own).for_route(Route("own", "openai_chat", "m1"))

    adapter = ADAPTERS["openai_chat"]
    assert (account.limits.max_items, account.limits.enqueued_tokens) == (7, 99)
    assert account.limits.max_bytes == adapter.limits.max_bytes
    assert account.capabilities.lookup is Lookup.COUNT
    assert (account.capabilities.wants_echo, account.capabilities.supports_batches) == (True, False)
    assert not account.capabilities.can_delete_file
    assert account.capabilities.has_input_file == adapter.capabilities.has_input_file


def test_a_version_of_the_api_is_for_adapters_that_know_several() -> None:
    own: dict[str, Any] = {
        "base_url": "https://r.openai.azure.com/openai",
        "api_version": "2024-10-21",
    }

    found = accounts(**own)

    assert found.for_route(Route("own", "azure_chat", "m")).adapter.api_version == "2024-10-21"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"leave providers.own.api_version out"):
        found.for_route(Route("own", "openai_chat", "m"))


@pytest.mark.parametrize("name", BUILT_IN_PROVIDERS)
def test_what_is_built_in_is_where_the_adapters_know_their_providers(name: str) -> None:
    known = {adapter.base_url for adapter in ADAPTERS.values()}

    assert BUILT_IN_PROVIDERS[name].base_url in known


# -- the client


class Listener(BaseHTTPRequestHandler):
    heard: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.heard.append({name.lower(): value for name, value in self.headers.items()})
        body = json.dumps({"data": [], "has_more": False}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: Any) -> None:
        """Do not print the requests."""


@pytest.fixture
def listener() -> Iterator[str]:
    Listener.heard = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join(timeout=60)
    server.server_close()


def test_the_credential_goes_to_the_declared_address(listener: str) -> None:
    own: dict[str, Any] = {"base_url": listener, "credential_env": "OWN_KEY", "allow_private": True}
    account = accounts(**own).for_route(Route("own", "openai_chat", "m1"))

    account.client.request("GET", "batches")

    assert [heard["authorization"] for heard in Listener.heard] == [f"Bearer {KEY}"]


def test_a_server_without_a_credential_is_sent_none(listener: str) -> None:
    account = accounts(base_url=listener, allow_private=True).for_route(
        Route("own", "openai_chat", "m1")
    )

    account.client.request("GET", "batches")

    assert account.key.endswith("|open")
    assert "authorization" not in Listener.heard[0]


def test_a_private_address_is_not_reached_unless_it_is_allowed(listener: str) -> None:
    port = listener.split(":")[2].split("/")[0]
    own: dict[str, Any] = {"base_url": f"https://127.0.0.1:{port}/v1", "credential_env": "OWN_KEY"}
    account = accounts(**own).for_route(Route("own", "openai_chat", "m1"))

    with pytest.raises(ProviderRefused, match="address_refused"):
        account.client.request("GET", "batches")
    assert Listener.heard == []


# -- credentials


def test_a_credential_is_shown_by_nothing() -> None:
    credential = Credential(KEY)

    assert "hunter2" not in f"{credential} {credential!r} {credential.digest}"
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(credential)


def test_the_file_goes_before_the_variable_and_loses_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-the-file\n")
    provider = ProviderSettings(
        base_url="https://a.example.com", credential_env="OWN_KEY", credential_file=str(file)
    )

    found = read_credential("own", provider, ENV)

    assert found is not None
    assert found.reveal() == "from-the-file"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"x" * 20_000])
def test_a_file_that_holds_no_credential_is_refused_without_repeating_it(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    provider = ProviderSettings(base_url="https://a.example.com", credential_file=str(file))

    with pytest.raises(ConfigError, match=r"the file of providers\.own") as caught:
        read_credential("own", provider, {})

    assert "lines" not in str(caught.value)


def test_a_file_that_is_not_there_is_said_without_its_path(tmp_path: Path) -> None:
    provider = ProviderSettings(
        base_url="https://a.example.com", credential_file=str(tmp_path / "none")
    )

    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_credential("own", provider, {})
