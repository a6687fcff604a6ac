"""Outcomes of items: the effect of an answer on its job; of its text only a result is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import Claimed, Completed, Dead, Released, Retry
from holdfast.errors import ConfigInvalid, Permanent, SchemaInvalid, Snooze, Transient
from holdfast_llm.batch.failure import OutputInvalid
from holdfast_llm.batch.item_outcome import ItemState, read_reply, safe_code, validator_for
from holdfast_llm.batch.service import BatchService
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.reply import Failure, FailureKind, Reply
from holdfast_llm.provider.request import Request
from tests.batch.planted import ROUTE, SCHEMA, Shout
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.story import ORG, make_holdfast

REQUEST = Request(("hello",), schema=SCHEMA)
CANARY = "the private words of a person"


@pytest.fixture
def hf(migrated_sqlite_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = make_holdfast(migrated_sqlite_url, clock)
    made.batch.accounts = ScriptedAccounts(ScriptedProvider(clock))
    made.batch("text.shout", route=ROUTE, max_attempts=3)(Shout)
    yield made
    made.close()


@pytest.fixture
def service(hf: Holdfast) -> BatchService:
    return hf.batch.service


@pytest.fixture
def job(hf: Holdfast) -> Claimed:
    return claimed(hf)


def claimed(hf: Holdfast, job_type: str = "text.shout") -> Claimed:
    hf.enqueue(job_type, {"text": CANARY}, org_id=ORG)
    (job,) = claim_jobs(
        hf.store, queue="q:default", worker_id="w", limit=1, lease_ms=60_000, of_batch=True
    )
    return replace(job, state="batch_submitted")


def reply(data: Any) -> Reply:
    return Reply(data if isinstance(data, str) else json.dumps(data), "model-1")


def declare(
    hf: Holdfast,
    job_type: str,
    *,
    options: Mapping[str, Any] = MappingProxyType({}),
    **methods: Any,
) -> None:
    work = type("Work", (Shout,), {name: staticmethod(made) for name, made in methods.items()})
    hf.batch(job_type, route=ROUTE, max_attempts=3, **options)(work)


# -- replies


def test_an_answer_of_the_schema_is_accepted_and_becomes_the_result(
    service: BatchService, job: Claimed
) -> None:
    found = service.outcomes.of_answer(job, reply({"text": "HI"}))

    assert found.outcome == Completed('{"said":"HI"}')
    assert (found.state, found.error_class) == (ItemState.SUCCEEDED, None)


@pytest.mark.req("R-14")
@pytest.mark.parametrize(
    ("said", "code"),
    [
        (f"no json: {CANARY}", "not_json"),
        ('{"text": "a"', "not_json"),
        ('{"text": NaN}', "not_json"),
        ("[" * 100_000, "not_json"),
        ({"text": 7}, "schema"),
        ({}, "schema"),
        (["text"], "schema"),
        (None, "schema"),
        ({"text": "a", CANARY: 1}, "schema"),
        ('{"text": "\\u0000"}', "not_storable"),
        ('{"text": "\\ud800"}', "not_storable"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_dead_at_once_and_not_kept(
    service: BatchService, job: Claimed, said: Any, code: str
) -> None:
    found = service.outcomes.of_answer(job, reply(said))

    assert isinstance(found.outcome, Dead)
    assert (found.state, found.error_class, found.error_code) == (
        ItemState.FAILED,
        "OUTPUT_INVALID",
        code,
    )
    assert CANARY not in repr(found)


def test_a_plain_answer_must_say_something(hf: Holdfast) -> None:
    declare(
        hf,
        "text.plain",
        request=lambda item: Request(("hello",)),
        accept=lambda item, reply: reply.text,
    )
    job = claimed(hf, "text.plain")

    assert hf.batch.service.outcomes.of_answer(job, reply("yes")).outcome == Completed('"yes"')
    assert hf.batch.service.outcomes.of_answer(job, reply(" \n")).error_code == "empty"


# -- the echo


def test_an_answer_that_repeats_its_echo_is_handed_on_without_it() -> None:
    found = read_reply(reply({"text": "a", "rid": "abcd1234"}), REQUEST, "abcd1234")

    assert found.data == {"text": "a"}


@pytest.mark.req("P-14", "P-16")
def test_another_items_echo_means_that_the_answer_is_another_items(
    service: BatchService, job: Claimed
) -> None:
    found = service.outcomes.of_answer(
        job, reply({"text": "a", "rid": "zyxw9876"}), echo="abcd1234"
    )

    assert isinstance(found.outcome, Dead)
    assert found.is_cross_wired
    assert (found.error_class, found.error_code) == ("OUTPUT_INVALID", "cross_wired")


@pytest.mark.parametrize("said", [{"text": "a"}, {"text": "a", "rid": 7}, {"rid": "no idea!"}, []])
def test_what_is_no_echo_at_all_is_only_a_bad_answer(
    service: BatchService, job: Claimed, said: Any
) -> None:
    found = service.outcomes.of_answer(job, reply(said), echo="abcd1234")

    assert isinstance(found.outcome, Dead)
    assert not found.is_cross_wired
    assert found.error_code == "no_echo"


def test_a_schema_with_a_field_of_that_name_keeps_it_and_is_checked_all_the_same() -> None:
    own = {"type": "object", "properties": {"rid": {"type": "integer"}}, "required": ["rid"]}
    request = Request(("hello",), schema=own)

    found = read_reply(reply({"rid": 7, "rid2": "abcd1234"}), request, "abcd1234")

    assert found.data == {"rid": 7}
    with pytest.raises(OutputInvalid) as caught:
        read_reply(reply({"rid": 7, "rid2": "zyxw9876"}), request, "abcd1234")
    assert caught.value.context == {"code": "cross_wired"}


@pytest.mark.req("P-14", "P-16")
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"text": "hi", "rid": "zyxw9876"}, "cross_wired"),
        ({"text": "hi"}, "no_echo"),
        ({"text": " ", "rid": "abcd1234"}, "empty"),
        ({"rid": "abcd1234"}, "schema"),
        ({"text": 7, "rid": "abcd1234"}, "schema"),
        ("hi", "not_json"),
    ],
)
def test_a_plain_answer_is_checked_for_its_echo_and_handed_on_as_text(said: Any, code: str) -> None:
    plain = Request(("hello",))

    found = read_reply(reply({"text": "hi", "rid": "abcd1234"}), plain, "abcd1234")

    assert (found.text, found.data) == ("hi", None)
    with pytest.raises(OutputInvalid) as caught:
        read_reply(reply(said), plain, "abcd1234")
    assert caught.value.context["code"] == code


# -- failures


@pytest.mark.req("R-13", "R-14", "P-25")
@pytest.mark.parametrize(
    ("failure", "outcome", "error_class", "state"),
    [
        (
            Failure(FailureKind.TRANSIENT, "rate_limit_exceeded", 429),
            Retry,
            "RATE_LIMITED",
            "failed",
        ),
        (Failure(FailureKind.TRANSIENT, "server_error", 500), Retry, "UPSTREAM_ERROR", "failed"),
        (Failure(FailureKind.TRANSIENT, "bad_gateway", 502), Retry, "UPSTREAM_DOWN", "failed"),
        (Failure(FailureKind.TRANSIENT, "overloaded_error"), Retry, "UPSTREAM_DOWN", "failed"),
        (Failure(FailureKind.TRANSIENT, "request_timeout"), Retry, "NETWORK_TIMEOUT", "failed"),
        (Failure(FailureKind.TRANSIENT, "conflict", 409), Retry, "WRITE_CONFLICT", "failed"),
        (Failure(FailureKind.TRANSIENT, "server_error"), Retry, "UPSTREAM_ERROR", "failed"),
        (Failure(FailureKind.NOT_RUN, "batch_expired"), Retry, "BATCH_EXPIRED", "not_run"),
        (Failure(FailureKind.NOT_RUN, "batch_cancelled"), Retry, "BATCH_CANCELED", "not_run"),
        (Failure(FailureKind.NOT_RUN, "batch_failed"), Retry, "BATCH_FAILED", "not_run"),
        (Failure(FailureKind.INVALID, "context_length", 400), Dead, "PROMPT_REFUSED", "failed"),
        (Failure(FailureKind.POLICY, "refusal"), Dead, "POLICY_REJECTED", "failed"),
        (Failure(FailureKind.TRUNCATED, "length"), Dead, "OUTPUT_TRUNCATED", "failed"),
        (Failure(FailureKind.OUTPUT_INVALID, "empty"), Dead, "OUTPUT_INVALID", "failed"),
        (Failure(FailureKind.INTEGRITY, "missing_result"), Dead, "RESULT_MISSING", "missing"),
        (Failure(FailureKind.INTEGRITY, "conflicting_result"), Dead, "RESULT_CONFLICT", "conflict"),
    ],
    ids=lambda value: value.code if isinstance(value, Failure) else "",
)
def test_every_kind_of_failure_has_its_class_and_its_end(
    service: BatchService,
    job: Claimed,
    failure: Failure,
    outcome: type,
    error_class: str,
    state: str,
) -> None:
    found = service.outcomes.of_answer(job, failure)

    assert isinstance(found.outcome, outcome)
    assert isinstance(found.outcome, (Retry, Dead))
    assert found.outcome.fault.last_error.startswith(f"{error_class} stage=run attempt=1 code=")
    assert (found.error_class, found.state) == (error_class, state)


@pytest.mark.req("R-18")
def test_a_transient_failure_of_the_last_attempt_is_the_end(
    service: BatchService, job: Claimed
) -> None:
    last = replace(job, attempt_count=2)

    found = service.outcomes.of_answer(last, Failure(FailureKind.TRANSIENT, "server_error", 500))

    assert isinstance(found.outcome, Dead)


@pytest.mark.req("R-17")
def test_a_job_that_is_retried_by_the_run_waits_as_the_run_says(hf: Holdfast) -> None:
    from holdfast.engine.retry import RetryPolicy

    declare_by_run = hf.batch(
        "text.by_run", route=ROUTE, max_attempts=3, retry=RetryPolicy.by_run()
    )
    declare_by_run(Shout)
    job = claimed(hf, "text.by_run")
    service = hf.batch.service_with([60, 600])
    failure = Failure(FailureKind.TRANSIENT, "server_error", 500)

    waits = [
        service.outcomes.of_answer(replace(job, attempt_count=count), failure) for count in (0, 1)
    ]

    delays = [found.outcome.delay_ms for found in waits if isinstance(found.outcome, Retry)]
    assert delays == [60_000, 600_000]


def test_a_lack_of_capacity_counts_no_attempt(service: BatchService, job: Claimed) -> None:
    found = service.outcomes.of_answer(job, Failure(FailureKind.CAPACITY, "token_limit_exceeded"))

    assert found.outcome == Released("capacity", 300_000)
    assert (found.state, found.error_code) == (ItemState.NOT_RUN, "token_limit_exceeded")


def test_a_lack_of_credit_counts_no_attempt_and_stops_the_account(
    service: BatchService, job: Claimed
) -> None:
    failure = Failure(FailureKind.ACCOUNT, "insufficient_quota", 429)

    found = service.outcomes.of_answer(job, failure)

    assert found.outcome == Released("account", 300_000)
    assert found.stops_account == failure


@pytest.mark.req("P-25")
def test_a_code_that_is_a_sentence_is_not_kept(service: BatchService, job: Claimed) -> None:
    found = service.outcomes.of_answer(job, Failure(FailureKind.INVALID, CANARY, 400))

    assert CANARY not in repr(found)
    assert safe_code(CANARY).startswith("hash:")
    assert safe_code("") == "none"


# -- the application's own code


class Quota(Transient):
    """A transient error of the application."""

    error_class = "OWN_QUOTA"


class Rude(Permanent):
    """An answer that the application rejects."""

    error_class = "RUDE"


@pytest.mark.parametrize(
    ("thrown", "outcome", "error_class"),
    [
        (Rude(word=CANARY), Dead, "RUDE"),
        (Quota(), Dead, "ANSWER_NOT_TAKEN"),
        (ValueError(CANARY), Dead, "DEFECT"),
        (Snooze(5), Dead, "DEFECT"),
        (SystemExit(1), Dead, "DEFECT"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_accept_raises_is_the_end_of_the_attempt(
    hf: Holdfast, thrown: BaseException, outcome: type, error_class: str
) -> None:
    def accept(item: Item, reply: Reply) -> Any:
        raise thrown

    declare(hf, "text.picky", accept=accept)

    found = hf.batch.service.outcomes.of_answer(claimed(hf, "text.picky"), reply({"text": "A"}))

    assert isinstance(found.outcome, outcome)
    assert (found.error_class, found.state) == (error_class, ItemState.FAILED)
    assert CANARY not in repr(found.outcome)


@pytest.mark.parametrize(
    ("thrown", "may_wait", "is_held"),
    [
        (Quota(), True, False),
        (ConnectionError(), True, False),
        (TimeoutError(), True, False),
        (Rude(), False, False),
        (ConfigInvalid(), False, True),
        (ValueError(), False, True),
        (SystemExit(1), False, True),
        (Snooze(5), False, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_pass_leaves_the_answer_to_be_taken_later_and_is_never_asked_again(
    hf: Holdfast, thrown: BaseException, may_wait: bool, is_held: bool
) -> None:
    def accept(item: Item, reply: Reply) -> Any:
        raise thrown

    declare(hf, "text.picky", accept=accept)

    found = hf.batch.service.outcomes.of_answer(claimed(hf, "text.picky"), reply({"text": "A"}))

    assert (found.may_wait, found.is_held) == (may_wait, is_held)
    assert isinstance(found.outcome, Dead)


@pytest.mark.parametrize(
    ("options", "may_wait", "is_held"),
    [
        ({"retry_on": LookupError}, True, False),
        ({"give_up_on": LookupError}, False, False),
        ({}, False, True),
    ],
    ids=["retry_on", "give_up_on", "neither"],
)
def test_the_error_rules_of_a_job_type_apply_to_what_accept_raises(
    hf: Holdfast, options: dict[str, Any], may_wait: bool, is_held: bool
) -> None:
    def accept(item: Item, reply: Reply) -> Any:
        raise KeyError("the table is not loaded")

    declare(hf, "text.picky", options=options, accept=accept)

    found = hf.batch.service.outcomes.of_answer(claimed(hf, "text.picky"), reply({"text": "A"}))

    assert (found.may_wait, found.is_held) == (may_wait, is_held)


def test_a_result_that_cannot_be_stored_is_the_end(hf: Holdfast) -> None:
    declare(hf, "text.odd", accept=lambda item, reply: object())

    found = hf.batch.service.outcomes.of_answer(claimed(hf, "text.odd"), reply({"text": "A"}))

    assert (found.error_class, found.state) == ("RESULT_INVALID", ItemState.FAILED)
    assert found.is_held


# -- schemas


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/x.json",
        "file:///etc/hostname",
        "data:application/json,{}",
    ],
)
def test_a_schema_of_another_address_is_refused_and_nothing_is_fetched(address: str) -> None:
    with pytest.raises(SchemaInvalid, match=r"external \$ref"):
        validator_for({"$ref": address})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"properties": 5},
        {"properties": {"a": {"type": "string", "pattern": "("}}},
        {"$ref": "#/$defs/none"},
        {"minimum": float("nan")},
        {"const": object()},
    ],
)
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaInvalid, match="cannot be used") as refused:
        validator_for(schema)

    assert refused.value.context == {"field": "schema"}


def test_checking_an_answer_puts_nothing_into_it() -> None:
    schema = {"type": "object", "properties": {"text": {"default": "x"}}}

    found = read_reply(reply({}), Request(("hello",), schema=schema), "")

    assert found.data == {}


def test_an_answer_that_is_wrong_is_a_permanent_failure() -> None:
    with pytest.raises(OutputInvalid) as caught:
        read_reply(reply({"text": 7}), REQUEST, "")

    assert caught.value.context == {"code": "schema", "rule": "type"}
