"""holdfast verify: its output and exit codes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from holdfast import Enqueued, Holdfast
from tests.engine.planting import plant
from tests.faces.conftest import Run
from tests.story import ORG, OTHER_ORG


@dataclass(frozen=True)
class Few:
    """A store of a few jobs."""

    done: Enqueued
    waiting: Enqueued
    others: Enqueued


@pytest.fixture
def few(hf: Holdfast) -> Few:
    hf.job("plain")(lambda job, payload: None)
    done = hf.enqueue("plain", {}, org_id=ORG)
    hf.worker().run_once()
    return Few(
        done,
        hf.enqueue("plain", {}, org_id=ORG),
        hf.enqueue("plain", {}, org_id=OTHER_ORG),
    )


def test_a_sound_store_exits_with_zero(run: Run, url: str, few: Few) -> None:
    told = run("verify", db=url)

    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(r"ok: \d+ checks, no violations\n", told.out)
    assert "I4   ok" in run("verify", "-v", db=url).out


def test_a_violated_invariant_exits_with_one(run: Run, url: str, hf: Holdfast, few: Few) -> None:
    plant(hf, "UPDATE holdfast.job_outcome SET lease_token = 9")
    plant(hf, "UPDATE holdfast.job_envelope SET actor_id = 'x' WHERE id = :id", id=few.done.id)

    told = run("verify", "--shown", "1", db=url)
    as_json = run("verify", "--json", db=url)

    assert told.code == as_json.code == 1
    assert f"job:{few.done.id} of {ORG}: changed since it was enqueued" in told.out
    assert " more\n" in told.out
    assert as_json.json["violated"] >= 2
    by_id = {check["id"]: check for check in as_json.json["checks"]}
    assert by_id["I9"]["status"] == "violated"
    assert by_id["I9"]["violations"] == 1
    assert by_id["I9"]["first"] == [
        {
            "org_id": ORG,
            "subject": f"job:{few.done.id}",
            "detail": "changed since it was enqueued: actor",
        }
    ]
    assert by_id["I4"] == {
        "id": "I4",
        "name": by_id["I4"]["name"],
        "status": "ok",
        "why": None,
        "violations": 0,
        "first": [],
    }


def test_one_tenant_sees_its_own_violations(run: Run, url: str, hf: Holdfast, few: Few) -> None:
    plant(hf, "UPDATE holdfast.job_ready SET lease_token = 9 WHERE job_id = :id", id=few.others.id)

    ours = run("verify", "--only", "I4", "--org", ORG, "--role", "operator", db=url)
    theirs = run("verify", "--only", "I4", "--org", OTHER_ORG, "--role", "operator", db=url)
    all_of_them = run("verify", "--only", "I4", "--role", "operator", db=url)

    assert (ours.code, theirs.code) == (0, 1)
    assert few.others.id in theirs.out
    assert all_of_them.code == 1
    assert "Only an admin verifies every tenant" in all_of_them.err


def test_a_hostile_text_moves_no_cursor(run: Run, url: str, hf: Holdfast, few: Few) -> None:
    plant(
        hf, "UPDATE holdfast.job_outcome SET state = :state WHERE job_id = :id",
        id=few.done.id, state="\x1b[2Jgone",
    )  # fmt: skip

    told = run("verify", "--only", "I1", db=url)

    assert told.code == 1
    assert "\x1b" not in told.out
    assert "\\x1b[2Jgone" in told.out


def test_a_wrong_name_is_refused(run: Run, url: str, hf: Holdfast) -> None:
    told = run("verify", "--only", "I4,I99", db=url)

    assert told.code == 3
    assert "There is no check 'I99'" in told.err
