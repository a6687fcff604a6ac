"""Secrets in a change: no model gets one, line numbers do not change, and code is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sensitive import Span
from holdfast_review import secrets
from holdfast_review.patch import Change, FileChange, Hunk, write_patch
from holdfast_review.prompt import prompt_for
from holdfast_review.refusal import RedactionFailed
from holdfast_review.secrets import guard, redact_change, redact_text
from holdfast_review.split import Part, split_change

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
def test_a_key_is_redacted_in_every_position(secret: str, line: str) -> None:
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
        '+DB_PASS = "hunter2"',
        '+private String smtpPass = "hunter2";',
        '+password = "correct hunter battery staple"',
        '+PASSWORD = ("hunter2")',
        '+SMTP_PASS = os.getenv("SMTP_PASS", "hunter2")',
        '+password = os.getenv("P") or "hunter2"',
        '+password = config("DB_PASSWORD", default="hunterpassword")',
        '+token: process.env.T || "hunter2"',
        '+user, password = "bob", "hunter2"',
        '+const [user, pass] = ["bob", "hunter2"]',
        '+get(url, auth=("bob", "hunter2"))',
        '+password: Annotated[str, Field(max_length=9)] = "hunter2"',
        '+AuthPassword:             "hunter2",',
        '+source.setPassword("hunter");',
        '+std::string password{"hunter"};',
        '+password = SecretStr("hunterpassword")',
        '+NSString *password = @"hunter2";',
        '+password = "$hunter2"',
        r'+body = "{\"password\": \"hunter2\"}"',
        '+run(["--secret", "hunter_secret"])',
        '+{"name": "DB_PASSWORD", "value": "hunter"}',
        '+<add key="Password" value="hunter2"/>',
        '+<add value="hunter2" key="Password"/>',
        '+<password encrypted="false">hunter2</password>',
        "+CREATE USER bob IDENTIFIED BY 'hunter2';",
        "+ALTER ROLE bob PASSWORD 'hunter2';",
        "+# docker run -e POSTGRES_PASSWORD=hunter2 postgres",
        "+curl -u bob:hunter2 https://example.com",
        '+run(["curl", "-u", "bob:hunter2"])',
        "+mysql -uroot -phunter2 app",
        "+sshpass -p hunter2 ssh bob@host",
        "+login --password hunter2",
    ],
)
def test_a_literal_under_a_secret_name_is_struck(line: str) -> None:
    assert "hunter" not in lines_of(redact_change(change_of(line)))[0]


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("a.py", ["PASSWORD = (", '    "hunter2"', ")"]),
        ("a.py", ["auth = BasicAuth(", '    "bob",', '    "hunter2",', ")"]),
        ("a.py", ['PASSWORD = """', "hunter horse", '"""']),
        ("a.js", ["const password =", '  "hunter";']),
        ("a.js", ["const password = process.env.PASS", '  || "hunter";']),
        ("a.yml", ["password: |", "  hunter2", "", "  hunter horse"]),
        ("a.yml", ["- password: >-", "    hunter horse", "  user: bob"]),
        ("a.yml", ["- name: DB_PASSWORD", "  value: hunter"]),
        ("main.tf", ['variable "db_password" {', "  type = string", '  default = "hunter"', "}"]),
        ("key.ppk", ["Private-Lines: 2", "AAAAgQChunter", "hunter=="]),
    ],
)
def test_a_secret_below_its_name_is_struck_and_every_line_stays(
    path: str, lines: list[str]
) -> None:
    found = lines_of(redact_change(change_of(*(f"+{line}" for line in lines), path=path)))

    assert "hunter" not in "".join(found)
    assert len(found) == len(lines)
    assert found[0] == f"+{lines[0]}"


def test_text_beside_a_secret_stays() -> None:
    change = change_of(
        '+connect(host="db7.internal", password="hunter2", user="app7")',
        '+password = os.getenv("DB_PASSWORD", "hunter2")',
        '+{"password": "hunter2", "mode": "fast7"}',
        "+- password: >-", "+    hunter2", "+  user: bob",
    )  # fmt: skip

    assert lines_of(redact_change(change)) == (
        '+connect(host="db7.internal", password="[secret]", user="app7")',
        '+password = os.getenv("DB_PASSWORD", "[secret]")',
        '+{"password": "[secret]", "mode": "fast7"}',
        "+- password: >-", "+    [secret]", "+  user: bob",
    )  # fmt: skip


def test_an_address_that_is_put_together_does_not_stop_a_review() -> None:
    line = '+u="https://"+user+":"+word+"@"+host'

    assert lines_of(redact_change(change_of(line))) == ('+u="https://[secret]@"+host',)


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "deploy/app.yaml",
        "x.ini",
        "prod.tfvars",
        ".npmrc",
        "run.sh",
        "Makefile",
        "README.md",
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "+DB_PASSWORD=hunter2", "+password: hunter2", "+api_key = h4nter", "+DB_PASS ?= hunter",
        "+  password: correct horse battery staple", "+password: ${DB_PASSWORD:-hunter2}",
    ],
)  # fmt: skip
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
        '+passed = "yes"',
        '+compass, bypass = "north", "always"',
        '+passenger = "Alice"',
        '+first_pass = "lexer"',
        '+password_label = "Password"',
        '+"forgot_password": "Forgot your password?",',
        '+password = getpass("Enter your password: ")',
        '+password = form.cleaned_data.get("password1")',
        '+String password = request.getParameter("user.password");',
        '+password = os.environ["DB_PASSWORD"]',
        '+if not password: raise ValueError("Missing")',
        '+password: str = Field(description="Of the user", alias="userPassword")',
        '+_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}")',
        '+if (typeof token === "string") {',
        '+const validatePassword = (pw) => { return pw.length > 8 ? "strong" : "weak"; }',
        '+def check_password(password, encoded, preferred="argon"):',
        '+log.info("password: %s", user, "done7")',
        '+CREDENTIALS = ("authorization", "x-api-key")',
        '+Password string `json:"password"`',
        "+docker run -u 1000:1000 -p 8080:80 mysql",
        "+mysql -h db -p app",
        "+the user's password isn't kept",
    ],
)
def test_code_that_only_speaks_of_secrets_stays(line: str) -> None:
    assert lines_of(redact_change(change_of(line))) == (line,)


@pytest.mark.parametrize(
    "line",
    [
        "+password: ${{ secrets.DB_PASSWORD_2 }}",
        "+password: ${DB_PASSWORD}",
        '+password: "{{ vault_password }}"',
        "+TOKEN=$(cat /run/secrets/token)",
        "+DB_PASSWD=${DB_PASSWD:-}",
        "+Password must have 8 characters or more.",
        "+password: string",
        "+credentials = Credentials.of(7)",
    ],
)
def test_in_settings_what_is_filled_in_later_stays(line: str) -> None:
    assert lines_of(redact_change(change_of(line, path="docs/x.md"))) == (line,)


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


PIECES = [
    "password", "DB_PASS", "token", "name: DB_PASS\n  value: ", "password: |\n  ", "\n", "\n  ",
    " ", '"', "'", "`", '"""', "=", ": ", ",", ";", "(", ")", "[", "]", "{", "}", "=>", "||", "\\",
    '\\"', "hunter2", "correct horse", "get", "--password ", "-u bob:", "identified by ",
    "[secret]", AWS,
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["a.py", "a.yml"]))
def test_a_change_that_was_redacted_may_be_sent_in_whatever_parts(
    pieces: list[str], path: str
) -> None:
    lines = tuple(f"+{line}" for line in "".join(pieces).split("\n"))
    hunk = Hunk(1, 1, lines, "password: |")

    redacted = redact_change(Change((FileChange(path, hunks=(hunk,)),)))

    assert redact_change(redacted) == redacted
    for part in split_change(redacted, 60):
        assert prompt_for(part)


@given(st.text(st.sampled_from("+-= \n\"'ab1/AKIA:@[]secrtky"), max_size=200))
def test_no_line_is_ever_lost(text: str) -> None:
    assert redact_text(text).count("\n") == text.count("\n")


# -- the guard


def test_nothing_is_asked_about_a_change_that_was_not_redacted() -> None:
    with pytest.raises(RedactionFailed) as refused:
        prompt_for(Part(0, change_of(f'+x = "{AWS}"').files))

    assert AWS not in str(refused.value)
    assert refused.value.context == {"problem": "not_clean"}


def test_a_failing_redaction_blocks_the_review_and_reveals_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
