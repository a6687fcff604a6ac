"""The channel: a page is a file in the spool folder of a pager gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import (
    Accepted,
    Capabilities,
    Channel,
    ChannelKind,
    CommonChannelSettings,
    Found,
    Lookup,
    LookupFailed,
    LookupKey,
    Message,
    NotFound,
    Rejected,
    SettingType,
    Throttled,
    Unsure,
    setting,
)

LONGEST_TEXT = 200
FOLDER = SettingType(
    "the absolute path of a folder", lambda value: isinstance(value, str) and value.startswith("/")
)


@dataclass(frozen=True, slots=True)
class PagerSettings(CommonChannelSettings):
    """The keys of ``[channels.NAME]`` with ``kind = "pager"``."""

    spool: str = setting("", FOLDER)


class PagerChannel:
    """Writes one file for each page, named by its token: a repeated send changes nothing."""

    capabilities = Capabilities(lookup=Lookup.BY_OUR_TOKEN, longest_text=LONGEST_TEXT)

    def __init__(self, name: str, spool: Path) -> None:
        self.name = name
        self._spool = spool

    def send(self, message: Message) -> Accepted | Rejected | Throttled | Unsure:
        """Write the page, once."""
        if (self._spool / f"{message.address}.off").exists():
            return Rejected("switched_off", is_permanent=True)
        if (self._spool / "full").exists():
            return Throttled("spool_full", retry_after=30.0)
        if not self._spool.is_dir():
            return Rejected("no_spool", is_permanent=False)
        try:
            with self._file(message.token).open("x", encoding="utf-8") as file:
                file.write(f"{message.address} {message.subject}\n{message.text}\n")
        except FileExistsError:
            return Accepted(message.token)
        except OSError:
            # The write failed, but the gateway may already have read the file.
            return Unsure("spool")
        return Accepted(message.token)

    def lookup(self, key: LookupKey) -> Found | NotFound | LookupFailed:
        """Look for the file of a page."""
        try:
            is_there = self._file(key.token).exists()
        except OSError:
            return LookupFailed("spool")
        return Found(key.token) if is_there else NotFound()

    def _file(self, token: str) -> Path:
        return self._spool / f"{token}.page"


class PagerKind(ChannelKind):
    """The channel kind that the entry point registers."""

    settings = PagerSettings

    def problem(self, settings: Any, address: str, subject: str, text: str) -> str | None:
        """Return why a message is rejected: numbers have 3 to 15 digits, subjects one line."""
        if not (address.isascii() and address.isdecimal() and 3 <= len(address) <= 15):
            return "address must have 3 to 15 digits"
        if not subject.isprintable():
            return "subject must be one line"
        if len(subject) + len(text) > LONGEST_TEXT:
            return f"text must have at most {LONGEST_TEXT} characters with its subject"
        return None

    def open(self, name: str, settings: Any, secrets: Mapping[str, Any], clock: Any) -> Channel:
        """Open the channel. A pager needs no secret."""
        return PagerChannel(name, Path(settings.spool))
