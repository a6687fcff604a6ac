"""Kinds of channels are registered by entry points, each with its own settings and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import ConfigError, Content, FakeClock, Holdfast, OutgoingMessage, Settings
from holdfast.channel.channel import Channel
from holdfast.channel.channels import ConfiguredChannels
from holdfast.channel.kind import ChannelKind
from holdfast.clock import Clock
from holdfast.config import CommonChannelSettings
from holdfast.config.channel import CHANNEL_KINDS
from holdfast.config.registered import CHANNELS, Registered, channel_kinds
from holdfast.config.setting_type import setting, text, whole
from holdfast.outbound.credential import Credential
from holdfast.outbox.failure import InvalidDelivery
from tests.outbox.scripted import ScriptedChannel
from tests.story import ORG


@dataclass(frozen=True, slots=True)
class PagerSettings(CommonChannelSettings):
    """The keys of a pager."""

    digits: int = setting(4, whole(1, 9))
    credential_env: str | None = setting(None, text("a variable"))
    credential_file: str | None = setting(None, text("a file"))


class PagerKind(ChannelKind):
    """Accepts numbers of a certain length."""

    settings = PagerSettings

    def problem(self, settings: Any, address: str, subject: str, text: str) -> str | None:
        is_valid = address.isdecimal() and len(address) == settings.digits
        return None if is_valid else f"address must have {settings.digits} digits"

    def open(
        self, name: str, settings: Any, secrets: Mapping[str, Credential | None], clock: Clock
    ) -> Channel:
        assert secrets["credential"] is not None
        assert isinstance(clock, FakeClock)
        return ScriptedChannel(clock, name=name)


def point(value: str = "tests.channel.test_kinds:PagerKind", dist: str = "a-pager") -> EntryPoint:
    found = EntryPoint("pager", value, CHANNELS)
    vars(found).update(dist=SimpleNamespace(name=dist))
    return found


@pytest.fixture
def pager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if a distribution with the kind ``pager`` were installed."""
    ours = entry_points(group=CHANNELS)
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [*ours, point()] if group == CHANNELS else entry_points(group=group),
    )
    channel_kinds.cache_clear()
    yield
    channel_kinds.cache_clear()


def write(folder: Path, *lines: str) -> Path:
    file = folder / "holdfast.toml"
    file.write_text("\n".join(["[channels.night]", *lines, ""]))
    return file


def test_the_built_in_kinds_are_registered_as_any_other() -> None:
    assert set(CHANNEL_KINDS) <= set(channel_kinds())


def test_a_registered_kind_has_its_own_settings_addresses_and_secrets(
    pager: None, tmp_path: Path
) -> None:
    lines = ['kind = "pager"', "digits = 3", 'credential_env = "PAGER_KEY"', "max_parallel = 2"]
    settings = Settings.load(env={}, file=write(tmp_path, *lines))
    assert settings.channels["night"] == PagerSettings("pager", "hold", 2, 3, "PAGER_KEY")

    channels = ConfiguredChannels(settings, clock=FakeClock(), env={"PAGER_KEY": "hunter2-hunter2"})

    assert channels.require("night").name == "night"
    assert channels.max_parallel("night") == 2
    assert channels.problem("night", "911", "Fire") is None
    assert channels.problem("night", "ada@example.com", "Fire") == "address must have 3 digits"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['kind = "pager"', "digits = 10"], r"toml:3: channels\.night\.digits = 10 must be"),
        (
            ['kind = "pager"', 'sender = "a@b.example"'],
            r"channels\.night\.sender is an unknown key",
        ),
        (['kind = "pigeon"'], r"night\.kind = 'pigeon' must be one of mailbox, pager, postmark"),
        (["on_unknown = 'hold'"], r"kind is needed"),
    ],
)
def test_settings_of_a_kind_are_checked_like_all_others(
    pager: None, tmp_path: Path, lines: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Settings.load(env={}, file=write(tmp_path, *lines))


def test_two_distributions_cannot_register_the_same_kind() -> None:
    with pytest.raises(ConfigError, match=r"'pager' in holdfast\.channels: a-pager .* and b-pager"):
        Registered(CHANNELS, "channel kind", [point(), point(dist="b-pager")])


def test_a_kind_is_imported_when_it_is_used_and_not_before() -> None:
    found = Registered(CHANNELS, "channel kind", [point("nowhere.at_all:SettingType")])

    assert list(found) == ["pager"]
    with pytest.raises(ConfigError, match="from a-pager\\) cannot be loaded: ModuleNotFoundError"):
        found["pager"]


def test_an_added_channel_removes_no_other_and_an_unknown_one_is_refused(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.outbox.use(ScriptedChannel(clock, name="first"))
    hf.outbox.use(ScriptedChannel(clock, name="second"))
    content = Content("Hello", "Hello.")

    for name in ("first", "second", "in_app"):
        hf.outbox.intend([OutgoingMessage("greeting", "ada", 1, name, "ada", content)], org_id=ORG)

    with pytest.raises(InvalidDelivery, match="must be one of first, in_app, second"):
        hf.outbox.intend(
            [OutgoingMessage("greeting", "ada", 1, "third", "ada", content)], org_id=ORG
        )


def test_a_process_that_declares_no_channel_leaves_the_check_to_its_workers(
    hf: Holdfast, clock: FakeClock
) -> None:
    content = Content("Hello", "Hello.")
    (intended,) = hf.outbox.intend(
        [OutgoingMessage("greeting", "ada", 1, "mail", "ada@example.com", content)], org_id=ORG
    )
    mail = ScriptedChannel(clock, name="mail")
    hf.outbox.use(mail)

    hf.outbox.deliver([intended.id], org_id=ORG)

    (delivery,) = hf.outbox.find([intended.id], org_id=ORG)
    assert delivery.state == "sent"
