"""The adapters against the simulator: the whole lifecycle of a batch with each provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast.outbound.client import Timeouts
from holdfast_llm.provider.adapter import BatchPhase, BatchTag, Content, Lookup
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.azure import Azure
from holdfast_llm.provider.http_client import HttpAdapter, HttpProviderClient, open_client
from holdfast_llm.provider.lines import Overlong, split
from holdfast_llm.provider.openai import CHAT, RESPONSES
from holdfast_llm.provider.reply import ItemAnswer, ProviderRefused, ProviderUnsure, Reply
from holdfast_llm.provider.request import Request
from holdfast_simulator.simulator import Simulator
from tests.provider.asking import KEY, SCHEMA, content_of, route

NAME = BatchTag(KEY, 1, "prod")
OLDER = "2024-10-21"
ALL: dict[str, HttpAdapter] = {
    **ADAPTERS,
    "azure_chat of old": Azure("azure_chat", CHAT, api_version=OLDER),
    "azure_responses of old": Azure("azure_responses", RESPONSES, api_version=OLDER),
}
FENCED = [name for name, found in sorted(ALL.items()) if found.capabilities.has_input_file]
QUICK = Timeouts(connect=2, read=2, write=2, pool=2)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture(params=sorted(ALL))
def adapter(request: pytest.FixtureRequest) -> HttpAdapter:
    return ALL[request.param]


@pytest.fixture
def client(sim: Simulator, adapter: HttpAdapter) -> HttpProviderClient:
    provider = adapter.kind.partition("_")[0]
    url = sim.url(provider) + ("/openai" if provider == "azure" else "")
    return open_client(
        adapter, url, "sk-simulated", allow_private=True, timeouts=QUICK, clock=sim.clock
    )


def input_of(adapter: HttpAdapter, texts: list[str]) -> Content:
    to = route(adapter.kind)
    return content_of(
        *(
            adapter.line(to, f"item-{index}", adapter.body(to, request_of(text)))
            for index, text in enumerate(texts)
        ),
        piece=1000,
    )


def request_of(text: str) -> Request:
    return Request(inputs=(text,), instructions="be kind", schema=SCHEMA)


def read_all(
    adapter: HttpAdapter, client: HttpProviderClient, files: tuple[str, ...]
) -> list[ItemAnswer]:
    found = []
    for file in files:
        with adapter.read(client, file) as pieces:
            for line in split(pieces):
                assert not isinstance(line, Overlong)
                found.append(adapter.parse(line))
    return found


def test_a_batch_is_submitted_and_collected(
    sim: Simulator, adapter: HttpAdapter, client: HttpProviderClient
) -> None:
    texts = [f"canary-{number}\u2028\x85 ünï" for number in range(5)]
    content = input_of(adapter, texts)
    since = sim.clock.now() - timedelta(minutes=10)

    file_id = adapter.upload(client, NAME, content)
    assert (file_id is not None) == adapter.capabilities.has_input_file
    assert adapter.find_file(client, NAME) == file_id
    made = adapter.create(client, route(adapter.kind), NAME, file_id, content)
    (listed,) = adapter.scan(client, since)
    assert listed.provider_batch_id == made.provider_batch_id
    if adapter.capabilities.lookup is Lookup.KEY:
        assert (listed.key, listed.attempt, listed.environment) == (KEY, 1, "prod")
        assert listed.input_file_id == file_id
    assert listed.created_at is not None

    sim.clock.advance(hours=2)
    ended = adapter.get(client, made.provider_batch_id)
    assert (ended.phase, ended.is_known_status, ended.total) == (BatchPhase.COMPLETED, True, 5)
    answers = read_all(adapter, client, ended.result_files)

    assert sorted(found.custom_id for found in answers) == [f"item-{n}" for n in range(5)]
    for found in answers:
        assert isinstance(found.answer, Reply)
        said = json.loads(found.answer.text)["rewritten_text"]
        assert texts[int(found.custom_id[-1])] in said
        assert found.answer.usage is not None
        assert found.answer.usage.output > 0
    assert sim.ledger.double_paid() == {}

    adapter.cancel(client, made.provider_batch_id)
    for file in (file_id, *ended.result_files):
        if file is not None:
            adapter.delete_file(client, file)
            adapter.delete_file(client, file)
    adapter.delete_batch(client, made.provider_batch_id)
    adapter.delete_batch(client, made.provider_batch_id)
    assert adapter.find_file(client, NAME) is None


def test_a_direct_call_is_answered(adapter: HttpAdapter, client: HttpProviderClient) -> None:
    to = route(adapter.kind)

    answer = adapter.call(client, to, adapter.body(to, request_of("canary-7")))
    assert isinstance(answer, Reply)
    assert "canary-7" in json.loads(answer.text)["rewritten_text"]
    assert answer.usage is not None


def test_a_batch_that_was_canceled_says_so(
    sim: Simulator, adapter: HttpAdapter, client: HttpProviderClient
) -> None:
    content = input_of(adapter, ["a", "b"])
    file_id = adapter.upload(client, NAME, content)
    made = adapter.create(client, route(adapter.kind), NAME, file_id, content)

    adapter.cancel(client, made.provider_batch_id)
    sim.clock.advance(hours=1)
    ended = adapter.get(client, made.provider_batch_id)
    assert ended.phase.is_over
    assert ended.is_known_status
    answers = read_all(adapter, client, ended.result_files)
    assert all(not isinstance(found.answer, Reply) for found in answers)


@pytest.mark.parametrize("adapter", FENCED, indirect=True)
def test_a_create_that_names_a_deleted_input_makes_nothing_that_runs(
    sim: Simulator, adapter: HttpAdapter, client: HttpProviderClient
) -> None:
    content = input_of(adapter, ["a"])
    file_id = adapter.upload(client, NAME, content)
    assert file_id is not None
    adapter.delete_file(client, file_id)

    try:
        made = adapter.create(client, route(adapter.kind), NAME, file_id, content)
    except ProviderRefused:
        pass
    else:
        sim.clock.advance(hours=1)
        assert adapter.get(client, made.provider_batch_id).phase is BatchPhase.FAILED
    assert sim.ledger.double_paid() == {}


def test_a_create_whose_answer_is_lost_is_made_once_and_found_again(
    sim: Simulator, adapter: HttpAdapter, client: HttpProviderClient
) -> None:
    content = input_of(adapter, ["a"])
    since = sim.clock.now() - timedelta(minutes=10)
    file_id = adapter.upload(client, NAME, content)
    sim.faults.add("accept_then_reset")

    with pytest.raises(ProviderUnsure):
        adapter.create(client, route(adapter.kind), NAME, file_id, content)
    (found,) = adapter.scan(client, since)
    assert found.key == (KEY if adapter.capabilities.lookup is Lookup.KEY else None)
    assert found.input_file_id == file_id or not adapter.capabilities.has_input_file


LISTINGS = ("openai_responses", "gemini_generate", "anthropic_messages", "mistral_chat")


@pytest.mark.parametrize("adapter", [*LISTINGS, "azure_chat", "azure_chat of old"], indirect=True)
def test_a_scan_walks_all_pages(
    sim: Simulator, adapter: HttpAdapter, client: HttpProviderClient
) -> None:
    content = input_of(adapter, ["a"])
    since = sim.clock.now()
    # A page holds a hundred. Each listing is read over three pages, with the address of Azure over
    # two.
    each = 75 if adapter.kind in LISTINGS else 40
    for number in range(3):
        named = BatchTag(KEY, number, "prod")
        file_id = adapter.upload(client, named, content)
        for _ in range(each):
            adapter.create(client, route(adapter.kind), named, file_id, content)

    found = list(adapter.scan(client, since))
    assert len({seen.provider_batch_id for seen in found}) == len(found) == 3 * each
    sim.clock.advance(seconds=1)
    assert list(adapter.scan(client, sim.clock.now())) == []
