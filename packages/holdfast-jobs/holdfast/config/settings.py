"""Settings: every value a deployment may set, validated once, frozen."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

from holdfast.config.channel import (
    IN_APP,
    ChannelSettings,
    CommonChannelSettings,
    channel_settings_class,
)
from holdfast.config.extensions import built_in_run, declared, default_of, known_sections
from holdfast.config.kind import (
    KEY_NAME,
    PLAIN_NAME,
    QUEUE_NAME,
    UUID,
    complaint,
    fits,
    number,
    one_of,
    problems_of,
    problems_of_value,
    refuse,
    section,
    setting,
    table,
    text,
    texts,
    whole,
)
from holdfast.config.kind import NAME as EXTENSION_NAME
from holdfast.config.outbox import OutboxSettings
from holdfast.config.run import (
    BUILT_IN_PROFILES,
    BUILT_IN_RUNS,
    RunProfile,
    RunSettings,
    ScheduleSettings,
)
from holdfast.config.section import (
    BUILT_IN_QUEUES,
    AlertSettings,
    KeySettings,
    QueueSettings,
    RetentionSettings,
    TenantSettings,
)
from holdfast.errors import UnknownRun

DEFAULT_DB = "sqlite:///holdfast.db"
DEFAULT_ORG = "00000000-0000-7000-8000-000000000001"
LOG_LEVELS = ("debug", "info", "warning", "error")

_ADDRESS = re.compile(r"(sqlite|postgresql|postgres):.*")
_POSTGRES_ADDRESS = re.compile(r"(postgresql|postgres):.*")
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a deployment may set. Lengths are seconds unless the name says otherwise."""

    db: str = setting(
        DEFAULT_DB, text("sqlite:///FILE or postgresql://HOST/NAME", _ADDRESS, is_address=True)
    )
    # On PostgreSQL: the same database with a login for handlers alone, which keeps tenants apart.
    handler_db: str | None = setting(
        None, text("postgresql://HOST/NAME", _POSTGRES_ADDRESS, is_address=True)
    )
    app: str = setting("", text("module:attribute"))
    # The tenant of calls without org_id; None refuses them. Holdfast("sqlite:…") has DEFAULT_ORG.
    default_org: str | None = setting(None, UUID)
    payload_limit_bytes: int = setting(256 * 1024, whole(1024, 16 * 1024 * 1024))
    # A worker renews at a third of the lease, so two renewals may fail before a claim is stale.
    lease_seconds: float = setting(60.0, number(0.5, 86_400))
    poll_seconds: float = setting(1.0, number(0.01, 60))
    rescue_seconds: float = setting(5.0, number(0.05, 3600))
    claim_limit: int = setting(500, whole(1, 10_000))
    settle_limit: int = setting(500, whole(1, 10_000))
    # None: a connection for each handler of the worker, and some for the worker itself.
    pool_size: int | None = setting(None, whole(2, 10_000))
    ageing_seconds: float = setting(3600.0, number(1, 30 * 86_400))
    unknown_type_patience_seconds: float = setting(3600.0, number(0))
    audit_key: str = setting("", text(is_secret=True))
    audit_tables: tuple[str, ...] = setting(
        (), texts("a list of tables of your own", lambda v: _TABLE.fullmatch(v) is not None)
    )
    log_level: str = setting("info", one_of(LOG_LEVELS))
    # The fallback when nobody names a profile.
    profile: str = setting("example", PLAIN_NAME)
    queues: Mapping[str, QueueSettings] = table(QueueSettings, QUEUE_NAME, BUILT_IN_QUEUES)
    tenants: Mapping[str, TenantSettings] = table(TenantSettings, UUID)
    keys: Mapping[str, KeySettings] = table(KeySettings, KEY_NAME)
    retention: RetentionSettings = section(RetentionSettings)
    alerts: AlertSettings = section(AlertSettings)
    profiles: Mapping[str, RunProfile] = table(RunProfile, PLAIN_NAME, BUILT_IN_PROFILES)
    runs: Mapping[str, RunSettings] = table(RunSettings, PLAIN_NAME, BUILT_IN_RUNS)
    schedules: Mapping[str, ScheduleSettings] = table(ScheduleSettings, PLAIN_NAME)
    channels: Mapping[str, CommonChannelSettings] = table(
        ChannelSettings,
        PLAIN_NAME,
        accepts=CommonChannelSettings,
        class_of_kind=channel_settings_class,
    )
    outbox: OutboxSettings = section(OutboxSettings)
    # The extensions to enable, by name; None leaves it to the code, and offers all to the CLI.
    extensions: tuple[str, ...] | None = setting(
        None,
        texts("a list of names of extensions", lambda v: EXTENSION_NAME.fullmatch(v) is not None),
    )
    # The settings of extensions, by name. They are read as attributes, like those above.
    sections: Mapping[str, Any] = field(default_factory=dict, metadata={"sections": True})

    def __getattr__(self, name: str) -> Any:
        """The settings of an extension: as they were set, or with their defaults."""
        item = None if name.startswith("_") or name == "sections" else known_sections().get(name)
        if item is None:
            raise AttributeError(f"There is no setting {name!r}.")
        if name in self.sections:
            return self.sections[name]
        return default_of(item)

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", {**BUILT_IN_PROFILES, **self.profiles})
        # What means the same is equal.
        object.__setattr__(self, "sections", _with_built_in(self.sections))
        refuse(
            "Settings cannot be used", [*problems_of(self), *self._strangers(), *self._dangling()]
        )
        refuse("Settings cannot be used", self._contradictions())

    def _strangers(self) -> list[str]:
        """Sections of a wrong type, and names that cannot be names."""
        found: list[str] = []
        for name, value in self.sections.items():
            item = known_sections().get(name)
            if item is None:
                found.append(f"{name} is no section of an extension that is enabled or installed")
            else:
                found += [*problems_of_value(name, item, value), *_strangers_in(name, item, value)]
        for item in self.__dataclass_fields__.values():
            found += _strangers_in(item.name, item, getattr(self, item.name))
        return found

    def _dangling(self) -> list[str]:
        """Names of profiles and runs that nobody declares."""
        asked: list[tuple[str, str, Mapping[str, Any]]] = [("profile", self.profile, self.profiles)]
        for name, run in self.runs.items():
            if run.profile is not None:
                asked.append((f"runs.{name}.profile", run.profile, self.profiles))
        for name, schedule in self.schedules.items():
            if schedule.run is not None:
                asked.append((f"schedules.{name}.run", schedule.run, self.runs))
        return [
            f"{where} = {wanted!r} is not declared; there is: {', '.join(sorted(known)) or 'none'}"
            for where, wanted, known in asked
            if wanted not in known
        ]

    def _contradictions(self) -> list[str]:
        """What is well said and still cannot hold together."""
        return [
            *self._runs_at_odds(),
            *(
                problem
                for extension in (declared().values() if self.sections else ())
                if extension.settings.keys() & self.sections.keys()
                for problem in extension.check_settings(self)
            ),
            *(
                ["handler_db is a login of PostgreSQL, and db is not PostgreSQL: leave it out"]
                if self.handler_db is not None and not _POSTGRES_ADDRESS.fullmatch(self.db)
                else []
            ),
            *(
                f"channels.{name} is there by itself and takes no section: choose another name"
                for name in self.channels
                if name == IN_APP
            ),
        ]

    def _runs_at_odds(self) -> list[str]:
        return [
            f'runs.{name} has order = "fair", which takes whole queues as a worker does: leave'
            " job_types and respect_not_before_at = false out, or take the oldest first"
            for name, run in self.runs.items()
            if (effective := self.run_of(name)).order == "fair"
            and (run.job_types or not effective.respect_not_before_at)
        ]

    @property
    def default_profile(self) -> RunProfile:
        """The profile that applies where none is named."""
        return self.profiles[self.profile]

    def run_of(self, name: str) -> RunProfile:
        """What the run *name* may do: its profile with what it sets for itself, and its cadence."""
        if name not in self.runs:
            raise UnknownRun(name, self.runs)
        run = self.runs[name]
        profile = self.profiles[run.profile or self.profile]
        built_in = built_in_run(name)
        return run.over(profile if built_in is None else built_in.over(profile))

    def with_runs(
        self, built_in: Mapping[str, RunSettings], *, replaced: Collection[str] = ()
    ) -> Settings:
        """Add the runs of an extension, except those that the settings declare themselves.

        Runs in *replaced* are removed if they were added by an extension.
        """
        if built_in.keys() <= self.runs.keys():
            return self
        runs = {**built_in, **self.runs}
        for name in replaced:
            if name in runs and runs[name] is built_in_run(name):
                del runs[name]
        return replace(self, runs=runs)

    @classmethod
    def load(
        cls,
        *,
        db: str | None = None,
        env: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Settings:
        """Settings from the argument, then the environment, then holdfast.toml, then defaults."""
        # Reading knows the settings, so they cannot know it while this module is made.
        from holdfast.config.load import load

        return load(db=db, env=env, file=file).settings


def _with_built_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of extensions that are no defaults; tables have what is always in them."""
    made: dict[str, Any] = {}
    for name, value in given.items():
        item = known_sections().get(name)
        if item is None:
            made[name] = value
            continue
        if item.metadata.get("merges") and isinstance(value, Mapping):
            value = {**item.metadata["built_in"], **value}
        if value != default_of(item):
            made[name] = value
    return made


def _strangers_in(name: str, item: Field[Any], value: Any) -> list[str]:
    found: list[str] = []
    if (kind := item.metadata.get("section")) and not isinstance(value, kind):
        found.append(f"{name} must be a {kind.__name__}")
    if kind := item.metadata.get("accepts"):
        for inner, row in value.items():
            if not fits(item.metadata["names"], inner):
                found.append(complaint(f"a name in {name}", inner, item.metadata["names"]))
            if not isinstance(row, kind):
                found.append(f"{name}.{inner} must be a {kind.__name__}")
    return found


def _with_sections(init: Callable[..., None]) -> Callable[..., None]:
    """Take sections of extensions as keyword arguments, like the fields of Settings."""
    own = frozenset(item.name for item in fields(Settings))

    @wraps(init)
    def with_sections(self: Settings, *args: Any, **given: Any) -> None:
        if not given.keys() <= own:
            added = {name: given.pop(name) for name in given.keys() & known_sections().keys()}
            given["sections"] = {**given.get("sections", {}), **added}
        init(self, *args, **given)

    return with_sections


Settings.__init__ = _with_sections(Settings.__init__)  # type: ignore[method-assign]
