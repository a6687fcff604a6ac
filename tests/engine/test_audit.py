"""The audit: complete, attributable, append-only, and sealed to reveal tampering."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, Permanent, Transient
from holdfast.engine.audit import Deed, Entry, record, record_actions
from holdfast.engine.job import SYSTEM
from holdfast.engine.retention import prune
from holdfast.errors import RuleBroken
from holdfast.sealed_audit.chain import Tampering, verify_seals
from holdfast.sealed_audit.seal import seal_events
from holdfast.store.dialect import POSTGRES
from tests.engine.planting import plant
from tests.story import (
    ORG,
    OTHER_ORG,
    PROJECT,
    by_hand,
    events,
    look,
    make_holdfast,
    seal_all,
    timeline,
)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: None)
    return hf


def seal(hf: Holdfast, key: str = "") -> int:
    """Seal until no events are left; return the number of events."""
    return sum(seal_all(hf.store, key=key))


def seals(hf: Holdfast, org_id: str) -> list[Any]:
    return look(
        hf.store,
        "SELECT number, first_seq, event_count FROM holdfast.audit_seal WHERE org_id = :org_id"
        " ORDER BY number",
        org_id=org_id,
    )


@pytest.mark.req("A-07", "A-08")
def test_every_way_through_a_job_leaves_its_events(hf: Holdfast, clock: FakeClock) -> None:
    faults: list[BaseException] = [Transient(), Permanent()]

    @hf.job("flaky.work")
    def flaky(job: object, payload: object) -> None:
        raise faults.pop(0)

    hf.job("good.work")(lambda job, payload: None)
    bad = hf.enqueue("flaky.work", {}, org_id=ORG)
    good = hf.enqueue("good.work", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(minutes=10)
    hf.worker().run_once()

    assert timeline(hf, good) == ["job.enqueued", "job.started", "job.succeeded"]
    assert timeline(hf, bad) == [
        "job.enqueued",
        "job.started", "job.failed", "job.retried",
        "job.started", "job.failed", "job.deadlettered",
    ]  # fmt: skip


@pytest.mark.req("A-09", "E-16")
def test_every_event_names_tenant_project_actor_request_job_attempt_and_time(
    hf: Holdfast, clock: FakeClock
) -> None:
    @hf.job("flaky.work")
    def flaky(job: Any, payload: object) -> None:
        if job.attempt == 1:
            raise Transient

    enqueued = hf.enqueue(
        "flaky.work", {}, org_id=ORG, project_id=PROJECT, actor="user:42", request_id="r-1",
        correlation_id="c-1",
    )  # fmt: skip
    worker = hf.worker(worker_id="worker-7")
    worker.run_once()
    clock.advance(minutes=10)
    worker.run_once()

    found = events(hf, enqueued)
    assert [event["attempt"] for event in found] == [1, 1, 1, 1, 2, 2]
    for event in found:
        assert (event["org_id"], event["project_id"]) == (ORG, PROJECT)
        assert (event["job_id"], event["job_type"]) == (enqueued.id, "flaky.work")
        assert (event["request_id"], event["correlation_id"]) == ("r-1", "c-1")
        assert event["at"] is not None
    assert (found[0]["actor_type"], found[0]["actor_id"]) == ("user", "42")
    for event in found[1:]:
        assert (event["actor_type"], event["actor_id"]) == ("system", "worker-7")


@pytest.mark.req("A-10")
def test_the_events_of_one_statement_have_ids_in_the_order_given(work: Holdfast) -> None:
    jobs = [work.enqueue("report.export", {}, org_id=ORG) for _ in range(4)]
    if work.store.dialect is POSTGRES:
        # The plan for many rows joins in the order of the jobs' ids.
        by_hand(work.store, "SET enable_nestloop = off")
        by_hand(work.store, "SET enable_hashjoin = off")
    given = [
        (job.id, name)
        for job in reversed(jobs)
        for name in ("job.cancel_requested", "job.canceled")
    ]

    work.store.write(
        lambda tx: record(tx, SYSTEM, [Entry(ORG, job_id, name, 1) for job_id, name in given])
    )

    found = look(work.store, "SELECT job_id, name FROM holdfast.job_event ORDER BY id")
    assert [(str(row["job_id"]), row["name"]) for row in found][len(jobs) :] == given


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE holdfast.audit_event SET name = 'job.forged'",
        "DELETE FROM holdfast.audit_event",
        "UPDATE holdfast.audit_seal SET digest = 'x'",
        "DELETE FROM holdfast.audit_seal",
    ],
)
def test_the_audit_is_append_only(work: Holdfast, text: str) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    seal(work)

    with pytest.raises(RuleBroken):
        by_hand(work.store, text)

    assert timeline(work, enqueued) == ["job.enqueued"]


def test_the_audit_outlives_its_job(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()
    clock.advance(days=91)
    passed = prune(work.store, work.settings.retention)

    assert passed == {"pruned": 1, "deliveries": 0}
    assert timeline(work, enqueued) == [
        "job.enqueued",
        "job.started",
        "job.succeeded",
        "job.pruned",
    ]


def test_an_untouched_audit_verifies(work: Holdfast) -> None:
    work.enqueue_many("report.export", [{} for _ in range(5)], org_id=ORG)
    work.worker().run_once()

    sealed = seal(work)

    assert sealed == 15
    assert verify_seals(work.store, ORG) == []


def test_sealing_twice_adds_nothing(work: Holdfast) -> None:
    work.enqueue("report.export", {}, org_id=ORG)
    seal(work)
    before = seals(work, ORG)

    assert seal(work) == 0
    assert seals(work, ORG) == before


def test_two_tenants_have_gapless_sequences_of_their_own(work: Holdfast) -> None:
    for _ in range(3):
        work.enqueue("report.export", {}, org_id=ORG)
        work.enqueue_many("report.export", [{}, {}], org_id=OTHER_ORG)
        seal(work)

    for org_id, expected in ((ORG, 3), (OTHER_ORG, 6)):
        next_seq = 1
        for number, found in enumerate(seals(work, org_id), 1):
            assert (found["number"], found["first_seq"]) == (number, next_seq)
            next_seq += found["event_count"]
        assert next_seq - 1 == expected
        assert verify_seals(work.store, org_id) == []


def test_a_small_limit_seals_the_same_in_more_steps(work: Holdfast) -> None:
    work.enqueue_many("report.export", [{} for _ in range(10)], org_id=ORG)

    steps = seal_all(work.store, limit=4)

    assert steps == [4, 4, 2]
    assert verify_seals(work.store, ORG) == []


OF_EVENT = "WHERE id >= :id AND id - events < :id"
TAMPERING = {
    "edited": (f"UPDATE holdfast.audit_event SET actor_id = 'somebody' {OF_EVENT}", "edited"),
    "deleted": (f"DELETE FROM holdfast.audit_event {OF_EVENT}", "edited or deleted"),
    "backdated": (
        f"UPDATE holdfast.audit_event SET at = '2020-01-01T00:00:00.000Z' {OF_EVENT}", "edited",
    ),
    "handed over": (
        f"UPDATE holdfast.audit_event SET org_id = '{OTHER_ORG}' {OF_EVENT}", "edited or deleted",
    ),
    "reworded": (f"UPDATE holdfast.audit_event SET detail = '[1]' {OF_EVENT}", "edited"),
    "renamed": (f"UPDATE holdfast.audit_event SET name = 'job.retried' {OF_EVENT}", "edited"),
    "recounted": (f"UPDATE holdfast.audit_event SET attempt = attempt + 1 {OF_EVENT}", "edited"),
}  # fmt: skip


# The event job.failed has a row of its own. The event job.started is in the row of a group, which
# has no detail and names its jobs.
NOT_ITS_JOBS = (
    f"{{only sqlite}}json_array('{ORG}', '{ORG}'){{end}}{{only postgres}}'{{{ORG},{ORG}}}'{{end}}"
)
OF_A_GROUP = {
    **TAMPERING,
    "reworded": (f"UPDATE holdfast.audit_event SET jobs = {NOT_ITS_JOBS} {OF_EVENT}", "edited"),
}
TAMPERED = [
    pytest.param(name, *tampering, id=f"{name}-{how}")
    for name, ways in (("job.failed", TAMPERING), ("job.started", OF_A_GROUP))
    for how, tampering in ways.items()
]


@pytest.mark.parametrize(("name", "text", "problem"), TAMPERED)
def test_a_sealed_event_that_was_tampered_with_is_found(
    work: Holdfast, name: str, text: str, problem: str
) -> None:
    @work.job("report.break", max_attempts=1)
    def breaks(job: object, payload: object) -> None:
        raise ValueError

    first, _ = work.enqueue_many("report.break", [{}, {}], org_id=ORG)
    work.worker().run_once()
    seal(work)
    (victim,) = [event["id"] for event in events(work, first) if event["name"] == name]

    plant(work, text, id=victim)
    found = verify_seals(work.store, ORG)

    assert found
    assert any(problem in item.problem and item.seq is not None for item in found)


def test_an_event_inserted_among_sealed_ones_is_found(work: Holdfast) -> None:
    first = work.enqueue("report.export", {}, org_id=ORG)
    work.enqueue("report.export", {}, org_id=OTHER_ORG)
    work.enqueue("report.export", {}, org_id=ORG)
    seal(work)
    (gap,) = [
        row["id"]
        for row in look(work.store, "SELECT id, org_id FROM holdfast.job_event")
        if row["org_id"] == OTHER_ORG
    ]

    plant(work, "DELETE FROM holdfast.audit_event WHERE id = :id", id=gap)
    overriding = "" if work.store.dialect.name == "sqlite" else "OVERRIDING SYSTEM VALUE"
    plant(
        work,
        "INSERT INTO holdfast.audit_event (id, org_id, job_id, job_type, name, attempt,"
        f" actor_type, actor_id, request_id, correlation_id, at) {overriding}"
        " SELECT :gap, org_id, job_id, job_type, 'job.retried', 1, actor_type, actor_id,"
        " request_id, correlation_id, at FROM holdfast.job_event WHERE job_id = :job_id",
        gap=gap,
        job_id=first.id,
    )

    mine = verify_seals(work.store, ORG)
    assert [item.problem for item in mine] == [f"event {gap} was edited or inserted"]
    assert len(verify_seals(work.store, OTHER_ORG)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE holdfast.audit_seal SET digest = 'f00d' WHERE number = 2",
        "UPDATE holdfast.audit_seal SET leaves = '' WHERE number = 2",
        "DELETE FROM holdfast.audit_seal WHERE number = 2",
        "UPDATE holdfast.audit_seal SET first_seq = 99 WHERE number = 2",
    ],
)
def test_a_broken_seal_is_found(work: Holdfast, text: str) -> None:
    for _ in range(3):
        work.enqueue("report.export", {}, org_id=ORG)
        seal(work)

    plant(work, text)

    assert {item.seal for item in verify_seals(work.store, ORG)} & {2, 3}


def test_a_chain_whose_beginning_was_removed_is_found(work: Holdfast) -> None:
    """Each seal is valid by itself; only its successor's digest shows that one is missing."""
    for _ in range(3):
        work.enqueue("report.export", {}, org_id=ORG)
        seal(work)

    plant(
        work,
        "DELETE FROM holdfast.audit_event WHERE id IN"
        " (SELECT first_event_id FROM holdfast.audit_seal WHERE number = 1)",
    )
    plant(work, "DELETE FROM holdfast.audit_seal WHERE number = 1")
    for number in (2, 3):
        plant(
            work,
            "UPDATE holdfast.audit_seal SET number = number - 1, first_seq = first_seq - 1"
            " WHERE number = :number",
            number=number,
        )

    assert verify_seals(work.store, ORG) == [
        Tampering(ORG, 1, None, "the seal does not follow from the one before")
    ]


def test_a_chain_forged_without_the_key_is_found(work: Holdfast) -> None:
    work.enqueue("report.export", {}, org_id=ORG)
    seal(work, key="held elsewhere")

    assert verify_seals(work.store, ORG, key="held elsewhere") == []
    assert verify_seals(work.store, ORG, key="guessed") == [
        Tampering(ORG, 1, None, "the seal does not follow from the one before")
    ]


def test_a_transaction_that_began_later_and_took_an_earlier_id_is_still_sealed(
    postgres_url: str, clock: FakeClock
) -> None:
    with (
        make_holdfast(postgres_url, clock) as hf,
        psycopg.connect(postgres_url) as first,
        psycopg.connect(postgres_url) as second,
    ):
        hf.job("report.export")(lambda job, payload: None)
        first.execute("SELECT pg_current_xact_id()")
        hf.enqueue("report.export", {}, org_id=ORG, conn=second)
        hf.enqueue("report.export", {}, org_id=ORG, conn=first)
        first.commit()

        while_open = sum(seal_events(hf.store).events for _ in range(4))
        second.commit()

        assert (while_open, seal(hf)) == (0, 2)
        assert verify_seals(hf.store, ORG) == []


REFUSE_UNNUMBERED = """
    CREATE FUNCTION holdfast.refuse_unnumbered() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF pg_current_xact_id_if_assigned() IS NULL THEN
            RAISE EXCEPTION 'sealing would not wait for %', NEW.name;
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_unnumbered BEFORE INSERT ON holdfast.audit_event FOR EACH ROW
        EXECUTE FUNCTION holdfast.refuse_unnumbered();
"""


def test_a_transaction_has_its_number_before_its_event_has_an_id(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        hf.job("report.export")(lambda job, payload: None)
        with psycopg.connect(postgres_url) as plain:
            # A row has its id at this point, and is not written yet.
            plain.execute(REFUSE_UNNUMBERED)
        deed = Deed(SYSTEM, ORG, "report:1", "report.looked_at")

        # Often, since one id in 32 is logged, which alone gives a transaction its number.
        for number in range(6):
            hf.store.write(lambda tx: record_actions(tx, [deed]))
            job = hf.enqueue("report.export", {"n": number}, org_id=ORG, idempotency_key="one")
        hf.worker().run_once()

        assert timeline(hf, job).count("job.duplicate_differs") == 5
        assert timeline(hf, job)[-1] == "job.succeeded"


def test_a_transaction_that_commits_late_is_still_sealed(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as late:
        hf.job("report.export")(lambda job, payload: None)
        early_id = hf.enqueue("report.export", {}, org_id=ORG, conn=late)
        hf.enqueue("report.export", {}, org_id=ORG)

        while_open = sum(seal_events(hf.store).events for _ in range(4))
        late.commit()
        afterwards = seal(hf)

        assert while_open == 0
        assert afterwards == 2
        assert verify_seals(hf.store, ORG) == []
        assert timeline(hf, early_id) == ["job.enqueued"]
        assert seals(hf, ORG)[0]["first_seq"] == 1
