"""What frontends hear of rewrites: states for senders, arrivals for recipients, no mechanics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.api import create_app
from holdfast.feed.change import ChangeFilter
from holdfast.feed.read import begin, step
from holdfast.operate.changes import end_streams
from holdfast_rewrite.live import PersonalChanges
from tests.api.conftest import make_key
from tests.api.streaming import open_stream
from tests.apps.planted import HOME, RECIPIENT, SENDER, STRANGER, Stage


class Listening:
    """One person's frontend."""

    def __init__(self, stage: Stage, user_id: str, home_id: str = HOME) -> None:
        self.store, self.track = stage.store, begin(stage.store)
        self.own = PersonalChanges(stage.store, home_id, user_id)

    def hear(self) -> list[dict[str, Any]]:
        read = self.store.read(lambda tx: step(tx, self.track))
        self.track = read.track
        changes = [one for one in read.changes if ChangeFilter(HOME).matches(one)]
        return [one.document() for one in self.own.find(changes)]


@pytest.mark.req("F-01", "F-02", "F-03", "F-04")
def test_a_sender_hears_states_and_a_recipient_hears_that_it_arrived(stage: Stage) -> None:
    sender, recipient = Listening(stage, SENDER), Listening(stage, RECIPIENT)
    stranger = Listening(stage, STRANGER)
    planted = stage.plant()
    stage.submit()
    heard = [sender.hear(), recipient.hear()]
    stage.say()
    stage.provider.complete()
    stage.collect()
    heard += [sender.hear(), recipient.hear()]

    assert [[(one["role"], one["status"]) for one in found] for found in heard] == [
        [("sent", "processing")],
        [],
        [("sent", "completed")],
        [("received", "completed")],
    ]
    assert {one["rewrite_request_id"] for found in heard for one in found} == {planted.id}
    assert set(heard[0][0]) == {
        *("rewrite_request_id", "role", "status", "has_failed", "completed_at"),
        "sender_reveal_at",
    }
    assert stranger.hear() == []
    assert sender.hear() == []


@pytest.mark.req("X-05")
def test_a_sender_hears_that_it_failed_and_a_recipient_hears_nothing(stage: Stage) -> None:
    sender, recipient = Listening(stage, SENDER), Listening(stage, RECIPIENT)
    stage.plant()
    stage.answer({"rewritten_text": "Das ist Deutsch.", "output_language": "de"})
    (heard,) = sender.hear()

    assert (heard["status"], heard["has_failed"]) == ("failed", True)
    assert "LANGUAGE" not in str(heard)
    assert recipient.hear() == []


@pytest.mark.req("B-14", "F-04")
def test_a_frontends_key_streams_the_rewrites_of_a_person(stage: Stage) -> None:
    app = create_app(stage.hf)
    key = make_key(stage.hf, "viewer", HOME, scopes=["frontend"])
    headers = {"authorization": f"Bearer {key}"}

    async def story() -> Any:
        path, query = "/v1/rewrites/events", [("user_id", RECIPIENT)]
        async with open_stream(app, path, query, headers) as stream:
            await asyncio.to_thread(stage.plant)
            await asyncio.to_thread(stage.answer)
            return await stream.next()

    try:
        sent = asyncio.run(story())
    finally:
        end_streams(stage.hf)
    assert (sent.event, sent.data["role"], sent.data["status"]) == (
        "rewrite",
        "received",
        "completed",
    )
