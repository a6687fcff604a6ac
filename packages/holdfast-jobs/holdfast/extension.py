"""Extensions add applications, providers or channels to Holdfast.

An extension subclasses :class:`Extension` and overrides what it needs; every default adds nothing.
It is enabled with ``Holdfast(db, extensions=[Reviews()])`` or by its name in the settings file, and
found by the entry point group ``holdfast.extensions``. ``docs/extensions.md`` shows a complete one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from holdfast.config import Settings
from holdfast.config.extensions import SettingsItem, installed, register
from holdfast.config.run import RunSettings
from holdfast.config.setting_type import NAME
from holdfast.engine.context import Context
from holdfast.engine.periodic_task import PeriodicTask
from holdfast.engine.schedule.schedule import ScheduleOptions
from holdfast.engine.worker.housekeeping import Chore
from holdfast.errors import ConfigError, Failure
from holdfast.event import Subscriber
from holdfast.store import Component, StateStatement, Store, Tx

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.operate.doctor.finding import DoctorCheck
    from holdfast.operate.explanation import ExtensionReasons, Situation
    from holdfast.operate.verify.check import Check
    from holdfast.telemetry.gauges import GaugeSet
    from holdfast.testing_faults import Kit

E = TypeVar("E", bound="Extension")


class Extension:
    """Base class of extensions. Class attributes declare; methods are called when needed.

    Every command imports the module of an installed extension, so keep its imports small: move what
    is expensive into the methods, or behind the import paths of *commands*, *api* and *console*.
    """

    name: ClassVar[str]
    """Lower-case letters, digits, ``_`` and ``-``. It is also an attribute of ``Holdfast``."""

    settings: ClassVar[Mapping[str, SettingsItem]] = {}
    """Sections of the settings file, by name; ``table(…)`` and ``rows(…)`` declare several."""

    runs: ClassVar[Mapping[str, RunSettings]] = {}
    """Bounded runs, with the defaults of their profile and schedule."""

    replaces_runs: ClassVar[Mapping[str, str]] = {}
    """Runs of a required extension that a run of this one performs, as ``{theirs: own}``.

    A replaced run is left out unless the settings declare it.
    """

    component: ClassVar[Component | None] = None
    """Its migrations, and the versions of other components that they need."""

    error_classes: ClassVar[Sequence[type[Failure]]] = ()
    """Failures that metrics may name in the label ``error_class``."""

    audit_events: ClassVar[frozenset[str]] = frozenset()
    """Names of the audit events that it writes."""

    commands: ClassVar[Mapping[str, str]] = {}
    """Commands of the CLI: the name, and the click command as ``module:attribute``.

    The name ``audit verify`` adds a command to the group ``audit`` of the core.
    """

    command_group: ClassVar[str] = "Applications"
    """The heading in ``holdfast --help`` that its commands are listed under."""

    api: ClassVar[str | None] = None
    """The router of the HTTP API, as ``module:attribute``."""

    console: ClassVar[str | None] = None
    """The pages of the console, as ``module:attribute``."""

    nouns: ClassVar[Mapping[str, str]] = {}
    """Nouns of the operator API: the name, and the class as ``module:attribute``.

    A subclass of a noun of the core, under the same name, adds verbs to it.
    """

    demo_acts: ClassVar[Mapping[str, str]] = {}
    """Acts of ``holdfast demo``: the title, and the function as ``module:attribute``.

    The function takes a :class:`holdfast.demo.acts.ActReport`. It runs in a process of its own.
    """

    requires: ClassVar[Sequence[str]] = ()
    """Installed extensions that are enabled before it."""

    is_default: ClassVar[bool] = False
    """Whether workers enable it automatically, unless the settings leave it out."""

    enforces_budgets: ClassVar[bool] = False
    """Whether it records what model calls cost, and enforces the budgets of workflow steps."""

    def state_statements(self) -> Sequence[StateStatement]:
        """Statements that run in the transaction in which a job reaches a state."""
        return ()

    def load(self) -> Extension:
        """Return the object to enable. A light entry point returns the full one here."""
        return self

    def install(self, app: Holdfast) -> None:
        """Declare jobs, queues and subscribers on *app*. Called once, when it is enabled."""

    def for_job(self, job: Context) -> Any:
        """Return the object that ``job.extension(name)`` gives to a handler."""
        return self

    def test_settings(self, settings: Settings, folder: Path) -> Settings:
        """Return the settings for ``holdfast.testing``; *folder* is temporary."""
        return settings

    def check_settings(self, settings: Settings) -> Sequence[str]:
        """Return problems of its sections that involve other settings."""
        return ()

    def provider_accounts(self, settings: Settings) -> set[tuple[str, str]]:
        """Return the providers, with their adapters, that its settings name."""
        return set()

    def verify_checks(self) -> Sequence[Check]:
        """Return the invariants that ``holdfast verify`` checks.

        A check with the id of an existing one extends it.
        """
        return ()

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        """Return the checks of ``holdfast doctor`` by name."""
        return {}

    def doctor_probes(self) -> Mapping[str, DoctorCheck]:
        """Return checks that call external services, for ``doctor --providers``."""
        return {}

    def explain(self, tx: Tx, situation: Situation) -> ExtensionReasons | None:
        """Return why a job of the extension is in its state, for ``holdfast explain``."""
        return None

    def metrics(self, registry: Any, labels: Any) -> Subscriber | None:
        """Register metrics with *registry*; return the subscriber that counts events."""
        return None

    def gauges(self) -> Sequence[GaugeSet]:
        """Return gauges that are read from the database with those of the core."""
        return ()

    def testing(self, app: Holdfast) -> Kit | None:
        """Return the helpers that the extension adds to the pytest fixture ``holdfast_app``."""
        return None

    def log_event(self) -> Subscriber | None:
        """Return a subscriber that writes log lines. Its own events are logged anyway."""
        return None

    def tasks(self, app: Holdfast) -> Mapping[str, PeriodicTask]:
        """Return the tasks that the bounded runs in *runs* execute, by name."""
        return {}

    def schedules(self) -> Mapping[str, ScheduleOptions]:
        """Return schedules by name, with the options of ``hf.schedule``."""
        return {}

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        """Return steps that workers repeat, each in its own thread."""
        return ()


class Extensions:
    """The extensions of one application: the enabled ones, and those that may be."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._enabled: dict[str, Extension] = {}
        # Any thread may be the first to use an installed extension, which enables it.
        self._enabling = RLock()

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._enabled.values())

    def __contains__(self, name: str) -> bool:
        return name in self._enabled

    @property
    def components(self) -> list[Component]:
        return components_of(self._enabled.values())

    def available(self) -> list[Extension]:
        """The enabled extensions and the installed ones, except those that the settings leave out.

        The commands, checks and migrations of these are offered. Their jobs are declared when they
        are enabled.
        """
        found = {
            name: extension for name, extension in installed().items() if self._is_offered(name)
        }
        return list({**found, **self._enabled}.values())

    def _is_offered(self, name: str) -> bool:
        listed = self._app.settings.extensions
        return listed is None or name in listed

    def follow_states(self, store: Store) -> None:
        """Register with *store* the state statements of the extensions whose tables it has.

        This includes extensions that are only installed, because any process may rescue or cancel
        their jobs.
        """
        declared = {found: found.state_statements() for found in self.available()}
        if any(declared.values()):
            versions = store.component_versions()
            store.state_statements = tuple(
                statement
                for extension, statements in declared.items()
                if extension.component is None or extension.component.name in versions
                for statement in statements
            )

    def enable(self, extension: Extension) -> None:
        """Enable an extension: settings, tables, runs, schedules, then its ``install``."""
        check_extension(extension)
        if self._enabled.get(extension.name) is extension:
            return
        if extension.name in self._enabled:
            raise ConfigError(f"The extension {extension.name!r} is enabled twice.")
        self.enable_named(extension.requires)
        app = self._app
        register(extension)
        app.settings = app.settings.with_runs(extension.runs, replaced=extension.replaces_runs)
        self._enabled[extension.name] = extension
        try:
            app.open_components(components_of([extension]))
            extension.install(app)
        except BaseException:
            del self._enabled[extension.name]
            raise
        for name, options in extension.schedules().items():
            app.schedule(name, **options)
        app.registry.tasks.update(extension.tasks(app))
        app.registry.chores += extension.maintenance(app)
        if (subscriber := extension.log_event()) is not None:
            app.events.subscribe(subscriber)

    def enable_named(self, names: Iterable[str]) -> None:
        """Enable installed extensions by their names."""
        for name in names:
            if name not in self._enabled:
                self.enable(find_installed(name).load())

    def enable_defaults(self) -> None:
        """Enable the installed extensions that workers enable automatically.

        If a PostgreSQL database lacks the tables of such an extension, the extension is left out.
        """
        found = [name for name, extension in installed().items() if extension.is_default]
        if not all(name in self._enabled for name in found):
            store = self._app.store
            migrated = store.component_versions()
            for name in found:
                if store.is_embedded or name in migrated:
                    self.find_named(name)

    def open_tables(self, extension: Extension) -> None:
        """Make the tables of an extension usable without enabling it: for pages that only read.

        An embedded database creates missing tables. Others raise SchemaMismatch, which names the
        command to run.
        """
        known = {found.name: found for found in components_of(self.available())}
        wanted: list[Component] = []

        def add(component: Component) -> None:
            for name in component.needs:
                if name in known:
                    add(known[name])
            if component not in wanted:
                wanted.append(component)

        if extension.component is not None:
            add(extension.component)
            store = self._app.store
            if any(found not in store.components for found in wanted):
                with self._enabling:
                    self._app.open_components(wanted)

    def find(self, kind: type[E]) -> E | None:
        """The enabled extension of a class."""
        found = self._enabled.get(kind.name)
        return found if isinstance(found, kind) else None

    def find_named(self, name: str) -> Extension | None:
        """The extension *name*; the first use enables an installed one."""
        if name not in self._enabled and name in installed() and self._is_offered(name):
            with self._enabling:
                if name not in self._enabled:
                    self.enable(installed()[name].load())
        return self._enabled.get(name)

    def get(self, name: str) -> Extension:
        """The extension *name*, as :meth:`find_named`. Raises ConfigError if it is not enabled."""
        found = self.find_named(name)
        if found is None:
            find_installed(name)
            raise ConfigError(
                f"The extension {name!r} is not enabled. Add it to the setting extensions."
            )
        return found


def find_installed(name: str) -> Extension:
    """The installed extension *name*. Raises ConfigError."""
    if name not in installed():
        there = ", ".join(installed()) or "none"
        raise ConfigError(f"There is no extension {name!r}; installed: {there}.")
    found: Extension = installed()[name]
    return found


def components_of(extensions: Iterable[Extension]) -> list[Component]:
    """The components of extensions that store data."""
    return [found.component for found in extensions if found.component is not None]


def check_extension(extension: object) -> None:
    """Raise ConfigError unless an object can be enabled as an extension."""
    if not isinstance(extension, Extension):
        raise ConfigError(f"extensions= takes Extension objects, not {type(extension).__name__}.")
    name = getattr(extension, "name", None)
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{type(extension).__name__}.name must be lower-case letters, digits, _ and -."
        )
    if extension.component is not None and extension.component.name != name:
        raise ConfigError(
            f"The component of the extension {name!r} must have its name, not"
            f" {extension.component.name!r}."
        )
