"""The audit trail: queried in several ways, verified against its seals, and exported verifiably."""

from __future__ import annotations

import itertools
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Forbidden, Holdfast, Transient
from holdfast.actor import Actor
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.errors import ConfigError, JobNotFound, RowInvalid
from holdfast.event import AuditSealed
from holdfast.operate import audit
from holdfast.operate.audit import AuditEvent
from holdfast.operate.refusal import InvalidAction
from holdfast.sealed_audit import chain
from holdfast.sealed_audit import export as audit_export
from holdfast.sealed_audit import operator as audit_operator
from holdfast.sealed_audit.chain import Anchor, Tampering
from holdfast.sealed_audit.export import check_export
from holdfast.sealed_audit.operator import SealedAudit
from holdfast.store import Row
from tests.operate.planting import plant
from tests.story import ORG, OTHER_ORG, PROJECT, look, make_holdfast, seal_all

THIRD_ORG = "0198c0de-0000-7000-8000-00000000000c"


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    """Jobs that succeed, and one type that fails once."""

    @hf.job("flaky")
    def flaky(job: Any, payload: object) -> None:
        if job.attempt == 1:
            raise Transient

    hf.job("plain")(lambda job, payload: None)
    return hf


def trail(hf: Holdfast, role: str = "admin", org_id: str | None = None) -> SealedAudit:
    return hf.operate(actor="user:olga", role=role, org_id=org_id).audit


def names(events: list[AuditEvent]) -> list[str]:
    return [event.name for event in events]


def refused(hf: Holdfast) -> Row:
    """The newest refusal on record."""
    return look(
        hf.store,
        "SELECT org_id, actor_id, detail FROM holdfast.job_event"
        " WHERE name = 'operator.refused' ORDER BY id DESC LIMIT 1",
    )[0]


def problems(found: Iterator[Tampering]) -> list[str]:
    return [item.problem for item in found]


# -- queries


@pytest.mark.req("A-09", "M-13")
def test_everything_that_follows_from_a_request_is_found_by_it(
    work: Holdfast, clock: FakeClock
) -> None:
    first = work.enqueue(
        "flaky", {}, org_id=ORG, project_id=PROJECT, actor="user:42", request_id="r-1",
        correlation_id="c-1",
    )  # fmt: skip
    second = work.enqueue("plain", {}, org_id=ORG, actor="user:42", request_id="r-2",
                          correlation_id="c-1")  # fmt: skip
    work.enqueue("plain", {}, org_id=ORG)
    work.worker(worker_id="w-7").run_once()
    clock.advance(minutes=10)
    work.worker(worker_id="w-7").run_once()
    work.cancel(first.id, org_id=ORG, actor="user:43", reason="too late")

    way = ["job.enqueued", "job.started", "job.failed", "job.retried", "job.started"]
    of_first = [*way, "job.succeeded", "job.cancel_requested"]
    by_job = trail(work).query(job_id=first.id)
    assert names(by_job[::-1]) == of_first
    assert trail(work).query(request_id="r-1") == by_job
    by_cause = trail(work).query(correlation_id="c-1")
    assert {event.job_id for event in by_cause} == {first.id, second.id}
    assert len(by_cause) == len(of_first) + 3
    assert trail(work).query(request_id="r-2", correlation_id="c-1") == [
        event for event in by_cause if event.job_id == second.id
    ]
    newest = by_job[0]
    assert (newest.actor, newest.org_id, newest.project_id) == (Actor.read("user:43"), ORG, PROJECT)
    assert (newest.request_id, newest.correlation_id, newest.attempt) == ("r-1", "c-1", 2)
    assert newest.at == clock.now()
    assert newest.detail == {"reason": "too late", "answer": "too_late", "was": "completed"}


def test_what_a_person_or_a_worker_did_is_found(work: Holdfast) -> None:
    for person in ("user:42", "api_key:42", "user:7"):
        work.enqueue("plain", {}, org_id=ORG, actor=person)
    work.queues.pause("q:exports", reason="stocktaking", actor=Actor.read("user:42"))
    work.worker(worker_id="w-7").run_once()

    assert names(trail(work).query(actor="user:42")) == ["queue.paused", "job.enqueued"]
    assert names(trail(work).query(actor="api_key:42")) == ["job.enqueued"]
    assert len(trail(work).query(actor="system:w-7")) == 6
    assert len(trail(work).query(actor="system:w-7", name="job.succeeded")) == 3
    assert trail(work).query(actor="user:nobody") == []


def test_a_job_without_a_request_of_its_own_and_a_thing_that_is_no_job_are_found(
    work: Holdfast,
) -> None:
    job = work.enqueue("plain", {}, org_id=ORG)
    work.queues.pause("q:exports", reason="stocktaking", actor=Actor.read("user:42"))

    assert names(trail(work).query(correlation_id=job.id)) == ["job.enqueued"]
    assert names(trail(work).query(request_id=job.id)) == ["job.enqueued"]
    assert names(trail(work).query(correlation_id="queue:q:exports")) == ["queue.paused"]
    assert trail(work).query(correlation_id="queue:q:none") == []


def test_time_is_from_an_instant_up_to_before_another(work: Holdfast, clock: FakeClock) -> None:
    began = clock.now()
    for _ in range(60):
        work.enqueue("plain", {}, org_id=ORG)
        clock.advance(minutes=1)

    def asked(since: int | None, until: int | None) -> list[int]:
        found = trail(work).query(
            since=None if since is None else began + timedelta(minutes=since),
            until=None if until is None else began + timedelta(minutes=until),
            limit=100,
        )
        return [int((event.at - began).total_seconds() // 60) for event in found]

    assert asked(None, None) == list(range(59, -1, -1))
    assert asked(57, None) == [59, 58, 57]
    assert asked(None, 2) == [1, 0]
    assert asked(30, 32) == [31, 30]
    assert asked(100, None) == asked(None, -5) == []


def test_pages_follow_each_other_without_gap_or_repetition(work: Holdfast) -> None:
    work.enqueue_many("plain", [{} for _ in range(25)], org_id=ORG)
    seal_all(work.store, limit=7)
    work.enqueue_many("plain", [{} for _ in range(5)], org_id=ORG)
    found: list[int] = []
    page = trail(work, "operator", ORG).query(limit=4)
    while page:
        found += [event.id for event in page]
        page = trail(work, "operator", ORG).query(limit=4, before=page[-1].id)

    assert len(found) == 30
    assert found == sorted(set(found), reverse=True)


def test_every_way_in_gives_what_a_look_at_every_event_gives(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So small that the sealed events make many seals, on several pages.
    monkeypatch.setattr(audit_operator, "REACH_SEALS", 3)
    monkeypatch.setattr(audit_operator, "REACH_GAP", 4)
    monkeypatch.setattr(audit, "SLACK", timedelta(minutes=2))
    rng = random.Random(11)
    orgs, actors = (ORG, OTHER_ORG, THIRD_ORG), ("user:1", "user:2", "system:cron")
    for number in range(30):
        # One tenant is rare.
        org_id = THIRD_ORG if number % 10 == 0 else rng.choice(orgs[:2])
        work.enqueue_many(
            "plain", [{} for _ in range(rng.randint(1, 4))], org_id=org_id,
            actor=rng.choice(actors), request_id=rng.choice([None, "r1", "r2"]),
            correlation_id=rng.choice([None, "r1", "c1"]),
        )  # fmt: skip
        if number % 7 == 0:
            work.worker(worker_id="w1").run_once()
        if number % 3 == 0 and number < 27:
            seal_all(work.store, limit=rng.choice([3, 100]))
        clock.advance(minutes=1)
    everything = trail(work).query(limit=1000)
    assert len(everything) > 100
    choices: dict[str, list[Any]] = {
        "org_id": [None, *orgs],
        "actor": [None, *map(Actor.read, actors), Actor.read("system:w1")],
        "request_id": [None, None, "r1", "r2"],
        "correlation_id": [None, None, "r1", "c1"],
        "name": [None, None, "job.enqueued", "job.succeeded"],
        "since": [None, clock.now() - timedelta(minutes=20)],
        "until": [None, clock.now() - timedelta(minutes=9)],
        "before": [2**62, everything[20].id, everything[-10].id],
        "limit": [1, 5, 1000],
    }

    hits = 0
    for _ in range(150):
        asked = {name: rng.choice(values) for name, values in choices.items()}
        expected = [event for event in everything if _fits(event, asked)][: asked["limit"]]
        assert trail(work).query(**asked) == expected, asked
        hits += bool(expected)

    assert hits > 40


def _fits(event: AuditEvent, asked: dict[str, Any]) -> bool:
    plain = ("org_id", "actor", "request_id", "correlation_id", "name")
    return (
        all(asked[name] in (None, getattr(event, name)) for name in plain)
        and (asked["since"] is None or event.at >= asked["since"])
        and (asked["until"] is None or event.at < asked["until"])
        and event.id < asked["before"]
    )


# -- roles


def test_a_tenants_operator_sees_only_its_own_audit(work: Holdfast) -> None:
    mine = work.enqueue("plain", {}, org_id=ORG, correlation_id="shared", actor="user:42")
    theirs = work.enqueue("plain", {}, org_id=OTHER_ORG, correlation_id="shared", actor="user:42")
    operator = trail(work, "operator", ORG)

    for asked in ({}, {"correlation_id": "shared"}, {"actor": "user:42"}, {"job_id": mine.id}):
        assert [event.job_id for event in operator.query(**asked)] == [mine.id]
    with pytest.raises(Forbidden):
        operator.query(org_id=OTHER_ORG)
    told = []
    for unknown in (theirs.id, "0198c0de-0000-7000-8000-00000000beef", "no-uuid"):
        with pytest.raises(JobNotFound) as raised:
            operator.query(job_id=unknown)
        told.append(str(raised.value).replace(unknown, "X"))
        assert refused(work)["org_id"] == ORG
        assert decode(refused(work)["detail"]) == {
            "subject": f"job:{unknown}",
            "action": "read_audit",
            "role": "operator",
            "why": "JobNotFound",
        }
    assert len(set(told)) == 1, "nobody learns whether a job of that id is somebody else's"


def test_only_an_admin_asks_about_every_tenant(work: Holdfast) -> None:
    work.enqueue("plain", {}, org_id=ORG)

    assert len(trail(work, "operator").query(org_id=ORG)) == 1
    assert len(trail(work, "admin").query()) == 1
    for role, org_id in (("operator", None), ("member", ORG)):
        for ask in ("query", "verify", "cover"):
            with pytest.raises(Forbidden):
                getattr(trail(work, role, org_id), ask)()
            assert refused(work)["org_id"] == (org_id or PLATFORM_ORG)
    with pytest.raises(JobNotFound):
        trail(work).query(job_id="0198c0de-0000-7000-8000-00000000beef")


DAY = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"limit": 0}, InvalidAction),
        ({"limit": 1001}, InvalidAction),
        ({"since": datetime(2026, 1, 1)}, InvalidAction),  # noqa: DTZ001
        ({"since": DAY, "until": DAY}, InvalidAction),
        ({"name": ""}, InvalidAction),
        ({"correlation_id": "x" * 501}, InvalidAction),
        ({"request_id": "a\0b"}, InvalidAction),
        ({"actor": "user:"}, InvalidAction),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    work: Holdfast, asked: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        trail(work).query(**asked)


# -- query plans


@pytest.fixture
def crowd(work: Holdfast) -> Holdfast:
    """20,000 events of 5,000 jobs; every hundredth is by a person and has a cause."""
    text = (
        "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at)"
        " WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 19999)"
        " SELECT {org}, {job}, 'plain',"
        " CASE n % 4 WHEN 0 THEN 'job.enqueued' ELSE 'job.started' END, 1,"
        " CASE n % 400 WHEN 0 THEN 'user' ELSE 'system' END,"
        " CASE n % 400 WHEN 0 THEN CAST(n % 7 AS text) ELSE 'w1' END,"
        " CASE n % 400 WHEN 0 THEN 'r' || CAST(n AS text) ELSE {id} END,"
        " CASE n % 400 WHEN 0 THEN 'c' || CAST(n % 50 AS text) ELSE {id} END, {at} FROM n"
    )
    if work.store.dialect.name == "sqlite":
        job = "'0198c0de-0000-7000-9000-' || printf('%012x', n / 4)"
        words = {"org": f"'{ORG}'", "job": job, "id": job, "at": "'2026-01-05T09:00:00.000Z'"}
    else:
        job = "('0198c0de-0000-7000-9000-' || lpad(to_hex(n / 4), 12, '0'))"
        words = {"org": f"'{ORG}'::uuid", "job": f"{job}::uuid", "id": job, "at": "now()"}
    for name, word in words.items():
        text = text.replace("{" + name + "}", word)
    plant(work, text)
    envelopes = (
        "INSERT INTO holdfast.job_envelope (org_id, id, event_id, created_at, max_attempts,"
        " priority, job_type, category, origin_queue, actor_type, actor_id, request_id,"
        " correlation_id, payload_hash, payload)"
        " WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 4 FROM n WHERE n < 19996)"
        " SELECT {org}, {job}, n + 1, {at}, 1, 50, 'plain', 'adhoc', 'q:default', 'system', 'w1',"
        " CASE n % 400 WHEN 0 THEN 'r' || CAST(n AS text) END,"
        " CASE n % 400 WHEN 0 THEN 'c' || CAST(n % 50 AS text) END, '', '{}' FROM n"
    )
    for name, word in words.items():
        envelopes = envelopes.replace("{" + name + "}", word)
    plant(work, envelopes)
    # Of three tenants in turn, each seal over ten events.
    plant(
        work,
        "INSERT INTO holdfast.audit_seal (org_id, number, first_seq, event_count, first_event_id,"
        " last_event_id, leaves, digest, sealed_at)"
        " WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 1999)"
        f" SELECT CASE n % 3 WHEN 0 THEN {words['org']} WHEN 1 THEN"
        f" {words['org'].replace(ORG, OTHER_ORG)} ELSE {words['org'].replace(ORG, THIRD_ORG)} END,"
        f" n / 3 + 1, 1, 10, n * 10 + 1, n * 10 + 10, '', '', {words['at']} FROM n",
    )
    plant(work, "ANALYZE")
    return work


def test_no_question_by_job_correlation_or_person_reads_every_event(
    crowd: Holdfast,
) -> None:
    asked: dict[str, Any] = {
        "org_id": None, "job_id": None, "actor_type": None, "actor_id": None, "name": None,
        "correlation_id": None, "request_id": None, "since": None, "until": None, "limit": 50,
        "before": 2**62, "above": 0, "reach": 51, "after": 0, "upto": 2**62, "jobs": [{"id": ORG}],
        "by_correlation": None, "instant": None,
    }  # fmt: skip
    sql = audit.SQL
    for statement, given, index in (
        (sql.list_of_jobs, {}, "job_event_of_job"),
        (sql.list_of_jobs, {"by_correlation": "c7"}, "job_of_correlation"),
        (sql.list_of_person, {"actor_type": "user", "actor_id": "3"}, "job_event_of_person"),
        (
            sql.list_between,
            {"above": 5_000, "before": 5_100},
            "rowid|job_event_in_order",
        ),
        (chain.SQL.list_reach, {"org_id": ORG}, "audit_seal_of_event"),
        (sql.find_first_at, {}, "rowid|job_event_in_order"),
        (chain.SQL.list_covered, {"org_id": ORG}, "audit_seal_of_event"),
    ):
        text = plan(crowd, statement, **{**asked, **given})
        assert any(word in text for word in index.split("|")), (statement.name, text)
        assert "Seq Scan on job_event" not in text, (statement.name, text)
        assert "SCAN event" not in text, (statement.name, text)


def plan(hf: Holdfast, statement: Any, **params: Any) -> str:
    word = "EXPLAIN QUERY PLAN " if hf.store.dialect.name == "sqlite" else "EXPLAIN "
    explained = replace(statement, raw=word + statement.raw)
    rows = hf.store.read(lambda tx: tx.many(explained, **params))
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


# -- verification


def tamper(hf: Holdfast, how: str, event: int) -> None:
    plant(hf, how, **({"id": event} if ":id" in how else {}))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            "UPDATE holdfast.audit_event SET actor_id = 'c' WHERE id = :id",
            ["event {id} was edited or inserted", "the event was edited or deleted"],
        ),
        (
            "DELETE FROM holdfast.audit_event WHERE id = :id",
            ["the event was edited or deleted"],
        ),
        (
            f"DELETE FROM holdfast.audit_seal WHERE org_id = '{OTHER_ORG}'",
            ["event {id} is in no seal: it was inserted, or its seal was removed"],
        ),
    ],
    ids=["edited", "deleted", "chain gone"],
)
def test_one_pass_over_all_tenants_finds_what_was_done_to_one(
    work: Holdfast, how: str, told: list[str]
) -> None:
    for org_id in (ORG, OTHER_ORG, ORG):
        work.enqueue("plain", {}, org_id=org_id)
    seal_all(work.store)
    (victim,) = trail(work).query(org_id=OTHER_ORG)
    assert list(trail(work).verify()) == []

    tamper(work, how, victim.id)

    expected = [line.replace("{id}", str(victim.id)) for line in told]
    assert problems(trail(work).verify()) == expected
    assert problems(trail(work, "operator", OTHER_ORG).verify()) == expected
    assert problems(trail(work, "operator", ORG).verify()) == []


def test_the_same_is_found_when_seals_and_events_go_over_many_pages(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "SEALS", 2)
    monkeypatch.setattr(chain, "EVENTS", 7)
    for number in range(8):
        for org_id in (ORG, OTHER_ORG, THIRD_ORG):
            # Not together: the events of a group are one row.
            for _ in range(number % 4 + 1):
                work.enqueue("plain", {}, org_id=org_id)
        seal_all(work.store)
    assert list(trail(work).verify()) == []
    events = [event.id for event in trail(work).query(org_id=OTHER_ORG, limit=1000)]

    tamper(work, "DELETE FROM holdfast.audit_event WHERE id = :id", events[3])
    tamper(work, "UPDATE holdfast.audit_event SET attempt = 9 WHERE id = :id", events[12])

    found = list(trail(work).verify())
    assert {item.org_id for item in found} == {OTHER_ORG}
    assert sorted(item.problem for item in found) == [
        f"event {events[12]} was edited or inserted",
        "the event was edited or deleted",
        "the event was edited or deleted",
    ]
    assert {item.seq for item in found} == {None, len(events) - 3, len(events) - 12}


def test_what_is_not_sealed_cannot_be_proven_and_is_counted(work: Holdfast) -> None:
    work.enqueue_many("plain", [{}, {}, {}], org_id=ORG)
    seal_all(work.store)
    for org_id in (ORG, ORG, OTHER_ORG):
        work.enqueue("plain", {}, org_id=org_id)

    cover = trail(work).cover()
    assert (cover.seals, cover.sealed, cover.unsealed) == (1, 3, 3)
    assert trail(work).cover(org_id=ORG).unsealed == 2
    (newest, *_) = trail(work).query(org_id=ORG)
    tamper(work, "DELETE FROM holdfast.audit_event WHERE id = :id", newest.id)

    assert list(trail(work).verify()) == []
    assert trail(work).cover(org_id=ORG).unsealed == 1


def anchors_of(hf: Holdfast) -> list[AuditSealed]:
    told: list[AuditSealed] = []
    hf.events.subscribe(
        lambda event: told.append(event) if isinstance(event, AuditSealed) else None
    )
    return told


def seal(hf: Holdfast) -> int:
    """Seal until no earlier transaction of the server is open.

    There may always be one: the next test's database is created meanwhile, in one long transaction.
    """
    events = 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        sealed = trail(hf).seal()
        events += sealed.events
        if sealed.is_whole:
            assert sealed.unsealed == 0
            return events
    raise AssertionError("the audit could not be sealed")


def test_a_chain_that_was_cut_is_found_by_the_head_that_was_kept(work: Holdfast) -> None:
    told = anchors_of(work)
    for _ in range(3):
        work.enqueue("plain", {}, org_id=ORG)
        seal(work)
    kept = [Anchor(head.org_id, head.number, head.digest) for head in told]
    assert [anchor.number for anchor in kept] == [1, 2, 3]
    assert list(trail(work).verify(anchors=kept)) == []

    # An attacker who can write every table cuts the chain, its events and the cursor.
    (newest, *_) = trail(work).query()
    tamper(work, "DELETE FROM holdfast.audit_seal WHERE number = 3", 0)
    tamper(work, "DELETE FROM holdfast.audit_event WHERE id = :id", newest.id)
    tamper(work, "UPDATE holdfast.audit_cursor SET sealed_to = (SELECT max(id) FROM"
                 " holdfast.audit_event), next_to = 0", 0)  # fmt: skip

    assert list(trail(work).verify()) == [], "a shorter chain is still a chain"
    assert list(trail(work).verify(anchors=kept)) == [Tampering(ORG, 3, None, chain.CUT)]


def test_a_rewritten_chain_is_found_by_a_stored_head(
    work: Holdfast,
) -> None:
    told = anchors_of(work)
    work.enqueue("plain", {}, org_id=ORG)
    seal(work)
    kept = [Anchor(head.org_id, head.number, head.digest) for head in told]
    tamper(work, "UPDATE holdfast.audit_event SET actor_id = 'eve'", 0)
    tamper(work, "DELETE FROM holdfast.audit_seal", 0)
    tamper(work, "UPDATE holdfast.audit_cursor SET sealed_to = 0, next_to = 0", 0)
    seal(work)

    assert list(trail(work).verify()) == []
    assert list(trail(work).verify(anchors=kept)) == [Tampering(ORG, 1, None, chain.WRITTEN_ANEW)]


def test_an_anchor_of_another_tenant_is_refused(work: Holdfast) -> None:
    with pytest.raises(Forbidden):
        trail(work, "operator", ORG).verify(anchors=[Anchor(OTHER_ORG, 1, "0" * 64)])

    assert refused(work)["org_id"] == ORG


@pytest.mark.parametrize(
    "text",
    ["", "x:1:2", f"{ORG}:1:abc", f"{ORG}:-1:{'0' * 64}", f"{ORG}:1:{'0' * 64}:x", f"{ORG}:"],
)
def test_an_anchor_is_a_tenant_a_number_and_a_digest(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Anchor.read(text)


def test_proving_and_copying_take_the_same_memory_for_any_number_of_events(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "EVENTS", 100)
    monkeypatch.setattr(audit_export, "EVENTS", 100)

    def add(jobs: int) -> None:
        work.enqueue_many("plain", [{}] * jobs, org_id=ORG)
        seal_all(work.store, limit=100)

    def peak() -> int:
        most = 0
        for walk in (trail(work).verify(), trail(work).export()):
            tracemalloc.start()
            for _ in walk:
                pass
            most = max(most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return most

    add(200)
    peak()
    few = peak()
    add(1400)

    assert peak() < few * 1.5


def test_an_edited_event_is_found_whatever_the_cursor_says(work: Holdfast) -> None:
    for _ in range(2):
        work.enqueue("plain", {}, org_id=ORG)
    seal(work)
    tamper(work, "UPDATE holdfast.audit_event SET actor_id = 'eve' WHERE id = 1", 0)
    tamper(work, "UPDATE holdfast.audit_cursor SET sealed_to = 0, next_to = 0", 0)

    assert problems(trail(work).verify()) == [
        "seals reach event 2, sealing had come to 0",
        "event 1 was edited or inserted",
        "the event was edited or deleted",
    ]


def test_what_is_sealed_while_it_is_proven_and_copied_is_no_tampering(
    postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "EVENTS", 2)
    monkeypatch.setattr(audit_export, "EVENTS", 2)
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as late:
        hf.job("plain")(lambda job, payload: None)
        for _ in range(3):
            hf.enqueue("plain", {}, org_id=ORG)
        seal(hf)
        hf.enqueue("plain", {}, org_id=ORG, conn=late)
        hf.enqueue_many("plain", [{}] * 4, org_id=ORG)

        # The late event has a smaller id than one that was passed before it was visible.
        made = trail(hf).export()
        begun = list(itertools.islice(made, 6))
        assert [json.loads(line).get("seal", "-") for line in begun] == ["-", "-", 1, 1, 1, None]
        assert list(trail(hf).verify()) == []
        late.commit()
        seal(hf)

        assert list(check_export([*begun, *made])) == []
        assert list(trail(hf).verify()) == []


def test_an_event_that_cannot_be_read_is_named_and_can_be_copied(work: Holdfast) -> None:
    for _ in range(2):
        work.enqueue("plain", {}, org_id=ORG)
    seal(work)
    (newest, _) = trail(work).query()
    tamper(work, "UPDATE holdfast.audit_event SET actor_type = 'ghost' WHERE id = :id", newest.id)
    if work.store.dialect.name == "sqlite":
        how = "UPDATE holdfast.audit_event SET at = 'noon', detail = '{' WHERE id = :id"
        tamper(work, how, newest.id)

    with pytest.raises(RowInvalid, match=f"Event {newest.id} cannot be decoded"):
        trail(work).query()
    told = [f"event {newest.id} was edited or inserted", "the event was edited or deleted"]
    assert problems(trail(work).verify()) == told
    assert problems(check_export(trail(work).export())) == told


# -- sealing


def test_sealing_covers_every_event_there_is(work: Holdfast) -> None:
    work.enqueue_many("plain", [{} for _ in range(20)], org_id=ORG)

    assert seal(work) == 20
    assert seal(work) == 0
    assert trail(work).cover().unsealed == 0


def test_sealing_stops_before_a_transaction_that_is_under_way(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as late:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG, conn=late)
        hf.enqueue("plain", {}, org_id=ORG)

        stopped = trail(hf).seal()
        late.commit()

        assert (stopped.events, stopped.unsealed, stopped.is_whole) == (0, 1, False)
        assert seal(hf) == 2


def test_only_an_admin_of_all_seals(work: Holdfast) -> None:
    for role, org_id in (("operator", None), ("admin", ORG)):
        with pytest.raises(Forbidden):
            trail(work, role, org_id).seal()


# -- export


def copy(hf: Holdfast, **asked: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trail(hf).export(**asked)]


def lines(rows: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(row) for row in rows]


@pytest.fixture
def copied(work: Holdfast, clock: FakeClock) -> list[dict[str, Any]]:
    for number in range(4):
        work.enqueue_many("plain", [{}] * (number + 1), org_id=ORG, correlation_id='é\u2028"')
        work.enqueue("plain", {}, org_id=OTHER_ORG)
        work.worker().run_once()
        seal_all(work.store)
        clock.advance(minutes=1)
    return copy(work)


def test_a_copy_holds_every_event_and_seal_and_can_be_checked_elsewhere(
    work: Holdfast, copied: list[dict[str, Any]]
) -> None:
    assert copied[0] == {
        "type": "export", "format": 1, "org_id": None, "since": None, "until": None,
        "is_keyed": False,
    }  # fmt: skip
    # The last event records the export; it is not sealed yet.
    assert copied[-1] == {"type": "end", "events": 43, "seals": 8, "unsealed": 1}
    events = [row for row in copied if row["type"] == "event"]
    assert [event["id"] for event in events] == [
        event.id for event in reversed(trail(work).query(limit=100))
    ]
    assert events[-1]["name"] == "audit.exported"
    assert list(check_export(lines(copied))) == []


def test_an_export_is_on_record_before_its_first_line(work: Holdfast) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for org_id, subject in ((None, "audit:all"), (ORG, f"audit:{ORG}")):
        trail(work).export(org_id=org_id, since=since)
        (event, *_) = trail(work).query(name="audit.exported")
        assert (event.actor.id, event.org_id) == ("olga", org_id or PLATFORM_ORG)
        assert event.detail == {
            "subject": subject,
            "since": "2026-01-01T00:00:00.000Z",
            "until": None,
            "role": "admin",
        }


@pytest.mark.parametrize(("role", "org_id"), [("operator", ORG), ("operator", None)])
def test_only_an_admin_exports(work: Holdfast, role: str, org_id: str | None) -> None:
    with pytest.raises(Forbidden):
        trail(work, role, org_id).export()

    assert decode(refused(work)["detail"])["action"] == "export_audit"


def test_a_copy_of_a_tenant_holds_its_events_only(
    work: Holdfast, copied: list[dict[str, Any]]
) -> None:
    own = copy(work, org_id=OTHER_ORG)

    assert {row["org_id"] for row in own[1:-1]} == {OTHER_ORG}
    assert own[-1] == {"type": "end", "events": 13, "seals": 4, "unsealed": 1}
    assert list(check_export(lines(own))) == []
    assert list(check_export(trail(work, "admin", OTHER_ORG).export())) == []


def test_a_copy_of_a_span_of_time_can_be_checked_too(
    work: Holdfast, copied: list[dict[str, Any]], clock: FakeClock
) -> None:
    middle = copy(
        work, since=clock.now() - timedelta(minutes=3), until=clock.now() - timedelta(minutes=1)
    )

    assert middle[-1] == {"type": "end", "events": 21, "seals": 4, "unsealed": 0}
    assert list(check_export(lines(middle))) == []
    victim = next(row for row in middle if row["type"] == "event")
    victim["actor_id"] = "eve"
    assert problems(check_export(lines(middle))) == [f"event {victim['id']} was edited or inserted"]


def _edit(rows: list[dict[str, Any]]) -> None:
    _event(rows, 5)["attempt"] += 1


def _delete(rows: list[dict[str, Any]]) -> None:
    rows.remove(_event(rows, 5))
    rows[-1]["events"] -= 1


def _insert(rows: list[dict[str, Any]]) -> None:
    at = rows.index(_event(rows, 5))
    rows.insert(at, {**rows[at], "id": rows[at]["id"] + 1000})
    rows[-1]["events"] += 1


def _drop_seal(rows: list[dict[str, Any]]) -> None:
    rows.remove([row for row in rows if row["type"] == "seal" and row["org_id"] == ORG][1])


def _forge_seal(rows: list[dict[str, Any]]) -> None:
    [row for row in rows if row["type"] == "seal"][3]["digest"] = "0" * 64


def _begin_anew(rows: list[dict[str, Any]]) -> None:
    """A seal that is valid by itself, with no predecessor."""
    seal = [row for row in rows if row["type"] == "seal"][3]
    seal |= {"before": "", "digest": chain.digest_of("", "", seal["leaves"])}


def _event(rows: list[dict[str, Any]], number: int) -> dict[str, Any]:
    return [row for row in rows if row["type"] == "event"][number]


def test_a_copy_that_was_tampered_with_is_found(copied: list[dict[str, Any]]) -> None:
    for forge, told in (
        (_edit, "was edited or inserted"),
        (_delete, "the event was edited or deleted"),
        (_insert, "was edited or inserted"),
        (_drop_seal, "the seal is missing"),
        (_forge_seal, "the seal does not follow from the one before"),
        (_begin_anew, "the seal does not follow from the one before"),
    ):
        forged = deepcopy(copied)
        forge(forged)

        assert any(told in problem for problem in problems(check_export(lines(forged)))), forge


def test_a_copy_is_held_against_a_head_that_was_kept(copied: list[dict[str, Any]]) -> None:
    seals = [row for row in copied if row["type"] == "seal" and row["org_id"] == ORG]
    good = Anchor(ORG, seals[-1]["number"], seals[-1]["digest"])
    anew = replace(good, digest="0" * 64)
    longer = replace(good, number=good.number + 1)

    assert list(check_export(lines(copied), anchors=[good])) == []
    assert problems(check_export(lines(copied), anchors=[anew])) == [chain.WRITTEN_ANEW]
    assert problems(check_export(lines(copied), anchors=[longer])) == [chain.CUT]


def test_a_copy_under_a_key_is_checked_with_the_key(url: str, clock: FakeClock) -> None:
    with make_holdfast(url, clock, audit_key="held elsewhere") as hf:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG)
        seal(hf)
        kept = list(trail(hf).export())

        assert json.loads(kept[0])["is_keyed"] is True
        assert "held elsewhere" not in "".join(kept)
        assert list(trail(hf).verify()) == []
    assert list(check_export(kept, key="held elsewhere")) == []
    assert len(list(check_export(kept, key="guessed"))) == 1


HARMS: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (lambda rows: rows[:-1], "its last line is missing"),
    (lambda rows: [], "its last line is missing"),
    (lambda rows: rows[1:], "Line 1 has a type that is not allowed there"),
    (lambda rows: [rows[0], *rows], "Line 2 has a type that is not allowed there"),
    (lambda rows: [*rows, rows[-1]], "has a type that is not allowed there"),
    (lambda rows: [*rows[:-2], rows[-1]], "has 42 events, but its last line declares 43"),
    (lambda rows: [rows[0].replace('"format": 1', '"format": 2')], "has the unsupported format 2"),
    (lambda rows: [rows[0], "[]"], "Line 2 is not a line of an export"),
    (lambda rows: [rows[0], '{"type": "seal"}'], "Line 2 is not a line of an export"),
    (lambda rows: [rows[0], '{"type": ["event"]}'], "Line 2 is not a line of an export"),
    (lambda rows: [rows[0], "{" * 5000], "Line 2 of the export is not JSON"),
]


def test_what_is_no_whole_export_is_refused_in_one_sentence(copied: list[dict[str, Any]]) -> None:
    for harm, says in HARMS:
        with pytest.raises(ConfigError, match=says):
            list(check_export(harm(lines(copied))))


def test_a_copy_goes_over_any_number_of_pages(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "EVENTS", 7)
    for _ in range(6):
        for org_id in (ORG, OTHER_ORG):
            work.enqueue_many("plain", [{}] * 5, org_id=org_id)
        seal_all(work.store)

    made = copy(work)

    assert made[-1] == {"type": "end", "events": 61, "seals": 12, "unsealed": 1}
    assert list(check_export(lines(made))) == []
    kinds = [row["type"] for row in made]
    assert [kind for kind, _ in itertools.groupby(kinds)][:3] == ["export", "seal", "event"]
