"""Secrets in a change: none reaches a model, every line stays where it is, and code stays code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.review import secrets
from holdfast.apps.review.patch import Change, FileChange, Hunk, write_patch
from holdfast.apps.review.prompt import prompt_for
from holdfast.apps.review.refusal import RedactionFailed
from holdfast.apps.review.secrets import guard, redact_change, redact_text
from holdfast.apps.review.split import Part
from holdfast.sensitive import Span

KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDH7sKq2cTnY9mQ"
AWS = "AKIAIOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2" * 9
SECRETS = [
    AWS,
    GITHUB,
    "sk-proj-Zx81hTq0LmN4pRs7vWy2",
    "xoxb-123456789012-abcdefABCDEF",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLW9mLWl0",
]


def change_of(*lines: str, path: str = "app.py") -> Change:
    return Change((FileChange(path, hunks=(Hunk(1, 1, lines),)),))


def lines_of(change: Change) -> tuple[str, ...]:
    return change.files[0].hunks[0].lines


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "line", ["+{}", "-{}", " x = '{}'", "+# {} #", "+{{'a': \"{}\"}}", "+curl -H 'x: {}' y"]
)
def test_a_key_is_struck_wherever_it_stands(secret: str, line: str) -> None:
    (found,) = lines_of(redact_change(change_of(line.format(secret))))

    assert secret not in found
    assert found[0] == line[0]


def test_a_login_in_an_address_is_struck_and_the_host_stays() -> None:
    (found,) = lines_of(redact_change(change_of("+db = 'postgres://app:hunter2@db.internal/x'")))

    assert found == "+db = 'postgres://[secret]@db.internal/x'"


def test_a_pem_block_is_struck_line_by_line_whatever_its_signs() -> None:
    change = change_of(
        " before", "+-----BEGIN RSA PRIVATE KEY-----", f"-{KEY_LINE}", f"+{KEY_LINE}", "+AbC9==",
        "+-----END RSA PRIVATE KEY-----", "+after",
    )  # fmt: skip

    assert lines_of(redact_change(change)) == (
        " before", "+[key]", "-[key]", "+[key]", "+[key]", "+[key]", "+after",
    )  # fmt: skip


def test_the_middle_and_the_end_of_a_key_are_struck_without_its_beginning() -> None:
    middle = lines_of(redact_change(change_of(" x = 1", f"+    {KEY_LINE}", "+y = 2")))
    end = lines_of(redact_change(change_of("+q83vEi9=", "+-----END PRIVATE KEY-----", " z")))

    assert middle == (" x = 1", "+    [key]", "+y = 2")
    assert end == ("+[key]", "+-----END PRIVATE KEY-----", " z")


@pytest.mark.parametrize(
    "line",
    [
        '+password = "hunter2"',
        "+    'api_key': 'hunter2',",
        '+SECRET_TOKEN: str = "hunter2"',
        '+connect("password", "hunter2")',
        "+<password>hunter2</password>",
        '+url = "https://api.example.com/?access_token=hunter2&x=1"',
        '+dsn = "Server=db;Password=hunter2;"',
        r'+password = "a\"hunter2"',
        "+password = 'a''hunter2'",
        '+password = """hunter2"""',
        "+password = b'''hunter2'''",
        f'+secret = "hunter2{"x1" * 2_000}"',
        '+char password[] = "hunter2";',
        '+password?: string = "hunter2"',
        '+#define PASSWORD "hunter2"',
        '+if token == "hunter2":',
        "+run --password=hunter2 --quiet",
    ],
)
def test_a_literal_under_a_secret_name_is_struck(line: str) -> None:
    assert "hunter2" not in lines_of(redact_change(change_of(line)))[0]


@pytest.mark.parametrize(
    "path", [".env", "deploy/app.yaml", "x.ini", "prod.tfvars", ".npmrc", "run.sh"]
)
@pytest.mark.parametrize(
    "line", ["+DB_PASSWORD=hunter2", "+password: hunter2", "+api_key = h4nter"]
)
def test_in_settings_a_value_needs_no_quotes(path: str, line: str) -> None:
    (found,) = lines_of(redact_change(change_of(line, path=path)))

    assert found.endswith("[secret]")


@pytest.mark.parametrize(
    "line",
    [
        "+def login(password: str, token: str | None = None) -> Session:",
        "+    if not check_password(user, password):",
        "+    token = request.headers['X-Token']",
        '+    raise AuthError("The password is wrong. Ask for another one.")',
        '+password = "${DB_PASSWORD}"',
        "+index 83db48f9d1c2e3a4b5c6d7e8f9a0b1c2d3e4f5a6",
        '+sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
        "+see https://example.com/a?b=c#d and a@b",
        '+EMPTY = "://@"',
    ],
)
def test_code_that_only_speaks_of_secrets_stays(line: str) -> None:
    assert lines_of(redact_change(change_of(line))) == (line,)


def test_a_key_in_a_path_or_a_heading_is_struck_too() -> None:
    hunk = Hunk(1, 1, ("+x",), f"class {AWS}:")

    (file,) = redact_change(Change((FileChange(f"keys/{AWS}.txt", hunks=(hunk,)),))).files

    assert file.path == "keys/[secret].txt"
    assert AWS not in file.hunks[0].heading


@given(st.lists(st.sampled_from([*SECRETS, "x = ", '"', "\\n", "://", "@", ":", "password=", " "])))
def test_what_is_redacted_is_clean_and_stays_so(pieces: list[str]) -> None:
    text = redact_text("".join(pieces))

    assert guard(text) == text
    assert redact_text(text) == text


@given(st.text(st.sampled_from("+-= \n\"'ab1/AKIA:@[]secrtky"), max_size=200))
def test_no_line_is_ever_lost(text: str) -> None:
    assert redact_text(text).count("\n") == text.count("\n")


# -- the guard


def test_nothing_is_asked_about_a_change_that_was_not_redacted() -> None:
    with pytest.raises(RedactionFailed) as refused:
        prompt_for(Part(0, change_of(f'+x = "{AWS}"').files))

    assert AWS not in str(refused.value)
    assert refused.value.context == {"problem": "not_clean"}


def test_a_redaction_that_breaks_blocks_and_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Iterator[Span]:
        raise ValueError(text)

    monkeypatch.setattr(secrets, "_FINDERS", (broken,))
    with pytest.raises(RedactionFailed) as refused:
        redact_change(change_of(f"+{AWS}"))

    assert refused.value.context == {"problem": "error"}
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_redaction_that_finds_nothing_any_more_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secrets, "_FINDERS", ())

    with pytest.raises(RedactionFailed):
        redact_change(change_of(f"+{AWS}"))


def test_what_is_stored_holds_no_secret() -> None:
    stored = write_patch(redact_change(change_of(*(f"+{secret}" for secret in SECRETS))))

    assert [secret for secret in SECRETS if secret.encode() in stored] == []
