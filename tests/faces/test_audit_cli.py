"""holdfast audit: query, verify, export and seal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.config import Settings
from tests.engine.planting import plant
from tests.faces.conftest import Run
from tests.story import ORG, OTHER_ORG, look


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


@pytest.fixture
def hf(url: str) -> Holdfast:
    made = Holdfast(settings=Settings(db=url))
    made.job("plain")(lambda job, payload: None)
    made.enqueue_many("plain", [{}, {}], org_id=ORG, actor="user:42", correlation_id="c-1")
    made.enqueue("plain", {}, org_id=OTHER_ORG, request_id="r")
    made.worker().run_once()
    return made


def test_events_are_listed_newest_first_by_any_filter(run: Run, url: str, hf: Holdfast) -> None:
    everything = run("audit", "list", "--json", db=url).json
    assert len(everything) == 9
    assert everything[0]["id"] > everything[-1]["id"]
    assert set(everything[0]) == {
        "id", "org_id", "project_id", "job_id", "job_type", "name", "attempt", "actor",
        "request_id", "correlation_id", "at", "detail",
    }  # fmt: skip
    job_id = everything[-1]["job_id"]

    def count(*asked: str) -> int:
        return len(run("audit", "list", "--json", *asked, db=url).json)

    assert count("--job", job_id) == 3
    assert count("--by", "user:42") == 2
    assert count("--correlation", "c-1") == 6
    assert count("--request", "r") == 3
    assert count("--name", "job.succeeded") == 3
    assert count("--org", OTHER_ORG) == 3
    assert count("--limit", "2") == 2
    assert count("--before", str(everything[4]["id"])) == 4
    assert count("--since", "2020-01-01T00:00:00Z", "--until", "2021-01-01T00:00:00+02:00") == 0
    shown = run("audit", "list", "--correlation", "c-1", db=url)
    assert shown.out.splitlines()[0].split()[:3] == ["id", "at", "name"]
    assert len(shown.out.splitlines()) == 7


def test_hostile_text_does_not_move_a_cursor(run: Run, url: str, hf: Holdfast) -> None:
    plant(hf, "UPDATE holdfast.audit_event SET actor_id = :evil", evil="\x1b[31mred\r\n\u202e")

    shown = run("audit", "list", db=url)

    assert "\\x1b[31mred" in shown.out
    assert "\x1b" not in shown.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "--since", "yesterday"], 2),
        (["list", "--since", "2026-01-05T09:00:00"], 2),
        (["list", "--limit", "0"], 2),
        (["list", "--org", "nobody"], 2),
        (["list", "--job", "0198c0de-0000-7000-8000-00000000beef"], 3),
        (["list", "--job", "no-id"], 2),
        (["list", "--name", ""], 1),
        (["list", "--role", "operator"], 1),
        (["list", "--role", "member", "--org", ORG], 1),
        (["verify", "--anchor", "x"], 2),
        (["verify", "--file", "nowhere.jsonl"], 2),
        (["export", "--to", "-", "--role", "operator", "--org", ORG], 1),
        (["export", "--to", "no/such/folder/file"], 1),
        (["export", "--to", "-", "--since", "2026-01-02T00:00:00Z", "--until",
          "2026-01-01T00:00:00Z"], 1),
        (["seal", "--org", ORG], 1),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(
    run: Run, url: str, hf: Holdfast, arguments: list[str], code: int
) -> None:
    ran = run("audit", *arguments, db=url)

    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err
    assert ran.err.strip()


def test_an_audit_that_was_tampered_with_exits_with_one(run: Run, url: str, hf: Holdfast) -> None:
    sealed = run("audit", "seal", "--json", db=url)
    assert (sealed.code, sealed.json) == (0, {"events": 9, "unsealed": 0, "is_whole": True})
    assert run("audit", "seal", db=url).out == "0 events sealed\n"
    sound = run("audit", "verify", db=url)
    assert (sound.code, sound.out) == (
        0,
        "the audit matches its seals (seals 2, sealed 9, unsealed 0)\n",
    )

    # The event of the first enqueue.
    plant(hf, "UPDATE holdfast.audit_event SET actor_id = 'eve' WHERE id = 1")

    found = run("audit", "verify", db=url)
    assert found.code == 1
    assert "seal 1: event 1 was edited or inserted" in found.out
    assert "seal 1 event number 1: the event was edited or deleted" in found.out
    assert found.out.splitlines()[-1].startswith("2 differences from the sealed audit (")
    assert run("audit", "verify", "--org", OTHER_ORG, db=url).code == 0
    told = run("audit", "verify", "--json", db=url)
    assert (told.code, told.json["tampered"], len(told.json["problems"])) == (1, 2, 2)
    assert told.json["problems"][0]["org_id"] == ORG


def test_a_stored_head_detects_a_truncated_chain(run: Run, url: str, hf: Holdfast) -> None:
    run("audit", "seal", db=url)
    (seal,) = look(
        hf.store,
        "SELECT number, digest FROM holdfast.audit_seal WHERE org_id = :org_id",
        org_id=ORG,
    )
    anchor = f"{ORG}:{seal['number']}:{seal['digest']}"

    assert run("audit", "verify", "--anchor", anchor, db=url).code == 0
    ran = run("audit", "verify", "--anchor", anchor.replace(":1:", ":2:"), db=url)
    assert ran.code == 1
    assert "the chain was truncated" in ran.out


def test_an_export_is_written_once_and_checked_without_the_database(
    run: Run, url: str, hf: Holdfast, tmp_path: Path
) -> None:
    run("audit", "seal", db=url)
    target = tmp_path / "audit.jsonl"

    made = run("audit", "export", "--to", str(target), db=url)

    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert (made.code, made.out) == (0, f"{target}  {len(rows)} lines\n")
    assert rows[-1] == {"type": "end", "events": 10, "seals": 2, "unsealed": 1}
    again = run("audit", "export", "--to", str(target), db=url)
    assert (again.code, again.err.strip()) == (
        1,
        f"Error: {target} cannot be written: File exists.",
    )
    assert len(target.read_text().splitlines()) == len(rows)

    # On another machine, which has no such database.
    checked = run("audit", "verify", "--file", str(target), db="sqlite:////nowhere/work.db")
    assert (checked.code, checked.out) == (0, f"the audit matches its seals (file {target})\n")
    target.write_text(target.read_text().replace('"actor_id":"42"', '"actor_id":"43"'))
    forged = run("audit", "verify", "--file", str(target), db="sqlite:////nowhere/work.db")
    assert forged.code == 1
    assert "was edited or inserted" in forged.out
    target.write_text("hello\n")
    assert run("audit", "verify", "--file", str(target), db=url).code == 1


def test_an_export_to_standard_output_is_the_same_lines(run: Run, url: str, hf: Holdfast) -> None:
    ran = run("audit", "export", "--to", "-", "--org", OTHER_ORG, db=url)

    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, rows[0]["org_id"], rows[-1]["events"]) == (0, OTHER_ORG, 4)
