"""Pages of the console: reviews and their findings."""

from __future__ import annotations

from typing import Any

from holdfast.console.visit import LONGEST_PAGE, ConsolePages, Page, PageContext, Shown
from holdfast.operate.authorization import Action
from holdfast.operate.page import NEWEST, read_id
from holdfast_review import listing, show


def list_reviews(visit: PageContext) -> Shown:
    """Reviews, newest first."""
    before = visit.maybe("before")
    found = listing.list_reviews(
        visit.operator.context,
        limit=LONGEST_PAGE,
        before=NEWEST if before is None else read_id("before", before),
    )
    return Shown("reviews.html", "Reviews", {"reviews": found, "first": before is None})


def show_review(visit: PageContext) -> Shown:
    """One review with its findings and the state of its deliveries."""
    org_id, review_id = visit.path["org_id"], visit.path["review_id"]
    context: Any = visit.operator.context
    context.check(Action.LOOK, org_id=org_id, subject=f"review:{review_id[:36]}")
    with visit.as_engine():
        found = show.find_shown(context.store, org_id=org_id, review_id=review_id)
    return Shown("review.html", found.review.changelist_id, {"shown": found, "org_id": org_id})


PAGES = ConsolePages(
    pages=(
        Page("/reviews", list_reviews, title="Reviews", group="Work"),
        Page("/reviews/{org_id}/{review_id}", show_review),
    ),
    package="holdfast_review",
)
