"""Database constraints of artifacts, with any SQL."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Artifact, ArtifactState, Holdfast
from holdfast.artifacts.artifact import place_of
from holdfast.errors import RuleBroken
from tests.story import ORG, by_hand, look

ID = "0198c0de-0000-7000-8000-00000000abcd"
SHA = "ab" * 32
STORED = "state = 'stored', stored_at = created_at"


def put(hf: Holdfast) -> Artifact:
    return hf.artifacts.put(b"x", org_id=ORG, name="x")


def insert(hf: Holdfast, **changes: Any) -> None:
    row = {
        "org_id": ORG, "id": ID, "stage": "", "kind": "input", "name": "x", "media_type": "a/b",
        "access": "tenant", "owner_type": "user", "owner_id": "1", "place": place_of(ID),
        "created_at": "2026-01-05T09:00:00.000Z", "expires_at": "2026-02-05T09:00:00.000Z",
        "state": "writing", **changes,
    }  # fmt: skip
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    by_hand(hf.store, f"INSERT INTO holdfast.artifact ({names}) VALUES ({values})", **row)


def update(hf: Holdfast, change: str, where: str = "TRUE") -> None:
    by_hand(hf.store, f"UPDATE holdfast.artifact SET {change} WHERE {where}")


def test_the_row_that_the_rules_allow_goes_in(hf: Holdfast) -> None:
    insert(hf)
    update(hf, f"state = 'stored', bytes = 1, sha256 = '{SHA}', stored_at = created_at")

    assert len(look(hf.store, "SELECT * FROM holdfast.artifact")) == 1


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("artifact_begins_writing", {"state": "stored", "bytes": 1, "sha256": SHA,
                                     "stored_at": "2026-01-05T09:00:00.000Z"}),
        ("artifact_kind_known", {"kind": "side"}),
        ("artifact_access_known", {"access": "world"}),
        ("artifact_owner_known", {"owner_type": "god"}),
        ("artifact_name_bounded", {"name": ""}),
        ("artifact_name_bounded", {"name": "x" * 256}),
        ("artifact_place_is_its_id", {"place": "../../etc/passwd"}),
        ("artifact_place_is_its_id", {"place": place_of(ORG)}),
        ("artifact_stored_iff_measured", {"bytes": 1}),
        ("artifact_stored_iff_measured", {"bytes": 1, "sha256": SHA,
                                          "stored_at": "2026-01-05T09:00:00.000Z"}),
        ("artifact_removed_iff_time", {"removed_at": "2026-01-05T09:00:00.000Z"}),
        ("artifact_erased_only_if_removed", {"erase_at": "2026-01-05T09:00:00.000Z"}),
        ("artifact_expires_later", {"expires_at": "2026-01-05T09:00:00.000Z"}),
    ],
)  # fmt: skip
def test_a_row_that_breaks_a_rule_is_refused(
    hf: Holdfast, rule: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(RuleBroken) as refused:
        insert(hf, **changes)

    assert refused.value.rule == rule


@pytest.mark.req("Q-10")
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("artifact_state_known", "state = 'lost'"),
        ("artifact_measure_is_sound", f"{STORED}, bytes = -1, sha256 = '{SHA}'"),
        ("artifact_measure_is_sound", f"{STORED}, bytes = 1, sha256 = '{SHA.upper()}'"),
        ("artifact_measure_is_sound", f"{STORED}, bytes = 1, sha256 = 'ab'"),
        ("artifact_stored_iff_measured", "state = 'stored'"),
        ("artifact_removed_iff_time", "state = 'removed'"),
    ],
)  # fmt: skip
def test_a_writing_artifact_is_not_ended_by_half(hf: Holdfast, rule: str, change: str) -> None:
    insert(hf)

    with pytest.raises(RuleBroken) as refused:
        update(hf, change)

    # An unknown state breaks the transition rule as well; the database chooses which of the two it
    # reports.
    assert refused.value.rule in (rule, "artifact_edge")


@pytest.mark.req("Q-10")
@pytest.mark.parametrize(
    "change",
    [
        f"sha256 = '{SHA}'", "sha256 = NULL, bytes = NULL, stored_at = NULL", "bytes = 7",
        "stored_at = expires_at", "place = 'x'", f"place = '{place_of(ID)}', id = '{ID}'",
        f"org_id = '{ID}'", f"job_id = '{ID}'", "name = 'y'", "media_type = 'text/html'",
        "kind = 'output'", "access = 'owner'", "owner_id = '7'", "owner_type = 'user'",
        "stage = 'x'", "created_at = '2026-01-05T08:00:00.000Z'",
    ],
)  # fmt: skip
def test_what_is_stored_never_changes(hf: Holdfast, change: str) -> None:
    artifact = put(hf)

    with pytest.raises(RuleBroken) as refused:
        update(hf, change)

    assert refused.value.rule in (
        "artifact_write_once", "artifact_place_is_its_id", "artifact_stored_iff_measured",
    )  # fmt: skip
    assert hf.artifacts.get(artifact.id, org_id=ORG) == artifact


@pytest.mark.parametrize("back_to", ["writing", "stored"])
def test_a_removed_artifact_is_never_restored(hf: Holdfast, back_to: str) -> None:
    artifact = put(hf)
    hf.artifacts.remove(artifact.id, org_id=ORG, actor="user:1", reason="x")

    with pytest.raises(RuleBroken) as refused:
        update(hf, f"state = '{back_to}', removed_at = NULL")

    assert refused.value.rule in ("artifact_edge", "artifact_stored_iff_measured")
    assert hf.artifacts.get(artifact.id, org_id=ORG).state is ArtifactState.REMOVED


def test_an_abandoned_write_cannot_be_declared_stored_later(hf: Holdfast) -> None:
    insert(hf)
    update(hf, "state = 'removed', removed_at = created_at, erase_at = created_at")

    with pytest.raises(RuleBroken) as refused:
        update(hf, f"bytes = 1, sha256 = '{SHA}', stored_at = created_at")

    assert refused.value.rule == "artifact_write_once"


@pytest.mark.parametrize("state", ["writing", "stored", "removed"])
def test_a_row_whose_bytes_may_still_lie_there_is_not_deleted(hf: Holdfast, state: str) -> None:
    insert(hf)
    if state == "stored":
        update(hf, f"state = 'stored', bytes = 1, sha256 = '{SHA}', stored_at = created_at")
    if state == "removed":
        update(hf, "state = 'removed', removed_at = created_at, erase_at = created_at")

    with pytest.raises(RuleBroken) as refused:
        by_hand(hf.store, "DELETE FROM holdfast.artifact")

    assert refused.value.rule == "artifact_leaves_only_when_erased"


def test_two_artifacts_never_share_a_place(hf: Holdfast) -> None:
    insert(hf)

    with pytest.raises(RuleBroken) as refused:
        insert(hf, org_id="0198c0de-0000-7000-8000-00000000000b")

    # SQLite names the column, PostgreSQL the rule.
    assert refused.value.rule in ("artifact_once_per_place", "holdfast_artifact.place")
