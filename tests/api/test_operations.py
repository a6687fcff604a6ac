"""Operations over HTTP: keys, queues, dead letters in bulk, and the limits of reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Gone, Holdfast
from holdfast.operate.access import ReadTimeout, limited_reads
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind
from tests.api.conftest import WHY, Client, make_key
from tests.story import ORG, OTHER_ORG, look

DONE = list(CHECKLISTS[DeadLetterKind.TRANSIENT])


def names_of(hf: Holdfast, prefix: str) -> list[str]:
    rows = look(
        hf.store,
        f"SELECT name FROM holdfast.job_event WHERE name LIKE '{prefix}%' ORDER BY id",
    )
    return [row["name"] for row in rows]


def test_a_key_is_shown_once_stored_as_a_hash_and_rotated_with_an_overlap(
    operations: Client, hf: Holdfast, clock: FakeClock
) -> None:
    body = {"name": "shop", "role": "operator", "reason": WHY, "org_id": ORG}
    made = operations.post("/v1/api-keys", body).json()
    old = operations.as_key(made["secret"])
    rotated = operations.post(
        f"/v1/api-keys/{made['key']['id']}/rotate", {"reason": WHY, "overlap_seconds": 60}
    ).json()
    new = operations.as_key(rotated["secret"])
    both = (old.get("/v1/jobs").status_code, new.get("/v1/jobs").status_code)
    clock.advance(seconds=60)
    one = (old.get("/v1/jobs").status_code, new.get("/v1/jobs").status_code)
    operations.post(f"/v1/api-keys/{rotated['key']['id']}/revoke", {"reason": WHY})

    assert made["secret"].startswith("hf_live_")
    assert rotated["key"]["scopes"] == made["key"]["scopes"]
    assert (both, one) == ((200, 200), (401, 200))
    assert new.get("/v1/jobs").status_code == 401
    listed = operations.get("/v1/api-keys")
    assert made["secret"] not in listed.text
    stored = look(hf.store, "SELECT * FROM holdfast.api_key")
    assert not any(made["secret"] in str(row) for row in stored)
    created = ["api_key.created"] * 3
    assert names_of(hf, "api_key.") == [*created, "api_key.rotated", "api_key.revoked"]


def test_the_last_use_of_a_key_is_written_once_a_minute(
    api: Client, hf: Holdfast, clock: FakeClock
) -> None:
    keys = hf.operate(actor="user:root", role="admin").api_keys

    def last_used() -> Any:
        return keys.list()[0].last_used_at

    began = clock.now()
    seen = []
    for _ in range(3):
        api.get("/v1/jobs")
        seen.append(last_used())
        clock.advance(seconds=30)

    assert seen == [began, began, began + timedelta(seconds=60)]


def test_a_key_cannot_create_one_that_may_do_more(api: Client, hf: Holdfast) -> None:
    limited = api.as_key(make_key(hf, "admin", ORG, scopes=["api_keys:write", "jobs:read"]))
    body = {"name": "n", "role": "admin", "reason": WHY}

    wider = limited.post("/v1/api-keys", {**body, "scopes": ["jobs:write"]})
    other = limited.post(
        "/v1/api-keys", {**body, "scopes": ["jobs:read"], "org_id": str(hf.ids.new())}
    )
    own = limited.post("/v1/api-keys", {**body, "scopes": ["jobs:read"]})

    assert (wider.status_code, other.status_code) == (403, 403)
    assert own.json()["key"]["org_id"] == ORG


@pytest.mark.parametrize("reason", ["\U0010897d", "line\u2028break", "bell\x07", "  ", "x" * 501])
def test_a_reason_that_cannot_be_recorded_is_the_fault_of_the_caller(
    operations: Client, reason: str
) -> None:
    answer = operations.post("/v1/queues/q:default/pause", {"reason": reason})

    assert answer.status_code == 422, answer.text
    assert not operations.get("/v1/queues/q:default").json()["is_paused"]


def test_a_queue_is_paused_limited_and_resumed(operations: Client, hf: Holdfast) -> None:
    reason = {"reason": WHY}

    paused = operations.post("/v1/queues/q:default/pause", reason).json()
    shown = operations.get("/v1/queues/q:default").json()
    changed = operations.post("/v1/queues/q:default/limits", {**reason, "max_running": 5}).json()
    lifted = operations.post("/v1/queues/q:default/limits", {**reason, "max_running": None}).json()
    resumed = operations.post("/v1/queues/q:default/resume", reason).json()

    assert (paused, resumed) == ({"changed": True}, {"changed": True})
    assert (shown["is_paused"], shown["pause_reason"]) == (True, WHY)
    assert (changed["max_running"], lifted["max_running"]) == (5, None)


def die(hf: Holdfast, count: int) -> None:
    state = {"is_mended": False}

    def fail(job: Context, payload: Any) -> None:
        if not state["is_mended"]:
            raise Gone()

    hf.job("die", max_attempts=1)(fail)
    hf.enqueue_many("die", [{}] * count, org_id=ORG)
    hf.worker().run_once(limit=count)
    state["is_mended"] = True


def test_dead_letters_of_one_cause_are_taken_through_the_workflow_in_bulk(
    api: Client, hf: Holdfast
) -> None:
    die(hf, 5)
    steps: dict[str, dict[str, Any]] = {
        "triage": {"kind": "transient"},
        "remediate": {"done": DONE},
        "validate": {"evidence_ref": "ticket 7", "is_safe_to_repeat": True},
        "replay": {},
        "verify": {},
        "resolve": {},
    }
    (cause,) = api.get("/v1/dead-letters/causes").json()
    wanted = {"job_type": cause["job_type"], "error_class": cause["error_class"]}

    done = {}
    for action, given in steps.items():
        body = {"action": action, "filter": wanted, "reason": WHY, **given}
        dry = api.post("/v1/dead-letters/bulk", body).json()
        started = api.post(
            "/v1/dead-letters/bulk", {**body, "dry_run": False, "expected": dry["matched"]}
        )
        before = started.json()["done"]
        hf.worker(queues=["q:maintenance"]).run_once()
        made = api.get(started.headers["Location"]).json()
        done[action] = (started.status_code, dry["matched"], before, made["done"], made["state"])
        if action == "replay":
            hf.worker().run_once(limit=10)

    assert cause["letters"] == 5
    assert done == dict.fromkeys(steps, (202, 5, 0, 5, "completed"))
    assert api.get("/v1/dead-letters/causes").json() == []


def test_a_bulk_without_the_count_or_with_an_old_one_does_nothing(
    api: Client, hf: Holdfast
) -> None:
    die(hf, 3)
    body = {"action": "discard", "filter": {"job_type": "die"}, "reason": WHY, "dry_run": False}

    without = api.post("/v1/dead-letters/bulk", body)
    old = api.post("/v1/dead-letters/bulk", {**body, "expected": 2})
    everything = api.post("/v1/dead-letters/bulk", {**body, "filter": {}, "expected": 3})
    tolerated = api.post("/v1/dead-letters/bulk", {**body, "expected": 2, "tolerance": 1})

    codes = [answer.json()["code"] for answer in (without, old, everything)]
    assert codes == ["count_required", "count_changed", "filter_required"]
    assert (tolerated.status_code, tolerated.json()["matched"]) == (202, 3)
    assert len(api.get("/v1/bulk-actions").json()["items"]) == 1


def test_a_bulk_covers_more_items_than_one_request_can_process(api: Client, hf: Holdfast) -> None:
    """1,300 jobs are canceled by one request; a repeat with the same key starts nothing."""
    hf.enqueue_many("work", [{}] * 1_300, org_id=ORG)
    body = {"filter": {"job_type": "work"}, "reason": WHY}
    key = {"headers": {"Idempotency-Key": "k1"}}
    dry = api.post("/v1/jobs/cancel", body).json()
    final = {**body, "dry_run": False, "expected": dry["matched"]}

    started = api.post("/v1/jobs/cancel", final, **key)
    hf.worker(queues=["q:maintenance"]).run_once()
    again = api.post("/v1/jobs/cancel", final, **key)
    other = api.post("/v1/jobs/cancel", {**final, "reason": "another"}, **key)

    assert (dry["matched"], started.status_code, started.json()["state"]) == (1_300, 202, "queued")
    assert again.json()["id"] == started.json()["id"]
    assert (again.json()["state"], again.json()["counts"]) == ("completed", {"canceled": 1_300})
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


def test_a_key_for_dead_letters_follows_its_bulk_action_and_a_foreign_one_does_not(
    api: Client, hf: Holdfast
) -> None:
    die(hf, 1)
    scopes = ["dead_letters:read", "dead_letters:write"]
    limited = api.as_key(make_key(hf, "operator", ORG, scopes=scopes))
    foreign = api.as_key(make_key(hf, "admin", OTHER_ORG))
    body = {"action": "discard", "filter": {"job_type": "die"}, "reason": WHY}

    started = limited.post("/v1/dead-letters/bulk", {**body, "dry_run": False, "expected": 1})
    where = started.headers["Location"]

    assert limited.get(where).json()["actor"] == started.json()["actor"]
    assert limited.get("/v1/bulk-actions").status_code == 403
    assert foreign.get(where).status_code == 404
    assert foreign.get("/v1/bulk-actions").json()["items"] == []


def test_one_request_enqueues_many_jobs_or_none(api: Client, hf: Holdfast) -> None:
    jobs = [{"job_type": "work", "payload": {"n": n}, "idempotency_key": f"k{n}"} for n in range(3)]

    made = api.post("/v1/jobs/bulk", {"jobs": jobs})
    again = api.post("/v1/jobs/bulk", {"jobs": [{**jobs[0], "payload": {}}, jobs[1]]})
    bad = api.post("/v1/jobs/bulk", {"jobs": [*jobs, {"job_type": "work", "queue": "q:none"}]})

    assert [item["created"] for item in made.json()["items"]] == [True] * 3
    assert [item["differs"] for item in again.json()["items"]] == [True, False]
    assert bad.status_code == 422
    assert len(api.get("/v1/jobs").json()["items"]) == 3


def test_a_read_that_takes_too_long_is_stopped(hf: Holdfast) -> None:
    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000000)"
        " SELECT count(*) AS found FROM n"
    )
    with limited_reads(0.05), pytest.raises(ReadTimeout):
        look(hf.store, slow)

    # The connection is usable, and the limit is gone.
    assert look(hf.store, "SELECT count(*) AS found FROM holdfast.job")[0]["found"] == 0


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (f"/v1/tenants/{ORG}", {"weight": None}, "weight"),
        (f"/v1/tenants/{ORG}", {"weight": 11}, "weight"),
        ("/v1/queues/q:default", {"weight": None}, "weight"),
        ("/v1/queues/q:default", {"weight": 101}, "weight"),
        ("/v1/queues/q:default", {"rate": "often"}, "rate"),
    ],
)
def test_a_rule_that_is_no_valid_setting_is_the_fault_of_the_caller(
    operations: Client, path: str, change: dict[str, Any], field: str
) -> None:
    before = operations.get(path).text
    answer = operations.post(f"{path}/limits", {**change, "reason": WHY})

    assert answer.status_code == 422, answer.text
    assert [one["field"] for one in answer.json()["errors"]] == [field]
    assert operations.get(path).text == before
