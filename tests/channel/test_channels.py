"""The channels of the settings, and invalid settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, FakeClock, Settings
from holdfast.channel.channel import Capabilities, Lookup, OnUnknown
from holdfast.channel.channels import ConfiguredChannels
from holdfast.config import ChannelSettings

KEY = "hunter2-hunter2-hunter2"
SENDER = "post@example.com"
RESEND: dict[str, Any] = {"kind": "resend", "credential_env": "KEY", "sender": SENDER}


def configured(env: dict[str, str] | None = None, **options: Any) -> ConfiguredChannels:
    settings = Settings(channels={"one": ChannelSettings(**options)})
    return ConfiguredChannels(settings, clock=FakeClock(), env={"KEY": KEY} if env is None else env)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "smtp", "host": "smtp.example.com", "sender": SENDER},
        {"kind": "postmark", "credential_env": "KEY", "sender": SENDER},
        RESEND,
        {"kind": "slack", "credential_env": "KEY"},
        {"kind": "webhook"},
        {"kind": "mailbox", "folder": "/nowhere", "sender": SENDER},
    ],
)
def test_every_kind_is_created_once_and_reveals_no_secret(options: dict[str, Any]) -> None:
    channels = configured(**options)
    channel = channels.require("one")

    assert channel is channels.require("one") is channels.get("one")
    assert channel.name == "one"
    assert KEY not in repr(vars(channel))


def test_an_undeclared_channel_is_named() -> None:
    channels = configured(kind="webhook")

    with pytest.raises(ConfigError, match=r"Channel 'two'.*Declared: one"):
        channels.require("two")
    assert channels.get("two") is None
    assert channels.on_unknown("two") is OnUnknown.HOLD


def test_the_channel_that_is_always_there_takes_no_section() -> None:
    with pytest.raises(ConfigError, match=r"channels\.in_app is built in.*another name"):
        Settings(channels={"in_app": ChannelSettings(kind="webhook")})


def test_a_credential_that_is_not_here_closes_its_channel_only() -> None:
    channels = configured({}, **RESEND)

    with pytest.raises(ConfigError, match=r"set the variable KEY.*channels\.one\.credential_file"):
        channels.require("one")
    assert channels.get("one") is None


def test_intending_a_message_checks_it_without_a_credential() -> None:
    channels = configured({}, **RESEND)

    assert channels.problem("one", "ada@example.com", "Hello") is None
    assert "e-mail address" in str(channels.problem("one", "nobody", "Hello"))
    assert "one of one" in str(channels.problem("onne", "ada@example.com", "Hello"))


def test_a_text_that_slack_would_cut_is_known_before_anything_is_sent() -> None:
    slack = configured(kind="slack", credential_env="KEY")
    mail = configured(kind="mailbox", folder="/nowhere", sender=SENDER)
    # With the line break after the subject.
    fits = "x" * (40_000 - len("Hello\n"))

    assert slack.problem("one", "C0123", "Hello", fits) is None
    says = "text must have at most 40000 characters with its subject; cut it or send a link"
    assert slack.problem("one", "C0123", "Hello", fits + "x") == says
    # Slack counts the escaped characters.
    assert slack.problem("one", "C0123", "Hello", "<" + fits[:-1]) == says
    assert mail.problem("one", "ada@example.com", "Hello", fits + "x") is None


def test_without_any_section_there_is_no_channel() -> None:
    channels = ConfiguredChannels(Settings(), clock=FakeClock(), env={})

    assert channels.problem("one", "ada@example.com", "Hello") == ("channel must be one of none")


def test_a_credential_file_goes_before_the_variable(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("two\nlines")
    channels = configured(**{**RESEND, "credential_file": str(tmp_path / "key")})

    with pytest.raises(ConfigError, match=r"the file of channels\.one is not a valid credential"):
        channels.require("one")


def test_a_channel_over_http_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.channel.built_in.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"pip install 'holdfast-jobs\[channels\]'"):
        configured(kind="webhook").require("one")
    assert configured(kind="smtp", host="smtp.example.com", sender=SENDER).require("one")


def test_what_is_wanted_of_the_unknowable_comes_from_the_settings() -> None:
    channels = configured(kind="webhook", on_unknown="drop", max_parallel=9)

    assert channels.on_unknown("one") is OnUnknown.DROP
    assert channels.max_parallel("one") == 9
    assert ChannelSettings(kind="webhook").on_unknown == "hold"


DAY = 86_400.0
KEYED = {"credential_env": "KEY"}
GATEWAY = {"base_url": "https://a.example", "status_url": "https://a.example/{token}"}


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        (
            {"kind": "smtp", "host": "smtp.example.com", "sender": SENDER},
            Capabilities(longest_token=200),
        ),
        (
            {"kind": "postmark", "sender": SENDER, **KEYED},
            Capabilities(
                lookup=Lookup.BY_OUR_TOKEN,
                settle_seconds=300.0,
                retention_seconds=7 * DAY,
                longest_token=80,
            ),
        ),
        (
            RESEND,
            Capabilities(
                idempotency_seconds=DAY,
                wants_same_body=True,
                lookup=Lookup.BY_PROVIDER_ID,
                settle_seconds=60.0,
                retention_seconds=DAY,
            ),
        ),
        (
            {"kind": "slack", **KEYED},
            Capabilities(
                lookup=Lookup.BY_OUR_TOKEN,
                settle_seconds=60.0,
                retention_seconds=DAY,
                longest_token=200,
                longest_text=40_000,
            ),
        ),
        (
            {"kind": "webhook"},
            Capabilities(settle_seconds=60.0, receiver_dedupes=True, is_per_endpoint=True),
        ),
        (
            {"kind": "webhook", "receiver_dedupes": False, **GATEWAY},
            Capabilities(lookup=Lookup.BY_OUR_TOKEN, settle_seconds=60.0),
        ),
    ],
)
def test_a_channel_promises_no_more_than_the_other_side_does(
    options: dict[str, Any], declared: Capabilities
) -> None:
    assert configured(**options).require("one").capabilities == declared
    if declared.lookup is not Lookup.NONE:
        known: dict[str, Any] = {"settle_seconds": 5.0, "retention_seconds": 90 * DAY}
        found = configured(**options, **known).require("one").capabilities
        assert found == replace(declared, **known)


# -- settings


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "kind is needed"),
        ({"kind": "fax"}, "kind = 'fax' must be"),
        ({"kind": "smtp", "sender": SENDER}, "needs host"),
        ({"kind": "smtp", "host": "a b", "sender": SENDER}, "host = 'a b' must be"),
        ({"kind": "smtp", "host": "mail.example.com"}, "needs sender"),
        ({"kind": "mailbox", "folder": "box", "sender": SENDER}, "folder must be an absolute path"),
        ({"kind": "mailbox", "folder": "/box", "sender": "A <a@b.c"}, "sender must be"),
        ({"kind": "mailbox", "folder": "/box", "sender": "a@b.c\r\nBcc: x@y.z"}, "sender must be"),
        (
            {"kind": "mailbox", "folder": "/box", "sender": "=?utf-8?q?a=0D=0AX=3A1?= <a@b.c>"},
            "sender must be",
        ),
        ({"kind": "resend", "sender": SENDER}, "needs credential_env or credential_file"),
        ({"kind": "slack", "credential_env": "K", "sender": SENDER}, "sender is not for"),
        ({"kind": "webhook", "credential_env": "K"}, "credential needs base_url"),
        ({"kind": "webhook", "base_url": "http://example.com"}, "base_url is not https"),
        ({"kind": "webhook", "status_url": "https://example.com/{token}"}, "needs base_url"),
        (
            {
                "kind": "webhook",
                "base_url": "https://a.example",
                "status_url": "https://b.example/{token}",
            },
            "status_url is at another server",
        ),
        (
            {
                "kind": "webhook",
                "base_url": "https://a.example",
                "status_url": "https://a.example/",
            },
            "status_url must be an address with {token}",
        ),
        ({"kind": "webhook", "max_parallel": 0}, "max_parallel = 0 must be"),
        ({"kind": "webhook", "on_unknown": "guess"}, "on_unknown = 'guess' must be"),
        (
            {"kind": "smtp", "host": "m.example", "sender": SENDER, "security": "none"},
            "allow_private = true",
        ),
        (
            {"kind": "smtp", "host": "m.example", "sender": SENDER, "username": "ada"},
            "a login needs username and credential_env",
        ),
        (
            {
                "kind": "smtp",
                "host": "m.example",
                "sender": SENDER,
                "security": "none",
                "allow_private": True,
                "username": "ada",
                "credential_env": "K",
            },
            "a login is not sent in the clear",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as told:
        ChannelSettings(**wrong)
    assert says in str(told.value)


def test_channels_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[channels.team]\nkind = "slack"\ncredential_env = "SLACK_TOKEN"\n')

    found = Settings.load(env={}, file=file).channels
    assert found == {"team": ChannelSettings(kind="slack", credential_env="SLACK_TOKEN")}


# -- changed credentials


@pytest.mark.req("R-07")
def test_a_credential_that_was_rotated_is_used_from_the_next_message_on(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("old-key")
    team = ChannelSettings(kind="slack", credential_file=str(secret))
    channels = ConfiguredChannels(Settings(channels={"team": team}), clock=FakeClock())
    first, before = channels.require("team"), channels.fingerprint("team")

    assert channels.require("team") is first
    secret.write_text("new-key")

    assert channels.require("team") is not first
    assert channels.fingerprint("team") != before
    assert "new-key" not in channels.fingerprint("team")
    secret.unlink()
    assert channels.get("team") is None
    assert channels.fingerprint("team") == ""


def test_another_address_is_another_channel_to_a_circuit() -> None:
    made = [
        ConfiguredChannels(
            Settings(channels={"team": ChannelSettings(kind="webhook", base_url=url)}),
            clock=FakeClock(),
        ).fingerprint("team")
        for url in ("https://a.example", "https://b.example", "https://a.example")
    ]

    assert made[0] == made[2] != made[1]
