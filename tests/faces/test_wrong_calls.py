"""A wrong call raises a HoldfastError that names the mistake, and stores nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, HoldfastError, InvalidArgument, Tenant
from holdfast.artifacts.artifacts import Artifacts
from holdfast.engine.bounded_run import Runs
from holdfast.engine.limits import Queues
from holdfast.engine.pipeline import Pipeline
from holdfast.job_lookup import JobLookup
from holdfast.operate import nouns
from holdfast.operate.operator import Operator
from holdfast.operate.verify.run import SQL as VERIFY
from holdfast.outbox.in_app import Feed
from holdfast.outbox.outbox import Outbox
from holdfast_review.reviews import Reviews
from holdfast_rewrite import Rewrites
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.rewrites import RewriteDesk
from tests.faces.conftest import APP, Run
from tests.faces.wrong_calls import BY_NAME, JUNK, NOT_AN_ACTOR, Call, World
from tests.story import ORG, look

NOUNS = [nouns.find(name) or object for name in nouns.names()]
CLASSES: tuple[type, ...] = (
    Holdfast, Tenant, Queues, Runs, Operator, *NOUNS, Outbox, Feed, Artifacts, Rewrites,
    RewriteDesk, SqlDirectory, Reviews, Pipeline, FakeClock,
)  # fmt: skip
# Without an argument that could be wrong, or internal to Holdfast.
EXEMPT = {
    # They raise ConfigError, or are called by Holdfast itself.
    *("Holdfast.add_extension", "Holdfast.extension", "Holdfast.open_components"),
    *("Reviews.install", "Rewrites.install"),
    # Called by the handles of jobs.
    "Holdfast.wait_result", "Holdfast.await_result",
    "Holdfast.close", "Holdfast.announce", "Holdfast.declared_steps", "Queues.rules",
    "Queues.waiting", "Queues.tenants", "Queues.keys", "SealedAudit.seal",
    "Batches.remaining", "Batches.outstanding",
    "Outbox.declare", "Outbox.use", "Outbox.enlist", "Outbox.emit_events",
    "Outbox.post_in", "Outbox.tell_posted",
    "Artifacts.find_missing", "Artifacts.for_job", "Artifacts.install", "Artifacts.maintenance",
    "Holdfast.add_extension", "Holdfast.extension", "Holdfast.open_components",
    "Reviews.install", "Rewrites.install",
    "FakeClock.now", "FakeClock.monotonic", "FakeClock.wait",
}  # fmt: skip
# The audit of a refusal; nothing else is stored.
ON_RECORD = "('operator.refused', 'run.refused')"


@pytest.fixture
def world(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    made = World(url, clock, str(tmp_path / "artifacts"))
    yield made
    made.hf.close()


def test_every_public_method_is_called_wrongly_here(world: World) -> None:
    public = {
        f"{kind.__name__}.{name}"
        for kind in CLASSES
        for name, found in {**(vars(JobLookup) if kind is Holdfast else {}), **vars(kind)}.items()
        if inspect.isfunction(found) and not name.startswith("_")
    }

    assert public - {call.of for call in world.calls()} == EXEMPT


# One loop for all: a new loop for each takes a tenth of a second.
LOOP = asyncio.Runner()


def attempt(call: Call, arguments: dict[str, Any]) -> HoldfastError | None:
    """The error of a call; None if it succeeded. Anything but a HoldfastError is raised."""
    try:
        found = call.make(**arguments)
        if inspect.iscoroutine(found):
            found = LOOP.run(found)
        if inspect.isgenerator(found):
            list(found)
    except HoldfastError as exc:
        return exc
    return None


def written(world: World) -> dict[str, int]:
    """The number of rows by table; those about refusals are separate."""
    names = [row["name"] for row in look(world.hf.store, VERIFY.list_tables.raw)]
    apart = {"audit_event": f" WHERE name NOT IN {ON_RECORD}"}
    each = (
        f"SELECT '{name}' AS name, count(*) AS n FROM holdfast.{name}{apart.get(name, '')}"
        for name in names
    )
    return {row["name"]: int(row["n"]) for row in look(world.hf.store, " UNION ALL ".join(each))}


def test_junk_never_raises_anything_but_a_holdfast_error(world: World) -> None:
    raised = []
    for call in world.calls():
        for name in call.right:
            for value in JUNK:
                try:
                    error = attempt(call, {**call.right, name: value})
                except Exception as exc:
                    raised.append(f"{call.of}({name}={value!r:.40}): {type(exc).__name__}: {exc}")
                else:
                    assert error is None or len(str(error)) < 1_000, (call.of, name)

    assert raised == []


@pytest.mark.req("J-36")
def test_what_is_wrong_is_refused_and_nothing_is_written(world: World) -> None:
    accepted = []
    before = written(world)
    for call in world.calls():
        for name in call.right:
            for value in call.wrong.get(name, BY_NAME.get(name, ())):
                if attempt(call, {**call.right, name: value}) is None:
                    accepted.append(f"{call.of}({name}={value!r:.40})")
        assert written(world) == before, call.of

    assert accepted == []


def test_what_is_missing_or_too_much_is_refused_too(world: World) -> None:
    hf: Any = world.hf
    for wrong in (
        lambda: hf.get(world.job.id),
        lambda: hf.get(world.job.id, ORG),
        lambda: hf.cancel(world.job.id, org_id=ORG, colour="red"),
        lambda: hf.operate(actor="user:1"),
        lambda: hf.worker(colour="red"),
        lambda: hf.outbox.find(),
        lambda: hf.job("x.y", colour="red")(lambda job, payload: None),
    ):
        with pytest.raises(HoldfastError):
            wrong()


@pytest.mark.req("J-36")
@pytest.mark.parametrize("actor", [each for each in NOT_AN_ACTOR if isinstance(each, str)])
def test_an_actor_type_is_one_of_three_words(world: World, actor: str) -> None:
    calls: list[Any] = [
        lambda: world.hf.cancel(world.job.id, org_id=ORG, actor=actor),
        lambda: world.hf.operate(actor=actor, role="admin"),
        lambda: world.hf.enqueue("work", {}, org_id=ORG, actor=actor),
        lambda: world.hf.runs.trigger("x", actor=actor, role="admin", reason="r"),
        lambda: world.hf.outbox.erase("r", org_id=ORG, actor=actor),
        lambda: world.hf.artifacts.put(b"x", org_id=ORG, name="a", owner=actor),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert list(caught.value.fields) in (["actor"], ["owner"])


COMMANDS = [
    ["enqueue", "greet", "{}", "--org", ORG],
    ["jobs", "cancel", ORG, "--reason", "r"],
    ["queues", "pause", "q:exports", "--reason", "r"],
    ["schedules", "pause", "x", "--reason", "r"],
    ["dead-letters", "list"],
    ["artifacts", "link", ORG],
    ["rewrite", "show", ORG],
]


@pytest.mark.req("J-36")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_the_commands_refuse_such_an_actor_as_wrong_usage(
    run: Run, url: str, command: list[str]
) -> None:
    done = run(*command, "--actor", "robot:7", db=url, app=APP)

    assert done.code == 2
    assert "--actor" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "command",
    [
        ["enqueue", "greet", "{}", "--org", "non sense"],
        ["jobs", "show", "non sense"],
        ["jobs", "cancel", "non sense", "--reason", "r"],
        ["jobs", "cancel", ORG, "--reason", "r", "--org", "non sense"],
        ["dead-letters", "list", "--org", "non sense"],
        ["queues", "tenant", "non sense", "--weight", "2"],
        ["rewrite", "show", "non sense"],
        ["rewrite", "erase", "--user", "non sense", "--reason", "r"],
        ["runs", "show", "non sense"],
        ["artifacts", "show", "non sense"],
        ["explain", "non sense"],
        ["costs", "--org", "non sense"],
        ["audit", "list", "--org", "non sense"],
        ["deliveries", "show", "non sense"],
        ["batches", "show", "non sense"],
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_the_commands_refuse_malformed_ids_with_a_sentence(
    run: Run, url: str, command: list[str]
) -> None:
    done = run(*command, db=url, app=APP)

    assert done.code in (1, 2, 3)
    assert done.err.strip()
    assert "Traceback" not in done.err
