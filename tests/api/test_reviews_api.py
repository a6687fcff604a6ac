"""Reviews over HTTP: the list of a tenant's reviews."""

from __future__ import annotations

from typing import Any

from holdfast import FakeClock, Holdfast
from holdfast.api import create_app
from tests.api.conftest import Client, make_key
from tests.apps_review.bench import Bench
from tests.outbox.scripted import ScriptedChannel
from tests.story import OTHER_ORG


def test_reviews_are_listed_newest_first_for_their_tenant_only(
    hf: Holdfast, clock: FakeClock
) -> None:
    bench = Bench(hf, clock, ScriptedChannel(clock))
    review: Any = bench.succeed().review
    app = create_app(hf)
    own, foreign, operations = (
        Client(hf, app, make_key(hf, "viewer", org_id))
        for org_id in (review.org_id, OTHER_ORG, None)
    )

    listed = own.get("/v1/reviews").json()

    assert [one["review_id"] for one in listed["items"]] == [review.review_id]
    assert (listed["items"][0]["org_id"], listed["next"]) == (review.org_id, None)
    assert operations.get("/v1/reviews?limit=1").json()["items"] == listed["items"]
    assert foreign.get("/v1/reviews").json() == {"items": [], "next": None}
    assert foreign.get(f"/v1/reviews/{review.review_id}").status_code == 404
