"""The journal: every request that reached the simulator, and its outcome."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# Headers that carry credentials. The journal stores only a fingerprint.
CREDENTIALS = (
    "authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "x-postmark-server-token",
)
KEPT_BODY = 64 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. Small bodies are stored; status 0 means that no answer was sent."""

    number: int
    at: datetime
    provider: str
    op: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    size: int
    body: bytes | None
    status: int
    fault: str | None = None
    # The class of an exception raised by the simulator or a responder.
    defect: str | None = None

    @property
    def json(self) -> Any:
        """Return the body as JSON; None if it was too large or is not JSON."""
        try:
            return json.loads(self.body or b"")
        except ValueError:
            return None

    def view(self) -> dict[str, Any]:
        """Return the entry as plain values, without its body."""
        return {
            "number": self.number,
            "at": self.at.isoformat(),
            "provider": self.provider,
            "op": self.op,
            "method": self.method,
            "path": self.path,
            "query": dict(self.query),
            "headers": dict(self.headers),
            "size": self.size,
            "status": self.status,
            "fault": self.fault,
            "defect": self.defect,
        }


class Journal:
    """All entries, in the order in which the requests were answered."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def add(self, **fields: Any) -> None:
        with self._lock:
            self._entries.append(Entry(len(self._entries) + 1, **fields))

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def find(
        self, *, provider: str | None = None, op: str | None = None, method: str | None = None
    ) -> list[Entry]:
        """Return the matching entries, or all entries without a filter."""
        with self._lock:
            return [
                entry
                for entry in self._entries
                if provider in (None, entry.provider)
                and op in (None, entry.op)
                and method in (None, entry.method)
            ]

    @property
    def entries(self) -> list[Entry]:
        return self.find()

    @property
    def defects(self) -> list[Entry]:
        """Return requests that failed because of a simulator or responder bug."""
        return [entry for entry in self.entries if entry.defect is not None]


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with a fingerprint in place of every credential."""
    return {
        name: fingerprint(value) if name in CREDENTIALS else value
        for name, value in headers.items()
    }


def fingerprint(secret: str) -> str:
    """Return a fingerprint that distinguishes credentials without revealing them."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()[:12]
