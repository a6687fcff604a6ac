"""Settings: one typed file, holdfast.toml, and the environment; read once, validated once, frozen.

setting_type.py  types of settings, their limits and error messages
section.py       queues, tenants, keys, retention, alerts
run.py           profiles, runs, schedules
channel.py       channels that send messages
outbox.py        tokens, leases, attempts and circuits of deliveries
extensions.py    the sections of extensions
settings.py      Settings: all sections
load.py          loading, and the origin of each value
"""

from holdfast.config.channel import ChannelSettings, CommonChannelSettings
from holdfast.config.load import From, Loaded, Origin, load
from holdfast.config.outbox import OutboxSettings
from holdfast.config.run import (
    BUILT_IN_PROFILES,
    BUILT_IN_RUNS,
    OUTBOX_RUNS,
    RunProfile,
    RunSettings,
    ScheduleSettings,
)
from holdfast.config.section import (
    BUILT_IN_QUEUES,
    AlertSettings,
    KeySettings,
    QueueSettings,
    RetentionRule,
    RetentionSettings,
    TenantSettings,
    signing_key,
)
from holdfast.config.serve import ServeSettings
from holdfast.config.setting_type import Cadence, Rate
from holdfast.config.settings import DEFAULT_DB, DEFAULT_ORG, LOG_LEVELS, Settings

__all__ = [
    "BUILT_IN_PROFILES",
    "BUILT_IN_QUEUES",
    "BUILT_IN_RUNS",
    "DEFAULT_DB",
    "DEFAULT_ORG",
    "LOG_LEVELS",
    "OUTBOX_RUNS",
    "AlertSettings",
    "Cadence",
    "ChannelSettings",
    "CommonChannelSettings",
    "From",
    "KeySettings",
    "Loaded",
    "Origin",
    "OutboxSettings",
    "QueueSettings",
    "Rate",
    "RetentionRule",
    "RetentionSettings",
    "RunProfile",
    "RunSettings",
    "ScheduleSettings",
    "ServeSettings",
    "Settings",
    "TenantSettings",
    "load",
    "signing_key",
]
