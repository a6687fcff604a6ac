"""The conformance kit for channels on the pager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from holdfast_pager.channel import PagerChannel, PagerKind, PagerSettings

from holdfast.testing import ChannelConformance, Fault


class TestPagerChannel(ChannelConformance):
    address = "4711"
    bad_addresses = ("12", "+49 151", "the doctor")
    faults = frozenset({Fault.REJECT, Fault.THROTTLE})

    @pytest.fixture(autouse=True)
    def _spool(self, tmp_path: Path) -> None:
        self.spool = tmp_path

    def make_channel(self) -> PagerChannel:
        return PagerChannel("night", self.spool)

    def make_kind(self) -> tuple[PagerKind, Any]:
        return PagerKind(), PagerSettings("pager", spool=str(self.spool))

    def play(self, fault: Fault) -> None:
        name = "full" if fault is Fault.THROTTLE else f"{self.address}.off"
        (self.spool / name).touch()

    def count_accepted(self) -> int:
        return len(list(self.spool.glob("*.page")))
