"""The redactor removes private data, keeps what an operator needs, and is always fast."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import redact as redacting
from holdfast.redact import TEXT_LIMIT, harmless, redact, redact_document
from holdfast.secret import NAMES, find_secret
from holdfast.sensitive import FINDERS, Finder, Span, is_secret_name
from tests.pure.test_secret import SECRETS

# -- planted data: the text that is planted, and a fragment of it that must not remain

Planted = tuple[str, str]

UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = UPPER.lower()
DIGITS = "0123456789"
ALNUM = UPPER + LOWER + DIGITS


def chars(alphabet: str, least: int, most: int | None = None) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most or least)


# No fragment is part of our own words, so that finding it means that it leaked.
cores = chars(ALNUM, 6, 12).map(lambda text: f"Zq7{text}9vX")


def luhn(digits: str) -> str:
    total = sum(sum(divmod(int(digit) * 2, 10)) for digit in digits[::-1][::2])
    total += sum(int(digit) for digit in digits[::-1][1::2])
    return digits + str(-total % 10)


def groups_of_four(text: str, between: str) -> str:
    return between.join(text[at : at + 4] for at in range(0, len(text), 4))


def iban(country: str, account: str) -> str:
    turned = "".join(str(int(char, 36)) for char in account + country + "00")
    return f"{country}{98 - int(turned) % 97:02d}{account}"


def base64_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@st.composite
def keys(draw: st.DrawFn) -> Planted:
    """Keys with a recognizable prefix; also in the middle of a word."""
    core = draw(cores)
    body = draw(chars(ALNUM, 40)) + core
    prefix = draw(
        st.sampled_from(
            ["sk-", "sk-ant-api03-", "sk_live_", "ghp_", "github_pat_", "glpat-", "xoxb-", "hf_"]
        )
    )
    if prefix == "hf_" and draw(st.booleans()):
        prefix = "hf_live_a1B2c3D4e5_"
    return prefix + body, core


@st.composite
def aws_ids(draw: st.DrawFn) -> Planted:
    key = draw(st.sampled_from(["AKIA", "ASIA"])) + draw(chars(UPPER + DIGITS, 16))
    return key, key


@st.composite
def aws_secrets(draw: st.DrawFn) -> Planted:
    key = "wJ4" + draw(chars(ALNUM + "/+", 36)) + "Y"
    return key, key


@st.composite
def tokens(draw: st.DrawFn) -> Planted:
    core = draw(cores)
    head, body = base64_of({"alg": "HS256"}), base64_of({"sub": draw(cores)})
    return f"{head}.{body}.{draw(chars(ALNUM, 20))}{core}", core


@st.composite
def private_keys(draw: st.DrawFn) -> Planted:
    kind = draw(st.sampled_from(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "]))
    head = draw(st.sampled_from(["", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,7F\n\n"]))
    core = draw(cores)
    lines = "\n".join(draw(st.lists(chars(ALNUM + "+/", 64), min_size=1, max_size=5)))
    end = draw(st.sampled_from([f"\n-----END {kind}PRIVATE KEY-----", ""]))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{head}{lines}{core}{end}", core


@st.composite
def headers(draw: st.DrawFn) -> Planted:
    core = draw(cores)
    scheme = draw(st.sampled_from(["Bearer", "bearer", "Basic", "Negotiate"]))
    return f"{scheme} {core}", core


@st.composite
def logins(draw: st.DrawFn) -> Planted:
    core = draw(cores)
    left, right = draw(chars(ALNUM + "@/#?:!%", 0, 4)), draw(chars(ALNUM + "@!%", 0, 4))
    password = draw(st.sampled_from([f"{left}{core}{right}", quote(f"{left}{core}{right}", "")]))
    user = draw(st.sampled_from(["ada:", "x:", ":"]))
    return f"postgresql://{user}{password}@db.example.com/app?sslmode=require", core


@st.composite
def emails(draw: st.DrawFn) -> Planted:
    core = draw(cores)
    local = draw(chars(ALNUM + "._%+-", 0, 80)) + core
    at = draw(st.sampled_from(["@", "@", "%40", "\\u0040"]))
    domain = draw(st.sampled_from(["example.com", "müller.de", "mail.example.co.uk", "localhost"]))
    return f"{local}{at}{domain}", core


@st.composite
def cards(draw: st.DrawFn) -> Planted:
    start, length = draw(
        st.sampled_from([("4", 16), ("51", 16), ("2221", 16), ("6011", 16), ("4", 19), ("4", 13)])
    )
    number = luhn(start + draw(chars(DIGITS, length - 1 - len(start))))
    if length == 16:
        number = groups_of_four(number, draw(st.sampled_from(["", " ", "-", "."])))
    return number, number


@st.composite
def amex(draw: st.DrawFn) -> Planted:
    number = luhn("37" + draw(chars(DIGITS, 12)))
    between = draw(st.sampled_from(["", " ", "-"]))
    return (written := f"{number[:4]}{between}{number[4:10]}{between}{number[10:]}"), written


@st.composite
def ibans(draw: st.DrawFn) -> Planted:
    country, account = draw(
        st.one_of(
            st.tuples(st.just("DE"), chars(DIGITS, 18)),
            st.tuples(st.just("NO"), chars(DIGITS, 11)),
            st.tuples(st.just("GB"), chars(DIGITS, 14).map(lambda number: "WEST" + number)),
            st.tuples(st.just("FR"), chars(DIGITS, 23)),
        )
    )
    number = groups_of_four(iban(country, account), draw(st.sampled_from(["", " ", "-"])))
    number = draw(st.sampled_from([number, number.lower()]))
    return number, number


@st.composite
def phones(draw: st.DrawFn) -> Planted:
    last = draw(chars(DIGITS, 7))
    number = draw(
        st.sampled_from(
            [
                f"+49 30 {last}", f"+4930{last}", f"+1 (555) 123-{last[:4]}", f"0049 30 {last}",
                f"(030) {last}", f"030 {last}", f"0171/{last}", f"0171-{last}", f"0171{last}",
                f"555-123-{last[:4]}", f"(555) 123-{last[:4]}", f"555.123.{last[:4]}",
                f"123-45-{last[:4]}",
            ]
        )
    )  # fmt: skip
    return number, number


@st.composite
def ips(draw: st.DrawFn) -> Planted:
    last = draw(st.integers(1, 254))
    address = draw(st.sampled_from([f"8.8.4.{last}", f"2a00:1450:4001:81b::{last:x}"]))
    return address, address


@st.composite
def named(draw: st.DrawFn) -> Planted:
    """Values under the name of a secret, as programs write such pairs."""
    core = draw(cores)
    name = draw(
        st.sampled_from(
            [
                *sorted(NAMES), "Password", "X-Api-Key", "clientSecret", "DB_PASSWORD",
                "PGPASSWORD", "userToken", "Set-Cookie", "Cookie", "Proxy-Authorization",
                "x-amz-security-token",
            ]
        )
    )  # fmt: skip
    junk = st.text(st.characters(codec="utf-8") | st.sampled_from("\"'\\\n\t{}<>&=,: "), max_size=8)
    value = draw(junk) + core + draw(junk)
    line = "".join(char for char in value if char.isprintable())
    word = draw(chars(ALNUM + "!$%()*+,-./:;?@[]^_`{|}~", 0, 6)) + core
    text = draw(
        st.sampled_from(
            [
                json.dumps({name: value}),
                json.dumps({name: value}, ensure_ascii=False, separators=(",", ":")),
                json.dumps(json.dumps({name: value})),
                json.dumps({"body": json.dumps({"a": json.dumps({name: value})})}),
                json.dumps({name: value}, indent=2),
                repr({name: value}),
                repr({"a": repr({name: value})}),
                repr([(name, value), ("a", "b")]),
                repr({name: value.encode()}),
                f"{name}: {line}",
                f"{name} = {line}",
                f"{name}={word}",
                f"--{name}={word}",
                f"https://example.com/x?a=1&{name}={quote(value, safe='')}&b=2",
                quote(f"{name}={word}", safe=""),
                f"<{name}>{word.replace('<', '')}</{name}>",
            ]
        )
    )
    return text, core


@st.composite
def literals(draw: st.DrawFn) -> Planted:
    """An ordinary sentence, quoted on a line that names an exception."""
    core = draw(cores)
    sentence = f"Dear neighbour, {draw(st.text(max_size=10))}{core}{draw(st.text(max_size=10))}"
    return draw(
        st.sampled_from(
            [
                f"KeyError: {sentence!r}",
                f"ValueError: can't read {sentence!r}",
                f"app.errors.OrderFailure({sentence!r})",
                f'  File "app.py", line 812, in send\n    send({sentence!r})',
                f"json.decoder.JSONDecodeError: {json.dumps(sentence)} is wrong",
            ]
        )
    ), core


PLANTS: dict[str, st.SearchStrategy[Planted]] = {
    "keys": keys(),
    "aws ids": aws_ids(),
    "aws secrets": aws_secrets(),
    "tokens": tokens(),
    "private keys": private_keys(),
    "headers": headers(),
    "logins": logins(),
    "emails": emails(),
    "cards": cards(),
    "amex": amex(),
    "ibans": ibans(),
    "phones": phones(),
    "ips": ips(),
    "named": named(),
    "literals": literals(),
}
EDGES = [
    " ", "\n", "\t", "\r\n", '"', "'", "(", ")", "<", ">", "[", "]", "{", "}", ",", ";", "|", "=",
    "\0", "\\n", "\\t", "\\r\\n", "%20", "%0A", "%3D", "&quot;", "&#39;", "\\\\n", "%2520",
    "\\u00fc", "\x1b[31m", "\x1b[0m", "\u202e", "ü",
]  # fmt: skip


@pytest.mark.req("D-10", "D-11", "M-03")
@pytest.mark.parametrize("kind", PLANTS)
@given(data=st.data())
def test_nothing_private_is_left_in_any_surrounding(kind: str, data: st.DataObject) -> None:
    planted, needle = data.draw(PLANTS[kind])
    before = data.draw(st.text(max_size=30)) + data.draw(st.sampled_from(EDGES))
    after = data.draw(st.sampled_from(EDGES)) + data.draw(st.text(max_size=30))

    assert needle not in redact(before + planted + after)
    assert needle not in redact(planted)


@given(st.lists(st.one_of(*PLANTS.values()), min_size=2, max_size=6), st.sampled_from(EDGES))
def test_nothing_private_hides_another(planted: list[Planted], between: str) -> None:
    text = redact(between.join(text for text, _ in planted))

    assert [needle for _, needle in planted if needle in text] == []


@given(keys(), st.text(ALNUM + "_-", max_size=30), st.text(ALNUM + "_-", max_size=30))
def test_a_key_is_found_in_the_middle_of_a_word(key: Planted, left: str, right: str) -> None:
    assert key[1] not in redact(left + key[0] + right)


@pytest.mark.req("X-10")
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_what_a_payload_is_refused_for_is_struck_out(secret: str) -> None:
    assert find_secret(redact(f"use {secret} please")) is None
    assert secret not in redact(f"use {secret} please")


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        ("password: bob", "password: [secret]"),
        ("password=hunter2 user=ada", "password=[secret] user=ada"),
        ("?a=1&token=x&b=2", "?a=1&token=[secret]&b=2"),
        ('{"password": "hun\\"ter2", "status": 503}', '{"password": "[secret]", "status": 503}'),
        (r"{\"pin\": \"12\", \"status\": 503}", r'{\"pin\": \"[secret]", \"status\": 503}'),
        ("{'pwd': b'x', 'status': 503}", "{'pwd': b'[secret]', 'status': 503}"),
        ('{"pin": 1234, "status": 503}', '{"pin": [secret], "status": 503}'),
        ('{"token": null, "status": 503}', '{"token": null, "status": 503}'),
        ("<pin>1234</pin><status>503</status>", "<pin>[secret]</pin><status>503</status>"),
        ("Cookie: a=b; c=d\nstatus: 503", "Cookie: [secret]\nstatus: 503"),
        ("Cookie=a=b c=d\nstatus: 503", "Cookie=[secret]\nstatus: 503"),
        ("[('sid', 'x'), ('status', 503)]", "[('sid', '[secret]'), ('status', 503)]"),
        ("api key: x y\nstatus: 503", "api key: [secret]\nstatus: 503"),
        ("Basic understanding, bearer of news", "Basic understanding, bearer of news"),
        ("call +49 30 1234567, job 7", "call [phone], job 7"),
        ("KeyError: 'x' at line 8", "KeyError: [literal] at line 8"),
        (
            'Traceback:\n  File "a/b.py", line 8, in run\n    go("x", 7)\nNoSuch: "y" or \'z\'',
            'Traceback:\n  File "a/b.py", line 8, in run\n    go([literal], 7)\nNoSuch: [literal]',
        ),
        ("8.8.8.8. Then 10.0.0.1.", "[ip]. Then 10.0.0.1."),
        ("to 2a00:1450:4001:81b::200e. Then", "to [ip]. Then"),
        ("1 4111 1111 1111 1111 2", "1 [card] 2"),
        ("6304 1000 0000 0000 009", "[card]"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("DE88370400440532013000", "DE88370400440532013000"),
    ],
)
def test_no_more_is_struck_out_than_is_private(text: str, struck: str) -> None:
    assert redact(text) == struck


WIDER = {
    "hugging face": "hf_" + "a1B2" * 9,
    "groq": "gsk_" + "a1B2" * 13,
    "replicate": "r8_" + "a1B2" * 9,
    "xai": "xai-" + "a1B2" * 20,
    "perplexity": "pplx-" + "a1B2" * 12,
    "stripe webhook": "whsec_" + "a1B2" * 8,
    "sendgrid": "SG." + "a1B2" * 5 + "xy." + "a1B2" * 10 + "xyz",
    "google oauth": "ya29." + "a1B2" * 30,
    "google client": "GOCSPX-" + "a1B2" * 7,
    "slack app": "xapp-1-" + "A1B2" * 8,
    "databricks": "dapi" + "a1b2" * 8,
    "shopify": "shpat_" + "a1b2" * 8,
    "digital ocean": "dop_v1_" + "a1b2" * 16,
    "pypi": "pypi-" + "a1B2" * 20,
    "docker hub": "dckr_pat_" + "a1B2" * 7,
    "vault": "hvs." + "a1B2" * 6,
    "resend": "re_a1B2a1B2_" + "a1B2" * 6,
    "mailgun": "key-" + "a1b2" * 8,
    "twilio": "SK" + "a1b2" * 8,
    "linear": "lin_api_" + "a1B2" * 10,
    "square": "sq0atp-" + "a1B2" * 5 + "xy",
    "atlassian": "ATATT3xFfGF0" + "a1B2" * 20,
    "gitlab runner": "glrt-" + "a1B2" * 5,
    "age": "AGE-SECRET-KEY-1" + "A1B2" * 14 + "QP",
    "telegram bot": "123456789:AA" + "a1B2" * 8 + "x",
    "slack hook": "https://hooks.slack.com/services/T0/B0/a1B2a1B2",
    "discord hook": "https://discord.com/api/webhooks/1/a1B2a1B2",
    "telegram": "https://api.telegram.org/bot12345:a1B2a1B2/send",
    "json in base64": base64_of({"text": "Dear neighbour"}),
    "one that is too long": "ghp_" + "a1B2" * 100,
}


@pytest.mark.parametrize("secret", WIDER.values(), ids=WIDER.keys())
def test_keys_that_no_payload_is_refused_for_are_struck_out_too(secret: str) -> None:
    struck = redact(f"it said {secret} twice")

    assert "a1b2" not in struck.lower()
    assert secret not in struck
    assert struck.startswith("it said ")
    assert struck.endswith(" twice")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_that_a_payload_is_refused_for_is_a_secret_name(name: str) -> None:
    assert is_secret_name(name)
    assert is_secret_name(name.upper().replace("_", "-"))


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASS", "smtpPass", "SMTP-PASS", "mysqlpass", "STANDBY_PASS", "PASS2", "root.pw",
        "dbPw1", "userPwd", "MYSQL_PWD", "awsCreds", "db_cred", "API_KEY_2", "token1", "wifi_psk",
    ],
)  # fmt: skip
def test_a_name_that_ends_as_a_secret_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "passed", "passes", "passenger", "bypass", "allowBypass", "COMPASS", "surpass", "pass_rate",
        "first_pass", "secondPass", "single-pass", "passing", "sacred", "raw", "max_tokens",
    ],
)  # fmt: skip
def test_a_name_that_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not is_secret_name(name)
    assert redact(f"{name}=7 done") == f"{name}=7 done"


def test_the_private_lines_of_a_key_are_struck_and_what_follows_stays() -> None:
    text = "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\nAAAAgQCabc\nq83v==\nPrivate-MAC: 7"

    assert redact(text) == (
        "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\n[key]\nPrivate-MAC: 7"
    )


@pytest.mark.parametrize("left_out", FINDERS, ids=lambda finder: finder.__name__)
def test_no_finder_can_be_left_out(left_out: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        "sk-" + "Ab1" * 14,
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        "Bearer correct-horse-battery",
        "redis://:hunter2@cache:6379/0",
        "password=hunter2",
        "ada@example.com",
        "4111 1111 1111 1111",
        "+49 30 1234567",
        "DE89 3704 0044 0532 0130 00",
        "8.8.8.8",
        "KeyError: 'Dear neighbour'",
    ]
    kept = tuple(finder for finder in FINDERS if finder is not left_out)
    whole = [redact(text) for text in samples]

    monkeypatch.setattr(redacting, "FINDERS", kept)

    assert all(struck != text for struck, text in zip(whole, samples, strict=True))
    assert [redact(text) for text in samples] != whole


# -- kept text

SURVIVORS: dict[str, st.SearchStrategy[str]] = {
    "uuid": st.uuids().map(str),
    "sha256": chars("0123456789abcdef", 64),
    "commit": chars("0123456789abcdef", 40),
    "short commit": chars("0123456789abcdef", 6, 11).map(lambda text: "a" + text),
    "number": st.integers(-(10**12), 10**12).map(str),
    "fraction": st.floats(0, 1e6).map(repr),
    "instant": st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    "day": st.dates().map(str),
    "line": st.integers(1, 9999).map(lambda line: f"line {line}"),
    "module": st.lists(chars(LOWER + "_", 1, 12), min_size=2, max_size=5).map(".".join),
    "error class": st.sampled_from(["NETWORK_TIMEOUT", "DEFECT", "RATE_LIMITED"]),
    "fields": st.tuples(
        st.sampled_from(["status", "attempt", "lease_token", "token_count", "max_tokens"]),
        st.integers(0, 9999),
    ).map(lambda pair: f"{pair[0]}={pair[1]}"),
    "trace": chars("0123456789abcdef", 48).map(lambda x: f"00-{x[:32]}-{x[32:]}-01"),
    "request": chars(ALNUM, 24).map(lambda text: f"req_{text}"),
}  # fmt: skip


@pytest.mark.req("D-08")
@pytest.mark.parametrize("kind", SURVIVORS)
@given(data=st.data())
def test_what_an_operator_needs_stays_as_it_is(kind: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(SURVIVORS[kind], min_size=1, max_size=4))
    text = data.draw(st.sampled_from([", ", "\n", "; ", '" "', " and "])).join(words)

    assert redact(text) == text
    assert redact(f"job failed with {text}.") == f"job failed with {text}."


@pytest.mark.parametrize(
    "text",
    [
        "NETWORK_TIMEOUT stage=llm attempt=3 status=503 host=api.example.com:443",
        "holdfast.engine.worker.worker:812 in _run_waiting",
        "tests.test_x.test_y.<locals>.Broken",
        "report.export:0198c0de-0000-7000-8000-00000000000a::9f86d081884c7d659a2feaa0c55ad015",
        "worker.py, line 812, q:default, batch_67a1, msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d",
        "127.0.0.1:5432, 10.1.2.3, 192.168.0.7, ::1, fe80::1",
        "the task-risk-assessment-for-the-quarter took 09:00:00.125",
        "https://example.com/a/b?page=2",
        "postgresql://db.example.com:5432/app",
        "left-pad@1.3.0 says it isn't",
        "1767603600000 1767603600123456 0.4111111111111111",
        "he said 'hello' and left",
        "object a4111111111111111 of 0198c0de-0171-4567-8901-00000000000a",
        "be685390-0754-7034-8000-000000000000",
        "room 0123-4567",
    ],
)
def test_what_only_looks_private_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "login", ["ada:hunter2", "ada:a/b#c@2", ":a@b", "ada:a@b@c", "ada:a@b/c@d"]
)
def test_the_host_of_an_address_stays_without_its_login(login: str) -> None:
    assert redact(f"postgresql://{login}@db:5432/app") == "postgresql://[secret]@db:5432/app"


@given(st.one_of(*PLANTS.values()), st.sampled_from(EDGES), st.text(max_size=20))
def test_what_was_struck_out_is_not_struck_again(planted: Planted, edge: str, text: str) -> None:
    once = redact(f"{text}{edge}{planted[0]}{edge}{text}")

    assert planted[1] not in redact(once)


# -- bounds


@pytest.mark.req("D-11")
@given(st.one_of(*PLANTS.values()), st.integers(0, 120))
def test_a_cut_leaves_no_half_of_a_secret(planted: Planted, room: int) -> None:
    text = "x" * 20 + " " + planted[0] + " " + "x" * 20_000

    cut = redact(text, limit=21 + room)

    assert len(cut) <= 21 + room
    assert planted[1][:6] not in cut.replace("Dear neighbour", "")


def test_megabytes_are_cut() -> None:
    assert len(redact("word " * 1_000_000)) == TEXT_LIMIT
    assert len(redact("a@b " * 1_000_000)) == TEXT_LIMIT
    assert len(harmless("\x1b" * 1_000_000)) == TEXT_LIMIT
    assert redact("word", limit=0) == harmless("word", limit=0) == "…"[:0]


@given(st.text(max_size=200), st.integers(1, 50))
def test_the_answer_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(redact(text, limit)) <= limit
    assert len(harmless(text, limit)) <= limit


PIECES = [
    "a", "0", " ", "\n", '"', "'", "\\", "%", "%4", "@", "a@", "@a", "a.", "a@b.", "-", "--",
    "----", "-----BEGIN ", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN -----END", "eyJ",
    "eyJ" + "a" * 16, "eyJ" + "a" * 40 + ".", "sk-", "sk-a", "ghp_" + "a" * 35, "hf_aa_aaaaaaaa_",
    "AKIA", "Bearer ", "basic ", "Basic aaaaaaa ", "://", "a://b:", "a://b:c", "x:y@", "://a@",
    "://a:b/", "password", "password=", "password:", 'password="', 'password="\\"', "password='\n",
    "token: a", "api key", "('password', ", "a=", "a:", "a->", "\0", "4111 ", "4111-1111-1111-",
    "41111111111", "+1", "+49 30 ", "00491", "0171 ", "0123 1111111 ", "(030) ", "555-123-",
    "DE89 ", "DE89", "NO93 8601 1117 94", "ad12-", "1.1.1.", "1.", "a:b:", "::", "1:2:3:4:5:6:7:",
    "Error: '", "KeyError\n", 'File "', '  File "a", line 1\n', "`", "\\u0040", "\\n", "%40",
    "&quot;", "&", "\x1b[", "\x1b[31m", "é", "\u202e", "\ud800", "wJ4/", "A1a" * 13,
    "hooks.slack.com/services/", "\\\\\\\"password\\\\\\\": ", "\\" * 30 + '"', "a" * 64 + "@",
    "api ", "re_aaaaaa_", "key-0", "12345678:AA", "Private-Lines: 1\n", "Private-Lines: 1\naa\n",
]  # fmt: skip


def takes_linear_time(piece: str, size: int) -> bool:
    """Whether six times the text takes about six times the CPU time; a square takes 36 times."""

    def seconds(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        began = time.process_time()
        redact(text, limit=length)
        return time.process_time() - began

    small = large = 9e9
    for turn in range(12):
        small, large = min(small, seconds(size)), min(large, seconds(6 * size))
        # One slow measurement must not make quadratic work look linear.
        if turn >= 1 and large < 10 * small:
            return True
    return False


@pytest.mark.req("D-11")
@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_the_time_grows_with_the_length_of_the_text_and_not_with_its_square(piece: str) -> None:
    assert takes_linear_time(piece, 4_000)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=6))
def test_mixed_pieces_take_linear_time_too(pieces: list[str]) -> None:
    assert takes_linear_time("".join(pieces), 2_500)


def test_the_measure_knows_a_square_when_it_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(text: str) -> Iterator[Span]:
        pattern = re.compile(r"a*b")
        yield from ((*found.span(), "slow") for found in pattern.finditer(text))

    monkeypatch.setattr(redacting, "FINDERS", (slow,))

    assert takes_linear_time("c", 1_000)
    assert not takes_linear_time("a", 1_000)


# -- documents


@pytest.mark.req("D-10")
def test_in_a_document_the_name_decides_first_and_then_the_text() -> None:
    found = redact_document(
        {
            "user": {"password": "hunter2", "PIN": 1234, "name": "call ada@example.com"},
            "headers": [{"X-Api-Key": ["a", "b"]}, {"Retry-After": "30"}],
            "card": 4111111111111111,
            "sk-" + "Ab1" * 14: 1,
            "lease_token": 7,
            "token": None,
            "status": 503,
        }
    )

    assert found == {
        "user": {"password": "[secret]", "PIN": "[secret]", "name": "call [email]"},
        "headers": [{"X-Api-Key": "[secret]"}, {"Retry-After": "30"}],
        "card": "[card]",
        "[secret]": 1,
        "lease_token": 7,
        "token": None,
        "status": 503,
    }


@pytest.mark.req("D-10")
@given(
    st.one_of(*PLANTS.values()),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=10,
    ),
)
def test_any_value_becomes_a_storable_document_without_what_is_private(
    planted: Planted, value: Any
) -> None:
    found = redact_document({"a": value, "b": [planted[0], {planted[0]: planted[0]}]})

    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    assert planted[1] not in text
    text.encode()
    assert "\\u0000" not in text


def test_a_document_is_bounded_in_depth_values_and_characters() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: dict[str, Any] = {}
    for _ in range(1_000):
        deep = {"a": deep}

    for value in (endless, deep, {"a": "x" * 10**6}, ["y" * 100] * 10**5, {"k" * 10**6: 1}):
        assert len(json.dumps(redact_document(value))) < 2 * TEXT_LIMIT
    assert redact_document(endless) == [[[[[[["[cut]"]]]]]]]
    wide = redact_document({str(number): number for number in range(10_000)})
    assert len(wide) < 1_000
    assert "[cut]" in wide
    assert redact_document({"n": 10**400, "nan": float("nan"), "o": object()}) == {
        "n": "[number]", "nan": "[number]", "o": "[object]",
    }  # fmt: skip


# -- harmless


def test_what_could_move_a_cursor_or_turn_a_line_is_shown_as_an_escape() -> None:
    hostile = "a\x1b[2J\r\n\x07\x9b31m\u202egnp\u2066\u200b\ufeff\ud800\x00\U000e0041z"

    assert harmless(hostile) == (
        "a\\x1b[2J\\x0d\\x0a\\x07\\x9b31m\\u202egnp\\u2066\\u200b\\ufeff\\ud800\\x00\\U000e0041z"
    )


@given(st.text(st.characters()))
def test_harmless_text_is_one_line_that_can_be_stored_and_printed(text: str) -> None:
    shown = harmless(text)

    assert len(shown.splitlines()) <= 1
    shown.encode()
    assert not any(char in shown for char in "\x00\x1b\x9b\u202a\u202e\u2066\u2069\u200f")


@pytest.mark.parametrize("text", ["plain", "ünïcödé ✓ 漢字", "<b>&amp;</b>", "tests.x.<locals>.Y"])
def test_harmless_leaves_ordinary_text_alone(text: str) -> None:
    assert harmless(text) == text
