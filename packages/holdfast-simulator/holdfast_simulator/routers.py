"""The simulated services, by the name that faults and URLs use."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_simulator.anthropic import Anthropic
from holdfast_simulator.exchange import Endpoint, Router
from holdfast_simulator.gemini import Gemini
from holdfast_simulator.mistral import Mistral
from holdfast_simulator.openai import Azure, OpenAI
from holdfast_simulator.postmark import Postmark
from holdfast_simulator.resend import Resend
from holdfast_simulator.slack import Slack
from holdfast_simulator.state import SimulatorState
from holdfast_simulator.webhook import Webhook

ROUTERS: tuple[Callable[[SimulatorState], Router], ...] = (
    OpenAI,
    Azure,
    Anthropic,
    Gemini,
    Mistral,
)

CARRIERS: tuple[Callable[[SimulatorState], Endpoint], ...] = (Postmark, Resend, Slack, Webhook)
