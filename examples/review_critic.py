"""Review a commit: fetch it from git, have a model review it, and mail the result to two people.

The simulator plays the model and knows one kind of mistake. Everything else is real: the
repository, the redaction, the stages, the outbox and the mailbox. In production, `holdfast worker`
executes the jobs.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from holdfast import ArtifactSettings, ChannelSettings, FakeClock, Holdfast, Settings
from holdfast_llm import ProviderSettings
from holdfast_review import Recipient, Reviews, ReviewSettings, Source
from holdfast_simulator import Prompt, Simulator

SHOP = "0198c0de-0000-7000-8000-00000000000a"
home = Path(tempfile.mkdtemp())
repository = home / "git" / "shop"


def git(*arguments: str) -> str:
    author = ("-c", "user.name=Nora", "-c", "user.email=nora@example.org")
    command = ["git", "-C", str(repository), *author, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(text: str) -> str:
    (repository / "cart.py").write_text(text)
    git("add", "cart.py")
    git("commit", "--quiet", "--message", "Cart")
    return git("rev-parse", "HEAD")


def model(prompt: Prompt) -> dict[str, list[dict[str, object]]]:
    """Report every added line that calls eval()."""
    changes = prompt.text.split("<change>\n")[1].split("\n</change>")[0]
    return {
        "findings": [
            {
                "file": hunk["file"],
                "line": int(line[:6]),
                "severity": "critical",
                "message": "eval runs whatever a customer types.",
                "confidence": "high",
            }
            for hunk in map(json.loads, changes.splitlines())
            for line in hunk["lines"]
            if "+" in line[:8] and "eval(" in line
        ]
    }


repository.mkdir(parents=True)
git("init", "--quiet")
commit("def total(items):\n    return sum(items)\n")
token = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
head = commit(f'TOKEN = "{token}"\ntotal = eval(input())\n')

os.environ["SIMULATED_KEY"] = "not-a-real-key"
clock = FakeClock()
simulator = Simulator(clock=clock, responder=model)
settings = Settings(
    db=f"sqlite:///{home}/work.db",
    artifacts=ArtifactSettings(store=f"file://{home}/artifacts"),
    providers={
        "openai": ProviderSettings(
            base_url=simulator.url("openai"), credential_env="SIMULATED_KEY", allow_private=True
        )
    },
    channels={
        "post": ChannelSettings(
            kind="mailbox", folder=str(home / "mail"), sender="critic@example.org"
        )
    },
    review=ReviewSettings(
        repositories=(str(home / "git"),),
        provider="openai",
        adapter_kind="openai_responses",
        model="gpt-5.2",
    ),
)
hf = Holdfast(settings=settings, clock=clock)
reviews = Reviews(hf)
people = [
    Recipient("nora", "post", "nora@example.org"),
    Recipient("luis", "post", "luis@example.org"),
]

with simulator:
    source = Source.git(str(repository), head)
    first = reviews.submit("cart", 1, "push-1", org_id=SHOP, source=source, recipients=people)
    hf.worker().run_once()
    same = reviews.rerun("cart", 1, "again-1", org_id=SHOP)
    hf.worker().run_once()
    mails = len(list((home / "mail").glob("*.eml")))
    print(f"version 1 asked for twice, created {first.created} and {same.created}: {mails} mails")

    reviews.rerun("cart", 2, "again-2", org_id=SHOP)
    hf.worker().run_once()
    mails = len(list((home / "mail").glob("*.eml")))
    print(f"version 2: {mails} mails")

version = reviews.find_version("cart", 2, org_id=SHOP)
print(f"{version.review.word}: {version.summary}")
for finding in version.findings:
    print(f"   {finding.severity} {finding.file}:{finding.line} {finding.message}")
request_bodies = [str(entry.body) for entry in simulator.journal.entries]
leaked = sum(token in body for body in request_bodies)
print(f"calls of the model: {len(request_bodies)}, with the token: {leaked}")
print(f"The mails are in {home / 'mail'}")
