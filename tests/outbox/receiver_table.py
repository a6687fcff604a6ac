"""The requests to each receiver and the outcome of its messages, for make outbox-faults."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

TABLE = os.environ.get("HOLDFAST_RECEIVER_TABLE")
# Long enough for more than ten attempts without a limit; make outbox-faults takes a hundred hours.
HOURS = 100.0 if TABLE else 12.0
# Until the last of three messages has had its ten attempts.
OUTAGE_HOURS = 100.0 if TABLE else 20.0
# No message is sent more often than this.
MOST = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """One receiver on one database: the number of its calls, and the final states of its messages.

    *most* is the number of attempts of the message that had most. *repaired* is the state after the
    receiver accepts messages and, where it refused the credential, this has changed.
    """

    channel: str
    fault: str
    database: str
    messages: int
    posts: int
    most: int
    state: str
    wanted: str
    most_posts: int
    repaired: str = ""
    wanted_repaired: str = ""

    @property
    def is_right(self) -> bool:
        is_ended_well = (self.state, self.repaired) == (self.wanted, self.wanted_repaired)
        return is_ended_well and self.most <= MOST and self.posts <= self.most_posts

    def check(self) -> None:
        """Write the row if there is a table; raises AssertionError if the cell is wrong."""
        if TABLE:
            with Path(TABLE).open("a") as file:
                # One write of one line: several processes append.
                file.write(json.dumps({**asdict(self), "is_right": self.is_right}) + "\n")
        assert self.is_right, self
