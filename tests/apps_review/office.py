"""The review critic without fakes: a git repository, the simulator's model, mails in a folder.

The model reads its request: it reports every added line that calls ``eval``.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from functools import cache
from pathlib import Path
from typing import Any

from holdfast import FakeClock, Holdfast
from holdfast.artifacts.settings import ArtifactSettings
from holdfast.config import ChannelSettings
from holdfast_llm.settings import ProviderSettings
from holdfast_review.model import Recipient, Review, Source
from holdfast_review.reviews import Reviews
from holdfast_review.settings import ReviewSettings
from holdfast_review.submit import Submitted
from holdfast_simulator import Prompt, Simulator
from holdfast_simulator.prompt import ItemError, Said
from tests.story import ORG, look, make_holdfast

KEY = "SIMULATED_KEY"
ANN = Recipient("ann", "post", "ann@example.org")
BEN = Recipient("ben", "post", "ben@example.org")
WHO = ("-c", "user.name=A", "-c", "user.email=a@example.com")


def git(place: Path, *arguments: str) -> str:
    """Run git without any user configuration, also inside a git hook."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(place), *WHO, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=env,
    )
    return done.stdout.strip()


def commit(place: Path, **files: str | bytes) -> str:
    """A commit of these files, and its id."""
    for name, text in files.items():
        (place / name).write_bytes(text.encode() if isinstance(text, str) else text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "change")
    return git(place, "rev-parse", "HEAD")


def make_repository(place: Path) -> None:
    """A repository of one commit. Made once and copied, which is ten times faster."""
    shutil.copytree(_template(), place)


@cache
def _template() -> Path:
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-git-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    git(place, "init", "-q", "-b", "main")
    commit(place, cart="def total(items):\n    return sum(items)\n")
    return place


class Model:
    """A simple model: its answer is derived from its request."""

    def __init__(self) -> None:
        self.asked: list[Prompt] = []
        # The number of calls that fail before one is answered.
        self.failing = 0
        # And all calls about this file.
        self.failing_in = ""
        self.message = "eval runs whatever <it> is given."

    def __call__(self, prompt: Prompt) -> Said | Mapping[str, Any]:
        self.asked.append(prompt)
        if self.failing or (self.failing_in and self.failing_in in prompt.text):
            self.failing = max(0, self.failing - 1)
            return Said(error=ItemError(503, "overloaded"))
        found = [one for hunk in hunks_of(prompt) for one in findings_in(hunk)]
        return {"findings": [{**one, "message": self.message} for one in found]}


def hunks_of(prompt: Prompt) -> list[dict[str, Any]]:
    _, _, rest = prompt.text.partition("<change>\n")
    shown, _, _ = rest.partition("\n</change>")
    return [json.loads(line) for line in shown.splitlines()]


def findings_in(hunk: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "file": hunk["file"],
            "line": int(line[:6]),
            "severity": "critical",
            "confidence": "high",
        }
        for line in hunk["lines"]
        if line[7] == "+" and "eval(" in line
    ]


class Office:
    """An application that reviews, its repository, its model and its mailbox."""

    def __init__(
        self, url: str, clock: FakeClock, home: Path, simulator: Simulator, **review: Any
    ) -> None:
        self.clock = clock
        self.home = home
        self.mailbox = home / "mail"
        self.repository = home / "git" / "shop"
        if not self.repository.exists():
            make_repository(self.repository)
        self.hf = make_holdfast(url, clock, **settings_of(home, simulator, **review))
        self.reviews = Reviews(self.hf)

    def submit(
        self, version: int = 1, key: str = "k1", *, head: str = "HEAD", **more: Any
    ) -> Submitted:
        more = {"source": Source.git(str(self.repository), head), "recipients": [ANN, BEN], **more}
        return self.reviews.submit("cl-1", version, key, org_id=ORG, **more)

    def work_out(self, hf: Holdfast | None = None, rounds: int = 40) -> None:
        """Run until no work is left, moving the clock over every pause."""
        worker = (hf or self.hf).worker()
        for _ in range(rounds):
            if not worker.run_once().claimed:
                self.clock.advance(minutes=6)
                if not worker.run_once().claimed:
                    return

    def again(self, asked: Submitted) -> Review:
        return self.reviews.find(asked.review.review_id, org_id=ORG).review

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails of the mailbox, by recipient and subject."""
        read = BytesParser(policy=policy.default).parsebytes
        found = [read(file.read_bytes()) for file in sorted(self.mailbox.glob("*.eml"))]
        return sorted(found, key=lambda mail: (mail["to"], mail["subject"]))

    def count(self, table: str, where: str = "1 = 1") -> int:
        (row,) = look(self.hf.store, f"SELECT count(*) AS n FROM holdfast.{table} WHERE {where}")
        return int(row["n"])


def settings_of(home: Path, simulator: Simulator, **review: Any) -> dict[str, Any]:
    """The settings, as in a holdfast.toml."""
    named = {"provider": "openai", "adapter_kind": "openai_responses", "model": "large"}
    account = ProviderSettings(
        base_url=simulator.url("openai"), credential_env=KEY, allow_private=True
    )
    return {
        "artifacts": ArtifactSettings(store=f"file://{home}/artifacts"),
        "providers": {"openai": account},
        "channels": {
            "post": ChannelSettings(
                kind="mailbox", folder=str(home / "mail"), sender="Critic <critic@example.org>"
            )
        },
        "review": ReviewSettings(**{"repositories": (str(home / "git"),), **named, **review}),
    }


def text_of(mail: EmailMessage, kind: str) -> str:
    body = mail.get_body((kind,))
    assert body is not None
    content: str = body.get_content()
    return content
