"""Extensions: their tables, settings, commands and jobs exist only where they are enabled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import ConfigError, FakeClock, Holdfast, Settings
from holdfast.cli import cli
from holdfast.config import extensions as found_extensions
from holdfast.errors import SchemaMismatch
from holdfast.operate.verify.run import Status
from holdfast.store import CORE, Component, open_store
from holdfast.store.migrate import latest
from holdfast.telemetry.log import log_event
from holdfast.telemetry.metrics import Metrics
from tests.extension.visits.extension import Visits, VisitSettings
from tests.story import ORG, by_hand, look

POINT = EntryPoint("visits", "tests.extension.visits.extension:Visits", found_extensions.GROUP)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if a distribution with the extension were installed, and no other."""
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [POINT] if group == found_extensions.GROUP else entry_points(group=group),
    )
    found_extensions.installed.cache_clear()
    yield
    found_extensions.installed.cache_clear()


def open_with(url: str, *extensions: Visits, clock: FakeClock | None = None) -> Holdfast:
    migrated = open_store(url, check=False, components=[Visits.component])
    migrated.migrate()
    migrated.close()
    return Holdfast(url, clock=clock, extensions=extensions)


def test_an_enabled_extension_has_its_table_settings_and_jobs(url: str) -> None:
    hf = open_with(url, Visits())

    hf.extension(Visits).add("Ada", org_id=ORG)

    assert hf.store.component_versions()["visits"] == 1
    assert hf.settings.visits.most == 10
    assert "visit.count" in hf.registry
    assert hf.visits is hf.extension(Visits)
    hf.close()


def test_without_the_extension_there_is_nothing_of_it(sqlite_url: str, installed: None) -> None:
    hf = Holdfast(sqlite_url)

    assert hf.store.component_versions() == {"core": latest(hf.store.dialect)}
    assert "visit.count" not in hf.registry
    with pytest.raises(AttributeError, match="no attribute 'visitors'"):
        hf.visitors  # noqa: B018
    hf.close()


def test_on_sqlite_the_tables_come_with_the_extension(sqlite_url: str) -> None:
    hf = Holdfast(sqlite_url)
    assert "visits" not in hf.store.component_versions()

    hf.add_extension(Visits())

    assert hf.store.component_versions()["visits"] == 1
    hf.close()


def test_on_postgres_a_missing_component_is_reported_and_not_created(postgres_url: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"visits .* version 0, this code needs 1\. Run 'hold"):
        Holdfast(postgres_url, extensions=[Visits()]).store  # noqa: B018


def test_a_component_that_is_newer_than_the_code_is_refused(url: str) -> None:
    hf = open_with(url, Visits())
    sql = "INSERT INTO holdfast.migration (component, version, name) VALUES ('visits', 9, 'later')"
    by_hand(hf.store, sql)
    hf.close()

    with pytest.raises(SchemaMismatch, match=r"visits .* version 9, newer than this code"):
        Holdfast(url, extensions=[Visits()]).store  # noqa: B018
    with pytest.raises(SchemaMismatch, match="newer than this code"):
        open_store(url, check=False, components=[Visits.component]).migrate()
    Holdfast(url).store.close()


def test_a_component_waits_for_the_core_that_it_needs(url: str) -> None:
    newer = Component("visits", "tests.extension.visits", needs={"core": 999})
    store = open_store(url, check=False, components=[newer])

    with pytest.raises(SchemaMismatch, match="'visits' needs core 999"):
        store.migrate()

    assert "visits" not in store.component_versions()
    store.close()


def test_an_extension_is_enabled_by_its_name_in_the_settings(
    sqlite_url: str, installed: None, tmp_path: Path
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'db = "{sqlite_url}"\nextensions = ["visits"]\n[visits]\nmost = 3\n')

    hf = Holdfast(settings=Settings.load(file=file, env={"HOLDFAST_VISITS_MOST": "4"}))

    assert hf.extension(Visits).app is hf
    assert hf.settings.visits == VisitSettings(most=4)
    hf.close()


def test_a_name_that_is_not_installed_is_refused(sqlite_url: str, installed: None) -> None:
    with pytest.raises(ConfigError, match="no extension 'guests'; installed: visits"):
        Holdfast(settings=Settings(db=sqlite_url, extensions=("guests",)))


def test_a_wrong_value_in_its_section_is_named(installed: None, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[visits]\nmost = 1000\n")

    with pytest.raises(ConfigError, match=r"holdfast\.toml:2: visits\.most = 1000 must be"):
        Settings.load(file=file, env={})


def test_an_extension_is_enabled_once(sqlite_url: str) -> None:
    hf = Holdfast(sqlite_url, extensions=[Visits()])

    with pytest.raises(ConfigError, match="'visits' is enabled twice"):
        hf.add_extension(Visits())
    with pytest.raises(ConfigError, match="takes the class of an extension"):
        hf.extension("visits")
    with pytest.raises(ConfigError, match="takes Extension objects, not str"):
        hf.add_extension("visits")
    hf.close()


def test_verify_and_doctor_run_its_checks(url: str, installed: None) -> None:
    hf = open_with(url, Visits())
    hf.settings = Settings(db=url, visits=VisitSettings(most=1))
    for visitor in ("", "Ada"):
        hf.extension(Visits).add(visitor, org_id=ORG)
    admin = hf.operate(actor="user:root", role="admin")

    (found,) = admin.verify(only=["V1"]).findings
    warned = [finding for finding in admin.doctor() if finding.check == "visits"]

    assert (found.status, found.violations[0].subject) == (Status.VIOLATED, "visitor:")
    assert [finding.seen for finding in warned] == ["There are too many visitors."]
    hf.close()


def test_verify_finds_what_was_changed_in_its_tables(url: str, installed: None) -> None:
    hf = open_with(url, Visits())
    admin = hf.operate(actor="user:root", role="admin")
    only = ["I30", "I38", "I47"] if hf.store.is_embedded else ["I30", "I38"]
    assert not admin.verify(only=only).violated

    by_hand(hf.store, "DELETE FROM holdfast.migration WHERE component = 'visits'")
    by_hand(
        hf.store,
        "INSERT INTO holdfast.migration (component, version, name) VALUES ('visits', 1, 'other')",
    )

    (drift,) = admin.verify(only=["I38"]).violated
    assert [found.subject for found in drift.violations] == ["migration:visits:0001"]
    hf.close()


def test_doctor_names_a_component_that_is_not_installed(url: str) -> None:
    open_with(url).close()
    hf = Holdfast(url)

    found = hf.operate(actor="user:root", role="admin").doctor()

    (notice,) = [finding for finding in found if finding.check == "extensions"]
    assert "'visits', which is not installed here" in notice.seen
    hf.close()


def test_its_events_are_counted_and_logged(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    hf = Holdfast(sqlite_url, extensions=[Visits()])
    metrics = Metrics(hf, database=False)
    hf.events.subscribe(log_event)

    with caplog.at_level(logging.INFO, logger="holdfast"):
        hf.extension(Visits).add("Ada", org_id=ORG)

    assert metrics.registry.get_sample_value("holdfast_visits_total") == 1
    assert "visit.counted" in caplog.messages
    assert metrics.labels.error_class("NOT_WELCOME") == "NOT_WELCOME"
    hf.close()


def test_its_bounded_run_is_performed(url: str, clock: FakeClock) -> None:
    hf = open_with(url, Visits(), clock=clock)
    hf.extension(Visits).add("Ada", org_id=ORG)

    report = hf.runs.trigger("forget_visits", actor="user:ann", role="admin", reason="now")

    assert report.claimed_count == 1
    assert "visits" in [chore.name for chore in hf.registry.chores]
    hf.close()


def test_the_cli_has_its_command_and_migrates_it(sqlite_url: str, installed: None) -> None:
    runner = CliRunner(env={"HOLDFAST_DB": sqlite_url, "HOLDFAST_CONFIG": ""})

    shown = runner.invoke(cli, ["visits"])
    migrated = runner.invoke(cli, ["migrate"])

    assert shown.output == "visits are counted\n"
    assert "applied visits 0001_visit" in migrated.output
    assert f"core {latest(open_store(sqlite_url).dialect, CORE)}\nvisits 1\n" in migrated.output


def test_the_cli_leaves_out_what_the_settings_leave_out(
    sqlite_url: str, installed: None, tmp_path: Path
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("extensions = []\n")
    runner = CliRunner(env={"HOLDFAST_DB": sqlite_url, "HOLDFAST_CONFIG": str(file)})

    assert runner.invoke(cli, ["visits"]).exit_code == 2
    assert "visits" not in runner.invoke(cli, ["migrate"]).output


def test_the_core_alone_is_verified_without_the_tables_of_extensions(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [] if group == found_extensions.GROUP else entry_points(group=group),
    )
    found_extensions.installed.cache_clear()
    try:
        with Holdfast(sqlite_url) as hf:
            hf.job("plain")(lambda job, payload: None)
            hf.enqueue("plain", {}, org_id=ORG)
            hf.worker().run(until_idle=True)
            report = hf.operate(actor="user:root", role="admin").verify()
            tables = look(hf.store, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    finally:
        found_extensions.installed.cache_clear()

    assert report.violated == ()
    assert not {"I11", "I19", "I39"} & {finding.id for finding in report.findings}
    assert not [row for row in tables if "review" in row["name"] or "rewrite" in row["name"]]
