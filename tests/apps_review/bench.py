"""Reviews whose stages and channel behave as a test specifies, and functions that inspect them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import Context, FakeClock, Holdfast, UpstreamDown
from holdfast_review.enums import Confidence, Severity
from holdfast_review.model import Criticism, Finding, Recipient, Review, Source
from holdfast_review.reviews import Reviews
from holdfast_review.submit import Submitted
from tests.outbox.scripted import ScriptedChannel
from tests.story import ORG, look, make_holdfast

SOURCE = Source.git("/srv/git/shop", "8f3a1c")
ANN = Recipient("ann", "post", "ann@example.org")
BEN = Recipient("ben", "post", "ben@example.org")
CAT = Recipient("cat", "post", "cat@example.org", is_required=False)
FINDINGS = (
    Finding("shop/cart.py", 12, Severity.LOW, "This name says little.", Confidence.LOW),
    Finding("shop/pay.py", 40, Severity.CRITICAL, "The sum is <b>never</b> checked."),
)
# Sessions of this database only: the server creates other databases meanwhile, which waits for
# locks, too.
LOCK_WAITS = (
    "SELECT count(*) AS n FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE NOT granted AND datname = current_database()"
)


@dataclass
class Bench:
    """Reviews with fakes for everything outside the application."""

    hf: Holdfast
    clock: FakeClock
    channel: ScriptedChannel
    findings: Sequence[Finding] = FINDINGS
    failing: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.hf.outbox.use(self.channel)
        self.reviews = Reviews(self.hf, fetch=self._fetch, critic=self._criticise)

    def _fetch(self, job: Context, review: Review) -> Mapping[str, Any]:
        self._call("fetch")
        return {"artifact_id": "a1", "sha256": "00", "files": 2}

    def _criticise(self, job: Context, review: Review, fetched: Mapping[str, Any]) -> Criticism:
        assert fetched["files"] == 2
        self._call("llm")
        return Criticism(self.findings, "Two remarks.", {"model": "m1"})

    def _call(self, stage: str) -> None:
        self.calls[stage] += 1
        if self.failing[stage]:
            self.failing[stage] -= 1
            raise UpstreamDown

    def submit(
        self,
        version: int | str = 1,
        key: str = "k1",
        *,
        changelist: str = "cl-1",
        to: Sequence[Recipient] = (ANN,),
        org_id: str = ORG,
        **more: Any,
    ) -> Submitted:
        more.setdefault("source", SOURCE)
        return self.reviews.submit(changelist, version, key, org_id=org_id, recipients=to, **more)

    def work(self) -> None:
        """Run the due jobs once."""
        self.hf.worker().run_once()

    def work_out(self, rounds: int = 30) -> None:
        """Run until no work is left, moving the clock over every pause."""
        for _ in range(rounds):
            if not self.hf.worker().run_once().claimed:
                self.clock.advance(minutes=6)
                if not self.hf.worker().run_once().claimed:
                    return

    def again(self, asked: Submitted) -> Review:
        """The current review."""
        review = asked.review
        return self.reviews.find(review.review_id, org_id=review.org_id).review

    def succeed(self, version: int = 1, key: str = "k1", **more: Any) -> Submitted:
        """A review that is done."""
        asked = self.submit(version, key, **more)
        self.work_out()
        assert self.again(asked).word == "succeeded"
        return asked


def wait_for_a_lock(url: str) -> None:
    """On PostgreSQL, wait until another session waits for a lock."""
    with make_holdfast(url, FakeClock()) as other:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if look(other.store, LOCK_WAITS)[0]["n"]:
                return
    raise AssertionError("nobody waits")
