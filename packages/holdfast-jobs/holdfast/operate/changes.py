"""Changes: follow committed changes as they happen."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.arguments import anything, checked
from holdfast.feed.change import Change as Change
from holdfast.feed.change import read_filter
from holdfast.feed.feed import FeedClosed as FeedClosed
from holdfast.feed.feed import FeedEnded as FeedEnded
from holdfast.feed.feed import FeedLagged as FeedLagged
from holdfast.feed.feed import Subscription as Subscription
from holdfast.feed.feed import feed_of
from holdfast.feed.position import read_position
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.operated_app import OperatedApp
from holdfast.operate.refusal import InvalidAction


# The feed validates these itself.
@checked(InvalidAction, checks=dict.fromkeys(("after", "subjects"), anything))
class OperatorChanges:
    """The changes that *context* may see."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def subscribe(
        self,
        subjects: Sequence[str] = (),
        *,
        org_id: str | None = None,
        after: str | None = None,
    ) -> Subscription:
        """Follow the changes of *subjects*, or of all, from now on or from the position *after*.

        A subject is ``jobs``, ``dead_letters``, ``deliveries``, ``rewrites``, or one object such as
        ``job:ID`` or ``queue:NAME``. Read the subscription until it raises FeedEnded, and close it.
        """
        tenant = self.context.tenant_for(Action.LOOK, org_id, subject="changes")
        if isinstance(subjects, str) or not isinstance(subjects, Sequence):
            raise InvalidAction({"subjects": "must be a list of subjects"})
        wanted = read_filter(tenant, subjects)
        position = None if after is None else read_position(after)
        return feed_of(self.context.app).subscribe(wanted, position)


def end_streams(app: OperatedApp) -> None:
    """End every subscription of an application, such as when its server stops."""
    feed_of(app).close()
