"""A mailbox in a local folder: mails as files, for development.

A file is named after its token and created atomically, so a repeated mail is stored once.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    Found,
    Lookup,
    LookupFailed,
    LookupKey,
    LookupResult,
    NotFound,
    Rejected,
    Sent,
    Unsure,
)
from holdfast.channel.mail import compose, message_id
from holdfast.channel.message import Message
from holdfast.clock import Clock
from holdfast.config import ChannelSettings

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Mailbox:
    """Writes mails to a folder, one file each."""

    capabilities = Capabilities(lookup=Lookup.BY_OUR_TOKEN, longest_token=200)

    def __init__(self, name: str, settings: ChannelSettings, clock: Clock) -> None:
        self.name = name
        self._folder = Path(settings.folder or "")
        self._sender = settings.sender or ""
        self._clock = clock

    def send(self, message: Message) -> Sent:
        """Write a mail to the folder, once."""
        if not _TOKEN.fullmatch(message.token):
            return Rejected("bad_token", is_permanent=True)
        try:
            body = compose(message, self._sender, message.at or self._clock.now())
        except ValueError:
            return Rejected("bad_message", is_permanent=True)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._draft(body)
        except OSError:
            return Rejected("folder", is_permanent=False)
        try:
            # The mail already exists, which is a success as well.
            with suppress(FileExistsError):
                os.link(draft, self._file(message.token))
        except OSError:
            return Unsure("folder")
        finally:
            draft.unlink(missing_ok=True)
        return Accepted(message_id(message.token, self._sender))

    def lookup(self, key: LookupKey) -> LookupResult:
        """Check whether the file of the mail exists."""
        if not _TOKEN.fullmatch(key.token):
            return NotFound()
        try:
            written = self._file(key.token).stat().st_mtime
        except FileNotFoundError:
            return NotFound()
        except OSError:
            return LookupFailed("folder")
        at = datetime.fromtimestamp(written, UTC)
        return Found(message_id(key.token, self._sender), at)

    def _draft(self, body: bytes) -> Path:
        handle, path = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(handle)
        return Path(path)

    def _file(self, token: str) -> Path:
        return self._folder / f"{token}.eml"
