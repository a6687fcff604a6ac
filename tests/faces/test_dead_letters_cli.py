"""holdfast dead-letters: every step of a recovery, and clear errors for everything else."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, State, UpstreamDown
from holdfast.clock import FakeClock, SystemClock
from holdfast.errors import Gone
from holdfast.secret import hide_passwords
from tests.engine.planting import plant
from tests.faces.conftest import Ran, Run
from tests.operate.letters import Review, die_at_once, work
from tests.story import ORG, OTHER_ORG, make_holdfast, seal_all

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"


@pytest.fixture
def review(hf: Holdfast) -> Review:
    return Review(hf)


class Shell:
    """``dead-letters`` commands on one database."""

    def __init__(self, run: Run, url: str) -> None:
        self.run = run
        self.url = url

    def __call__(self, *arguments: str, code: int = 0) -> Ran:
        ran = self.run("dead-letters", *arguments, db=self.url)
        assert ran.code == code, ran
        return ran

    def json(self, *arguments: str) -> Any:
        return self(*arguments, "--json").json


@pytest.fixture
def shell(run: Run, url: str) -> Shell:
    return Shell(run, url)


@pytest.mark.req("D-05", "D-12", "D-13", "D-14", "D-15", "D-16", "D-17", "D-18")
def test_the_whole_way_is_walked_by_command(
    hf: Holdfast, clock: FakeClock, review: Review, shell: Shell
) -> None:
    job = review.die(clock, UpstreamDown(status=503))
    (listed,) = shell.json("list")["dead_letters"]
    assert (listed["job_id"], listed["state"], listed["version"]) == (job.id, "open", 1)
    assert listed["sanitized_context"]["upstream_code"] == 503

    who = ("--actor", "user:ann", "--role", "operator", "--org", ORG)
    shown = shell("show", job.id, *who).out
    assert "UPSTREAM_DOWN" in shown
    assert "replay       offered: next step: triage" in shown
    said = shell("triage", job.id, "--kind", "transient", "--version", "1", *who).out
    assert "--done upstream_recovered" in said
    points = ("--done", "upstream_recovered", "--done", "capacity_verified")
    shell("remediate", job.id, *points, *who)
    shell("validate", job.id, "--evidence", "INC-7", "--safe-to-repeat", *who)
    made = shell.json("replay", job.id, "--reason", "the provider is back", *who)
    assert (made["number"], made["stage"], made["letter"]["state"]) == (1, "tell", "replaying")
    review.ran.clear()
    review.faults.clear()
    # The commands use the real clock; the worker must not end their work before it began.
    clock.advance(SystemClock().now() - clock.now())
    hf.worker().run_once()
    assert review.ran == ["tell"]
    assert hf.get(made["replay_job_id"], org_id=ORG).state is State.COMPLETED
    shell("verify", job.id, *who)
    shell("note", job.id, "Told the customer.", *who)
    shell("resolve", job.id, "--notes", "An outage of two hours.", *who)

    view = shell.json("show", job.id)
    assert (view["letter"]["state"], view["letter"]["ending"]) == (
        "resolved",
        "An outage of two hours.",
    )
    assert [note["body"] for note in view["notes"]] == ["Told the customer."]
    assert [item["outcome"] for item in view["replays"]] == ["completed"]
    assert {offer["is_offered"] for offer in view["plan"]["offers"]} == {False}
    assert shell.json("list")["dead_letters"] == []
    assert len(shell.json("list", "--all")["dead_letters"]) == 1
    seal_all(hf.store)
    checked = shell.run("verify", db=shell.url)
    assert checked.code == 0, checked.out


@pytest.mark.req("D-12")
def test_every_command_is_refused_while_the_one_before_it_is_missing(
    hf: Holdfast, clock: FakeClock, review: Review, shell: Shell
) -> None:
    job = review.die(clock, UpstreamDown())
    way = {
        "triage": ("--kind", "data"),
        "remediate": ("--done", "source_corrected"),
        "validate": ("--evidence", "INC-7", "--safe-to-repeat"),
        "replay": ("--reason", "mended"),
        "verify": (),
        "resolve": ("--notes", "done"),
    }
    for place, name in enumerate(way):
        for later in list(way)[place + 1 :]:
            said = shell(later, job.id, *way[later], code=1).err
            assert "ext step" in said, said
        shell(name, job.id, *way[name])
        if name == "replay":
            review.faults.clear()
            work(hf, clock)
    for name, options in way.items():
        assert "resolved, which is final" in shell(name, job.id, *options, code=1).err


def test_every_answer_can_be_had_as_json(
    hf: Holdfast, clock: FakeClock, review: Review, shell: Shell
) -> None:
    job = review.die(clock, UpstreamDown())

    assert shell.json("triage", job.id, "--kind", "data")["kind"] == "data"
    done = shell.json("remediate", job.id, "--done", "source_corrected")
    assert done["checklist"] == {"source_corrected": True}
    safe = shell.json("validate", job.id, "--evidence", "INC-7", "--safe-to-repeat")
    assert safe["is_safe_to_repeat"] is True
    shell.json("replay", job.id, "--reason", "x")
    review.faults.clear()
    work(hf, clock)
    assert shell.json("confirm", job.id)["verified_at"] is not None
    assert shell.json("verify", job.id)["verified_at"] is not None
    assert shell.json("note", job.id, "words")["body"] == "words"
    assert shell.json("resolve", job.id, "--notes", "x")["state"] == "resolved"
    one, other = die_at_once(hf, Gone(), count=2)
    assert shell.json("discard", one.id, "--reason", "x")["state"] == "discarded"
    fixed = shell.json("fix-forward", other.id, "--reason", "x", "--reference", "job 8")
    assert (fixed["state"], fixed["fixed_by"]) == ("fixed_forward", "job 8")


def test_a_bulk_shows_first_and_acts_then(hf: Holdfast, shell: Shell) -> None:
    jobs = die_at_once(hf, Gone(), count=3)
    asked = ("discard-all", "--type", "mail.send", "--reason", "the customer left")

    shown = shell(*asked, "--dry-run").out
    assert "3 fit, 3 ready, 3 would be done" in shown
    assert all(job.id in shown for job in jobs)
    assert len(shell.json("list")["dead_letters"]) == 3
    without_reason = shell("recover", "--type", "mail.send", "--kind", "data", "--dry-run")
    assert (without_reason.code, "3 fit" in without_reason.out) == (0, True), without_reason.err
    assert "--reason" in shell("recover", "--type", "mail.send", code=2).err
    assert shell.json(*asked)["done"] == 3
    assert "No dead letter fits" in shell(*asked, code=3).err


def test_a_bulk_replay_says_what_it_left_out(hf: Holdfast, shell: Shell) -> None:
    (ready, _) = die_at_once(hf, Gone(), count=2)
    shell("triage", ready.id, "--kind", "data")
    shell("remediate", ready.id, "--done", "source_corrected")
    shell("validate", ready.id, "--evidence", "INC-7", "--safe-to-repeat")

    said = shell("replay-all", "--error-class", "GONE", "--reason", "mended").out

    assert "2 fit, 1 ready, 1 done" in said
    assert "skipped 1: open, not validated" in said


def test_two_hundred_dead_letters_of_an_outage_are_one_command(hf: Holdfast, shell: Shell) -> None:
    die_at_once(hf, UpstreamDown(status=503), count=200)
    die_at_once(hf, Gone(), job_type="order.pay")
    asked = ("recover", "--error-class", "UPSTREAM_DOWN", "--reason", "the provider is back")

    shown = shell(*asked, "--since", "9000d", "--dry-run")
    assert "recover: 200 fit, 200 ready, 200 would be done" in shown.out
    done = shell(*asked)

    assert "recover: 200 fit, 200 ready, 200 done" in done.out
    assert "recover: 200 of 200" in done.err
    assert "repeat the command to resolve them" in done.out


@pytest.mark.parametrize("wait", [(), ("--wait", "5")])
def test_a_recovery_resolves_what_its_replays_completed(
    hf: Holdfast, clock: FakeClock, shell: Shell, wait: tuple[str, ...]
) -> None:
    is_down = [True]

    @hf.job("order.pay", max_attempts=1)
    def pay(job: Any, payload: Any) -> None:
        if is_down.pop():
            raise UpstreamDown()

    hf.enqueue("order.pay", {}, org_id=ORG)
    hf.worker().run_once()
    is_down.append(False)
    asked = ("recover", "--type", "order.pay", "--reason", "back")
    shell(*asked)
    # The commands use the real clock; the worker must not end their work before it began.
    clock.advance(SystemClock().now() - clock.now())
    hf.worker().run_once()

    done = shell(*asked, *wait, "--json").json

    assert (done["done"], done["replayed"]) == (1, 0)
    assert done.get("resolved") == (1 if wait else None)
    assert shell.json("list")["dead_letters"] == []


def test_a_step_takes_a_filter_in_place_of_an_id(hf: Holdfast, shell: Shell) -> None:
    die_at_once(hf, UpstreamDown(), count=3)
    mail, why = ("--type", "mail.send"), ("--reason", "INC-7")

    assert "3 done" in shell("triage", *mail, "--kind", "transient", *why).out
    points = ("--done", "upstream_recovered", "--done", "capacity_verified")
    assert "3 would be done" in shell("remediate", *mail, *points, *why, "--dry-run").out
    assert "3 done" in shell("remediate", *mail, *points, *why).out
    evidence = ("--evidence", "INC-7", "--safe-to-repeat")
    assert "3 done" in shell("validate", "--queue", "q:default", *evidence, *why).out
    assert "3 done" in shell("replay", "--error-class", "UPSTREAM_DOWN", *why).out
    assert "a replay is running" in shell("verify", *mail, *why, code=1).err
    assert "a replay is running" in shell("resolve", *mail, "--notes", "x", code=1).err
    assert "Nothing was done" in shell("discard", *mail, *why, code=1).err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("triage", "--kind", "data"), "Missing argument 'JOB_ID', or a filter"),
        (("verify", NOBODY, "--type", "x"), "not both"),
        (("triage", "--type", "x", "--kind", "data"), "Missing option '--reason'"),
        (("validate", "--type", "x", "--evidence", "e"), "--safe-to-repeat"),
        (("list", "--since", "yesterday"), "like 2h"),
    ],
)
def test_a_step_needs_an_id_or_a_filter(
    shell: Shell, arguments: tuple[str, ...], says: str
) -> None:
    assert says in shell(*arguments, code=2).err


def test_everything_needs_the_word_and_the_number(hf: Holdfast, shell: Shell) -> None:
    die_at_once(hf, Gone(), count=2)
    asked = ("discard-all", "--reason", "x")

    assert "would match everything" in shell(*asked, code=1).err
    assert "matches 2 dead letters" in shell(*asked, "--all", code=1).err
    assert "matches 2" in shell(*asked, "--all", "--confirm", "1", code=1).err
    assert "2 done" in shell(*asked, "--all", "--confirm", "2").out


def test_a_list_is_narrowed_and_paged(hf: Holdfast, clock: FakeClock, shell: Shell) -> None:
    die_at_once(hf, Gone(), count=2)
    clock.advance(hours=3)
    die_at_once(hf, UpstreamDown(), job_type="order.pay", org_id=OTHER_ORG)

    def count(*options: str) -> int:
        return len(shell.json("list", *options)["dead_letters"])

    assert count() == 3
    assert count("--type", "mail.send") == count("--error-class", "GONE") == 2
    assert count("--org", OTHER_ORG) == 1
    assert count("--state", "open", "--queue", "q:default", "--stage", "run") == 3
    assert count("--kind", "data") == 0
    first = shell.json("list", "--limit", "2")
    second = shell.json("list", "--limit", "2", "--before", first["next"])
    assert len(first["dead_letters"]) + len(second["dead_letters"]) == 3
    paged = shell("list", "--limit", "2").out
    db = hide_passwords(shell.url)
    more = f"holdfast --db {db} dead-letters list --limit 2 --before {first['next']}"
    assert f"More: {more}" in paged


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", NOBODY), 3),
        (("triage", NOBODY, "--kind", "data"), 3),
        (("discard", "not-an-id", "--reason", "x"), 2),
        (("triage", NOBODY), 2),
        (("triage", NOBODY, "--kind", "odd"), 2),
        (("replay", NOBODY), 2),
        (("list", "--limit", "0"), 2),
        (("list", "--state", "odd"), 2),
        (("list", "--older-than", "0"), 2),
        (("list", "--before", "x"), 1),
        (("discard-all", "--type", "mail.send"), 2),
        (("list", "--org", "not-an-id"), 2),
    ],
)
def test_wrong_usage_and_unknown_ids_are_distinguished(
    hf: Holdfast, shell: Shell, arguments: tuple[str, ...], code: int
) -> None:
    assert hf.store is not None
    assert shell(*arguments, code=code).err


def test_another_tenants_item_is_not_found(hf: Holdfast, shell: Shell) -> None:
    (job,) = die_at_once(hf, Gone())

    for arguments in (
        ("show", job.id),
        ("triage", job.id, "--kind", "data"),
        ("discard", job.id, "--reason", "x"),
    ):
        assert "not found" in shell(*arguments, "--org", OTHER_ORG, code=3).err


HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\r\n\x9b31m"


def test_hostile_text_in_a_store_moves_no_cursor(hf: Holdfast, shell: Shell) -> None:
    """A value of a manual change, an older version or a handler."""
    (job,) = die_at_once(hf, Gone())
    plant(
        hf,
        "UPDATE holdfast.dead_letter SET last_error = :bad, last_stack = :bad, stage = :bad,"
        " error_class = :bad, sanitized_context = CAST(:facts AS {json})",
        bad=HOSTILE,
        facts=json.dumps({HOSTILE: HOSTILE}),
    )
    plant(
        hf,
        "INSERT INTO holdfast.dead_letter_note"
        " (org_id, job_id, id, body, actor_type, actor_id, created_at)"
        " SELECT org_id, job_id, job_id, :bad, 'user', :bad, created_at FROM holdfast.dead_letter",
        bad=HOSTILE,
    )

    for arguments in (
        ("list",),
        ("show", job.id),
        ("discard-all", "--type", "mail.send", "--reason", "x", "--dry-run"),
        ("discard", job.id, "--reason", "x"),
    ):
        shown = shell(*arguments).out
        assert not set(shown) & set("\x1b\x07\r\x9b"), arguments
    shown = shell("show", job.id, "--json").out
    assert not set(shown) & set("\x1b\x07\r")


def test_a_restart_from_the_first_stage_is_asked_for_with_the_application(
    run: Run, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/cli.db"
    clock = FakeClock()
    with make_holdfast(url, clock) as hf:
        hf.job("break", max_attempts=1)(lambda job, payload: payload["missing"])
        job = hf.enqueue("break", {}, org_id=ORG)
        hf.worker().run_once()
        clock.advance(timedelta(hours=1))
    shell = Shell(run, url)
    shell("triage", job.id, "--kind", "defect")
    points = ("--done", "fix_deployed", "--done", "fix_validated_in_staging")
    shell("remediate", job.id, *points)
    shell("validate", job.id, "--evidence", "PR-3", "--safe-to-repeat")
    asked = ("dead-letters", "replay", job.id, "--reason", "fixed", "--full-restart")

    refused = run(*asked, db=url)
    made = run(*asked, "--json", db=url, app="tests.faces.app:hf")

    assert (refused.code, "--app" in refused.err) == (1, True)
    assert (made.code, made.json["stage"]) == (0, "run")
