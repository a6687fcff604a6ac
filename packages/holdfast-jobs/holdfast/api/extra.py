"""The check that the extra ``serve`` is installed. Imported before anything of it."""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import fastapi as fastapi
except ModuleNotFoundError as exc:
    raise ConfigError(
        "The HTTP API needs the extra serve. Install it: pip install 'holdfast-jobs[serve]'."
    ) from exc
