"""What each receiver saw and what became of its messages, for the table of make outbox-faults."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

TABLE = os.environ.get("HOLDFAST_RECEIVER_TABLE")
# Long enough for more than ten tries, if nothing limited them; make outbox-faults takes a hundred
# hours.
HOURS = 100.0 if TABLE else 12.0
# Until the last of three messages has had its ten tries.
OUTAGE_HOURS = 100.0 if TABLE else 20.0
# No message is handed over more often than this.
MOST = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """One receiver on one database: how often it was called, and how its messages ended.

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
        """Write the row if a table is kept; raises AssertionError if the cell is wrong."""
        if TABLE:
            with Path(TABLE).open("a") as file:
                # One write of one line: several processes append.
                file.write(json.dumps({**asdict(self), "is_right": self.is_right}) + "\n")
        assert self.is_right, self
