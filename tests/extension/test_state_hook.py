"""The hook: statements of an extension run in the transaction in which a job reaches a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import ConfigError, Transient
from holdfast.extension import Extension
from holdfast.store import Statement, StateStatement, Tx
from tests.story import ORG, by_hand, claim, look

FOLLOW = Statement(
    "follow",
    "affected",
    "",
    "INSERT INTO followed (job_id, state)"
    " SELECT CAST(jobs.job_id AS text), jobs.state FROM {rows jobs: job_id uuid, state text}",
    frozenset({"jobs"}),
)


class Follower(Extension):
    name = "follower"

    def state_statements(self) -> Sequence[StateStatement]:
        return (StateStatement(frozenset({"mail.send"}), FOLLOW),)


@pytest.fixture
def following(hf: Holdfast) -> Iterator[Holdfast]:
    by_hand(
        hf.store,
        "CREATE TABLE followed (job_id text NOT NULL, state text NOT NULL CHECK (state <> 'bad'))",
    )
    hf.add_extension(Follower())

    @hf.job("mail.send", max_attempts=2)
    def send(job: Context, payload: dict[str, Any]) -> None:
        if payload.get("fails"):
            raise Transient("later")

    hf.job("mail.read")(lambda job, payload: None)
    return hf


def states(hf: Holdfast) -> list[str]:
    return [row["state"] for row in look(hf.store, "SELECT state FROM followed")]


def test_a_declared_job_is_followed_from_its_claim_to_its_end(following: Holdfast) -> None:
    following.enqueue("mail.send", {}, org_id=ORG)
    following.enqueue("mail.read", {}, org_id=ORG)

    following.worker().run(until_idle=True)

    assert states(following) == ["processing", "completed"]


def test_retries_and_dead_letters_are_followed(following: Holdfast, clock: FakeClock) -> None:
    following.enqueue("mail.send", {"fails": True}, org_id=ORG)

    for _ in range(2):
        following.worker().run_once()
        clock.advance(hours=1)

    assert states(following) == ["processing", "queued", "processing", "failed"]


def test_cancel_and_rescue_are_followed(following: Holdfast, clock: FakeClock) -> None:
    job = following.enqueue("mail.send", {}, org_id=ORG)
    claim(following)
    clock.advance(minutes=5)

    rescue_jobs(following.store, limit=10)
    following.cancel(job.id, org_id=ORG)

    assert states(following) == ["processing", "queued", "canceled"]


def test_a_group_is_followed_by_one_statement(
    following: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    affected = Tx.affected

    def count(tx: Any, statement: Statement, /, **params: Any) -> int:
        if statement is FOLLOW:
            sizes.append(len(params["jobs"]))
        return affected(tx, statement, **params)

    monkeypatch.setattr(Tx, "affected", count)
    following.enqueue_many("mail.send", [{}, {}, {}], org_id=ORG)

    claim(following, limit=3)

    assert sizes == [3]


def test_what_the_statement_refuses_is_not_recorded(following: Holdfast) -> None:
    bad = replace(FOLLOW, raw=FOLLOW.raw.replace("jobs.state FROM", "'bad' FROM"))
    done = StateStatement(frozenset({"mail.send"}), bad, frozenset({"completed"}))
    worker = following.worker()
    following.store.state_statements = (done,)
    job = following.enqueue("mail.send", {}, org_id=ORG)

    worker.run(until_idle=True)

    found = following.get(job.id, org_id=ORG)
    assert (str(found.state), found.error_class) == ("failed", "ROW_INVALID")


def test_a_statement_with_other_parameters_is_refused() -> None:
    single = Statement("one", "affected", "", "DELETE FROM followed WHERE x = :x", frozenset())

    with pytest.raises(ConfigError, match=r"'one' must take \{rows jobs: …\} and no other"):
        StateStatement(frozenset({"mail.send"}), single)
