"""Artifacts of a running job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Access,
    Actor,
    ActorType,
    Artifact,
    ArtifactState,
    ConfigError,
    FakeClock,
    Holdfast,
    LeaseLost,
    State,
    Worker,
)
from holdfast.artifacts.artifact import Kind
from holdfast.document import decode
from holdfast.engine.context import CancelToken, Context
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.reference import with_refs
from tests.artifact.conftest import Bytes
from tests.story import ORG, OTHER_ORG, claim, events, look, timeline

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"


def put(hf: Holdfast, **options: Any) -> Artifact:
    given = {"org_id": ORG, "name": "in.csv", "owner": "user:42", **options}
    return hf.artifacts.put(b"a,b\n1,2\n", **given)


def run(hf: Holdfast, job_type: str, payload: Any = None, **options: Any) -> Any:
    job = hf.enqueue(job_type, payload or {}, org_id=ORG, actor="user:42", **options)
    hf.worker().run_once()
    return hf.get(job.id, org_id=ORG)


@pytest.mark.req("Q-10", "Q-11")
def test_an_export_reads_its_input_and_stores_its_output_for_the_caller(shop: Holdfast) -> None:
    given = put(shop)

    @shop.job("report.export", category="export")
    def export(job: Context, payload: dict[str, Any]) -> Any:
        with job.artifacts.open(payload["file"]) as file:
            text = file.read().upper()
        return {"report": job.artifacts.put(text, name="out.csv", media_type="text/csv")}

    job = run(shop, "report.export", {"file": given.ref})

    (output,) = shop.artifacts.list(ORG, job_id=job.id)
    assert job.state is State.COMPLETED
    assert job.result == {"report": output.ref}
    assert (output.kind, output.stage, output.job_id) == (Kind.OUTPUT, "run", job.id)
    assert output.owner == Actor(ActorType.USER, "42")
    with shop.artifacts.open(output.id, org_id=ORG) as file:
        assert file.read() == b"A,B\n1,2\n"
    assert timeline(shop, job) == [
        "job.enqueued", "job.started", "artifact.stored", "job.succeeded",
    ]  # fmt: skip
    stored = events(shop, job)[2]
    assert (stored["job_type"], stored["attempt"]) == ("report.export", 1)
    assert decode(stored["detail"]) == {
        "artifact_id": output.id, "kind": "output", "stage": "run", "bytes": 8,
        "sha256": output.sha256,
    }  # fmt: skip


@pytest.mark.req("Q-08")
@pytest.mark.parametrize("shape", ["one", "list", "tuple", "deep", "reference"])
def test_a_result_refers_to_artifacts_however_the_handler_returns_them(
    hf: Holdfast, shape: str
) -> None:
    @hf.job("plan.scan", category="planning")
    def scan(job: Context, payload: object) -> Any:
        made = job.artifacts.put(b"{}", name="proposals.json", media_type="application/json")
        shapes: dict[str, Any] = {
            "one": made,
            "list": [made, made],
            "tuple": (made,),
            "deep": {"of": [{"this": made}], "score": 1},
            "reference": made.ref,
        }
        return shapes[shape]

    job = run(hf, "plan.scan")

    (made,) = hf.artifacts.list(ORG, job_id=job.id)
    assert job.state is State.COMPLETED, job.last_error
    assert job.result == {
        "one": made.ref,
        "list": [made.ref, made.ref],
        "tuple": [made.ref],
        "deep": {"of": [{"this": made.ref}], "score": 1},
        "reference": made.ref,
    }[shape]  # fmt: skip
    # The reviewer of the plan opens it by the id in the result.
    with hf.artifacts.open(made.ref, org_id=ORG, actor="user:43") as file:
        assert file.read() == b"{}"


def test_an_endlessly_nested_result_is_refused_and_not_searched_without_limit() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert with_refs(endless) is not None


def test_a_stage_that_is_async_stores_from_a_thread(hf: Holdfast) -> None:
    @hf.job("report.export", category="export")
    async def export(job: Context, payload: object) -> Any:
        return await asyncio.to_thread(job.artifacts.put, b"x", name="x")

    assert run(hf, "report.export").state is State.COMPLETED


# -- the lease


@pytest.mark.req("Q-11", "I-15")
@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_worker_that_lost_its_lease_stores_nothing_and_the_other_one_does(
    shop: Holdfast, clock: FakeClock, lying: Bytes, moment: str
) -> None:
    shop.job("report.export")(lambda job, payload: None)
    job = shop.enqueue("report.export", {}, org_id=ORG)
    (slow,) = claim(shop, worker="slow")

    def lose() -> Any:
        clock.advance(seconds=61)
        rescue_jobs(shop.store, limit=1)
        return claim(shop, worker="quick")[0]

    taken: list[Any] = []

    def content() -> Iterator[bytes]:
        if moment == "during":
            taken.append(lose())
        yield b"from the slow one"

    if moment == "before":
        taken.append(lose())
    with pytest.raises(LeaseLost):
        Context(slow, shop.store, CancelToken(), find_extension=shop.extensions.get).artifacts.put(
            content(), name="out.csv"
        )
    nothing = (lying.all(), shop.artifacts.list(ORG, job_id=job.id))
    quick = Context(taken[0], shop.store, CancelToken(), find_extension=shop.extensions.get)
    stored = quick.artifacts.put(b"from the quick one", name="out.csv")

    assert nothing == ([], [])
    assert shop.artifacts.list(ORG, job_id=job.id) == [stored]
    assert lying.all() == [stored.place]


def test_a_canceled_job_stops_between_two_chunks_and_leaves_nothing(
    shop: Holdfast, lying: Bytes
) -> None:
    given: list[int] = []

    @shop.job("report.export")
    def export(job: Context, payload: object) -> Any:
        def content() -> Iterator[bytes]:
            for number in range(100):
                given.append(number)
                if number == 3:
                    shop.cancel(job.id, org_id=ORG, reason="enough")
                    # As the lease renewer of the worker does when it reads the request.
                    job.token.set()
                yield bytes(1000)

        return job.artifacts.put(content(), name="out.csv")

    job = run(shop, "report.export")

    assert job.state is State.CANCELED
    assert given == [0, 1, 2, 3]
    assert lying.all() == []


def test_an_attempt_that_fails_after_storing_leaves_what_it_stored_with_the_job(
    hf: Holdfast, clock: FakeClock
) -> None:
    attempts: list[str] = []

    @hf.job("report.export", category="export")
    def export(job: Context, payload: object) -> Any:
        made = job.artifacts.put(b"x", name=f"attempt {job.attempt}")
        attempts.append(made.id)
        if job.attempt == 1:
            raise TimeoutError
        return made

    job = hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(hours=1)
    hf.worker().run_once()

    assert hf.get(job.id, org_id=ORG).result == f"artifact:{attempts[1]}"
    assert [made.id for made in hf.artifacts.list(ORG, job_id=job.id)] == attempts[::-1]


# -- reading


def outcome(hf: Holdfast, given: str) -> tuple[State, str | None]:
    @hf.job("file.read")
    def read(job: Context, payload: dict[str, Any]) -> Any:
        with job.artifacts.open(payload["file"]) as file:
            return len(file.read())

    job = run(hf, "file.read", {"file": given})
    return job.state, job.error_class


@pytest.mark.req("Q-11", "X-01")
def test_a_job_reads_only_what_its_tenant_and_its_actor_may(hf: Holdfast) -> None:
    theirs = put(hf, org_id=OTHER_ORG)

    assert outcome(hf, theirs.ref) == (State.FAILED, "GONE")


@pytest.mark.parametrize(("owner", "end"), [("user:42", "completed"), ("user:43", "failed")])
def test_a_private_artifact_is_read_by_jobs_of_its_owner(
    hf: Holdfast, owner: str, end: str
) -> None:
    private = put(hf, owner=owner, access=Access.OWNER)

    assert outcome(hf, private.ref)[0] == end


def test_a_job_reads_its_own_artifacts_of_every_owner(hf: Holdfast) -> None:
    @hf.job("file.read")
    def read(job: Context, payload: object) -> Any:
        (mine,) = hf.artifacts.list(ORG, job_id=job.id, is_operator=True)
        with job.artifacts.open(mine.id) as file:
            return len(file.read())

    job = hf.enqueue("file.read", {}, org_id=ORG)
    put(hf, owner="user:7", access=Access.OWNER, job_id=job.id)
    hf.worker().run_once()

    assert hf.get(job.id, org_id=ORG).result == 8


@pytest.mark.req("Q-10")
def test_an_input_whose_bytes_changed_is_dead_lettered_at_once(
    shop: Holdfast, lying: Bytes
) -> None:
    given = put(shop)
    lying.overwrite(given, b"a,b\n1,3\n")

    assert outcome(shop, given.ref) == (State.FAILED, "CHECKSUM_MISMATCH")


@pytest.mark.parametrize(
    ("name", "error_class"), [("../x", "SCHEMA_INVALID"), ("x" * 300, "SCHEMA_INVALID")]
)
def test_a_bad_request_of_a_handler_is_no_defect(hf: Holdfast, name: str, error_class: str) -> None:
    @hf.job("report.export")
    def export(job: Context, payload: object) -> Any:
        job.artifacts.put(b"x", name=name)

    assert run(hf, "report.export").error_class == error_class


def test_a_worker_that_was_made_by_hand_says_what_it_lacks(hf: Holdfast) -> None:
    hf.job("report.export")(lambda job, payload: job.artifacts.put(b"x", name="x"))
    job = hf.enqueue("report.export", {}, org_id=ORG)
    (taken,) = claim(hf)

    with pytest.raises(ConfigError, match=r"hf\.worker\(\)"):
        _ = Context(taken, hf.store, CancelToken()).artifacts
    Worker(hf.store, hf.registry, settings=hf.settings).run_once()

    assert hf.get(job.id, org_id=ORG).state is State.PROCESSING


# -- references that must hold


@pytest.mark.req("Q-08")
def test_missing_references_are_those_that_are_not_stored_for_this_job(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("plan.scan")(lambda job, payload: None)
    job, other = (hf.enqueue("plan.scan", {}, org_id=ORG) for _ in range(2))
    mine = put(hf, job_id=job.id)
    of_another_job, of_no_job = put(hf, job_id=other.id), put(hf)
    short = put(hf, job_id=job.id, keep=timedelta(minutes=1))
    gone = put(hf, job_id=job.id)
    hf.artifacts.remove(gone.id, org_id=ORG, actor="user:42", reason="x")
    clock.advance(minutes=2)
    refs = [mine.ref, of_another_job.ref, of_no_job.ref, short.ref, gone.ref, f"artifact:{NOBODY}"]

    missing = hf.artifacts.find_missing(hf.store, ORG, refs, job_id=job.id)

    assert missing == refs[1:]
    of_tenant = hf.artifacts.find_missing(hf.store, ORG, refs)
    assert of_tenant == [short.ref, gone.ref, f"artifact:{NOBODY}"]
    foreign = hf.artifacts.find_missing(hf.store, OTHER_ORG, [mine.ref], job_id=job.id)
    assert foreign == [mine.ref]
    assert hf.artifacts.find_missing(hf.store, ORG, [], job_id=job.id) == []


# -- the worker's own pass


def test_a_worker_ends_artifacts_by_itself(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = put(hf, keep=timedelta(hours=1))
    clock.advance(hours=2)
    done = threading.Event()
    (chore,) = hf.registry.chores

    def watched() -> None:
        chore.work()
        done.set()

    monkeypatch.setattr(hf.registry, "chores", [replace(chore, seconds=0.01, work=watched)])
    worker = hf.worker(queues=["q:default"])
    thread = threading.Thread(target=worker.run)
    thread.start()
    passed = done.wait(20)
    worker.drain()
    thread.join(20)

    assert passed
    assert hf.artifacts.get(artifact.id, org_id=ORG).state is ArtifactState.REMOVED
    assert look(hf.store, "SELECT erase_at FROM holdfast.artifact")[0]["erase_at"] is None
