"""Secrets are recognised by format or name, and never printed."""

from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.secret import find_secret

SECRETS = {
    "openai": "sk-" + "Ab1" * 14,
    "openai project": "sk-proj-" + "Ab1_" * 12,
    "anthropic": "sk-ant-api03-" + "xY9-" * 20,
    "stripe": "sk_live_" + "a1B2" * 6,
    "stripe restricted": "rk_test_" + "a1B2" * 6,
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws session": "ASIAIOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2" * 9,
    "github fine": "github_pat_" + "a1B2" * 9,
    "gitlab": "glpat-" + "a1B2" * 5,
    "slack": "xoxb-1234567890-abcdefghij",
    "google": "AIza" + "a1B2c" * 7,
    "npm": "npm_" + "a1B2" * 9,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "pem bare": "-----BEGIN PRIVATE KEY-----",
    "url": "postgresql://app:hunter2@db.example/app",
}


@pytest.mark.req("X-10")
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_found_wherever_it_hides(secret: str) -> None:
    assert find_secret(secret) == "the top"
    assert find_secret({"a": [1, {"b": f"use {secret} please"}]}) == "a[1].b"
    assert find_secret({"a": {secret: 1}}) == "a"


@pytest.mark.req("X-10")
@pytest.mark.parametrize(
    "name",
    ["password", "Password", "API-Key", "api key", "client_secret", "Authorization", "private_key"],
)
def test_a_name_gives_a_secret_away(name: str) -> None:
    assert find_secret({"login": {name: "hunter2"}}) == f"login.{name}"


@pytest.mark.parametrize("name", ["password", "secret"])
def test_an_empty_or_absent_value_under_such_a_name_is_no_secret(name: str) -> None:
    assert find_secret({name: ""}) is None
    assert find_secret({name: None}) is None


@pytest.mark.req("X-10")
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_the_answer_names_the_place_and_never_the_thing(secret: str) -> None:
    for hidden in ({"a": secret}, {"a": {secret: "x"}}, [secret], {secret: secret}):
        assert secret not in str(find_secret(hidden))


@pytest.mark.parametrize("key", ["\x1b[2J", "k" * 1_000_000, "ada@example.com", "Dear old friend"])
def test_a_key_that_is_no_name_is_not_repeated_either(key: str) -> None:
    assert find_secret({"a": {key: {"password": "hunter2"}}}) == "a.?.password"


@pytest.mark.parametrize(
    "harmless",
    [
        "0198c0de-0000-7000-8000-00000000000a",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "https://example.com/a:b/c@d",
        "mailto:someone@example.com",
        "task-risk-assessment-for-the-quarter",
        "ask-me-about-our-new-disk-arrays-today",
        "2026-01-05T09:00:00.000Z",
        "The password is the word you pass.",
        "req_011CSHoEeqs5C35K2UUqR7Fy",
        "-----BEGIN CERTIFICATE-----",
        "eyJ is how every token starts",
        "token_count",
    ],
)
def test_ids_hashes_and_prose_are_not_secrets(harmless: str) -> None:
    assert find_secret({"value": harmless}) is None


@given(st.uuids() | st.integers(0, 2**160).map(lambda n: f"{n:040x}"))
def test_no_uuid_and_no_commit_id_is_taken_for_a_secret(value: uuid.UUID | str) -> None:
    assert find_secret({"id": str(value)}) is None


@pytest.mark.parametrize(
    "piece",
    ["sk-", "eyJ", "eyJaaaaaaaaaa.", "a://b:", "a:b@", "-----BEGIN ", "AKIA", "xoxb-", "a", "+.-",
     "ghp_", "://", "a+", "eyJ" + "a" * 1999 + ".", "a" * 20 + "://", "x:" * 50 + "://"],
)  # fmt: skip
def test_a_hostile_text_takes_no_longer_than_its_length_allows(piece: str) -> None:
    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        best = 9.0
        for _ in range(3):
            began = time.process_time()
            find_secret(text)
            best = min(best, time.process_time() - began)
        return best

    small, large = seconds(50_000), seconds(200_000)

    assert large < max(0.05, 12 * small)
    assert large < 1.0
