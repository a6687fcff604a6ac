"""Access control of artifacts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast import Access, Artifact, ArtifactNotFound, ArtifactSettings, Holdfast
from tests.story import ORG, OTHER_ORG, look, make_holdfast

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"

Call = Callable[..., Any]
CALLS: dict[str, Call] = {
    "get": lambda hf, given, **who: hf.artifacts.get(given, **who),
    "open": lambda hf, given, **who: hf.artifacts.open(given, **who).close(),
    "link": lambda hf, given, **who: hf.artifacts.link(given, **{"actor": "user:x", **who}),
    "presigned_url": lambda hf, given, **who: hf.artifacts.presigned_url(
        given, **{"actor": "user:x", **who}
    ),
    "remove": lambda hf, given, **who: hf.artifacts.remove(
        given, **{"actor": "user:x", **who}, reason="because"
    ),
}


def put(hf: Holdfast, **options: Any) -> Artifact:
    given = {"org_id": ORG, "name": "plan.csv", "owner": "user:42", **options}
    return hf.artifacts.put(b"a,b\n", **given)


def refusal(call: Call, hf: Holdfast, given: str, **who: Any) -> str:
    with pytest.raises(ArtifactNotFound) as refused:
        call(hf, given, **who)
    return str(refused.value).replace(given, "ID")


@pytest.mark.req("Q-11", "X-01")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_tenants_artifact_is_answered_like_an_id_that_never_was(
    hf: Holdfast, call: Call
) -> None:
    theirs = put(hf, org_id=OTHER_ORG)

    foreign = refusal(call, hf, theirs.id, org_id=ORG)
    unknown = refusal(call, hf, NOBODY, org_id=ORG)
    by_reference = refusal(call, hf, theirs.ref, org_id=ORG, is_operator=True)

    assert foreign == unknown == by_reference
    assert hf.artifacts.get(theirs.id, org_id=OTHER_ORG) == theirs
    assert hf.artifacts.list(ORG, is_operator=True) == []


@pytest.mark.req("Q-11")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_owners_artifact_is_answered_like_an_id_that_never_was(
    hf: Holdfast, call: Call
) -> None:
    private = put(hf, access=Access.OWNER)

    foreign = refusal(call, hf, private.id, org_id=ORG, actor="user:43")
    as_key = refusal(call, hf, private.id, org_id=ORG, actor="api_key:42")
    unknown = refusal(call, hf, NOBODY, org_id=ORG, actor="user:43")

    assert foreign == as_key == unknown
    assert hf.artifacts.get(private.id, org_id=ORG, actor="user:42") == private


@pytest.mark.req("Q-11")
def test_an_owner_and_an_operator_may_open_what_is_the_owners(hf: Holdfast) -> None:
    private = put(hf, access=Access.OWNER)

    with hf.artifacts.open(private.id, org_id=ORG, actor="user:42") as file:
        mine = file.read()
    with hf.artifacts.open(private.id, org_id=ORG, is_operator=True) as file:
        operators = file.read()
    refused = refusal(CALLS["open"], hf, private.id, org_id=ORG)

    assert mine == operators == b"a,b\n"
    assert "not found" in refused


def test_an_artifact_of_the_tenant_may_be_opened_by_every_member(hf: Holdfast) -> None:
    shared = put(hf)

    with hf.artifacts.open(shared.ref, org_id=ORG, actor="user:43") as file:
        assert file.read() == b"a,b\n"


def test_a_list_shows_what_one_may_open_newest_first_page_by_page(hf: Holdfast) -> None:
    shared, private, others = put(hf), put(hf, access=Access.OWNER), put(hf, org_id=OTHER_ORG)

    def ids(org_id: str = ORG, **options: Any) -> list[str]:
        return [artifact.id for artifact in hf.artifacts.list(org_id, **options)]

    assert ids() == ids(actor="user:43") == [shared.id]
    assert ids(actor="user:42") == ids(is_operator=True) == [private.id, shared.id]
    assert ids(is_operator=True, limit=1) == [private.id]
    assert ids(is_operator=True, before=private.id) == [shared.id]
    assert ids(OTHER_ORG) == [others.id]
    assert ids(is_operator=True, state="writing") == []


@pytest.mark.parametrize("given", ["", "x", "artifact:", "../../etc/passwd", "a" * 5000])
def test_what_is_no_id_is_simply_not_found(hf: Holdfast, given: Any) -> None:
    with pytest.raises(ArtifactNotFound) as refused:
        hf.artifacts.get(given, org_id=ORG)

    assert len(str(refused.value)) < 250


# -- past our code, on PostgreSQL


def as_tenant(url: str, org_id: str | None, statement: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL ROLE holdfast_tenant")
        if org_id is not None:
            connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (org_id,))
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


@pytest.mark.req("X-01", "X-09")
def test_a_tenant_sees_only_its_own_rows_by_its_own_sql(
    postgres_url: str, folder: ArtifactSettings
) -> None:
    with make_holdfast(postgres_url, artifacts=folder) as hf:
        mine, theirs = put(hf), put(hf, org_id=OTHER_ORG)

    def ids(org_id: str | None) -> list[str]:
        return [
            str(row[0])
            for row in as_tenant(postgres_url, org_id, "SELECT id FROM holdfast.artifact")
        ]

    assert (ids(ORG), ids(OTHER_ORG), ids(None)) == ([mine.id], [theirs.id], [])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holdfast.artifact SET expires_at = expires_at + interval '1 year'",
        "DELETE FROM holdfast.artifact",
        "TRUNCATE holdfast.artifact",
        f"INSERT INTO holdfast.artifact SELECT * FROM holdfast.artifact WHERE id = '{NOBODY}'",
    ],
    ids=["update", "delete", "truncate", "insert"],
)
def test_a_tenant_writes_no_artifact_by_its_own_sql(
    postgres_url: str, folder: ArtifactSettings, statement: str
) -> None:
    with make_holdfast(postgres_url, artifacts=folder) as hf:
        put(hf)

        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_tenant(postgres_url, ORG, statement)

        assert len(look(hf.store, "SELECT id FROM holdfast.artifact")) == 1
