"""The record, name and reference of an artifact. Pure."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from holdfast.actor import Actor, ActorType
from holdfast.clock import read_instant
from holdfast.engine.reference import REF, Referenced
from holdfast.errors import ArtifactNotFound
from holdfast.ids import read_uuid

NAME_BYTES = 255
ANY_MEDIA_TYPE = "application/octet-stream"

_WORD = r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD}(; ?charset=[A-Za-z0-9._-]{{1,40}})?")


class Kind(StrEnum):
    """Whether a job reads or produces the artifact."""

    INPUT = "input"
    OUTPUT = "output"


class Access(StrEnum):
    """Who may open an artifact: the whole tenant, or its owner only."""

    TENANT = "tenant"
    OWNER = "owner"


class ArtifactState(StrEnum):
    """The state of an artifact."""

    WRITING = "writing"
    STORED = "stored"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Artifact(Referenced):
    """A file that belongs to a tenant and a job."""

    id: str
    org_id: str
    job_id: str | None
    stage: str
    kind: Kind
    name: str
    media_type: str
    access: Access
    owner: Actor
    state: ArtifactState
    bytes: int | None
    sha256: str | None
    created_at: datetime
    stored_at: datetime | None
    expires_at: datetime
    removed_at: datetime | None
    place: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Artifact:
        """Build the artifact from a stored row."""
        values = {name: row[name] for name in cls.__slots__ if name != "owner"}
        for name in ("created_at", "stored_at", "expires_at", "removed_at"):
            values[name] = None if values[name] is None else read_instant(values[name])
        for name in ("id", "org_id", "job_id"):
            values[name] = None if values[name] is None else str(values[name])
        return cls(
            **{
                **values,
                "kind": Kind(row["kind"]),
                "access": Access(row["access"]),
                "state": ArtifactState(row["state"]),
                "owner": Actor(ActorType(row["owner_type"]), row["owner_id"]),
            }
        )

    @property
    def ref(self) -> str:
        """The reference to this artifact for payloads and results: ``artifact:UUID``."""
        return REF + self.id

    def headers(self) -> dict[str, str]:
        """The HTTP headers of a download: an attachment that browsers do not render or cache."""
        assert self.sha256 is not None, "only a stored artifact can be downloaded"
        digest = base64.b64encode(bytes.fromhex(self.sha256)).decode("ascii")
        return {
            "Content-Type": self.media_type,
            "Content-Length": str(self.bytes),
            "Content-Disposition": disposition(self.name),
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cache-Control": "private, no-store",
            "Repr-Digest": f"sha-256=:{digest}:",
        }


def disposition(name: str) -> str:
    """Return ``Content-Disposition`` for *name*: an ASCII fallback and the full UTF-8 name."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def place_of(artifact_id: str) -> str:
    """The key of the bytes below the store's root. The two folder levels come from the random end
    of the id; its beginning is a timestamp."""
    return f"{artifact_id[34:]}/{artifact_id[32:34]}/{artifact_id}"


def read_id(value: object) -> str:
    """Return the id in an id or a reference. Raises ArtifactNotFound for anything else."""
    text = value.removeprefix(REF) if isinstance(value, str) else value
    try:
        return read_uuid(text)
    except ValueError:
        raise ArtifactNotFound(value) from None


def problem_of_name(name: object) -> str | None:
    """Return the problem with a display name, or None. Names are never used in paths."""
    if not isinstance(name, str) or not name or name != name.strip():
        return "must be text that does not start or end with whitespace"
    if any(unicodedata.category(letter) in _UNSEEN for letter in name):
        return "must not contain control or invisible characters"
    if "/" in name or "\\" in name or name in (".", ".."):
        return "must be a plain name, not a path"
    if len(name.encode()) > NAME_BYTES:
        return f"must not be longer than {NAME_BYTES} bytes"
    return None


# Control and format characters (such as bidirectional overrides), surrogates, line and paragraph
# separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def problem_of_media_type(media_type: object) -> str | None:
    """Return the problem with a media type, or None."""
    if isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type):
        return None
    return "must be a media type such as 'text/csv' or 'text/csv; charset=utf-8'"
