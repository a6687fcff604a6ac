"""The tests of the example: the conformance kit on its channel, and a story of its extension."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from holdfast_pager.channel import PagerChannel, PagerKind, PagerSettings
from holdfast_pager.extension import Pager
from holdfast_pager.provider import make_adapter

from holdfast import Holdfast, Settings
from holdfast.testing import ORG, ChannelConformance, Fault


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


def test_a_page_is_stored_with_the_outcome_of_its_job(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/pager.db", extensions=[Pager()])
    job = hf.enqueue("pager.record", {"number": "4711"}, org_id=ORG)
    hf.worker().run_once()

    module, _, name = str(Pager.api).partition(":")
    routes = getattr(importlib.import_module(module), name)
    assert hf.get(job.id, org_id=ORG).state == "completed"
    assert routes["GET /pager/pages"](hf, ORG) == {"pages": ["4711"]}
    hf.close()


def test_the_channel_is_found_by_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'[channels.night]\nkind = "pager"\nspool = "{tmp_path}"\n')

    found = Settings.load(env={}, file=file).channels["night"]

    assert found == PagerSettings("pager", spool=str(tmp_path))


def test_the_provider_has_its_own_limits() -> None:
    adapter = make_adapter()

    assert adapter.kind == "pager_chat"
    assert adapter.limits.max_items == 1_000
