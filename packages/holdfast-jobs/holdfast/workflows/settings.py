"""The section ``[workflows]`` of the settings file."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.setting_type import Section, setting, whole


@dataclass(frozen=True, slots=True)
class WorkflowSettings(Section):
    """Workflows, and jobs that wait for events: `[workflows]`."""

    keep_days: int = setting(30, whole(1, 3_650))
    """How long ended workflows, finished waits and events are kept."""
