"""What both clients share: the extra, addresses and headers."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ConfigError

try:
    import httpx2 as httpx2
except ModuleNotFoundError as exc:
    raise ConfigError(
        "holdfast.client needs the extra client. Install it: pip install 'holdfast-jobs[client]'."
    ) from exc

TIMEOUT_SECONDS = 30.0


def options(url: str, key: str, timeout: float, transport: Any) -> dict[str, Any]:
    """The options of an HTTP client. The key is sent to this server only."""
    if not url.startswith(("https://", "http://")):
        raise ConfigError("The URL of the API begins with https:// or http://.")
    found: dict[str, Any] = {
        "base_url": url.rstrip("/"),
        "headers": {"Authorization": f"Bearer {key}", "User-Agent": "holdfast-client"},
        "timeout": timeout,
        "follow_redirects": False,
    }
    if transport is not None:
        found["transport"] = transport
    return found


def document_of(response: httpx2.Response) -> Any:
    """The JSON document of an answer; None if it has none."""
    try:
        return response.json()
    except ValueError:
        return None
