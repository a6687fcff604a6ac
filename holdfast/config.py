"""Settings: read once, validated once, frozen."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError

DEFAULT_DB = "sqlite:///holdfast.db"
CONFIG_FILE = "holdfast.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a deployment may set. Lengths are seconds unless the name says otherwise."""

    db: str = DEFAULT_DB
    app: str = ""
    payload_limit_bytes: int = 256 * 1024
    # A worker renews at a third of the lease, so two renewals may fail before a claim is stale.
    lease_seconds: float = 60.0
    poll_seconds: float = 1.0
    rescue_seconds: float = 5.0
    claim_limit: int = 500
    settle_limit: int = 500
    prune_after_days: float = 90.0
    unknown_type_patience_seconds: float = 3600.0
    audit_key: str = ""

    def __post_init__(self) -> None:
        problems = []
        for name, holds, must in _RULES:
            if not holds(getattr(self, name)):
                # An address or a key may carry a secret; it is not repeated.
                said = "" if name in _SECRET else f" = {getattr(self, name)!r}"
                problems.append(f"{name}{said} must be {must}")
        if problems:
            raise ConfigError("Settings cannot be used: " + "; ".join(problems) + ".")

    @classmethod
    def load(
        cls,
        *,
        db: str | None = None,
        env: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Settings:
        """Settings from the argument, then the environment, then holdfast.toml, then defaults."""
        env = os.environ if env is None else env
        values: dict[str, Any] = _from_file(file or Path(env.get("HOLDFAST_CONFIG", CONFIG_FILE)))
        for field in fields(cls):
            text = env.get("HOLDFAST_" + field.name.upper())
            if text is not None:
                values[field.name] = _from_text(field.name, text, type(field.default))
        if db is not None:
            values["db"] = db
        return cls(**values)


_SECRET = ("db", "audit_key")

_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "db",
        lambda v: v.startswith(("sqlite:", "postgresql:", "postgres:")),
        "sqlite:///FILE or postgresql://HOST/NAME",
    ),
    ("app", lambda v: isinstance(v, str), "module:attribute"),
    ("payload_limit_bytes", lambda v: 1024 <= v <= 16 * 1024 * 1024, "between 1 KiB and 16 MiB"),
    ("lease_seconds", lambda v: 0.5 <= v <= 86_400, "between half a second and a day"),
    ("poll_seconds", lambda v: 0.01 <= v <= 60, "between 0.01 and 60 seconds"),
    ("rescue_seconds", lambda v: 0.05 <= v <= 3600, "between 0.05 seconds and an hour"),
    ("claim_limit", lambda v: 1 <= v <= 10_000, "between 1 and 10,000"),
    ("settle_limit", lambda v: 1 <= v <= 10_000, "between 1 and 10,000"),
    (
        "prune_after_days",
        lambda v: v >= 30,
        "at least 30: no job row leaves before its key expires",
    ),
    ("unknown_type_patience_seconds", lambda v: v >= 0, "zero or more"),
    ("audit_key", lambda v: isinstance(v, str), "text"),
)


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    known = {field.name: type(field.default) for field in fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            continue
        if name not in known:
            raise ConfigError(
                f"{path}: unknown setting {name!r}. Known: {', '.join(sorted(known))}."
            )
        wanted = known[name]
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ConfigError(f"{path}: {name} must be a {wanted.__name__}, not {value!r}.")
        values[name] = value
    return values


def _from_text(name: str, text: str, wanted: type) -> Any:
    try:
        return wanted(text)
    except ValueError as exc:
        raise ConfigError(
            f"HOLDFAST_{name.upper()} must be a {wanted.__name__}, not {text!r}."
        ) from exc
