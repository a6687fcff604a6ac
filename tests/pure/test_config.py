"""Settings: read once, validated once, frozen."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import ArtifactSettings, ConfigError, Settings
from holdfast.config import (
    BUILT_IN_PROFILES,
    Cadence,
    From,
    KeySettings,
    QueueSettings,
    Rate,
    RetentionRule,
    RetentionSettings,
    RunProfile,
    RunSettings,
    ScheduleSettings,
    TenantSettings,
    load,
)
from holdfast.config.run import ORDERS
from holdfast.engine.claim import Order
from holdfast.errors import UnknownRun

ROOT = Path(__file__).resolve().parent.parent.parent
ORG = "0198c0de-0000-7000-8000-00000000000a"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def read(file: Path, text: str, **env: str) -> Settings:
    file.write_text(text)
    return Settings.load(env=env, file=file)


def refusal(file: Path, text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(file, text, **env)
    return str(caught.value)


def test_the_argument_beats_the_environment_beats_the_file_beats_the_default(file: Path) -> None:
    file.write_text('db = "sqlite:///file.db"\nlease_seconds = 30\nclaim_limit = 7\n')
    env = {"HOLDFAST_DB": "sqlite:///env.db", "HOLDFAST_LEASE_SECONDS": "20"}

    settings = Settings.load(db="sqlite:///given.db", env=env, file=file)

    assert (settings.db, settings.lease_seconds, settings.claim_limit, settings.poll_seconds) == (
        "sqlite:///given.db", 20.0, 7, 1.0,
    )  # fmt: skip


def test_every_value_names_its_source(file: Path) -> None:
    file.write_text(
        'claim_limit = 7\n\n[queues."q:reports"]  # slow\nmax_running = 3\n\n'
        "[retention]\nkeep_days = 40\n"
    )

    loaded = load(db="sqlite:", env={"HOLDFAST_RETENTION_KEEP_DAYS": "50"}, file=file)

    assert {
        place: (origin.kind, origin.where) for place, origin in loaded.origins.items()
    } == {
        ("claim_limit",): (From.FILE, f"{file}:1"),
        ("queues", "q:reports", "max_running"): (From.FILE, f"{file}:4"),
        ("retention", "keep_days"): (From.ENVIRONMENT, "HOLDFAST_RETENTION_KEEP_DAYS"),
        ("db",): (From.ARGUMENT, "--db"),
    }  # fmt: skip
    assert loaded.settings.retention.keep_days == 50


def test_without_anything_the_embedded_database_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert Settings.load(env={}).db == "sqlite:///holdfast.db"
    assert Settings.load(env={"HOLDFAST_CONFIG": ""}) == Settings()


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml does not exist"):
        Settings.load(env={"HOLDFAST_CONFIG": str(tmp_path / "none.toml")})
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings.load(env={"HOLDFAST_CONFIG": str(tmp_path)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"db": "mysql://host/name"},
        {"db": 7},
        {"payload_limit_bytes": 10},
        {"lease_seconds": 0},
        {"lease_seconds": "60"},
        {"poll_seconds": 0},
        {"rescue_seconds": 0},
        {"claim_limit": 0},
        {"claim_limit": True},
        {"settle_limit": 100_000},
        {"unknown_type_patience_seconds": -1},
        {"unknown_type_patience_seconds": float("inf")},
        {"lease_seconds": float("nan")},
        {"ageing_seconds": 0},
        {"audit_tables": ["not", "a", "tuple"]},
        {"audit_tables": ("drop table; --",)},
        {"profile": "nobody"},
        {"queues": {"q:reports": 7}},
        {"queues": {"reports": QueueSettings()}},
        {"queues": {"q:deadletter": QueueSettings()}},
        {"tenants": {"acme": TenantSettings()}},
        {"tenants": {ORG.upper(): TenantSettings()}},
        {"keys": {"": KeySettings(max_running=1)}},
        {"retention": 90},
        {"runs": {"nightly": RunSettings(queues=("q:a",), profile="nobody")}},
        {"schedules": {"s": ScheduleSettings(every=timedelta(hours=1), run="nobody")}},
        {"runs": {"r": RunSettings(queues=("q:a",), order="fair", job_types=("a.b",))}},
        {"runs": {"r": RunSettings(queues=("q:a",), order="fair", respect_not_before_at=False)}},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_used_is_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong

    with pytest.raises(ConfigError, match=name):
        Settings(**wrong)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (QueueSettings, {"weight": 0}),
        (QueueSettings, {"weight": 101}),
        (QueueSettings, {"max_running": 0}),
        (QueueSettings, {"max_running": -1}),
        (QueueSettings, {"max_running": 1.5}),
        (QueueSettings, {"max_running_per_tenant": 0}),
        (QueueSettings, {"max_depth": 0}),
        (QueueSettings, {"max_depth_per_tenant": float("nan")}),
        (QueueSettings, {"small_depth": 0}),
        (QueueSettings, {"rate": "100/fortnight"}),
        (TenantSettings, {"weight": 11}),
        (TenantSettings, {"max_running": 0}),
        (KeySettings, {"max_running": 0}),
        (KeySettings, {}),
        (RetentionSettings, {"keep_days": 29}),
        (RetentionSettings, {"keep_runs_days": 0}),
        (RetentionSettings, {"rules": ("export",)}),
        (RetentionRule, {"keep_days": 10}),
        (RetentionRule, {"state": "queued"}),
        (ArtifactSettings, {"store": "ftp://host"}),
        (ArtifactSettings, {"store": "file://relative"}),
        (ArtifactSettings, {"link_key": "short"}),
        (ArtifactSettings, {"max_bytes": 0}),
        (RunProfile, {"max_jobs_per_run": 0}),
        (RunProfile, {"max_runtime_seconds": 0}),
        (RunProfile, {"claim_timeout_seconds": -1}),
        (RunProfile, {"order": "newest"}),
        (RunProfile, {"eligible_statuses": ("batch_submitted",)}),
        (RunProfile, {"respect_not_before_at": 1}),
        (RunProfile, {"retry_backoff_seconds": ()}),
        (RunProfile, {"retry_backoff_seconds": (0,)}),
        (RunSettings, {"queues": ()}),
        (RunSettings, {"queues": ("q:deadletter",)}),
        (RunSettings, {"queues": ("q:a", "q:a")}),
        (RunSettings, {"job_types": ("Not A Type",)}),
        (ScheduleSettings, {"cron": "0 3 * * *", "every": timedelta(hours=1), "run": "r"}),
        (ScheduleSettings, {"cron": "whenever", "run": "r"}),
        (ScheduleSettings, {"cron": "0 0 31 2 *", "run": "r"}),
        (ScheduleSettings, {"every": timedelta(seconds=5), "run": "r"}),
        (ScheduleSettings, {"every": timedelta(hours=1), "run": "r", "zone": "Europe/Berlin"}),
        (RunProfile, {"schedule": Cadence(cron="0 0 31 2 *")}),
        (RunProfile, {"schedule": Cadence(every=timedelta(seconds=5))}),
        (ScheduleSettings, {"cron": "0 3 * * *"}),
        (ScheduleSettings, {"cron": "0 3 * * *", "job_type": "a.b"}),
        (ScheduleSettings, {"cron": "0 3 * * *", "run": "r", "zone": "Mars/Olympus"}),
        (ScheduleSettings, {"cron": "0 3 * * *", "run": "r", "payload": {"a": 1}}),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"Invalid {kind.__name__}"):
        kind(**wrong)


def test_every_bad_setting_is_named_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(db="nonsense", claim_limit=0, lease_seconds=-1)

    assert all(name in str(caught.value) for name in ("db", "claim_limit", "lease_seconds"))


@pytest.mark.req("I-08")
def test_job_rows_cannot_be_set_to_leave_before_the_longest_key_expires() -> None:
    with pytest.raises(ConfigError, match="keep_days"):
        RetentionSettings(keep_days=29)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense = 1", ":1: nonsense is an unknown key; known here: ageing_seconds, alerts"),
        ("claim_limt = 1", ":1: claim_limt is an unknown key; did you mean 'claim_limit'?"),
        ("[queue.x]\na = 1", ":1: queue is an unknown key; did you mean 'queues'?"),
        ('\nclaim_limit = "many"', ":2: claim_limit = 'many' must be a whole number between"),
        ("claim_limit = true", "claim_limit = True must be a whole number"),
        ("claim_limit = 1.5", "claim_limit = 1.5 must be a whole number"),
        ("lease_seconds = nan", "lease_seconds = nan must be a number between 0.5 and"),
        ("db = [", "not valid TOML"),
        ("queues = 3", "queues must be a table: [queues.NAME]"),
        ('[queues]\n"q:x" = 3', 'queues."q:x" must be a table: [queues."q:x"]'),
        ("retention = 3", "retention must be a table: [retention]"),
        (
            "[queues.reports]\nweight = 1",
            ":1: queues.reports is not a valid name: it must be a queue",
        ),
        (
            '[queues."q:a"]\nmax_running = 0',
            "1,000,000,000; to let nothing run, pause the queue",
        ),
        ('[queues."q:a"]\nmax_running = 0', ':2: queues."q:a".max_running = 0 must be a whole'),
        ('[queues."q:a"]\nmax_runing = 1', "did you mean 'max_running'?"),
        ('[keys.x]\nrate = "100/fortnight"', 'must be a rate such as "100/minute"'),
        ("[keys.x]\nrate = 100", 'must be a rate such as "100/minute"'),
        ("[keys.x]\n", "[keys.x] a key needs max_running or rate"),
        (f'[tenants."{ORG}"]\nweight = -1', "must be a whole number between 1 and 10"),
        ("[retention]\nrules = 3", "must be tables: [[retention.rules]]"),
        ('[[retention.rules]]\ncategori = "x"', "did you mean 'category'? (rule 1)"),
        ("[[retention.rules]]\nkeep_days = 8", "it names no category, job_type or state (rule 1)"),
        ("[artifacts]\nstore = 3", 'must be "file:///absolute/folder" or "s3://bucket/prefix"'),
        ('[profiles.p]\nschedule = "every 15x"', 'must be "every 15m" (s, m, h or d) or a cron'),
        ('[profiles.p]\neligible_statuses = ["batch_submitted"]', "left to batch collectors"),
        ("[runs.r]\nmax_jobs_per_run = 3", "[runs.r] queues is needed: a list of at least one"),
        ('[runs.r]\nqueues = ["q:a"]\nprofile = "p"', "declared: dev, example, prod, stage"),
        ('[schedules.s]\nevery = "2h"\nrun = "r"', "schedules.s.run = 'r' is not declared"),
        ("[runs.a.b]\nqueues = 1", "b is an unknown key"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_place_the_reason_and_the_way_out(
    file: Path, text: str, says: str
) -> None:
    assert says in refusal(file, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('cron = "0 0 31 2 *"\nrun = "r"', ":2: schedules.s.cron = '0 0 31 2 *' must be a"),
        ('cron = "0 0 31 2 *"\nrun = "r"', "(it never fires: no such month has a day 31)"),
        ('run = "r"\nevery = "5s"', ":3: schedules.s.every = '5s' must be a length"),
        ('run = "r"\nevery = "5s"', "(it must be from 10 seconds to 366 days)"),
        ('cron = "0 3 * * *"\nzone = "localtime"', ":3: schedules.s.zone = 'localtime' must be"),
        ('cron = "0 3 * * *"\nrun = "r"', ":3: schedules.s.run = 'r' is not declared"),
        ('every = "2h"\nzone = "Europe/Berlin"', ":1: [schedules.s] zone is for a cron"),
        ('every = "2h"', ":1: [schedules.s] it needs either job_type or run"),
        ('[runs.r]\nqueues = ["q:a"]\nprofile = "p"', ":3: runs.r.profile = 'p' is not declared"),
        ('[runs]\nr = { queues = ["q:a"], profile = "p" }', ":2: runs.r.profile = 'p' is not"),
        ('[runs.r]\nqueues = ["q:a"]\nschedule = "0 24 * * *"', "(it has '24' as hour; it goes"),
        (
            '[runs.r]\nqueues = ["q:a"]\njob_types = ["a.b"]\norder = "fair"',
            ':1: runs.r has order = "fair"',
        ),
        ('[review]\nmode = "batch"', ":2: review.mode = 'batch' needs a provider"),
        ("[keys.x]", ":1: [keys.x] a key needs max_running or rate"),
        ("[[retention.rules]]", ":1: [retention.rules] it names no category"),
    ],
)  # fmt: skip
def test_every_refusal_has_its_file_and_line(file: Path, text: str, says: str) -> None:
    said = refusal(file, text if text.startswith("[") else f"[schedules.s]\n{text}")

    assert says in said
    assert all(f"{file}:" in line for line in said.splitlines()[1:])


def test_a_refused_variable_is_named_also_where_it_only_fits_nothing_else(file: Path) -> None:
    assert "HOLDFAST_PROFILE: profile = 'nope' is not declared" in refusal(
        file, "", HOLDFAST_PROFILE="nope"
    )


@pytest.mark.parametrize("cron", ["@daily", "@hourly", "0 3 * * MON-FRI"])
def test_a_file_may_write_a_cron_in_every_way_that_code_may(file: Path, cron: str) -> None:
    settings = read(
        file,
        f'[runs.r]\nqueues = ["q:a"]\nschedule = "{cron}"\n'
        f'[schedules.s]\ncron = "{cron}"\nrun = "r"\n',
    )

    assert (settings.schedules["s"].cron, str(settings.runs["r"].schedule)) == (cron, cron)


def test_all_problems_are_reported_at_once(file: Path) -> None:
    said = refusal(
        file, "claim_limit = 0\n[retention]\nkeep_days = 1\n", HOLDFAST_POLL_SECONDS="soon"
    )

    assert [line.strip().split(" must ")[0] for line in said.splitlines()[1:]] == [
        "HOLDFAST_POLL_SECONDS = 'soon'",
        f"{file}:1: claim_limit = 0",
        f"{file}:3: retention.keep_days = 1",
    ]


def test_a_bad_environment_variable_is_named(file: Path) -> None:
    assert "HOLDFAST_CLAIM_LIMIT = 'lots' must be a whole number" in refusal(
        file, "", HOLDFAST_CLAIM_LIMIT="lots"
    )
    assert "HOLDFAST_CLAIM_LIMIT: claim_limit = 0 must be" in refusal(
        file, "", HOLDFAST_CLAIM_LIMIT="0"
    )


@pytest.mark.parametrize("name", ["db", "audit_key", "artifacts.link_key"])
def test_a_secret_is_not_repeated_when_it_cannot_be_used(file: Path, name: str) -> None:
    section, _, key = name.rpartition(".")
    said = refusal(file, (f"[{section}]\n" if section else "") + f'{key} = ["hunter2"]')

    assert f"{name} must be" in said
    assert "hunter2" not in said


def test_an_unknown_variable_is_reported_and_ignored(file: Path) -> None:
    file.write_text("")

    loaded = load(env={"HOLDFAST_CLAIM_LIMT": "7", "HOLDFAST_PORT": "tcp://x"}, file=file)

    assert loaded.ignored == ("HOLDFAST_CLAIM_LIMT", "HOLDFAST_PORT")
    assert loaded.settings == Settings()


def test_a_list_in_a_variable_is_separated_by_commas(file: Path) -> None:
    settings = read(file, "", HOLDFAST_AUDIT_TABLES="public.invoice, orders")

    assert settings.audit_tables == ("public.invoice", "orders")


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().db = "sqlite:///other.db"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/minute", Rate(100, 60)),
        ("5 / second", Rate(5, 1)),
        ("1/day", Rate(1, 86_400)),
        ("7/hour", Rate(7, 3600)),
    ],
)
def test_a_rate_is_read_and_written(text: str, rate: Rate) -> None:
    assert Rate.read(text) == rate
    assert Rate.read(str(rate)) == rate


@pytest.mark.parametrize("text", ["0/minute", "-1/minute", "1.5/minute", "100", "minute", "1/0"])
def test_a_rate_that_lets_nothing_through_or_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Rate.read(text)
    with pytest.raises(ConfigError):
        Rate(0, 60)


@pytest.mark.parametrize(
    "text", ["every 30s", "every 1234567s", "every 15m", "every 2h", "every 1d", "*/5 1-3 * * *"]
)
def test_a_cadence_is_read_and_written(text: str) -> None:
    assert str(Cadence.read(text)) == text


@pytest.mark.parametrize("text", ["every 0m", "every", "15m", "every -1h", "* * *", "every 1000d"])
def test_a_cadence_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Cadence.read(text)


def test_a_queue_that_is_built_in_keeps_what_the_file_does_not_set(file: Path) -> None:
    settings = read(file, '[queues."q:critical"]\nmax_running = 5\n[queues."q:own"]\n')

    assert settings.queues == {
        "q:critical": QueueSettings(weight=8, max_running=5, small_depth=100),
        "q:own": QueueSettings(),
    }


# -- profiles and runs


@pytest.mark.req("K-01")
@pytest.mark.req("B-08")
def test_the_default_profile_is_example() -> None:
    settings = Settings(runs={"nightly": RunSettings(queues=("q:exports",))})

    assert dataclasses.asdict(settings.run_of("nightly")) == {
        "max_jobs_per_run": 25,
        "max_runtime_seconds": 240,
        "claim_timeout_seconds": 600,
        "order": "created_at_asc",
        "eligible_statuses": ("queued",),
        "respect_not_before_at": True,
        "retry_backoff_seconds": (900, 7200),
        "schedule": None,
    }


@pytest.mark.parametrize(
    ("name", "every", "jobs", "runtime", "backoff", "claim"),
    [
        pytest.param("dev", "every 2h", 5, 120, (120, 600), 300, marks=pytest.mark.req("K-02")),
        pytest.param(
            "stage", "every 30m", 30, 180, (300, 1800), 900, marks=pytest.mark.req("K-03")
        ),
        pytest.param(
            "prod", "every 1h", 200, 240, (3600, 21600), 3600, marks=pytest.mark.req("K-04")
        ),
    ],
)
def test_the_profiles_are_shipped(
    name: str, every: str, jobs: int, runtime: int, backoff: tuple[int, ...], claim: int
) -> None:
    settings = Settings(profile=name, runs={"nightly": RunSettings(queues=("q:exports",))})

    run = settings.run_of("nightly")

    assert (str(run.schedule), run.max_jobs_per_run, run.max_runtime_seconds) == (
        every, jobs, runtime,
    )  # fmt: skip
    assert (run.retry_backoff_seconds, run.claim_timeout_seconds) == (backoff, claim)


@pytest.mark.req("K-06")
def test_the_batch_functions_keep_their_own_cadence_by_default() -> None:
    queues = ("q:default",)
    settings = Settings(
        profile="prod",
        runs={
            "batch_submitter": RunSettings(queues=queues),
            "batch_collector": RunSettings(queues=queues),
            "general": RunSettings(queues=queues),
        },
    )
    told = dataclasses.replace(
        settings,
        runs={
            "batch_submitter": RunSettings(
                queues=queues, schedule=settings.profiles["prod"].schedule
            )
        },
    )

    assert {name: str(settings.run_of(name).schedule) for name in settings.runs} == {
        "batch_submitter": "every 15m",
        "batch_collector": "every 30m",
        "general": "every 1h",
    }
    assert str(told.run_of("batch_submitter").schedule) == "every 1h"


def test_a_run_overrides_its_profile_and_a_profile_the_built_in_one(file: Path) -> None:
    settings = read(
        file,
        """
        profile = "mine"
        [profiles.mine]
        max_jobs_per_run = 3
        [profiles.prod]
        max_jobs_per_run = 500
        [runs.nightly]
        queues = ["q:reports", "q:exports"]
        max_runtime_seconds = 60
        schedule = "0 3 * * *"
        zone = "Europe/Berlin"
        order = "fair"
        [runs.big]
        queues = ["q:reports"]
        profile = "prod"
        """,
    )

    nightly, big = settings.run_of("nightly"), settings.run_of("big")

    assert (nightly.max_jobs_per_run, nightly.max_runtime_seconds) == (3, 60)
    assert (nightly.order, str(nightly.schedule)) == ("fair", "0 3 * * *")
    assert (big.max_jobs_per_run, big.claim_timeout_seconds) == (500, 3600)


def test_an_undeclared_run_is_not_found() -> None:
    with pytest.raises(UnknownRun, match=r"Declared: nightly.*\[runs.nigtly\]"):
        Settings(runs={"nightly": RunSettings(queues=("q:a",))}).run_of("nigtly")


@pytest.mark.parametrize(
    ("backoff", "seconds"), [((900, 7200), 300), ((301,), 300), ((300,), 150), ((120, 600), 60)]
)
def test_what_is_given_back_unused_waits_less_than_a_retry(
    backoff: tuple[int, ...], seconds: float
) -> None:
    assert RunProfile(retry_backoff_seconds=backoff).overflow_seconds == seconds


def test_the_orders_of_a_run_are_those_of_a_claim() -> None:
    assert set(ORDERS) == set(Order)


# -- the shipped file


def test_the_shipped_file_says_the_defaults() -> None:
    settings = Settings.load(env={}, file=ROOT / "holdfast.toml.example")

    assert settings == Settings()
    assert set(settings.profiles) == set(BUILT_IN_PROFILES) == {"example", "dev", "stage", "prod"}


def test_what_the_shipped_file_shows_as_comments_can_be_used(file: Path) -> None:
    """A line '#key = value' is a commented example: all of them together are valid settings."""
    lines = (ROOT / "holdfast.toml.example").read_text().splitlines()
    offered = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in lines
    ]

    settings = read(file, "\n".join(offered))

    filled = [settings.queues, settings.tenants, settings.keys, settings.runs, settings.schedules]
    assert all([*filled, settings.retention.rules, settings.artifacts.store])


@pytest.mark.req("K-05")
def test_the_shipped_file_says_why_the_profiles_are_as_they_are() -> None:
    text = (ROOT / "holdfast.toml.example").read_text()

    for reason in ("costs less", "hour of arrivals", "piling up"):
        assert reason in text
