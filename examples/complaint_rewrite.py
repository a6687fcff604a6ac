"""Rewrite rude messages between housemates into polite ones in the recipient's language.

The simulator plays the model with four canned answers, and the judge. Everything else is real: the
home, the classifier, the routing, the batches and the gate. In production, `holdfast worker
--dispatch` replaces the loop at the end.
"""

import os
import tempfile
from uuid import uuid4

from holdfast import FakeClock, Holdfast, Settings, dispatch_once, sync_schedules
from holdfast_llm import ProviderSettings
from holdfast_rewrite import (
    JudgeRouteSettings,
    Rewrites,
    RewriteSettings,
    RouteSettings,
    Submission,
)
from holdfast_simulator import Prompt, Simulator, with_judge

# Canned model output: a phrase in the message -> the output language and the rewritten text.
CANNED_ANSWERS = {
    "the bloody kitchen": (
        "es",
        "¿Podrías ordenar un poco la cocina después de cocinar? Me ayudaría mucho.",
    ),
    "la musique": (
        "en",
        "The music last night made it hard to sleep. Could you turn it down a little at night?",
    ),
    "die Tür": (
        "pl",
        "Czy możesz zapukać, zanim wejdziesz do mojego pokoju? Potrzebuję trochę prywatności.",
    ),
    "the bins": ("en", "You always forget the bins. Take them out now!"),
}


def model(prompt: Prompt) -> dict[str, str]:
    """Return the canned answer for a message. The last answer is rude and must be rejected."""
    language, text = next(
        answer for phrase, answer in CANNED_ANSWERS.items() if phrase in prompt.text
    )
    return {"rewritten_text": text, "output_language": language}


os.environ["SIMULATED_KEY"] = "not-a-real-key"
db = f"sqlite:///{tempfile.mkdtemp()}/work.db"
clock = FakeClock()
simulator = Simulator(clock=clock, responder=with_judge(model))
provider = ProviderSettings(
    base_url=simulator.url("openai"), credential_env="SIMULATED_KEY", allow_private=True
)
route = RouteSettings(
    provider="openai",
    adapter_kind="openai_responses",
    model="gpt-5.2",
    high_quality=True,
    supports_translation=True,
)
# A second, cheaper model judges every rewrite before it is delivered.
judge = JudgeRouteSettings(provider="openai", adapter_kind="openai_responses", model="gpt-5-mini")
rewrite = RewriteSettings(routes=(route,), judge_route=judge)
settings = Settings(db=db, providers={"openai": provider}, rewrite=rewrite)
hf = Holdfast(settings=settings, clock=clock)
rewrites = Rewrites(hf)

home = str(uuid4())
people = {name: str(uuid4()) for name in ("Nora", "Luis", "Wanda", "Greta", "Amélie")}
locales = {"Nora": "en-GB", "Luis": "es-MX", "Wanda": "pl", "Greta": "de-DE", "Amélie": "fr"}
rewrites.directory.add_home(home)
for name, user_id in people.items():
    role = "owner" if name == "Greta" else "housemate"
    rewrites.directory.add_member(home, user_id, role=role, locale=locales[name])

MESSAGES = [
    ("Nora", "Luis", "Clean the bloody kitchen after yourself for once, it is disgusting!"),
    ("Amélie", "Nora", "Encore la musique à fond hier soir, tu ne penses qu'à toi, j'en ai marre."),
    (
        "Greta",
        "Wanda",
        "Mach gefälligst die Tür nicht auf, ohne zu klopfen. Mein Zimmer, verdammt.",
    ),
    ("Luis", "Amélie", "   "),
    ("Wanda", "Nora", "Could you take the bins out this week? That would help me a lot."),
]

with simulator:
    sync_schedules(hf)
    answers = [
        rewrites.submit(
            Submission(home, people[author], people[recipient], text, "weekly_feedback")
        )
        for author, recipient, text in MESSAGES
    ]
    for _ in range(12):
        clock.advance(minutes=15)
        dispatch_once(hf)

for (author, recipient, text), answer in zip(MESSAGES, answers, strict=True):
    print(f"\n{author} → {recipient}: {text!r}")
    sent = rewrites.find_sent(answer.rewrite_request_id, home_id=home, user_id=people[author])
    received = rewrites.list_received(home_id=home, user_id=people[recipient])
    print(f"   {author} sees:  {sent.status}")
    for item in received:
        if item.rewrite_request_id == answer.rewrite_request_id:
            print(f"   {recipient} reads: {item.rewritten_text}")

operator = rewrites.operate(actor="user:operator", role="admin", org_id=home)
failed = operator.show(answers[-1].rewrite_request_id)
print(f"\nThe last one is not delivered. An operator sees why: {failed['failure_code']}")
print(f"paid twice: {len(simulator.ledger.double_paid())}")
