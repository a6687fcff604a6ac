"""Download links: valid links open, and all others are refused with the same message."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    Access,
    Artifact,
    ArtifactSettings,
    ConfigError,
    FakeClock,
    Holdfast,
    InvalidArtifact,
    LinkRefused,
)
from holdfast.artifacts.link import Link, read_link, sign_link
from tests.artifact.conftest import Bytes
from tests.story import ORG, OTHER_ORG, look, make_holdfast

KEY = "a key of sixteen or more characters"
LINK = Link(ORG, OTHER_ORG, "ab" * 32, datetime(2026, 1, 5, 9, tzinfo=UTC), "console")


def put(hf: Holdfast, **options: Any) -> Artifact:
    given = {"org_id": ORG, "name": "plan.csv", "owner": "user:42", **options}
    return hf.artifacts.put(b"a,b\n", **given)


def link(hf: Holdfast, artifact: Artifact, **options: Any) -> str:
    return hf.artifacts.link(artifact.id, **{"org_id": ORG, "actor": "user:42", **options})


# -- the token


def test_a_token_says_what_was_signed() -> None:
    assert read_link(sign_link(LINK, KEY), KEY) == LINK


@pytest.mark.req("Q-11")
def test_a_token_with_any_letter_changed_added_or_taken_away_is_refused() -> None:
    token = sign_link(LINK, KEY)
    edited = {
        token[:at] + letter + token[at + keep :]
        for at in range(len(token) + 1)
        for letter in ("", "A", "_", ".", "=", "é", "\n")
        for keep in (0, 1)
    } - {token}

    for each in edited:
        with pytest.raises(LinkRefused):
            read_link(each, KEY)
    assert len(edited) > 1000


@given(st.text(max_size=1200) | st.from_regex(r"[\w-]{0,200}\.[\w-]{0,60}", fullmatch=True))
def test_no_text_at_all_but_a_token_is_taken(text: str) -> None:
    with pytest.raises(LinkRefused):
        read_link(text, KEY)


@pytest.mark.parametrize("token", [None, 7, b"bytes"])
def test_what_is_no_text_is_refused(token: Any) -> None:
    with pytest.raises(LinkRefused):
        read_link(token, KEY)


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(LinkRefused):
        read_link(sign_link(LINK, KEY + "."), KEY)


# -- download by a link, on every pair


@pytest.mark.req("Q-11")
def test_a_link_opens_its_artifact_without_authentication(shop: Holdfast) -> None:
    artifact = put(shop, access=Access.OWNER)

    with shop.artifacts.open_link(link(shop, artifact)) as file:
        assert file.read() == b"a,b\n"
        assert file.artifact == artifact


def expired(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    token = link(hf, artifact, expires_in=timedelta(minutes=1))
    clock.advance(minutes=1)
    return token


def edited(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    token = link(hf, artifact)
    return token[:-1] + ("A" if token[-1] != "A" else "B")


def foreign(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    return sign_link(
        Link(ORG, artifact.id, str(artifact.sha256), clock.now() + timedelta(hours=1)), KEY
    )


def for_others(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    return link(hf, artifact, audience="somebody else")


def forged(hf: Holdfast, clock: FakeClock, **other: Any) -> str:
    said = {"org_id": ORG, "artifact_id": OTHER_ORG, "sha256": "ab" * 32, **other}
    return sign_link(Link(**said, expires_at=clock.now() + timedelta(hours=1)), hf.artifacts._key())


def of_another_tenant(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    return forged(hf, clock, org_id=OTHER_ORG, artifact_id=artifact.id, sha256=str(artifact.sha256))


def of_other_bytes(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    return forged(hf, clock, artifact_id=artifact.id)


def of_nothing(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    return forged(hf, clock)


def removed(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    token = link(hf, artifact)
    hf.artifacts.remove(artifact.id, org_id=ORG, actor="user:42", reason="gone")
    return token


def outlived(hf: Holdfast, clock: FakeClock, artifact: Artifact) -> str:
    token = link(hf, artifact, expires_in=timedelta(days=7))
    clock.advance(days=6)
    return token


@pytest.mark.req("Q-11")
@pytest.mark.parametrize(
    "make",
    [expired, edited, foreign, for_others, of_another_tenant, of_other_bytes, of_nothing, removed,
     outlived],
)  # fmt: skip
def test_every_token_that_opens_nothing_is_refused_in_the_same_words(
    shop: Holdfast, clock: FakeClock, make: Callable[..., str]
) -> None:
    token = make(shop, clock, put(shop, keep=timedelta(days=5)))

    with pytest.raises(LinkRefused) as refused:
        shop.artifacts.open_link(token)

    assert str(refused.value) == LinkRefused.__doc__


def test_a_link_holds_until_its_last_moment_and_for_its_audience(
    shop: Holdfast, clock: FakeClock
) -> None:
    token = link(shop, put(shop), expires_in=timedelta(minutes=1), audience="console")
    clock.advance(seconds=59)

    with shop.artifacts.open_link(token, audience="console") as file:
        assert file.read() == b"a,b\n"


@pytest.mark.parametrize(
    "lasts", [timedelta(0), timedelta(seconds=-1), timedelta(days=7, seconds=1)]
)
def test_a_link_lasts_longer_than_nothing_and_seven_days_at_most(
    hf: Holdfast, lasts: timedelta
) -> None:
    artifact = put(hf)

    with pytest.raises(InvalidArtifact, match=r"Nothing was done with the artifact\. expires_in"):
        link(hf, artifact, expires_in=lasts)
    with pytest.raises(InvalidArtifact):
        hf.artifacts.presigned_url(artifact.id, org_id=ORG, actor="user:42", expires_in=lasts)
    with pytest.raises(InvalidArtifact):
        link(hf, artifact, audience="x" * 201)


def test_who_asked_for_a_link_is_in_the_audit_and_the_token_is_not(hf: Holdfast) -> None:
    token = link(hf, put(hf), actor="user:7")

    (said,) = look(hf.store, "SELECT * FROM holdfast.job_event WHERE name = 'artifact.linked'")

    assert (said["actor_type"], said["actor_id"]) == ("user", "7")
    assert "2026-01-05T10:00" in str(said["detail"])
    assert token.split(".")[1] not in str(said)


def test_a_set_key_is_used_and_another_ends_all_links(
    migrated_sqlite_url: str, clock: FakeClock, folder: ArtifactSettings
) -> None:
    def shop(key: str) -> Holdfast:
        settings = ArtifactSettings(store=folder.store, link_key=key)
        return make_holdfast(migrated_sqlite_url, clock, artifacts=settings)

    with shop("the key of last year") as before, shop("the key of this year") as after:
        token = link(before, put(before))

        before.artifacts.open_link(token).close()
        with pytest.raises(LinkRefused):
            after.artifacts.open_link(token)


# -- S3


@pytest.fixture
def on_s3(migrated_sqlite_url: str, clock: FakeClock, s3: ArtifactSettings) -> Any:
    with make_holdfast(migrated_sqlite_url, clock, artifacts=s3) as hf:
        yield hf


def test_links_on_s3_need_a_key_that_was_set(
    migrated_sqlite_url: str, clock: FakeClock, s3: ArtifactSettings
) -> None:
    settings = ArtifactSettings(store=s3.store, endpoint=s3.endpoint)
    with make_holdfast(migrated_sqlite_url, clock, artifacts=settings) as hf:
        artifact = put(hf)

        with pytest.raises(ConfigError, match=r"artifacts\.link_key"):
            link(hf, artifact)


def test_a_presigned_address_serves_the_bytes_as_an_attachment(on_s3: Holdfast) -> None:
    artifact = put(on_s3, media_type="text/csv", name='Übersicht "1".csv')
    address = on_s3.artifacts.presigned_url(artifact.id, org_id=ORG, actor="user:42")

    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"a,b\n"
        assert answer.headers["Content-Disposition"].startswith('attachment; filename="_bersicht')
        assert answer.headers["Content-Type"] == "text/csv"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address.replace("Signature=", "Signature=0"))
    refused.value.close()
    assert refused.value.code == 403


def test_a_folder_has_no_addresses(hf: Holdfast) -> None:
    artifact = put(hf)

    with pytest.raises(ConfigError, match="Use a download link instead"):
        hf.artifacts.presigned_url(artifact.id, org_id=ORG, actor="user:42")


def test_the_bytes_of_two_links_are_the_same_bytes(shop: Holdfast, lying: Bytes) -> None:
    artifact = put(shop)
    first, second = link(shop, artifact), link(shop, artifact, expires_in=timedelta(hours=2))

    assert first != second
    assert lying.all() == [artifact.place]
