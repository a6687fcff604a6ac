"""The declaration of the artifacts extension, without its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.artifacts.settings import ArtifactSettings
from holdfast.config import Settings
from holdfast.errors import ArtifactStoreDown, ChecksumMismatch
from holdfast.extension import Extension
from holdfast.store import Component

if TYPE_CHECKING:
    from holdfast.operate.verify.check import Check


class ArtifactsExtension(Extension):
    """Declares artifacts; :class:`~holdfast.artifacts.artifacts.Artifacts` implements them."""

    name = "artifacts"
    is_default = True
    component = Component("artifacts", "holdfast.artifacts", needs={"core": 10})
    settings = {"artifacts": ArtifactSettings}
    error_classes = (ArtifactStoreDown, ChecksumMismatch)
    audit_events = frozenset(
        {"artifact.linked", "artifact.removed", "artifact.stored", "artifacts.swept"}
    )
    command_group = "Operations"
    commands = {"artifacts": "holdfast.artifacts.commands:artifacts"}
    nouns = {"artifacts": "holdfast.artifacts.operator:OperatorArtifacts"}

    def load(self) -> Extension:
        from holdfast.artifacts.artifacts import Artifacts

        return Artifacts()

    def verify_checks(self) -> Sequence[Check]:
        from holdfast.artifacts.verify import CHECKS

        return CHECKS

    def test_settings(self, settings: Settings, folder: Path) -> Settings:
        """Return settings that keep test files out of the application's store."""
        kept = replace(settings.artifacts, store=f"file://{folder}/artifacts")
        return replace(settings, **{self.name: kept})
