"""holdfast batches: submit, collect, inspect, and decide what only an operator may decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.engine.audit import PLATFORM_ORG
from holdfast.store import Row, Store, open_store
from tests.batch.scripted import Lose, ScriptedAccounts, ScriptedProvider
from tests.faces import batch_app
from tests.faces.conftest import Run
from tests.story import ORG, by_hand, look

APP = "tests.faces.batch_app:hf"


@pytest.fixture
def provider(url: str) -> ScriptedProvider:
    store = open_store(url, check=False)
    store.migrate()
    store.close()
    return batch_app.begin()


@pytest.fixture
def at(url: str, provider: ScriptedProvider) -> Iterator[Store]:
    """The store that the commands work on."""
    store = open_store(url, clock=batch_app.clock)
    yield store
    store.close()


def enqueue(run: Run, url: str, text: str = "hello") -> str:
    ran = run(
        "enqueue", "text.shout", json.dumps({"text": text}), "--org", ORG, "--json", db=url, app=APP
    )
    return str(ran.json["job_id"])


def batches(run: Run, url: str, *arguments: str) -> Any:
    return run("batches", *arguments, db=url, app=APP)


def submit(run: Run, url: str) -> Any:
    return batches(run, url, "submit", "--reason", "the provider is back", "--json")


def actions(at: Store) -> list[tuple[str, str, Any]]:
    rows = look(
        at,
        "SELECT name, actor_id, detail FROM holdfast.job_event WHERE org_id = :org ORDER BY id",
        org=PLATFORM_ORG,
    )
    return [(row["name"], row["actor_id"], _detail(row)) for row in rows]


def _detail(row: Row) -> Any:
    found = row["detail"]
    return json.loads(found) if isinstance(found, str) else found


def quarantine(run: Run, url: str, at: Store, provider: ScriptedProvider) -> str:
    """A batch of one job whose create had no answer and whose lookup found nothing."""
    enqueue(run, url)
    provider.script("create", Lose(accepted=True))
    submit(run, url)
    by_hand(
        at,
        "UPDATE holdfast.provider_batch SET state = 'quarantined', lease_owner = NULL,"
        " lease_expires_at = NULL",
    )
    (found,) = look(at, "SELECT id FROM holdfast.provider_batch")
    return str(found["id"])


# -- submit and collect


def test_a_job_is_submitted_to_the_provider_and_collected(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    job_id = enqueue(run, url)

    handed = submit(run, url)
    listed = batches(run, url, "list", "--json")
    provider.complete()
    batch_app.clock.advance(minutes=5)
    brought = batches(run, url, "collect", "--cron", "--json")

    assert (handed.code, handed.json["submitted_count"]) == (0, 1)
    assert [row["state"] for row in listed.json] == ["submitted"]
    assert (brought.code, brought.json["succeeded_count"]) == (0, 1)
    shown = run("jobs", "show", job_id, "--json", db=url, app=APP).json
    assert shown["state"] == "completed"
    assert batches(run, url, "list", "--json").json == []


def test_a_person_submits_everything_and_a_timer_what_its_profile_allows(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    for number in range(30):
        enqueue(run, url, f"text {number}")

    timer = batches(run, url, "submit", "--cron", "--json").json
    some = batches(run, url, "submit", "--reason", "r", "--max-jobs", "2", "--json").json
    rest = submit(run, url).json

    assert (timer["submitted_count"], timer["remaining_due"]) == (25, 5)
    assert (some["submitted_count"], some["remaining_due"]) == (2, 3)
    assert (rest["submitted_count"], rest["remaining_due"], rest["remaining_later"]) == (3, 0, 0)


def test_a_person_who_collects_does_not_wait_for_the_next_poll(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    enqueue(run, url)
    submit(run, url)
    provider.complete()

    timer = batches(run, url, "collect", "--cron", "--json").json
    person = batches(run, url, "collect", "--reason", "now", "--json").json

    assert (timer["outcome"], timer["outstanding_batches"]) == ("skipped", 1)
    assert (person["succeeded_count"], person["outstanding_batches"]) == (1, 0)


def test_a_cancel_without_a_credential_says_so(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    enqueue(run, url)
    submit(run, url)
    (batch,) = batches(run, url, "list", "--json").json
    accounts = batch_app.hf.batch.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.providers = ()

    done = batches(run, url, "cancel", batch["id"], "--reason", "wrong prompt")

    assert done.code == 0
    assert "No credential for openai here" in done.err


def test_a_submitter_without_its_account_fails_and_says_what_is_missing(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    job_id = enqueue(run, url)
    accounts = batch_app.hf.batch.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.providers = ()

    handed = submit(run, url)

    assert handed.code == 1
    assert "No account is configured for provider 'openai'" in handed.err
    shown = run("jobs", "show", job_id, "--json", db=url, app=APP).json
    assert (shown["state"], shown["attempt_count"]) == ("queued", 0)


def test_a_pass_asks_for_a_reason_like_any_run(run: Run, url: str, provider: Any) -> None:
    assert batches(run, url, "submit").code == 2
    assert batches(run, url, "collect").code == 2


# -- inspection


def test_a_batch_is_listed_and_shown_without_texts(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    job_id = enqueue(run, url, "nobody may read this")
    submit(run, url)

    (row,) = batches(run, url, "list", "--json").json
    shown = batches(run, url, "show", row["id"], "--json")
    table = batches(run, url, "show", row["id"])

    assert (row["provider"], row["model"], row["items"]) == ("openai", "model-1", 1)
    assert shown.json["counts"] == {"open": 1}
    assert [item["job_id"] for item in shown.json["items"]] == [job_id]
    for printed in (shown.out, table.out, batches(run, url, "list").out):
        assert "nobody may read this" not in printed
    assert re.search(r"Items\n  open +1\n", table.out)


def test_what_is_over_is_listed_when_it_is_asked_for(
    run: Run, url: str, provider: ScriptedProvider
) -> None:
    enqueue(run, url)
    submit(run, url)
    provider.complete()
    batch_app.clock.advance(minutes=5)
    batches(run, url, "collect", "--cron")

    assert batches(run, url, "list", "--json").json == []
    (row,) = batches(run, url, "list", "--all", "--json").json
    assert row["state"] == "collected"
    assert batches(run, url, "list", "--all", "--before", row["id"], "--json").json == []
    assert batches(run, url, "list", "--state", "collected", "--mode", "async", "--json").json == []


def test_a_batch_that_is_not_there_is_not_found(run: Run, url: str, provider: Any) -> None:
    nobody = "0198c0de-0000-7000-8000-0000000000ff"

    assert batches(run, url, "show", nobody).code == 3
    assert batches(run, url, "cancel", nobody, "--reason", "x").code == 3
    assert batches(run, url, "adopt", nobody, "--reason", "x").code == 3
    assert batches(run, url, "release", nobody, "--reason", "x").code == 3
    assert batches(run, url, "show", "not-an-id").code == 2


def test_a_tenants_own_people_do_not_see_batches(run: Run, url: str, provider: Any) -> None:
    ran = batches(run, url, "list", "--role", "member", "--org", ORG)

    assert ran.code == 1
    assert "acts for tenant" in ran.err


# -- decisions of an operator


def test_a_canceled_batch_is_ended_by_the_provider_and_its_jobs_are_tried_again(
    run: Run, url: str, at: Store, provider: ScriptedProvider
) -> None:
    job_id = enqueue(run, url)
    submit(run, url)
    (row,) = batches(run, url, "list", "--json").json

    ran = batches(run, url, "cancel", row["id"], "--reason", "wrong prompt", "--json")
    batches(run, url, "collect", "--cron")
    batch_app.clock.advance(minutes=20)
    batches(run, url, "collect", "--cron")

    assert (ran.code, ran.json["cancel_requested_at"] is not None) == (0, True)
    assert [batch.cancels for batch in provider.batches.values()] == [1]
    job = run("jobs", "show", job_id, "--json", db=url, app=APP).json
    assert (job["state"], job["attempt_count"], job["error_class"]) == (
        "queued",
        1,
        "BATCH_CANCELED",
    )
    told = [action for action in actions(at) if action[0].startswith("batch.")]
    assert told == [
        (
            "batch.cancel_requested",
            "cli",
            {"subject": f"batch:{row['id']}", "role": "admin", "reason": "wrong prompt"},
        )
    ]


def test_a_quarantined_batch_is_adopted_by_its_name_and_collected(
    run: Run, url: str, at: Store, provider: ScriptedProvider
) -> None:
    batch_id = quarantine(run, url, at, provider)
    (made,) = provider.batches

    unnamed = batches(run, url, "adopt", batch_id, "--reason", "I see it there")
    adopted = batches(
        run, url, "adopt", batch_id, "--provider-batch-id", made, "--reason", "there", "--json"
    )
    provider.complete()
    batch_app.clock.advance(minutes=5)
    batches(run, url, "collect", "--cron")

    assert unnamed.code == 1
    assert "pass the provider's batch id" in unnamed.err
    assert (adopted.code, adopted.json["state"]) == (0, "submitted")
    assert [row["state"] for row in look(at, "SELECT state FROM holdfast.job")] == ["completed"]
    assert provider.double_paid() == {}
    names = [name for name, _, _ in actions(at) if name.startswith(("batch.", "operator."))]
    assert names == ["operator.refused", "batch.adopted"]


def test_a_batch_of_another_name_is_not_adopted(
    run: Run, url: str, at: Store, provider: ScriptedProvider
) -> None:
    enqueue(run, url, "first")
    submit(run, url)
    (first,) = provider.batches
    by_hand(at, "UPDATE holdfast.provider_batch SET next_at = {later(86400000)}")
    enqueue(run, url, "second")
    provider.script("create", Lose(accepted=True))
    submit(run, url)
    by_hand(
        at,
        "UPDATE holdfast.provider_batch SET state = 'quarantined', lease_owner = NULL,"
        " lease_expires_at = NULL WHERE state = 'creating'",
    )
    (row,) = look(at, "SELECT id FROM holdfast.provider_batch WHERE state = 'quarantined'")

    taken = batches(
        run, url, "adopt", row["id"], "--provider-batch-id", first, "--reason", "a slip"
    )
    absent = batches(
        run, url, "adopt", row["id"], "--provider-batch-id", "batch_99", "--reason", "a slip"
    )

    assert (taken.code, absent.code) == (1, 1)
    assert "the provider's batch belongs to another Holdfast batch" in taken.err
    assert "the provider does not show such a batch (not_found)" in absent.err
    states = look(at, "SELECT state FROM holdfast.provider_batch ORDER BY state")
    assert [found["state"] for found in states] == ["quarantined", "submitted"]


def test_a_quarantined_batch_is_released_and_its_jobs_go_back_uncharged(
    run: Run, url: str, at: Store, provider: ScriptedProvider
) -> None:
    batch_id = quarantine(run, url, at, provider)

    ran = batches(run, url, "release", batch_id, "--reason", "it was deleted there", "--json")

    assert (ran.code, ran.json["state"]) == (0, "released")
    (job,) = look(at, "SELECT state, attempt_count FROM holdfast.job")
    assert (job["state"], job["attempt_count"]) == ("queued", 0)
    (item,) = look(at, "SELECT state, is_open FROM holdfast.batch_item")
    assert (item["state"], item["is_open"]) == ("released", 0)
    assert ("batch.released", "cli") in [(name, who) for name, who, _ in actions(at)]


def test_what_is_not_in_quarantine_is_neither_adopted_nor_released(
    run: Run, url: str, at: Store, provider: ScriptedProvider
) -> None:
    enqueue(run, url)
    submit(run, url)
    (row,) = batches(run, url, "list", "--json").json

    adopted = batches(run, url, "adopt", row["id"], "--reason", "x")
    released = batches(run, url, "release", row["id"], "--reason", "x")

    assert (adopted.code, released.code) == (1, 1)
    assert "only a quarantined batch can be adopted" in adopted.err
    assert [found["state"] for found in look(at, "SELECT state FROM holdfast.job")] == [
        "batch_submitted"
    ]
    assert [name for name, _, _ in actions(at) if name == "operator.refused"] == [
        "operator.refused"
    ] * 2


@pytest.mark.parametrize("move", ["cancel", "adopt", "release"])
def test_a_move_needs_a_reason_and_a_role(
    run: Run, url: str, at: Store, provider: Any, move: str
) -> None:
    nobody = "0198c0de-0000-7000-8000-0000000000ff"

    without = batches(run, url, move, nobody)
    blank = batches(run, url, move, nobody, "--reason", " ")
    member = batches(run, url, move, nobody, "--reason", "x", "--role", "operator", "--org", ORG)

    assert (without.code, blank.code, member.code) == (2, 1, 1)
    assert "acts for tenant" in member.err
