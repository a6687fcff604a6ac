"""The extension on both databases, and the settings of its channel and its provider."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from holdfast_pager.channel import PagerSettings
from holdfast_pager.extension import Pager
from holdfast_pager.provider import PagerChatSettings

from holdfast import Holdfast, Settings
from holdfast.api import create_app

ORG = str(uuid4())
SETTINGS = Path(__file__).with_name("holdfast.toml")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the tables of the extension."""
    url = f"sqlite:///{tmp_path_factory.mktemp('pager')}/pager.db"
    if request.param == "postgres":
        url = os.environ.get("PAGER_POSTGRES_URL", "")
        if not url:
            pytest.skip("PAGER_POSTGRES_URL is not set")
    subprocess.run([sys.executable, "-m", "holdfast", "--db", url, "migrate"], check=True)
    return url


@pytest.fixture
def hf(url: str) -> Iterator[Holdfast]:
    hf = Holdfast(url, extensions=[Pager()])
    yield hf
    hf.close()


def test_a_page_is_stored_with_the_outcome_of_its_job(hf: Holdfast) -> None:
    job = hf.enqueue("pager.record", {"number": "4711"}, org_id=ORG)
    hf.worker().run_once()

    assert hf.get(job.id, org_id=ORG).state == "completed"
    assert hf.extension(Pager).list_pages(ORG) == ["4711"]


def test_a_failed_page_is_recorded(hf: Holdfast) -> None:
    before = hf.pager.count_failures(ORG)
    hf.enqueue("pager.record", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.pager.count_failures(ORG) == before + 1


def test_verify_finds_a_page_without_a_number(hf: Holdfast) -> None:
    operator = hf.operate(actor="user:ada", role="admin")
    assert operator.verify().violated == ()

    hf.enqueue("pager.record", {"number": ""}, org_id=ORG)
    hf.worker().run_once()

    (found,) = operator.verify().violated
    assert (found.id, found.count) == ("PAGER1", 1)


def test_a_tenant_lists_its_pages_over_http(hf: Holdfast) -> None:
    tenant = str(uuid4())
    hf.enqueue("pager.record", {"number": "112"}, org_id=tenant)
    hf.worker().run_once()
    app = create_app(hf)

    def read(org_id: str) -> httpx2.Response:
        keys = hf.operate(actor="user:ada", role="admin").api_keys
        key = keys.create("pages", role="viewer", org_id=org_id, reason="INC-7").secret

        async def get() -> httpx2.Response:
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.get("/v1/pages", headers={"Authorization": f"Bearer {key}"})

        return asyncio.run(get())

    assert read(tenant).json() == {"numbers": ["112"]}
    assert read(str(uuid4())).json() == {"numbers": []}


def test_the_settings_have_the_keys_of_the_extension() -> None:
    settings = Settings.load(env={}, file=SETTINGS)

    assert settings.channels["night"] == PagerSettings("pager", spool="/var/spool/pager")
    provider = settings.providers["hospital"]
    assert isinstance(provider, PagerChatSettings)
    assert (provider.ward, provider.base_url) == ("surgery", "https://llm.pager.example/v1")
