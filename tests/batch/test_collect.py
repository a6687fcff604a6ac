"""Collecting: each answer goes to its own job once, and each item has its own outcome."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.pass_counts import PassCounts
from holdfast.event import JobSettled
from holdfast.store import Statement, Tx
from holdfast_llm.batch import read
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.provider.adapter import BatchPhase, Capabilities
from holdfast_llm.provider.reply import Failure, FailureKind, Reply, Usage
from holdfast_llm.provider.request import Request
from tests.batch.outgoing import set_out
from tests.batch.planted import ROUTE, SCHEMA, Planted, Shout, Stage, line_of, set_stage
from tests.batch.scripted import ScriptedProvider, result_line
from tests.story import ORG, OTHER_ORG, events, look, timeline
from tests.words import kept, make_words, store_words, words_of

USAGE = Usage(input=10, output=5)


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


def answer_with(stage: Stage, answers: dict[str, Failure | None]) -> None:
    """Script the provider's answers to these texts; it answers all others as usual."""
    usual = stage.provider._answer

    def answer(line: dict[str, Any]) -> Any:
        text = line["body"]["input"][0]
        if text in answers:
            return answers[text]
        stage.provider.answer = None
        try:
            return usual(line)
        finally:
            stage.provider.answer = answer

    stage.provider.answer = answer


def outcomes(done: PassCounts) -> dict[str, int]:
    return dict(done.outcomes)


# -- successful items


@pytest.mark.req("P-13", "P-14", "P-18", "B-19")
def test_every_answer_goes_to_its_own_job_whatever_order_it_comes_in(stage: Stage) -> None:
    planted = stage.plant("one", "two", "three", org_id=[ORG, OTHER_ORG, ORG])
    stage.provider.complete()
    lines = stage.results(planted).splitlines(keepends=True)
    stage.results(planted, b"".join(reversed(lines)))

    done = stage.collect()

    assert [stage.job(job).result for job in planted.jobs] == [
        {"said": "ONE"},
        {"said": "TWO"},
        {"said": "THREE"},
    ]
    assert outcomes(done) == {"completed": 3}
    assert (done["ended"], done["collected"], done["deleted"]) == (1, 1, 1)
    assert stage.batch(planted)["state"] == "collected"
    assert [item["state"] for item in stage.items(planted)] == ["succeeded"] * 3
    assert timeline(stage.hf, planted.jobs[0])[-2:] == ["job.submitted", "job.succeeded"]


def test_what_was_used_is_in_the_ledger_once_for_each_item(stage: Stage) -> None:
    planted = stage.plant("one", "two", org_id=[ORG, OTHER_ORG])
    stage.provider.complete()

    stage.collect()

    calls = stage.calls(planted)
    assert [(call["org_id"], call["kind"], call["input_tokens"]) for call in calls] == [
        (ORG, "actual", 10),
        (OTHER_ORG, "actual", 10),
    ]
    assert [call["job_id"] for call in calls] == [job.id for job in planted.jobs]


def test_nothing_is_left_at_the_provider_once_everything_is_ours(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()

    stage.collect()

    assert stage.provider.standing_files == []
    assert stage.batch(planted)["files_deleted_at"] is not None


def test_a_server_that_deletes_no_files_is_not_asked_to(stage: Stage) -> None:
    stage.provider.capabilities = Capabilities(can_delete_file=False)
    planted = stage.plant("one")
    stage.provider.complete()

    stage.collect()

    assert stage.provider.calls["delete_file"] == 0
    assert stage.batch(planted)["files_deleted_at"] is not None


def test_a_pass_that_finds_nothing_to_do_does_nothing(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    stage.collect()
    calls = Counter(stage.provider.calls)

    done = stage.collect(minutes=60)

    assert (done["looked_at"], stage.provider.calls) == (0, calls)
    assert stage.states(planted) == ["completed"]


def test_subscribers_get_every_job_and_the_batch(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()

    stage.collect()

    settled = [event for event in stage.told if isinstance(event, JobSettled)]
    assert {event.about.job_id for event in settled} == {job.id for job in planted.jobs}
    assert stage.changes == ["ended", "collected"]


@pytest.mark.req("P-23")
def test_every_item_keeps_the_time_at_which_it_was_finished(
    stage: Stage, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    began = clock.now()
    parse = stage.provider.parse

    def with_time(line: bytes) -> Any:
        found = parse(line)
        place = planted.names.index(found.custom_id)
        at = began + timedelta(seconds=place)
        return replace(found, answer=replace(found.answer, finished_at=at))

    monkeypatch.setattr(type(stage.provider), "parse", lambda self, line: with_time(line))

    stage.collect(minutes=5)

    rows = look(
        stage.store,
        "SELECT finished_at, recorded_at FROM holdfast.batch_item ORDER BY batch_item_index",
    )
    times = [str(row["finished_at"])[:19].replace(" ", "T") for row in rows]
    assert times == [(began + timedelta(seconds=n)).isoformat()[:19] for n in (0, 1)]


class Keeping(Shout):
    def accept(self, item: Any, reply: Reply) -> Any:
        return kept(reply.data["text"])


def test_what_an_application_keeps_is_written_with_the_result(stage: Stage) -> None:
    make_words(stage.store)
    stage.hf.batch("text.keep", route=ROUTE, stores=store_words())(Keeping)
    planted = stage.plant("one", "two", job_type="text.keep")
    stage.provider.complete()

    stage.collect()

    assert stage.states(planted) == ["completed", "completed"]
    assert words_of(stage.store) == ["ONE", "TWO"]


# -- failed items


@pytest.mark.req("R-13", "R-14", "P-13", "P-21", "P-25")
def test_every_item_has_the_end_that_its_own_answer_means(stage: Stage) -> None:
    answer_with(
        stage,
        {
            "busy": Failure(FailureKind.TRANSIENT, "server_error", 500),
            "late": Failure(FailureKind.NOT_RUN, "batch_expired"),
            "full": Failure(FailureKind.CAPACITY, "token_limit_exceeded"),
            "wrong": Failure(FailureKind.INVALID, "bad_request", 400),
            "rude": Failure(FailureKind.POLICY, "refusal", usage=USAGE),
            "long": Failure(FailureKind.TRUNCATED, "length", usage=USAGE),
        },
    )
    planted = stage.plant("good", "busy", "late", "full", "wrong", "rude", "long")
    stage.provider.complete()

    done = stage.collect()

    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count, job.error_class) for job in found] == [
        ("completed", 0, None),
        ("queued", 1, "UPSTREAM_ERROR"),
        ("queued", 1, "BATCH_EXPIRED"),
        ("queued", 0, None),
        ("failed", 1, "PROMPT_REFUSED"),
        ("failed", 1, "POLICY_REJECTED"),
        ("failed", 1, "OUTPUT_TRUNCATED"),
    ]
    assert outcomes(done) == {"completed": 1, "retry": 2, "released": 1, "dead": 3}
    states = ["succeeded", "failed", "not_run", "not_run", "failed", "failed", "failed"]
    assert [item["state"] for item in stage.items(planted)] == states
    kinds = ["actual", "free", "free", "free", "free", "actual", "actual"]
    assert [call["kind"] for call in stage.calls(planted)] == kinds
    assert stage.batch(planted)["state"] == "collected"


@pytest.mark.req("P-05", "P-04")
def test_the_first_batch_stays_on_a_job_that_is_tried_again_in_another(stage: Stage) -> None:
    answer_with(stage, {"one": Failure(FailureKind.TRANSIENT, "server_error", 500)})
    first = stage.plant("one")
    stage.provider.complete()
    stage.collect()
    stage.clock.advance(hours=6)
    job = first.jobs[0]
    stage.provider.answer = None
    second = replant(stage, first)
    stage.provider.complete()

    stage.collect()

    assert stage.job(job).state == "completed"
    assert stage.job(job).record["provider_batch_id"] == first.at_provider.id
    assert second.at_provider.id != first.at_provider.id


def replant(stage: Stage, planted: Planted) -> Planted:
    """The same jobs, which wait again, in another batch."""
    from holdfast.engine.claim import claim_jobs

    taken = claim_jobs(
        stage.store,
        queue="q:default",
        worker_id="submitter",
        limit=len(planted.jobs),
        lease_ms=60_000,
        of_batch=True,
    )
    by_id = {job.id: job for job in taken}
    return stage._hand_over([by_id[job.id] for job in planted.jobs], planted.jobs, True)


def test_an_account_without_credit_costs_no_job_an_attempt_and_is_left_alone(stage: Stage) -> None:
    broke = Failure(FailureKind.ACCOUNT, "insufficient_quota", 429)
    answer_with(stage, {"one": broke, "two": broke})
    planted = stage.plant("one", "two", "three")
    stage.provider.complete()

    stage.collect()

    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count) for job in found] == [
        ("queued", 0),
        ("queued", 0),
        ("completed", 0),
    ]
    assert stage.store.read(find_open_circuits) == {stage.batch(planted)["account"]}
    assert stage.alerts.count(("circuit_opened", 1)) == 1


@pytest.mark.req("R-14")
def test_an_answer_of_another_schema_is_dead_and_its_text_is_nowhere(stage: Stage) -> None:
    canary = "the private words of somebody"
    planted = stage.plant("one", "two")
    stage.provider.complete()
    bad = json.loads(line_of(planted.names[0], "x", planted.echoes[0]))
    bad["text"] = json.dumps({"text": {"wrong": canary}, "rid": planted.echoes[0]})
    lines = stage.results(planted).splitlines(keepends=True)
    stage.results(planted, json.dumps(bad).encode() + b"\n" + lines[1])

    stage.collect()

    job = stage.job(planted.jobs[0])
    assert (str(job.state), job.error_class, job.result) == ("failed", "OUTPUT_INVALID", None)
    assert stage.states(planted) == ["failed", "completed"]
    for table in ("job", "job_event", "dead_letter", "batch_item", "provider_batch"):
        assert canary not in str(look(stage.store, f"SELECT * FROM holdfast.{table}"))


@pytest.mark.req("P-13")
def test_what_the_application_cannot_keep_of_one_item_is_that_items_alone(stage: Stage) -> None:
    make_words(stage.store)
    stage.hf.batch("text.keep", route=ROUTE, stores=store_words())(Keeping)
    texts = ["one", "two", "rude", "three", "four"]
    planted = stage.plant(*texts, job_type="text.keep")
    stage.provider.complete()

    stage.collect()

    states = stage.states(planted)
    assert states == ["completed", "completed", "batch_submitted", "completed", "completed"]
    assert stage.items(planted)[2]["error_class"] == "ROW_INVALID"
    assert len(stage.calls(planted)) == 4


# -- anomalies


@pytest.mark.req("P-19", "P-14")
def test_an_answer_for_an_unknown_item_is_dropped_and_reported(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    # The second names the place of an item without its signature, the third no place at all.
    foreign = [
        "hf1_abcdefgh234567ab_0_0badcafe",
        planted.names[0][:-8] + "0badcafe",
        "hf1_abcdefgh234567ab_zzzzzzz_0badcafe",
        "not-ours",
    ]
    lines = b"".join(line_of(name, "a") for name in foreign)
    stage.results(planted, lines + stage.results(planted))

    stage.collect()

    assert stage.states(planted) == ["completed"]
    assert ("unknown_item", 4) in stage.alerts
    assert len(stage.calls(planted)) == 1


def test_the_same_answer_twice_is_one_answer(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    data = stage.results(planted)
    stage.results(planted, data + data)

    stage.collect()

    assert stage.states(planted) == ["completed", "completed"]
    assert len(stage.calls(planted)) == 2
    assert stage.alerts == []


def test_the_same_answer_twice_is_one_answer_however_many_there_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one", "two", "three", "four")
    stage.provider.complete()
    lines = stage.results(planted).splitlines(keepends=True)
    other = line_of(planted.names[3], "other", planted.echoes[3])
    # The same answer in other bytes, so that the contents have to be compared.
    same = [line.replace(b'"model": ', b'"model":  ') for line in lines[:3]]
    stage.results(planted, b"".join(lines) + b"".join(same) + other)
    parse = ScriptedProvider.parse
    monkeypatch.setattr(
        ScriptedProvider,
        "parse",
        lambda provider, line: parse(provider, line.replace(b":  ", b": ")),
    )
    planted.at_provider.counts = (8, 0)
    monkeypatch.setattr(read, "_DOUBTS_BYTES", 0)

    stage.collect()

    assert stage.states(planted) == ["completed"] * 3 + ["failed"]
    assert stage.job(planted.jobs[3]).error_class == "RESULT_CONFLICT"
    assert stage.alerts == [("conflicting_result", 1)]
    assert len(stage.calls(planted)) == 4


@pytest.mark.req("P-22")
def test_two_answers_that_differ_fail_the_job_and_neither_is_kept(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    stage.results(
        planted, stage.results(planted) + line_of(planted.names[0], "other", planted.echoes[0])
    )

    stage.collect()

    job = stage.job(planted.jobs[0])
    assert (str(job.state), job.error_class, job.result) == ("failed", "RESULT_CONFLICT", None)
    assert stage.states(planted) == ["failed", "completed"]
    assert [item["state"] for item in stage.items(planted)] == ["conflict", "succeeded"]
    assert ("conflicting_result", 1) in stage.alerts
    assert [call["kind"] for call in stage.calls(planted)] == ["actual", "actual"]


@pytest.mark.req("P-22")
def test_an_answer_and_an_error_for_one_item_contradict_each_other(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    error = result_line(planted.names[0], Failure(FailureKind.TRANSIENT, "server_error", 500))
    errors = stage.provider._store_file("errors", error)
    batch = planted.at_provider
    batch.result_files = (*batch.result_files, errors.id)

    stage.collect()

    assert stage.states(planted) == ["failed", "completed"]
    assert stage.job(planted.jobs[0]).error_class == "RESULT_CONFLICT"


@pytest.mark.req("P-14", "P-16", "P-15")
def test_swapped_answers_are_discarded_and_stop_the_batch(stage: Stage) -> None:
    planted = stage.plant("one", "two", "three", org_id=[ORG, OTHER_ORG, ORG])
    stage.provider.complete()
    first, second = planted.names[:2]
    data = stage.results(planted)
    crossed = data.replace(first.encode(), b"\0").replace(second.encode(), first.encode())
    stage.results(planted, crossed.replace(b"\0", second.encode()))

    stage.collect()

    assert stage.states(planted) == ["failed", "failed", "batch_submitted"]
    assert [stage.job(job).result for job in planted.jobs] == [None, None, None]
    assert stage.batch(planted)["state"] == "quarantined"
    assert ("cross_wired", 2) in stage.alerts
    assert ("quarantined", 1) in stage.alerts
    assert stage.collect(minutes=600)["looked_at"] == 0


@pytest.mark.parametrize(
    "noise",
    [
        b"\n\n",
        b"\r\n",
        b"no json at all\n",
        b'{"custom_id": 5}\n',
        b"\xff\xfe\x00\n",
        b"x" * 5_000_000 + b"\n",
    ],
    ids=["blank", "crlf", "words", "shape", "utf8", "long"],
)
def test_what_cannot_be_read_harms_no_line_that_can(stage: Stage, noise: bytes) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    first, second = stage.results(planted).splitlines(keepends=True)
    stage.results(planted, b"\xef\xbb\xbf" + first + noise + second.rstrip(b"\n"))

    stage.collect()

    assert stage.states(planted) == ["completed", "completed"]
    assert (stage.alerts == [("malformed_line", 1)]) == bool(noise.strip())


def test_a_line_ends_at_a_newline_and_nowhere_else(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    text = "a\u2028b\u2029c\u0085d\x0be"
    data = json.dumps({"text": text, "rid": planted.echoes[0]}, ensure_ascii=False)
    found = json.loads(line_of(planted.names[0], "")) | {"text": data}
    stage.results(planted, json.dumps(found, ensure_ascii=False).encode() + b"\n")

    stage.collect()

    assert stage.job(planted.jobs[0]).result == {"said": text}


def test_a_batch_in_which_nothing_is_ours_is_left_to_an_operator(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    stage.results(planted, line_of("hf1_abcdefgh234567ab_0_0badcafe", "a"))

    stage.collect()

    assert stage.states(planted) == ["batch_submitted", "batch_submitted"]
    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "foreign_results")


# -- missing items


@pytest.mark.req("P-22", "P-21")
def test_an_item_without_an_answer_fails_alone_once_it_is_proven(stage: Stage) -> None:
    answer_with(stage, {"two": None})
    planted = stage.plant("one", "two", "three")
    stage.provider.complete()

    stage.collect()

    assert stage.states(planted) == ["completed", "failed", "completed"]
    job = stage.job(planted.jobs[1])
    assert (job.error_class, job.attempt_count) == ("RESULT_MISSING", 1)
    assert stage.alerts == [("missing_result", 1)]
    assert stage.items(planted)[1]["state"] == "missing"


def test_a_file_with_fewer_lines_than_counted_is_read_again_before_anything_is_missing(
    stage: Stage,
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    whole = stage.results(planted)
    stage.results(planted, whole.splitlines(keepends=True)[0])

    stage.collect()
    assert stage.states(planted) == ["completed", "batch_submitted"]

    stage.results(planted, whole)
    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed", "completed"]
    assert stage.alerts == [("missing_result", 1)]


def test_a_result_file_that_is_named_late_is_read_before_an_item_is_called_missing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider returns no counts, so only the file shows that there is more to read."""
    planted = stage.plant("one", "two")
    stage.provider.complete()
    first, second = stage.results(planted).splitlines(keepends=True)
    stage.results(planted, first)
    planted.at_provider.result_files += (stage.provider._store_file("late", second).id,)
    get = ScriptedProvider.get

    def name_late(provider: ScriptedProvider, client: Any, provider_batch_id: str) -> Any:
        seen = get(provider, client, provider_batch_id)
        files = seen.result_files if provider.calls["get"] > 1 else seen.result_files[:1]
        return replace(seen, succeeded=None, failed=None, result_files=files)

    monkeypatch.setattr(ScriptedProvider, "get", name_late)

    stage.collect()
    assert stage.states(planted) == ["completed", "batch_submitted"]

    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed", "completed"]
    assert stage.alerts == []


GARBLED = b'{"custom_id": "hf1_abc", "resp\n'
ENDS = [BatchPhase.COMPLETED, BatchPhase.EXPIRED, BatchPhase.CANCELED]


@pytest.mark.parametrize("phase", ENDS)
@pytest.mark.parametrize("damage", [b"", GARBLED], ids=["omitted", "garbled"])
def test_an_answer_that_is_counted_but_not_shown_is_held_and_never_paid_for_again(
    stage: Stage, phase: BatchPhase, damage: bytes
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete(phase=phase)
    first, _ = stage.results(planted).splitlines(keepends=True)
    stage.results(planted, first + damage)

    for _ in range(10):
        stage.collect(minutes=30)

    assert stage.states(planted) == ["completed", "batch_submitted"]
    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "results_incomplete")
    assert row["files_deleted_at"] is None
    assert [what for what, _ in stage.alerts if what != "malformed_line"] == [
        "missing_result",
        "quarantined",
    ]


@pytest.mark.parametrize("phase", ENDS)
def test_a_line_that_was_garbled_once_is_read_again_and_its_answer_kept(
    stage: Stage, phase: BatchPhase
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete(phase=phase)
    whole = stage.results(planted)
    stage.results(planted, whole.splitlines(keepends=True)[0] + GARBLED)

    stage.collect()
    assert stage.states(planted) == ["completed", "batch_submitted"]

    stage.results(planted, whole)
    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed", "completed"]


@pytest.mark.parametrize("phase", [BatchPhase.EXPIRED, BatchPhase.CANCELED])
def test_a_provider_that_does_not_count_proves_nothing_about_an_item_it_does_not_mention(
    stage: Stage, phase: BatchPhase, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(stage, {"two": None})
    planted = stage.plant("one", "two")
    stage.provider.complete(phase=phase)
    get = ScriptedProvider.get

    def without_counts(provider: ScriptedProvider, client: Any, provider_batch_id: str) -> Any:
        seen = get(provider, client, provider_batch_id)
        return replace(seen, total=None, succeeded=None, failed=None)

    monkeypatch.setattr(ScriptedProvider, "get", without_counts)
    for _ in range(10):
        stage.collect(minutes=30)

    assert stage.states(planted) == ["completed", "batch_submitted"]
    assert stage.batch(planted)["state"] == "quarantined"


def test_a_held_batch_that_is_adopted_is_read_again(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete(phase=BatchPhase.EXPIRED)
    whole = stage.results(planted)
    stage.results(planted, whole.splitlines(keepends=True)[0])
    for _ in range(10):
        stage.collect(minutes=30)
    assert stage.batch(planted)["state"] == "quarantined"

    stage.results(planted, whole)
    desk = stage.hf.operate(actor="user:ann", role="admin")
    desk.batches(stage.service).adopt(planted.id, reason="the provider repaired its file")
    stage.collect(minutes=30)

    assert stage.states(planted) == ["completed", "completed"]


def test_nothing_is_missing_while_the_provider_says_that_it_still_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(stage, {"two": None})
    planted = stage.plant("one", "two")
    stage.provider.complete()
    get = ScriptedProvider.get

    def relapse(provider: ScriptedProvider, client: Any, provider_batch_id: str) -> Any:
        seen = get(provider, client, provider_batch_id)
        return replace(seen, phase=BatchPhase.RUNNING) if provider.calls["get"] == 2 else seen

    monkeypatch.setattr(ScriptedProvider, "get", relapse)

    stage.collect()
    assert stage.states(planted) == ["completed", "batch_submitted"]

    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed", "failed"]


@pytest.mark.req("P-21", "P-23", "R-13", "R-17")
@pytest.mark.parametrize(
    ("phase", "error_class"),
    [
        (BatchPhase.EXPIRED, "BATCH_EXPIRED"),
        (BatchPhase.CANCELED, "BATCH_CANCELED"),
        (BatchPhase.FAILED, "BATCH_FAILED"),
    ],
)
def test_a_batch_that_ended_early_keeps_what_was_paid_for_and_the_rest_is_tried_again(
    stage: Stage, phase: BatchPhase, error_class: str
) -> None:
    answer_with(stage, {"two": None, "three": None})
    planted = stage.plant("one", "two", "three")
    stage.provider.complete(phase=phase)

    stage.collect()

    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count, job.error_class) for job in found] == [
        ("completed", 0, None),
        ("queued", 1, error_class),
        ("queued", 1, error_class),
    ]
    assert timeline(stage.hf, planted.jobs[1])[-2:] == ["job.failed", "job.retried"]
    (failed,) = [row for row in events(stage.hf, planted.jobs[1]) if row["name"] == "job.failed"]
    assert "one" not in str(failed["detail"])
    assert stage.batch(planted)["state"] == "collected"


def test_a_batch_rejected_for_capacity_counts_no_attempt(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    batch = planted.at_provider
    batch.phase, batch.status = BatchPhase.FAILED, "failed"
    batch.failure = Failure(FailureKind.CAPACITY, "token_limit_exceeded")

    stage.collect()

    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count) for job in found] == [("queued", 0)] * 2
    assert timeline(stage.hf, planted.jobs[0])[-1] == "job.released"
    assert stage.batch(planted)["error_code"] == "token_limit_exceeded"


def test_a_finished_batch_without_any_file_is_looked_at_again_and_then_held(
    stage: Stage,
) -> None:
    planted = stage.plant("one")
    batch = planted.at_provider
    batch.phase, batch.status, batch.counts = BatchPhase.COMPLETED, "completed", (0, 1)

    stage.collect()
    assert stage.states(planted) == ["batch_submitted"]
    for _ in range(10):
        stage.collect(minutes=30)

    assert stage.states(planted) == ["batch_submitted"]
    assert stage.batch(planted)["error_code"] == "results_incomplete"


# -- jobs that no longer wait


@pytest.mark.req("J-04")
def test_the_answer_of_a_canceled_job_is_paid_for_and_dropped(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    stage.hf.cancel(planted.jobs[0].id, org_id=ORG)
    stage.provider.complete()

    stage.collect()

    job = stage.job(planted.jobs[0])
    assert (str(job.state), job.result) == ("canceled", None)
    assert stage.states(planted) == ["canceled", "completed"]
    assert len(stage.calls(planted)) == 2
    assert stage.alerts == []
    assert stage.items(planted)[0]["error_code"] == "job_ended"
    assert timeline(stage.hf, planted.jobs[0])[-1] == "job.canceled"


def test_a_job_type_that_is_not_declared_here_waits_for_a_process_that_knows_it(
    stage: Stage,
) -> None:
    stage.hf.batch("text.other", route=ROUTE)(Shout)
    planted = stage.plant("one", job_type="text.other")
    stage.provider.complete()
    handler = stage.service.resources.registry.handlers.pop("text.other")

    stage.collect()
    assert stage.states(planted) == ["batch_submitted"]

    stage.service.resources.registry.handlers["text.other"] = handler
    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed"]


@pytest.mark.req("P-13")
def test_an_answer_waits_as_long_as_a_week_for_the_application_that_asked_for_it(
    stage: Stage,
) -> None:
    stage.hf.batch("text.other", route=ROUTE)(Shout)
    planted = stage.plant("one", job_type="text.other")
    stage.provider.complete()
    handler = stage.service.resources.registry.handlers.pop("text.other")

    stage.collect(minutes=30)
    assert stage.alerts == []
    for _ in range(6):
        stage.collect(minutes=24 * 60)
    assert stage.states(planted) == ["batch_submitted"]
    assert set(stage.alerts) == {("uncollected", 1)}

    # Nothing was deferred meanwhile: a process that knows the job type runs it at once.
    stage.service.resources.registry.handlers["text.other"] = handler
    stage.collect()
    assert stage.states(planted) == ["completed"]
    assert stage.provider.double_paid() == {}


def test_a_job_type_unknown_for_a_week_is_left_to_an_operator(stage: Stage) -> None:
    stage.hf.batch("text.other", route=ROUTE)(Shout)
    planted = stage.plant("one", job_type="text.other")
    stage.provider.complete()
    del stage.service.resources.registry.handlers["text.other"]

    stage.collect(minutes=8 * 24 * 60)

    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "unknown_job_type")
    assert stage.states(planted) == ["batch_submitted"]
    assert stage.provider.standing_files != []


@pytest.mark.req("P-13")
def test_each_of_two_applications_takes_its_own_answers_of_a_batch_that_they_share(
    stage: Stage,
) -> None:
    stage.hf.batch("text.other", route=ROUTE)(Shout)
    mine = [stage.hf.enqueue("text.shout", {"text": f"mine {n}"}, org_id=ORG) for n in range(2)]
    theirs = [stage.hf.enqueue("text.other", {"text": f"other {n}"}, org_id=ORG) for n in range(2)]
    planted = stage.hand_over(mine + theirs)
    stage.provider.complete()
    handlers = stage.service.resources.registry.handlers
    handler = handlers.pop("text.other")

    stage.collect()
    assert stage.states(planted) == ["completed"] * 2 + ["batch_submitted"] * 2
    stage.collect()
    assert stage.alerts == []

    handlers["text.other"] = handler
    del handlers["text.shout"]
    stage.collect()
    assert stage.states(planted) == ["completed"] * 4
    assert stage.batch(planted)["state"] == "collected"
    assert stage.provider.standing_files == []


# -- an application that cannot accept an answer


class Frail:
    """Returns a text in capitals; one step fails for one text a given number of times."""

    def __init__(self) -> None:
        self.breaks: Counter[str] = Counter()

    def _step(self, name: str, texts: list[str]) -> None:
        if self.breaks[name] and "two" in texts:
            self.breaks[name] -= 1
            raise ConnectionError("somebody's text")

    def load(self, tx: Tx, items: Any) -> dict[str, str]:
        self._step("load", [item.payload["text"] for item in items])
        return {item.job_id: item.payload["text"] for item in items}

    def request(self, item: Any) -> Request:
        self._step("request", [item.payload["text"]])
        return Request((item.payload["text"],), schema=SCHEMA)

    def accept(self, item: Any, reply: Reply) -> Any:
        self._step("accept", [item.payload["text"]])
        return {"said": reply.data["text"]}


@pytest.mark.req("P-13")
@pytest.mark.parametrize(
    ("step", "times"),
    # A failed group is split in halves until the failing item is alone.
    [("load", 3), ("request", 1), ("accept", 1)],
)
def test_an_answer_that_cannot_be_taken_just_now_is_taken_later_and_paid_for_once(
    stage: Stage, step: str, times: int
) -> None:
    work = Frail()
    stage.hf.batch("text.frail", route=ROUTE)(work)
    planted = stage.plant("one", "two", "three", job_type="text.frail")
    stage.provider.complete()
    work.breaks[step] = times

    stage.collect()
    assert stage.states(planted) == ["completed", "batch_submitted", "completed"]
    assert stage.alerts == [("uncollected", 1)]
    assert "somebody" not in repr(stage.told)

    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed"] * 3
    assert [stage.job(job).attempt_count for job in planted.jobs] == [0, 0, 0]
    assert stage.provider.double_paid() == {}
    assert len(stage.calls(planted)) == 3


@pytest.mark.req("P-13")
def test_an_answer_that_never_can_be_taken_is_left_to_an_operator_and_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    work = stage.service.resources.registry.get("text.shout").work
    accept = work.accept

    def frail(item: Any, reply: Reply) -> Any:
        if item.payload["text"] == "two":
            raise TimeoutError
        return accept(item, reply)

    monkeypatch.setattr(work, "accept", frail)
    for _ in range(15):
        stage.collect(minutes=30)
    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "not_taken")
    assert stage.states(planted) == ["completed", "batch_submitted"]

    monkeypatch.setattr(work, "accept", accept)
    desk = stage.hf.operate(actor="user:op", role="admin")
    desk.batches(stage.service).adopt(planted.id, reason="mended")
    stage.collect(minutes=30)

    assert stage.states(planted) == ["completed"] * 2
    assert stage.provider.double_paid() == {}


@pytest.mark.parametrize("wants_echo", [False, True])
def test_an_answer_that_was_asked_for_another_schema_than_the_present_one_is_not_thrown_away(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, wants_echo: bool
) -> None:
    out = set_out(hf, clock, capabilities=Capabilities(wants_echo=wants_echo))
    jobs = out.enqueue("one", "two")
    out.submit()
    out.provider.complete()
    text = {"type": "string"}
    wider = {**SCHEMA, "properties": {"text": text, "tone": text}, "required": ["text", "tone"]}
    request = out.work.request
    monkeypatch.setattr(out.work, "request", lambda item: replace(request(item), schema=wider))
    clock.advance(minutes=5)
    out.service().collector.run_once(worker_id="w1")
    assert out.states(jobs) == Counter(batch_submitted=2)
    assert out.alerts() == ["uncollected"]

    # A handler that knows the requested schema, such as one that reads prompt_version.
    monkeypatch.undo()
    clock.advance(minutes=30)
    out.service().collector.run_once(worker_id="w1")
    assert out.states(jobs) == Counter(completed=2)
    assert out.provider.double_paid() == {}


# -- statement counts


def test_a_group_is_a_fixed_number_of_statements(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()
    run = Tx._ready

    def count(tx: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        counted[statement.name] += 1
        return run(tx, statement, params)

    seen = []
    for size in (2, 40):
        texts = [f"text {number} of {size}" for number in range(size)]
        failures = {text: Failure(FailureKind.INVALID, "bad", 400) for text in texts[::2]}
        answer_with(stage, dict(failures))
        planted = stage.plant(*texts)
        stage.provider.complete()
        counted.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Tx, "_ready", count)
            stage.collect()
        assert stage.batch(planted)["state"] == "collected"
        seen.append(dict(counted))

    assert seen[0] == seen[1]
    assert sum(seen[1].values()) < 25, seen[1]
