"""All settings of a deployment, validated when they are constructed, then frozen."""

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
from holdfast.config.serve import ServeSettings
from holdfast.config.setting_type import (
    KEY_NAME,
    PLAIN_NAME,
    QUEUE_NAME,
    UUID,
    error_message,
    is_valid,
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
from holdfast.config.setting_type import NAME as EXTENSION_NAME
from holdfast.errors import UnknownRun

DEFAULT_DB = "sqlite:///holdfast.db"
DEFAULT_ORG = "00000000-0000-7000-8000-000000000001"
LOG_LEVELS = ("debug", "info", "warning", "error")

_ADDRESS = re.compile(r"(sqlite|postgresql|postgres):.*")
_POSTGRES_ADDRESS = re.compile(r"(postgresql|postgres):.*")
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a deployment. Durations are seconds unless the name says otherwise.

    `Settings.load()` reads the environment and holdfast.toml. `Settings(…)` reads neither. Sections
    of extensions are passed as keyword arguments and read as attributes, like the fields below.
    """

    db: str = setting(
        DEFAULT_DB, text("sqlite:///FILE or postgresql://HOST/NAME", _ADDRESS, is_address=True)
    )
    """Database URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:` (in memory) or
    `postgresql://USER@HOST:PORT/NAME`."""
    handler_db: str | None = setting(
        None, text("postgresql://HOST/NAME", _POSTGRES_ADDRESS, is_address=True)
    )
    """PostgreSQL only: URL of the same database with a separate login for handlers, so that
    row-level security also applies to handler code."""
    app: str = setting("", text("module:attribute"))
    """Where the jobs are declared, as `module:attribute`."""
    default_org: str | None = setting(None, UUID)
    """Tenant of calls without `org_id`. If not set, such calls are refused;
    `Holdfast("sqlite:…")` uses a built-in tenant."""
    payload_limit_bytes: int = setting(256 * 1024, whole(1024, 16 * 1024 * 1024))
    """Maximum size of a job payload in bytes."""
    lease_seconds: float = setting(60.0, number(0.5, 86_400))
    """Duration of a lease. A worker renews its leases after a third of this time and sends three
    heartbeats in it, at least one every 15 seconds."""
    poll_seconds: float = setting(1.0, number(0.01, 60))
    """How often an idle worker polls its queues when no notification arrives."""
    rescue_seconds: float = setting(5.0, number(0.05, 3600))
    """Maximum interval between two maintenance passes of a worker: rescue, seal and prune."""
    claim_limit: int = setting(500, whole(1, 10_000))
    """Maximum number of jobs that one claim takes."""
    settle_limit: int = setting(500, whole(1, 10_000))
    """Maximum number of outcomes that one transaction writes."""
    pool_size: int | None = setting(None, whole(2, 10_000))
    """PostgreSQL only: maximum number of connections per process. If not set, it follows the
    concurrency of the worker."""
    ageing_seconds: float = setting(3600.0, number(1, 30 * 86_400))
    """How far one step of priority moves a job forward or back in its queue. A job overtakes only
    jobs that were enqueued within this time before it, so no job waits forever."""
    unknown_type_patience_seconds: float = setting(3600.0, number(0))
    """How long a job waits for a worker that has its job type registered before it is
    dead-lettered."""
    audit_key: str = setting("", text(is_secret=True))
    """HMAC key of the audit seals. Keep it outside the settings file."""
    audit_tables: tuple[str, ...] = setting(
        (), texts("a list of tables of your own", lambda v: _TABLE.fullmatch(v) is not None)
    )
    """SQLite only: your own tables that audit enrichment handlers may write. In the environment
    variable, separate names by commas."""
    log_level: str = setting("info", one_of(LOG_LEVELS))
    """Minimum level of the log lines of workers, runs and dispatchers. The option `--log-level`
    overrides it."""
    profile: str = setting("example", PLAIN_NAME)
    """Profile of the runs that name none."""
    queues: Mapping[str, QueueSettings] = table(QueueSettings, QUEUE_NAME, BUILT_IN_QUEUES)
    """Weight, concurrency, depth and rate limits of a queue. A limit of zero is rejected: pause the
    queue instead."""
    tenants: Mapping[str, TenantSettings] = table(TenantSettings, UUID)
    """Weight and concurrency limit of a tenant over all queues."""
    keys: Mapping[str, KeySettings] = table(KeySettings, KEY_NAME)
    """Limits of a shared resource, such as the API of a provider. Jobs that carry the key share
    them."""
    retention: RetentionSettings = section(RetentionSettings)
    """How long ended jobs and run records are kept."""
    alerts: AlertSettings = section(AlertSettings)
    """Where alerts are sent, which ones, and how often."""
    profiles: Mapping[str, RunProfile] = table(RunProfile, PLAIN_NAME, BUILT_IN_PROFILES)
    """Limits of one bounded run. `example`, `dev`, `stage` and `prod` are built in: a section with
    one of these names overrides the keys that it lists. A new profile starts with the values of
    `example`."""
    runs: Mapping[str, RunSettings] = table(RunSettings, PLAIN_NAME, BUILT_IN_RUNS)
    """A bounded run: which jobs it claims, its profile and its overrides. Every key that a profile
    has can be set here too."""
    schedules: Mapping[str, ScheduleSettings] = table(ScheduleSettings, PLAIN_NAME)
    """A job or a bounded run that becomes due repeatedly."""
    channels: Mapping[str, CommonChannelSettings] = table(
        ChannelSettings,
        PLAIN_NAME,
        accepts=CommonChannelSettings,
        class_of_kind=channel_settings_class,
    )
    """A channel that delivers messages. A key that the channel's kind does not use is rejected. The
    channel `in_app` always exists and has no section. Credentials are read from an environment
    variable or a file, never from this section."""
    outbox: OutboxSettings = section(OutboxSettings)
    """Leases, attempts and circuits of deliveries."""
    serve: ServeSettings = section(ServeSettings)
    """Address and limits of the HTTP API and the console."""
    extensions: tuple[str, ...] | None = setting(
        None,
        texts("a list of names of extensions", lambda v: EXTENSION_NAME.fullmatch(v) is not None),
    )
    """Names of the extensions to enable. If not set, the application's code decides, and the CLI
    offers the commands of every installed extension."""
    # The settings of extensions, by name. They are read as attributes, like those above.
    sections: Mapping[str, Any] = field(default_factory=dict, metadata={"sections": True})

    def __getattr__(self, name: str) -> Any:
        """Return the settings of an extension, or their defaults."""
        item = None if name.startswith("_") or name == "sections" else known_sections().get(name)
        if item is None:
            raise AttributeError(f"There is no setting {name!r}.")
        if name in self.sections:
            return self.sections[name]
        return default_of(item)

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", {**BUILT_IN_PROFILES, **self.profiles})
        # Settings with the same meaning compare equal.
        object.__setattr__(self, "sections", _with_built_in(self.sections))
        refuse("Invalid Settings", [*problems_of(self), *self._strangers(), *self._dangling()])
        refuse("Invalid Settings", self._contradictions())

    def _strangers(self) -> list[str]:
        """Return sections of a wrong type and invalid names."""
        found: list[str] = []
        for name, value in self.sections.items():
            item = known_sections().get(name)
            if item is None:
                found.append(f"{name} is not a section of an enabled or installed extension")
            else:
                found += [*problems_of_value(name, item, value), *_strangers_in(name, item, value)]
        for item in self.__dataclass_fields__.values():
            found += _strangers_in(item.name, item, getattr(self, item.name))
        return found

    def _dangling(self) -> list[str]:
        """Return undeclared names of profiles and runs."""
        asked: list[tuple[str, str, Mapping[str, Any]]] = [("profile", self.profile, self.profiles)]
        for name, run in self.runs.items():
            if run.profile is not None:
                asked.append((f"runs.{name}.profile", run.profile, self.profiles))
        for name, schedule in self.schedules.items():
            if schedule.run is not None:
                asked.append((f"schedules.{name}.run", schedule.run, self.runs))
        return [
            f"{where} = {wanted!r} is not declared; declared: {', '.join(sorted(known)) or 'none'}"
            for where, wanted, known in asked
            if wanted not in known
        ]

    def _contradictions(self) -> list[str]:
        """Return settings that are valid alone but contradict each other."""
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
                f"channels.{name} is built in and has no section: choose another name"
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
        """The profile of runs without their own."""
        return self.profiles[self.profile]

    def run_of(self, name: str) -> RunProfile:
        """Return the limits of the run *name*: its profile with its own overrides.

        Raises UnknownRun if no run of that name is declared.
        """
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
        """Load the settings: arguments first, then the environment, holdfast.toml and defaults.

        Raises ConfigError with every problem found.
        """
        # Imported here because load imports this module.
        from holdfast.config.load import load

        return load(db=db, env=env, file=file).settings


def _with_built_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the non-default settings of extensions; tables include their built-in entries."""
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
            if not is_valid(item.metadata["names"], inner):
                found.append(error_message(f"a name in {name}", inner, item.metadata["names"]))
            if not isinstance(row, kind):
                found.append(f"{name}.{inner} must be a {kind.__name__}")
    return found


def _with_sections(init: Callable[..., None]) -> Callable[..., None]:
    """Accept sections of extensions as keyword arguments, like the fields of Settings."""
    own = frozenset(item.name for item in fields(Settings))

    @wraps(init)
    def with_sections(self: Settings, *args: Any, **given: Any) -> None:
        if not given.keys() <= own:
            added = {name: given.pop(name) for name in given.keys() & known_sections().keys()}
            given["sections"] = {**given.get("sections", {}), **added}
        init(self, *args, **given)

    return with_sections


Settings.__init__ = _with_sections(Settings.__init__)  # type: ignore[method-assign]
