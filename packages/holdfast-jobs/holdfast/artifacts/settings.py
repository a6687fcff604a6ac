"""The section ``[artifacts]`` of the settings file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.config.setting_type import Section, number, setting, text, whole

_ENDPOINT = re.compile(r"https?://[^\s/@]+/?")
_STORE = re.compile(r"file:///\S+|s3://[a-z0-9][a-z0-9.-]{1,62}(/\S*)?")


@dataclass(frozen=True, slots=True)
class ArtifactSettings(Section):
    """Where artifacts are stored, and for how long: `[artifacts]`."""

    store: str | None = setting(
        None, text('"file:///absolute/folder" or "s3://bucket/prefix"', _STORE, is_address=True)
    )
    """Where artifacts are stored: `file:///absolute/folder` or `s3://bucket/prefix`. The default is
    a folder beside the SQLite file, or `./holdfast-artifacts`."""
    endpoint: str | None = setting(
        None, text('an address such as "https://s3.example.com"', _ENDPOINT, is_address=True)
    )
    """URL of an S3-compatible service other than Amazon's."""
    link_key: str = setting(
        "",
        text("empty or text of 16 or more characters", re.compile(r"|.{16,1000}"), is_secret=True),
    )
    """Secret that signs download links. A folder store creates its own if this is empty."""
    keep_days: float = setting(30.0, number(1))
    """Default retention of an artifact."""
    max_bytes: int = setting(1024**3, whole(1, 5 * 1024**4))
    """Maximum size of an artifact in bytes."""
